"""A draw survives what loops and frameworks do to a batch: it is moved, copied, pinned, and never converted."""

import collections
import copy
import dataclasses
import pickle

import pytest
import torch
from conftest import losses_of

import emais
from emais import EmaisError


def made(warmup_epochs=0):
    imp = emais.EMAIS(20, 4, warmup_epochs=warmup_epochs)
    return imp, imp.draw()


def use(imp, draw):
    z = torch.zeros(len(draw), 1, requires_grad=True)
    return imp.loss(z.squeeze(1), z, draw)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "in a container": lambda draw: copy.deepcopy({"draw": [draw]})["draw"][0],
    "to a device": lambda draw: draw.to("cpu"),
    "to a device, not blocking": lambda draw: draw.to(torch.device("cpu"), non_blocking=True),
    "to a device and a dtype": lambda draw: draw.to("cpu", torch.bfloat16, non_blocking=False),
    "to a dtype": lambda draw: draw.to(torch.float64),
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_all_copies_of_a_draw_are_one(change):
    imp, draw = made()
    other = change(draw)
    assert (other.index.dtype, other.r.dtype) == (torch.int64, torch.float32)
    assert torch.equal(other.index, draw.index)
    assert torch.equal(other.r, draw.r)
    assert other.step == draw.step
    use(imp, other)
    with pytest.raises(EmaisError, match="used already"):
        use(imp, draw)


def test_a_deep_copy_has_tensors_of_its_own():
    imp, draw = made()
    other = copy.deepcopy(draw)
    other.r.zero_()
    assert (draw.r > 0).all()
    use(imp, other)
    assert imp.diagnostics.step == 1


def test_pinning(monkeypatch):
    """torch's `pin_memory` calls that of an object which has one. Without a GPU there is no such memory to be had."""
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: pinned.append(x) or x.clone())
    imp, draw = made()
    other = draw.pin_memory()
    assert len(pinned) == 2
    assert torch.equal(other.r, draw.r)
    use(imp, other)
    with pytest.raises(EmaisError, match="used already"):
        use(imp, draw)


def test_frameworks_do_not_open_it():
    """They convert the tensors of dataclasses, sequences and mappings, and r has to stay in float32."""
    _, draw = made()
    assert not dataclasses.is_dataclass(draw)
    assert not isinstance(draw, collections.abc.Sequence | collections.abc.Mapping)
    assert [len(x) for x in draw] == [4, 4]  # from which Lightning tells the minibatch size
    index, r = draw
    assert index is draw.index
    assert r is draw.r


def test_it_cannot_be_changed():
    _, draw = made()
    with pytest.raises(AttributeError, match="a draw cannot be changed: r is fixed"):
        draw.r = torch.ones(4)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del draw.index
    assert repr(draw).startswith("Draw(index=tensor([")


def test_pickling_says_what_to_keep():
    _, draw = made()
    with pytest.raises(EmaisError, match="cannot be pickled"):
        pickle.dumps({"draw": draw})


@pytest.mark.parametrize("method", emais.METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_default_dtype_changes_nothing(task, method, dtype):
    """Lightning sets it to the precision of the model while `training_step` runs."""
    dataset, model = task
    state, seen = copy.deepcopy(model.state_dict()), []
    for default in (torch.float32, dtype):
        model.load_state_dict(state)
        imp = emais.create(method, 96, batch_size=16, seed=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        imp.attach(optimizer)
        score = {"score": lambda batch: losses_of(model, batch)} if imp.needs_score else {}
        found = []
        try:
            for _ in range(4):
                for batch, draw in imp.loader(dataset, **score):
                    torch.set_default_dtype(default)
                    loss = imp.loss(*losses_of(model, batch), draw)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    torch.set_default_dtype(torch.float32)
                    found.append((draw.index.tolist(), draw.r.tolist(), loss.item(), str(imp.diagnostics.as_dict())))
        finally:
            torch.set_default_dtype(torch.float32)
        seen.append(found)
    assert seen[0] == seen[1]
