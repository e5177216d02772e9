"""The pilot leaves no trace: every part is bit-equal afterwards, also when something raises in the middle."""

import copy
import random
from collections import Counter, OrderedDict, deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import emais


class Noisy(Dataset):
    """Uses all three random states."""

    def __len__(self):
        return 60

    def __getitem__(self, k):
        noise = torch.randn(6) + random.random() + np.random.random()  # noqa: NPY002
        return noise + k % 3, k % 3


class Net(nn.Module):
    """Parameters, BatchNorm's buffers, a buffer that is replaced, dropout, a module in evaluation mode, a counter."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(16, 3)
        self.register_buffer("latest", torch.zeros(3), persistent=False)
        self.calls = 0
        self.body[1].eval()

    def forward(self, x):
        z = self.head(self.body(x))
        self.latest = z.detach().mean(0)
        if self.calls == 3:
            self.register_buffer("late", torch.ones(1))
        self.calls += 1
        return z


def made(kind):
    torch.manual_seed(0)
    model = Net()
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
        "amsgrad": lambda p: torch.optim.Adam(
            [{"params": q, "lr": 0.01 * k} for k, q in enumerate(p, 1)], amsgrad=True
        ),
    }[kind](list(model.parameters()))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return model, optimizer, scheduler


def loss(model, batch, fail_at=None):
    x, y = batch
    z = model(x)
    if fail_at is not None and model.calls > fail_at:
        raise RuntimeError("on the way")
    return nn.functional.cross_entropy(z, y, reduction="none"), z


def train(model, optimizer, steps=3):
    for _ in range(steps):
        x = torch.randn(8, 6)
        optimizer.zero_grad()
        loss(model, (x, torch.arange(8) % 3))[0].mean().backward()
        optimizer.step()


def everything(model, optimizer):
    """All that must not change, by its name."""
    return {
        "parameters": [p.detach().clone() for p in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "buffers": {name: b.clone() for name, b in model.named_buffers()},
        "modes": [m.training for m in model.modules()],
        "counter": model.calls,
        "state": copy.deepcopy(optimizer.state_dict()),
        "attributes": sorted(vars(optimizer)),
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "python": random.getstate(),
    }


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return np.array_equal(a, b)


@pytest.mark.parametrize("fail_at", [None, 0, 17])
@pytest.mark.parametrize("before", [0, 2, 3])
@pytest.mark.parametrize("kind", ["sgd", "adam", "amsgrad"])
def test_the_pilot_leaves_everything_as_it_was(kind, before, fail_at):
    """With an optimizer that has stepped, or not; with gradients that wait, or none."""
    model, optimizer, scheduler = made(kind)
    train(model, optimizer, before)
    fail_at = None if fail_at is None else before + fail_at
    parameters, group = list(model.parameters()), optimizer.param_groups[0]
    gradients = [p.grad for p in parameters]
    expected = everything(model, optimizer)

    def pilot():
        return emais.audit(
            model, Noisy(), lambda net, batch: loss(net, batch, fail_at), optimizer, batch_size=6, steps=40
        )

    if fail_at is None:
        assert pilot().n_ems > 0
    else:
        with pytest.raises(RuntimeError, match="on the way"):
            pilot()
    found = everything(model, optimizer)
    assert [name for name in expected if not same(expected[name], found[name])] == []
    assert [p.grad for p in parameters] == gradients  # the same objects, which others may hold
    assert list(model.parameters()) == parameters
    assert optimizer.param_groups[0] is group
    train(model, optimizer)
    scheduler.step()  # it still belongs to the optimizer, and has seen no step but these


def test_training_goes_on_as_if_there_had_been_no_pilot():
    runs = []
    for pilot in (False, True):
        model, optimizer, _ = made("adam")
        train(model, optimizer)
        if pilot:
            emais.audit(model, Noisy(), loss, optimizer, batch_size=6, steps=25)
        train(model, optimizer, 5)
        runs.append(everything(model, optimizer))
    assert same(*runs)


def test_two_pilots_say_the_same():
    model, optimizer, _ = made("sgd")
    first, second = (emais.audit(model, Noisy(), loss, optimizer, batch_size=6, steps=30) for _ in range(2))
    assert repr(first) == repr(second)


def test_parameters_without_a_shape_are_refused():
    model = nn.LazyLinear(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(emais.EmaisError, match="without a shape yet"):
        emais.audit(model, Noisy(), loss, optimizer, batch_size=6, steps=25)


class Keeper(Net):
    """Plain attributes of all kinds, which every forward pass changes in place."""

    def __init__(self):
        super().__init__()
        self.history, self.recent, self.names = [], deque(maxlen=3), {"first"}
        self.mean, self.array = torch.zeros(3), np.zeros(2)
        self.nested = {"sums": (torch.zeros(3), [0]), "by_name": OrderedDict(a=1)}
        self.generators = [torch.Generator(), random.Random(0), np.random.default_rng(0)]
        self.unregistered = [nn.Linear(2, 2)]
        self.extra = None

    def forward(self, x):
        z = super().forward(x)
        self.history.append(z)
        self.recent.append(self.calls)
        self.names.add(self.calls)
        self.mean += 1
        self.array += 1
        self.nested["sums"][0].add_(1)
        self.nested["sums"][1].append(self.calls)
        self.nested["by_name"][str(self.calls)] = z
        torch.rand(1, generator=self.generators[0])
        self.generators[1].random()
        self.generators[2].random()
        with torch.no_grad():
            self.unregistered[0].weight += 1
        self.extra = self.new = z
        return z


def held(model):
    """All that `Keeper` holds, with the state of its generators."""
    own, python, numpy = model.generators
    states = own.get_state(), python.getstate(), str(numpy.bit_generator.state)
    plain = {"history": model.history, "recent": list(model.recent), "names": sorted(map(str, model.names))}
    tensors = {"mean": model.mean, "array": model.array, "weight": model.unregistered[0].weight.detach()}
    return plain | tensors | {"nested": model.nested, "states": states, "extra": str(model.extra)}


@pytest.mark.parametrize("fail_at", [None, 7])
def test_plain_attributes_are_put_back_in_place(fail_at):
    torch.manual_seed(0)
    model = Keeper()
    objects = dict(vars(model))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, 2)
    model.history.clear()  # nothing below compares tensors with a graph
    model.nested["by_name"].clear()
    model.nested["by_name"].update(second=2, first=1)
    model.extra = None
    expected, attributes = copy.deepcopy(held(model)), set(vars(model))
    try:
        emais.audit(model, Noisy(), lambda net, batch: loss(net, batch, fail_at), optimizer, batch_size=6, steps=25)
    except RuntimeError:
        assert fail_at is not None
    found = held(model)
    assert [name for name in expected if not same(expected[name], found[name])] == []
    assert set(vars(model)) == attributes
    names = ("history", "recent", "names", "mean", "array", "nested", "generators")
    assert [name for name in names if getattr(model, name) is not objects[name]] == []
    assert list(model.nested["by_name"]) == ["second", "first"]


def test_a_hook_that_the_loss_registers_is_gone_afterwards():
    model, optimizer, _ = made("sgd")

    calls = []
    model.head.register_forward_hook(lambda *_: calls.append("own"))

    def hooked(net, batch):
        net.head.register_forward_hook(lambda *_: calls.append("of the loss"))
        return loss(net, batch)

    emais.audit(model, Noisy(), hooked, optimizer, batch_size=6, steps=3)
    calls.clear()
    model(torch.randn(8, 6))
    assert calls == ["own"]


class Recording(torch.optim.SGD):
    """An optimizer with attributes of its own."""

    def __init__(self, parameters):
        super().__init__(parameters, 0.1)
        self.rates, self.param_groups[0]["seen"] = [], []

    def step(self, closure=None):
        self.rates.append(float(self.param_groups[0]["lr"]))
        self.param_groups[0]["seen"].append(len(self.rates))
        return super().step(closure)


def test_attributes_of_the_optimizer_are_put_back_in_place():
    model = Net()
    optimizer = Recording(model.parameters())
    train(model, optimizer, 2)
    rates = optimizer.rates
    emais.audit(model, Noisy(), loss, optimizer, batch_size=6, steps=5)
    assert optimizer.rates is rates
    assert rates == [0.1, 0.1]
    assert optimizer.param_groups[0]["seen"] == [1, 2]


class Counting(nn.Module):
    """Counts its calls in a Counter, and has numpy's older generator and a view that holds NaN."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(6, 3)
        self.calls, self.numbers = Counter(calls=5), np.random.RandomState(0)
        self.wide = torch.full((3,), float("nan")).expand(2, 3)

    def forward(self, x):
        self.calls["calls"] += 1
        self.numbers.rand()
        return self.line(x)


def test_a_counter_an_older_generator_and_a_wide_nan_are_put_back():
    model = Counting()
    x = torch.randn(200, 6)
    dataset, optimizer = TensorDataset(x, x[:, :3].argmax(1)), torch.optim.SGD(model.parameters(), lr=0.1)

    def each(model, batch):
        z = model(batch[0])
        return nn.functional.cross_entropy(z, batch[1], reduction="none"), z

    place = model.numbers.get_state()[2]
    emais.audit(model, dataset, each, optimizer, batch_size=20, steps=20)
    assert model.calls == Counter(calls=5)
    assert model.numbers.get_state()[2] == place
