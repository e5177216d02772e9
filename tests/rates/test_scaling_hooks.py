"""The learning-rate factor beside hooks, steps that raise, groups read as dicts, and a second engine."""

import contextlib
import copy
import functools
import gc
import json
import pickle

import pytest
import torch
from conftest import losses_of
from torch.optim import lr_scheduler

import emais
from emais import EmaisError


def forward(imp, dataset, model):
    draw = imp.draw()
    losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
    return imp.loss(losses, z, draw)


def engine(**settings):
    return emais.EMAIS(96, 16, warmup_epochs=0, **settings)


def broken(*_):
    raise RuntimeError("out of luck")


class Calling(torch.optim.SGD):
    """An optimizer whose step calls another's, and raises before that when it is told to."""

    fail = False

    def step(self, closure=None):
        if self.fail:
            raise RuntimeError("out of luck")
        return super().step(closure)


class Reading(torch.optim.SGD):
    """An optimizer whose step notes what `look` makes of its group, and raises when it is told to."""

    fail, look, seen = False, None, None

    def step(self, closure=None):
        self.seen = None if self.look is None else self.look(self.param_groups[0])
        if self.fail:
            raise RuntimeError("out of luck")
        return super().step(closure)


# ---- schedulers in hooks


@pytest.mark.filterwarnings("ignore:.*no optimizer is attached")  # in the run without
@pytest.mark.parametrize("kind", [torch.optim.SGD, Calling])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_a_scheduler_in_a_pre_hook_while_steps_raise(task, kind, before, lr):
    """Registered before attach or after it; a frame that is freed may lend its address to the next one."""
    dataset, model = task

    def rate(attach):
        imp, optimizer = engine(), kind(model.parameters(), lr=copy.deepcopy(lr))
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.999)
        if attach and not before:
            imp.attach(optimizer)
        optimizer.register_step_pre_hook(lambda *_: schedule.step())
        if attach and before:
            imp.attach(optimizer)
        steps = iter(range(10**6))
        optimizer.register_step_pre_hook(lambda *_: broken() if next(steps) % 3 == 2 else None)
        for _ in range(100):
            optimizer.zero_grad()
            forward(imp, dataset, model).backward()
            with contextlib.suppress(RuntimeError):
                optimizer.step()
            gc.collect(0)
        if attach:
            assert abs(imp.attached.applied - 1) > 1e-3
        return float(optimizer.param_groups[0]["lr"])

    assert rate(attach=True) == rate(attach=False)


def test_a_scheduler_in_a_hook_of_a_step_within_the_step(task):
    """A step that calls super().step() has the hooks run twice, the second time inside itself."""
    dataset, model = task

    def rate(attach):
        imp, optimizer = engine(), Calling(model.parameters(), lr=0.1)
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.999)
        optimizer.register_step_pre_hook(lambda *_: schedule.step())
        optimizer.register_step_post_hook(lambda *_: schedule.step())
        if attach:
            imp.attach(optimizer)
        for k in range(30):
            optimizer.zero_grad()
            forward(imp, dataset, model).backward()
            optimizer.fail = k % 3 == 0
            if optimizer.fail:
                with pytest.raises(RuntimeError, match="out of luck"):
                    optimizer.step()
            else:
                optimizer.step()
        return optimizer.param_groups[0]["lr"]

    assert rate(attach=True) == rate(attach=False)


# ---- groups as dicts

