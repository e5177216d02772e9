"""Optimizers that a framework has wrapped, and those without a rate. tests/integrations has the real frameworks."""

import pytest
import torch
from conftest import losses_of

import emais
from emais import EmaisError


class Watched(torch.optim.SGD):
    """Writes down the rates that its step reads."""

    def step(self, closure=None):
        self.applied = [*getattr(self, "applied", []), self.param_groups[0]["lr"]]
        return super().step(closure)


class Subclass(torch.optim.Optimizer):
    """A wrapper that is an optimizer by class and has nothing of its own: without super().__init__, hooks fail."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def step(self, closure=None):
        return self.optimizer.step(closure)


class Imitation:
    """A wrapper that takes on the class of what it wraps, and passes on what it does not have."""

    def __init__(self, optimizer):
        self._optimizer = optimizer
        self.__class__ = type("Imitation", (type(self), type(optimizer)), {})

    @property
    def optimizer(self):
        return self._optimizer

    def step(self, closure=None):
        return self._optimizer.step(closure)

    def __getattr__(self, name):
        return getattr(self._optimizer, name)


class WithHelper(Watched):
    """No wrapper: it has an optimizer of its own, for other parameters."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr)
        self.optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)])


def trained(imp, wrapper, task, steps=5):
    dataset, model = task
    factors = []
    for _ in range(steps):
        draw = imp.draw()
        imp.loss(*losses_of(model, tuple(t[draw.index] for t in dataset.tensors)), draw).backward()
        wrapper.step()
        wrapper.zero_grad() if hasattr(wrapper, "defaults") else model.zero_grad()
        factors.append(imp.diagnostics.lr_scale)
    return factors


@pytest.mark.parametrize(
    "wrap", [Subclass, Imitation, lambda o: Imitation(Subclass(o)), lambda o: Subclass(Subclass(o))]
)
def test_a_wrapped_optimizer_is_scaled(task, wrap):
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Watched(task[1].parameters(), lr=0.1)
    handle = imp.attach(wrap(optimizer))
    assert handle.optimizer is optimizer
    assert handle.rule == "linear"  # SGD's
    factors = trained(imp, wrap(optimizer), task)
    assert max(abs(factor - 1) for factor in factors) > 0.05
    assert optimizer.applied == pytest.approx([0.1 * factor for factor in factors])
    assert optimizer.param_groups[0]["lr"] == 0.1
    handle.remove()


@pytest.mark.parametrize("first", [0, 1])
def test_a_wrapper_and_its_optimizer_are_one(task, first):
    imp = emais.EMAIS(96, 16)
    optimizer = Watched(task[1].parameters(), lr=0.1)
    both = [optimizer, Subclass(optimizer)]
    imp.attach(both[first])
    with pytest.raises(EmaisError, match="attached already"):
        imp.attach(both[1 - first])
    with pytest.raises(EmaisError, match="attached already"):
        imp.attach(Imitation(optimizer))


def test_an_optimizer_with_another_for_other_parameters_is_no_wrapper(task):
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = WithHelper(task[1].parameters(), 0.1)
    assert imp.attach(optimizer).optimizer is optimizer
    factors = trained(imp, optimizer, task)
    assert optimizer.applied == pytest.approx([0.1 * factor for factor in factors])


def test_what_is_inside_a_wrapper_is_checked(task):
    with pytest.raises(EmaisError, match="LBFGS cannot be used"):
        emais.EMAIS(96, 16).attach(Subclass(torch.optim.LBFGS(task[1].parameters())))


class Relative(torch.optim.Optimizer):
    """Makes its rate itself, as Adafactor does with relative_step, and keeps None in its groups."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": None})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert group["lr"] is None
            for p in group["params"]:
                p -= 0.01 * p.grad


def test_an_optimizer_without_a_rate_is_refused_with_the_way_out(task):
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Relative(task[1].parameters())
    for rule in ("linear", "steady"):
        with pytest.raises(EmaisError, match=r'Relative has lr=None.*relative_step=False.*rule="none"'):
            imp.attach(optimizer, rule=rule)
    imp.attach(optimizer, rule="none")
    before = task[1].weight.clone()
    assert trained(imp, optimizer, task) == [1.0] * 5
    assert not torch.equal(before, task[1].weight)


def test_an_optimizer_that_ignores_the_rate_it_was_given_is_refused(task):
    """As transformers' Adafactor with its AdafactorSchedule, which writes a rate for others to read."""
    imp = emais.EMAIS(96, 16)
    optimizer = Relative(task[1].parameters())
    optimizer.param_groups[0].update(lr=0.1, relative_step=True)
    with pytest.raises(EmaisError, match="Relative has relative_step=True, it chooses its rate itself"):
        imp.attach(optimizer, rule="linear")
