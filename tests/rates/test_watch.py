"""A plain scheduler in a run that ends by effective steps is told so at the end; whatever may be right is not."""

import math
import warnings

import pytest
import torch
from torch.optim import lr_scheduler as S
from torch.utils.data import TensorDataset

import emais

T = 200


@pytest.fixture
def problem():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(300, 4, generator=g) * torch.randn(300, 1, generator=g).exp()
    return TensorDataset(x, (x[:, 0] > 0).long())


def train(dataset, scheduler, method="emais-auto", goal=True, **settings):
    """A run; `scheduler` of the optimizer and the engine gives what is called after each step. Returns the messages."""
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.create(method, len(dataset), 20, num_steps=T, effective_steps=goal, **settings)
    imp.attach(optimizer)
    step = scheduler(optimizer, imp)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for (x, y), draw in imp.loader(dataset):
            z = model(x)
            optimizer.zero_grad()
            imp.loss(torch.nn.functional.cross_entropy(z, y, reduction="none"), z, draw).backward()
            optimizer.step()
            step()
    assert not goal or imp.finished
    return [str(warning.message) for warning in said]


def by_hand(optimizer, imp):
    """A cosine of the ordinary steps, without a scheduler."""

    def step():
        optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * imp.step / T))

    return step


PLAIN = {
    "cosine": lambda o, imp: S.CosineAnnealingLR(o, T).step,
    "linear": lambda o, imp: S.LinearLR(o, 1.0, 0.0, T).step,
    "exponential": lambda o, imp: S.ExponentialLR(o, 0.97).step,
    "one cycle": lambda o, imp: S.OneCycleLR(o, 0.1, total_steps=T, cycle_momentum=False).step,
    "by hand": by_hand,
}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_schedule_is_told_once_with_the_way_out(problem, kind):
    (message,) = train(problem, PLAIN[kind])
    assert "emais.EffectiveSchedule(scheduler, imp)" in message
    assert "schedule.step()" in message


def plateau(optimizer, imp):
    """A warm-up, and then a rate that falls when a metric says so."""
    warmup, metric = S.LinearLR(optimizer, 0.1, 1.0, 10), S.ReduceLROnPlateau(optimizer, patience=30)

    def step():
        warmup.step() if imp.step < 12 else metric.step(1.0)

    return step


def own_schedule(optimizer, imp):
    """A scheduler of the user's own that follows effective steps."""
    return S.LambdaLR(optimizer, lambda _: max(0.0, 1 - imp.effective_steps / T)).step


FINE = {
    "followed": lambda o, imp: emais.EffectiveSchedule(S.CosineAnnealingLR(o, T), imp).step,
    "followed by a function": lambda o, imp: emais.EffectiveSchedule(lambda t: 1 - t / T, imp, optimizer=o).step,
    "a schedule of one's own": own_schedule,
    "constant": lambda o, imp: lambda: None,
    "warm-up": lambda o, imp: S.LinearLR(o, 0.1, 1.0, 20).step,
    "plateau": plateau,
}


@pytest.mark.parametrize("kind", FINE)
def test_nothing_is_said_of_what_may_be_right(problem, kind):
    assert [m for m in train(problem, FINE[kind]) if "EffectiveSchedule" in m] == []


@pytest.mark.parametrize("settings", [{"method": "sgd-scan"}, {"goal": False}, {"method": "sgd-scan", "goal": False}])
def test_nothing_is_said_where_the_plain_schedule_comes_to_its_end(problem, settings):
    """No step was saved, or the run does not end by effective steps."""
    assert train(problem, PLAIN["cosine"], **settings) == []


@pytest.mark.parametrize("epochs", [8, 12, 20, 30])
def test_a_scheduler_that_is_stepped_once_an_epoch_is_told(problem, epochs):
    def each_epoch(optimizer, imp):
        scheduler = S.CosineAnnealingLR(optimizer, epochs)
        length = T // epochs

        return lambda: scheduler.step() if imp.step % length == 0 else None

    (message,) = train(problem, each_epoch)
    assert "per_epoch=True" in message


def test_a_rate_that_never_moved_is_told_in_careful_words(problem):
    """An epoch scheduler, stepped after the pass: with num_steps one pass is the whole run."""

    def after_the_pass(optimizer, imp):
        S.CosineAnnealingLR(optimizer, 13)
        return lambda: None

    (message,) = train(problem, after_the_pass)
    assert "the learning rate never moved. If it was to fall" in message
    assert "A constant rate is fine" in message
    assert train(problem, after_the_pass, method="sgd-scan") == []  # no step was saved
