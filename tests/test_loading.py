"""Draws through a DataLoader: workers, passes, early exits, options and data sets that cannot serve."""

import pickle
from typing import NamedTuple

import pytest
import torch
from conftest import losses_of
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import emais
from emais import EmaisError
from emais.loading import _BY_VALUE, by_value, is_plain


class Squares(Dataset):
    """Gives the index back, with one transform per call."""

    def __init__(self, n=60):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(i), i * i


class ManySquares(Squares):
    """Fetches a minibatch at once."""

    def __getitems__(self, indices):
        return [super(ManySquares, self).__getitem__(i) for i in indices]

    def __getitem__(self, i):
        raise AssertionError("one by one, although all at once was possible")


def double_collate(samples):
    return torch.stack([2 * s[0] for s in samples])


def consume(imp, loader, limit=None):
    out = []
    for k, (batch, draw) in enumerate(loader):
        z = torch.zeros(len(draw), 1, requires_grad=True)
        imp.loss((z * (draw.index[:, None] + 1.0)).sum(1), z, draw)
        out.append((draw.step, draw.index, draw.r, batch))
        if limit and k + 1 == limit:
            break
    return out


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Squares(), ManySquares()])
def test_index_r_and_step_arrive_with_their_batch(workers, dataset):
    imp = emais.EMAIS(60, 8, warmup_epochs=0.2)
    for epoch in range(3):
        rows = consume(imp, imp.loader(dataset, num_workers=workers))
        assert [r[0] for r in rows] == list(range(8 * epoch + 1, 8 * epoch + 9))
        for _, index, _, (i, square) in rows:
            assert torch.equal(i, index)
            assert torch.equal(square, index * index)


class Shifted(TensorDataset):
    """Tensors that are changed on the way out."""

    def __getitem__(self, i):
        return tuple(x + 1 for x in super().__getitem__(i))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [TensorDataset, Shifted])
def test_tensors_come_as_torch_would_collate_them(workers, kind):
    data = kind(torch.randn(60, 2, 3), torch.arange(60), torch.rand(60, dtype=torch.float64))
    imp = emais.EMAIS(60, 8, warmup_epochs=0.2)
    for _, index, _, batch in consume(imp, imp.loader(data, num_workers=workers)):
        expected = torch.utils.data.default_collate([data[i] for i in index.tolist()])
        assert type(batch) is type(expected)
        for ours, theirs in zip(batch, expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("x", "plain"),
    [
        (torch.ones(3), True),
        (torch.ones(3, requires_grad=True), False),
        (torch.nn.Parameter(torch.ones(3)), False),
        (torch.ones(3).to_sparse(), False),
        ([1, 2], False),
    ],
)
def test_only_plain_tensors_are_taken_whole(x, plain):
    assert is_plain(x) is plain


class Pair(NamedTuple):
    i: torch.Tensor
    x: torch.Tensor


def all_kinds(samples):
    """A batch with everything that a worker may send: small, large, strided, special, nested and no tensors."""
    i = torch.stack([s[0] for s in samples])
    return {
        "index": i,
        "flags": (i > 3, [i.to(torch.bfloat16), i.half(), torch.tensor(3.5), torch.empty(0, 2)]),
        "columns": i.repeat(4, 1).t(),
        "image": torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "large": torch.full((_BY_VALUE + 1,), 7, dtype=torch.uint8),
        "leaf": torch.nn.Parameter(torch.ones(2)),
        "phase": i * 1j,
        "pair": Pair(i, i + 1),
        "names": ["a", None, 3],
    }


def flat(batch):
    """The batch's tensors and other leaves, by the way that leads to them."""
    if isinstance(batch, (dict, list, tuple)):
        pairs = batch.items() if isinstance(batch, dict) else enumerate(batch)
        return {(type(batch), k, *rest): x for k, v in pairs for rest, x in flat(v).items()}
    return {(): batch}


def test_workers_send_what_the_collate_function_made():
    """By value or as shared memory: types, dtypes, strides and values are those without workers."""
    here, sent = (emais.create("sgd-uni", 60, batch_size=8) for _ in range(2))
    plain = consume(here, here.loader(Squares(), collate_fn=all_kinds), 3)
    through = consume(sent, sent.loader(Squares(), num_workers=2, collate_fn=all_kinds), 3)
    for (*_, a), (*_, b) in zip(plain, through, strict=True):
        a, b = flat(a), flat(b)
        assert a.keys() == b.keys()
        for way, x in a.items():
            y = b[way]
            assert type(x) is type(y)
            if isinstance(x, torch.Tensor):
                for what in (torch.Tensor.stride, lambda t: (t.dtype, t.shape, t.requires_grad)):
                    assert what(x) == what(y)
                assert torch.equal(x, y)
                y.detach().zero_()  # can be written to
            else:
                assert x == y


@pytest.mark.parametrize(
    ("x", "small"),
    [
        (torch.ones(3), True),
        (torch.ones(_BY_VALUE, dtype=torch.uint8), True),
        (torch.ones(_BY_VALUE + 1, dtype=torch.uint8), False),
        (torch.ones(3, dtype=torch.bfloat16), False),
        (torch.ones(3, requires_grad=True), False),
        (torch.ones(2, 3).t(), False),
        ("text", False),
    ],
)
def test_what_is_sent_by_value(x, small):
    packed = by_value({"x": [x]})["x"][0]
    assert (packed is not x) is small
    if small:
        assert torch.equal(pickle.loads(pickle.dumps(packed)), x)