LOOKS = {
    "copy()": lambda group: group.copy(),
    "|": lambda group: group | {},
    "| from the right": lambda group: {} | group,
    "dict()": dict,
    "**": lambda group: dict(**group),
    "items()": lambda group: dict(group.items()),
    "get()": lambda group: {"lr": group.get("lr")},
    "values()": lambda group: dict(zip(group.keys(), group.values(), strict=True)),
    "update()": lambda group: dict.fromkeys(()) or {**{}, **group},
    "json": lambda group: json.loads(json.dumps({**group, "params": None})),
    "json of the group": lambda group: json.loads(json.dumps(group, default=str)),
    "deepcopy": copy.deepcopy,
    "copy.copy": copy.copy,
    "pickle": lambda group: pickle.loads(pickle.dumps(group)),
    "without asking": lambda group: dict(dict.items(group)),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_after_a_step_that_raised_groups_are_dicts_with_the_rate_of_the_schedule(task, look):
    dataset, model = task
    imp, optimizer = engine(), Reading(model.parameters(), lr=0.1, momentum=0.9)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    plain = look(optimizer.param_groups[0])
    imp.attach(optimizer)
    for optimizer.fail in (False, False, True):
        forward(imp, dataset, model).backward()
        try:
            optimizer.step()
        except RuntimeError:
            assert optimizer.fail
    group = optimizer.param_groups[0]
    assert isinstance(group, dict)
    found = look(group)
    assert type(found) is dict
    assert found.keys() == plain.keys()
    assert found["lr"] == 0.1
    schedule.step()
    group["momentum"] = 0.8
    group |= {"nesterov": True}
    assert look(group)["lr"] == 0.05
    assert look(group).get("momentum", 0.8) == 0.8
    assert "momentum" in group
    del group["nesterov"]
    assert "nesterov" not in look(group)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_step_may_use_its_groups_as_dicts(task, look):
    """It reads the rate multiplied, or as it is where it makes a copy for keeps."""
    dataset, model = task
    imp, optimizer = engine(), Reading(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    optimizer.look = lambda group: (isinstance(group, dict), look(group)["lr"])
    for _ in range(4):
        forward(imp, dataset, model).backward()
        optimizer.step()
    is_dict, rate = optimizer.seen
    assert is_dict
    assert rate in (0.1, 0.1 * imp.attached.applied)
    assert abs(imp.attached.applied - 1) > 1e-3
    if look in (LOOKS["copy()"], LOOKS["dict()"], LOOKS["**"], LOOKS["items()"], LOOKS["get()"], LOOKS["|"]):
        assert rate != 0.1
    assert type(optimizer.param_groups[0]) is dict


def test_an_optimizer_made_of_groups_that_a_step_left_behind(task):
    """The engine goes over to it; it is not taken for one with two engines."""
    dataset, model = task
    imp, old = engine(), Reading(model.parameters(), lr=0.1)
    handle = imp.attach(old)
    old.fail = True
    forward(imp, dataset, model).backward()
    with pytest.raises(RuntimeError, match="out of luck"):
        old.step()
    new = Reading(old.param_groups, lr=0.3)
    handle.remove()
    imp.attach(new)
    new.look = lambda group: group["lr"]
    for _ in range(3):
        forward(imp, dataset, model).backward()
        new.step()
    assert new.seen == pytest.approx(0.1 * imp.attached.applied)
    assert new.seen != 0.1
    assert type(new.param_groups[0]) is dict


# ---- windows of steps that raise


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("resident", [False, True])
def test_a_step_whose_post_hook_raises_was_made(task, looks, resident):
    """Its window is its own, whether or not somebody looks at the report before the next step."""
    dataset, model = task
    imp, optimizer = engine(resident=resident), torch.optim.SGD(model.parameters(), lr=0.1)
    steps = iter(range(10**6))
    optimizer.register_step_post_hook(lambda *_: broken() if next(steps) % 2 else None)
    imp.attach(optimizer)
    total = 0.0
    for k in range(20):
        optimizer.zero_grad()
        forward(imp, dataset, model).backward()
        assert not looks or imp.diagnostics.batch_size == 16
        try:
            optimizer.step()
        except RuntimeError:
            assert k % 2
        total += float(imp.attached.applied)
        assert imp.diagnostics.batch_size == 16
    assert imp.attached.steps == 20 - 1  # the last raised, and may be tried again
    forward(imp, dataset, model)
    assert imp.diagnostics.batch_size == 16
    assert imp.attached.steps == 20
    assert imp.effective_steps == pytest.approx(total)


def test_a_step_that_raises_before_it_reads_its_rate_was_not_made(task):
    """The next factor is that of both minibatches."""
    dataset, model = task
    imp, optimizer = engine(), Calling(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for optimizer.fail in (True, False):
        forward(imp, dataset, model).backward()
        try:
            optimizer.step()
        except RuntimeError:
            assert optimizer.fail
    assert imp.diagnostics.batch_size == 32
    assert imp.attached.steps == 1


def test_a_step_that_is_tried_again_has_its_factor(task):
    dataset, model = task
    imp, optimizer = engine(), Reading(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    optimizer.look = lambda group: group["lr"]
    for _ in range(4):
        forward(imp, dataset, model).backward()
        optimizer.fail = True
        with pytest.raises(RuntimeError, match="out of luck"):
            optimizer.step()
        first, optimizer.fail = optimizer.seen, False
        optimizer.step()
        assert optimizer.seen == first == 0.1 * imp.diagnostics.lr_scale
    assert abs(imp.diagnostics.lr_scale - 1) > 1e-3
    assert imp.attached.steps == 4


# ---- steps of other forms


class Callee:
    """A descriptor that gives a partial."""

    def __init__(self, function):
        self.function = function

    def __get__(self, owner, kind):
        return self if owner is None else functools.partial(self.function, owner)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def own_update(optimizer, closure=None):
    optimizer.applied = optimizer.param_groups[0]["lr"]


class Described(torch.optim.SGD):
    step = Callee(torch.optim.SGD.step)


class PartOf(torch.optim.SGD):
    step = functools.partialmethod(own_update, closure=None)


class Partial(torch.optim.SGD):
    step = functools.partial(own_update, closure=None)


@pytest.mark.parametrize("kind", [Described, PartOf, Partial])
def test_a_step_that_is_no_function(task, kind):
    dataset, model = task
    imp, optimizer, factors = engine(), kind(model.parameters(), lr=0.1), []
    imp.attach(optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        forward(imp, dataset, model).backward()
        before = model.weight.detach().clone()
        optimizer.step()
        moved = (before - model.weight.detach()).norm() / model.weight.grad.norm()
        rate = optimizer.applied if hasattr(optimizer, "applied") else float(moved)
        factors.append(imp.attached.applied)
        assert rate == pytest.approx(0.1 * factors[-1], rel=1e-4)
    assert max(abs(factor - 1) for factor in factors) > 1e-3
    assert imp.attached.steps == 4


# ---- two engines


@pytest.mark.parametrize("kind", [torch.optim.SGD, Calling])
@pytest.mark.parametrize("removed", [0, 1])
def test_two_engines_are_refused_in_the_first_step(task, kind, removed):
    dataset, model = task
    pair, optimizer = [engine(seed=1), engine(seed=2)], kind(model.parameters(), lr=0.1)
    handles = [imp.attach(optimizer) for imp in pair]
    for imp in pair:
        forward(imp, dataset, model).backward()
    before = copy.deepcopy(model.state_dict())
    for _ in range(2):
        with pytest.raises(EmaisError, match=f"two engines are attached to this {kind.__name__}.* call remove"):
            optimizer.step()
        assert optimizer.param_groups[0]["lr"] == 0.1
    torch.testing.assert_close(dict(model.state_dict()), dict(before))
    handles[removed].remove()
    imp = pair[1 - removed]
    for _ in range(3):
        optimizer.zero_grad()
        forward(imp, dataset, model).backward()
        before = model.weight.detach().clone()
        optimizer.step()
    applied = (before - model.weight.detach()).norm() / model.weight.grad.norm()
    assert float(applied) == pytest.approx(0.1 * imp.diagnostics.lr_scale, rel=1e-4)
    assert type(optimizer.param_groups[0]) is dict


@pytest.mark.parametrize("fail", [False, True])
def test_another_engine_follows_one_that_was_removed(task, fail):
    """Also if the last step of the first has raised."""
    dataset, model = task
    first, second, optimizer = engine(seed=1), engine(seed=2), Reading(model.parameters(), lr=0.1)
    handle = first.attach(optimizer)
    forward(first, dataset, model).backward()
    optimizer.fail = fail
    try:
        optimizer.step()
    except RuntimeError:
        assert fail
    optimizer.fail = False
    handle.remove()
    assert type(optimizer.param_groups[0]) is dict
    second.attach(optimizer)
    optimizer.look = lambda group: group["lr"]
    for _ in range(3):
        forward(second, dataset, model).backward()
        optimizer.step()
    assert optimizer.seen == pytest.approx(0.1 * second.attached.applied)
    assert optimizer.seen != 0.1
