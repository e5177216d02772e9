"""Equal progress: a run ends when its steps are worth as many as were asked for."""

import copy
import math

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR
from torch.utils.data import TensorDataset

import emais
from emais import EffectiveSchedule, EmaisError


@pytest.fixture
def problem():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=g) * torch.randn(300, 1, generator=g).exp()
    return TensorDataset(x, (x[:, 0] > 0).long())


class Run:
    def __init__(self, dataset, scheduler=lambda o: CosineAnnealingLR(o, 200), per_epoch=False, workers=0, **settings):
        torch.manual_seed(1)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.imp = emais.create(settings.pop("method", "emais-auto"), len(dataset), 20, **settings)
        self.imp.attach(self.optimizer)
        self.schedule = EffectiveSchedule(scheduler(self.optimizer), self.imp, per_epoch=per_epoch)
        self.loader, self.steps = self.imp.loader(dataset, num_workers=workers), 0

    def train(self, limit=math.inf):
        for (x, y), draw in self.loader:
            z = self.model(x)
            self.optimizer.zero_grad()
            self.imp.loss(torch.nn.functional.cross_entropy(z, y, reduction="none"), z, draw).backward()
            self.optimizer.step()
            self.schedule.step()
            self.steps += 1
            if self.steps == limit:
                break
        return self

    def state(self):
        parts = (self.imp, self.model, self.optimizer, self.schedule)
        return copy.deepcopy([part.state_dict() for part in parts])

    def load(self, states):
        for part, state in zip((self.imp, self.model, self.optimizer, self.schedule), states, strict=True):
            part.load_state_dict(state)
        return self


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_ends_at_its_goal(problem, workers):
    run = Run(problem, num_steps=200, effective_steps=True, workers=workers)
    assert len(run.loader) == 200
    run.train()
    assert run.steps == run.imp.step < 160
    assert 200 <= run.imp.effective_steps < 200 + 10
    assert run.imp.finished
    assert len(run.loader) == 0
    assert run.optimizer.param_groups[0]["lr"] == 0
    assert run.train().steps == run.imp.step  # no further step
    summary = run.imp.summary()
    assert summary.steps == run.steps
    assert summary.steps_saved == pytest.approx(run.imp.effective_steps - run.steps)


def test_a_method_without_a_factor_makes_all_steps(problem):
    run = Run(problem, method="sgd-scan", num_steps=200, effective_steps=True).train()
    assert run.steps == 200 == run.imp.effective_steps


def test_epochs_end_at_the_goal_too(problem):
    run, lengths = Run(problem, lambda o: StepLR(o, 5, 0.1), per_epoch=True, effective_steps=200), []
    for _ in range(14):
        before = run.steps
        run.train()
        lengths.append(run.steps - before)
        assert len(run.loader) == 15
    whole = run.steps // 15
    assert lengths == [15] * whole + [run.steps % 15] * (run.steps % 15 > 0) + [0] * (14 - math.ceil(run.steps / 15))
    assert run.imp.finished
    assert run.steps < 160
    # 200 effective steps are 13.3 epochs: the rate fell twice
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0.001)


@pytest.mark.parametrize("stop", [1, 47, 90])
def test_a_resumed_run_is_the_same(problem, stop):
    whole = Run(problem, num_steps=200, effective_steps=True).train()
    part = Run(problem, num_steps=200, effective_steps=True).train(stop)
    again = Run(problem, num_steps=200, effective_steps=True).load(part.state()).train()
    assert stop + again.steps == whole.steps
    assert again.imp.effective_steps == whole.imp.effective_steps
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_of_two_optimizers_one_counts_the_steps(problem):
    imp = emais.EMAISAuto(300, 20, num_steps=50, effective_steps=True)
    model = torch.nn.Linear(4, 2)
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
    for optimizer in optimizers:
        imp.attach(optimizer)
    steps = 0
    for (x, y), draw in imp.loader(problem):
        steps += 1
        z = model(x)
        imp.loss(torch.nn.functional.cross_entropy(z, y, reduction="none"), z, draw).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert 40 < steps <= 50


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"effective_steps": True}, "needs an end to count to: give num_steps="),
        ({"effective_steps": 100, "num_steps": 50}, "are two ends: pass effective_steps=True"),
        ({"effective_steps": -3}, "effective_steps must be"),
        ({"effective_steps": "yes"}, "effective_steps must be"),
    ],
)
def test_ends_that_cannot_be(settings, message):
    with pytest.raises(EmaisError, match=message):
        emais.EMAISAuto(100, 10, **settings)


# ---- accumulation


def accumulated(every, goal=True, schedule=None, steps=400):
    """A run whose optimizer steps once in so many minibatches; gives the engine, its rates and the messages."""
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    y, model = (x[:, 0] > 0).long(), torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(200, 10, num_steps=steps, effective_steps=goal)
    imp.attach(optimizer)
    follow = None if schedule is None else schedule(optimizer, imp)
    rates = []
    for k, (batch, draw) in enumerate(imp.loader(torch.utils.data.TensorDataset(x, y)), 1):
        z = model(batch[0])
        imp.loss(torch.nn.functional.cross_entropy(z, batch[1], reduction="none"), z, draw).backward()
        if k % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            rates.append(optimizer.param_groups[0]["lr"])
            if follow is not None:
                follow.step()
    return imp, rates


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_accumulates_ends_when_its_minibatches_are_worth_the_goal(every):
    def cosine(optimizer, imp):
        return emais.EffectiveSchedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400 // every), imp)

    imp, rates = accumulated(every, schedule=cosine)
    assert imp.finished
    assert imp.step < 380
    assert rates == sorted(rates, reverse=True)  # it never rises again
    assert rates[-1] < 0.01
    summary = imp.summary()
    assert summary.steps == imp.step
    assert summary.steps_saved == pytest.approx(imp.effective_steps - imp.step)


def test_a_schedule_of_epochs_counts_minibatches_when_they_are_accumulated():
    def epochs(optimizer, imp):
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        return emais.EffectiveSchedule(scheduler, imp, per_epoch=True)

    imp, rates = accumulated(4, schedule=epochs)
    assert imp.finished
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.01


def test_a_schedule_that_is_stepped_once_an_epoch_is_told():
    def seldom(optimizer, imp):
        schedule = emais.EffectiveSchedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20), imp)
        made = []
        own = schedule.step
        schedule.step = lambda: made.append(1) or (own() if len(made) % 20 == 0 else None)
        return schedule

    with pytest.warns(UserWarning, match="20 optimizer steps were made since the last step of the schedule"):
        accumulated(1, goal=False, schedule=seldom)