def test_tensors_through_a_collate_function_of_one_s_own():
    imp = emais.EMAIS(60, 8, warmup_epochs=0.2)
    for _, index, _, batch in consume(imp, imp.loader(TensorDataset(torch.arange(60)), collate_fn=double_collate)):
        assert torch.equal(batch, 2 * index)


def test_r_is_fixed_when_drawn_not_when_used():
    """Two workers prefetch: r must belong to the weights of the draw, whatever was learnt since."""
    imp = emais.EMAIS(60, 8, warmup_epochs=0)
    probs, draw_one = {}, imp.draw

    def recording():
        p = imp.sampler.probabilities()
        draw = draw_one()
        probs[draw.step] = p
        return draw

    imp.draw = recording
    stale = 0
    for step, index, r, _ in consume(imp, imp.loader(Squares(), num_workers=2)):
        torch.testing.assert_close(r.double() * probs[step][index] * 60, torch.ones(8).double(), rtol=1e-5, atol=0)
        stale += not torch.equal(imp.sampler.probabilities(), probs[step])
    assert stale


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_left_early_loses_no_draw(workers):
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares(), num_workers=workers)
    steps = [r[0] for r in consume(imp, loader, limit=3)]
    steps += [r[0] for r in consume(imp, loader)]
    assert steps == list(range(1, 12))
    seen = torch.cat([r[1] for r in consume(imp, loader)])
    assert len(seen) == 64


@pytest.mark.parametrize("workers", [0, 2])
def test_num_steps_ends_the_loader(workers):
    imp = emais.EMAIS(60, 8, num_steps=21)
    loader = imp.loader(Squares(), num_workers=workers)
    assert len(loader) == 21
    consume(imp, loader, limit=4)
    assert len(loader) == 17
    assert [r[0] for r in consume(imp, loader)] == list(range(5, 22))
    assert len(loader) == 0
    assert consume(imp, loader) == []


def test_without_num_steps_a_pass_is_an_epoch():
    assert len(emais.EMAIS(60, 8).loader(Squares())) == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_options_reach_the_dataloader(workers):
    extra = {"prefetch_factor": 3, "persistent_workers": True} if workers else {}
    imp = emais.EMAIS(60, 8, num_steps=10)
    loader = imp.loader(Squares(), num_workers=workers, collate_fn=double_collate, **extra)
    for _, index, _, batch in consume(imp, loader):
        assert torch.equal(batch, 2 * index)


def test_workers_do_not_change_the_warm_up(task):
    dataset, model = task
    runs = []
    for workers in (0, 2):
        imp = emais.EMAIS(96, 16, num_steps=12)
        for batch, draw in imp.loader(dataset, num_workers=workers):
            losses, z = losses_of(model, batch)
            imp.loss(losses, z, draw)
        runs.append(imp)
    a, b = (imp.state_dict()["state"] for imp in runs)
    assert all(torch.equal(a[k], b[k]) for k in a)


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(60)


class NoLength(Dataset):
    def __getitem__(self, i):
        return i


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "Stream is an IterableDataset.*__getitem__"),
        (NoLength(), "needs __getitem__ and __len__, NoLength"),
        (Squares(61), "has 61 samples, .*num_samples=60.*num_samples=len"),
        (TensorDataset(torch.empty(0)), "has 0 samples"),
    ],
)
def test_unfit_data_sets(dataset, message):
    with pytest.raises(EmaisError, match=message):
        emais.EMAIS(60, 8).loader(dataset)


@pytest.mark.parametrize("name", ["batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"])
def test_options_that_are_the_engines(name):
    with pytest.raises(EmaisError, match=f"{name} is the engine's to decide"):
        emais.EMAIS(60, 8).loader(Squares(), **{name: 1})


def test_two_passes_at_the_same_time():
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares(), num_workers=2)
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    with pytest.raises(EmaisError, match=r"step 2 was handed to a newer pass.* end one pass before the next begins"):
        next(first)


def test_a_pass_that_nobody_observes():
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares())
    consume(imp, loader)
    with pytest.warns(UserWarning, match=r"a whole pass went by.* train on imp.loss"):
        for _ in loader:
            pass
    for _ in loader:  # a look is not a pass
        break


def test_a_data_set_that_grew():
    dataset = Squares()
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(dataset)
    consume(imp, loader)
    dataset.n = 61
    with pytest.raises(EmaisError, match="the data set has 61 samples, the engine was made for num_samples=60"):
        next(iter(loader))


def test_a_pass_left_early_is_followed_by_a_whole_one():
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares())
    consume(imp, loader, limit=3)
    assert len(loader) == 8
    assert [row[0] for row in consume(imp, loader)] == list(range(4, 12))


def test_unknown_option():
    with pytest.raises(EmaisError, match=r"loader\(\) takes no 'num_worker': .*did you mean 'num_workers'"):
        emais.EMAIS(60, 8).loader(Squares(), num_worker=2)


class Dice(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.rand(())


@pytest.mark.filterwarnings("ignore:a whole pass went by")
def test_randomness_of_workers_goes_on_after_a_resume():
    def epochs(imp, count):
        loader = imp.loader(Dice(), num_workers=1)
        for _ in range(count):
            yield torch.cat([batch for batch, _ in loader])

    imp = emais.create("sgd-scan", 40, batch_size=10)
    first, second, third = epochs(imp, 3)
    assert not torch.equal(first, second)
    again = emais.create("sgd-scan", 40, batch_size=10)
    (one,) = epochs(again, 1)
    assert torch.equal(one, first)
    resumed = emais.create("sgd-scan", 40, batch_size=10)
    resumed.load_state_dict(again.state_dict())
    two, three = epochs(resumed, 2)
    assert torch.equal(two, second)
    assert torch.equal(three, third)
