"""Effective steps: a torch scheduler driven at fractional places, and RAIS's gain that drives it."""

import copy
import math
import warnings

import pytest
import torch
from conftest import WatchedSGD, losses_of
from torch import nn
from torch.optim import lr_scheduler as S

import emais
from emais import EffectiveSchedule, EmaisError
from emais import functional as F

T = 40
SCHEDULERS = {
    "cosine": lambda o: S.CosineAnnealingLR(o, T),
    "step": lambda o: S.StepLR(o, 7, 0.5),
    "lambda": lambda o: S.LambdaLR(o, lambda t: 1 / (1 + t)),
    "exponential": lambda o: S.ExponentialLR(o, 0.95),
    "one cycle": lambda o: S.OneCycleLR(o, 1.0, total_steps=T + 1, cycle_momentum=False),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 9),
    "sequence": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 5), S.CosineAnnealingLR(o, T - 5)], [5]),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 4), S.ExponentialLR(o, 0.9)]),
}


def fresh(kind, **options):
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
    return optimizer, SCHEDULERS[kind](optimizer), emais.create("rais", 96, batch_size=16, num_steps=T, **options)


def plain_rates(kind):
    optimizer, scheduler, _ = fresh(kind)
    rates = []
    for _ in range(T + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step() if len(rates) <= T else None
    return rates


def move(schedule, imp, factor):
    """A step of the optimizer with this factor, and the schedule's."""
    schedule.optimizer.step()
    imp.progress.add(factor)
    schedule.step()


def driven(kind, factor, steps):
    optimizer, scheduler, imp = fresh(kind)
    schedule = EffectiveSchedule(scheduler, imp)
    for _ in range(steps):
        yield optimizer.param_groups[0]["lr"], schedule
        move(schedule, imp, factor)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_factor_of_one_is_the_plain_schedule(kind):
    got = [lr for lr, _ in driven(kind, 1.0, T)]
    assert got == pytest.approx(plain_rates(kind)[:T], rel=1e-9)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_factor_of_two_goes_twice_as_fast_and_stops_at_the_end(kind):
    got = [lr for lr, _ in driven(kind, 2.0, T)]
    want = plain_rates(kind)
    assert got[: T // 2] == pytest.approx(want[:T:2], rel=1e-9)
    assert got[T // 2 :] == pytest.approx([want[T]] * (T // 2), rel=1e-6, abs=1e-12)


def test_fractions_are_interpolated():
    for k, (lr, schedule) in enumerate(driven("cosine", 1.3, 25)):
        assert schedule.t_eff == pytest.approx(1.3 * k)
        assert lr == pytest.approx(0.15 * (1 + math.cos(math.pi * 1.3 * k / T)), abs=0.3 / T**2)


def test_an_epoch_may_have_as_many_minibatches_as_one_says():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp = emais.create("sgd-uni", 100, 10, num_steps=40)  # an epoch of its own has 10
    schedule = EffectiveSchedule(S.LinearLR(optimizer, 1.0, 0.0, 8), imp, per_epoch=5)
    move(schedule, imp, 12.5)
    assert schedule.get_last_lr() == [pytest.approx(0.1 * (1 - 2.5 / 8))]
    with pytest.raises(EmaisError, match="per_epoch must be a finite number above 0, got -1"):
        EffectiveSchedule(S.ExponentialLR(optimizer, 0.9), imp, per_epoch=-1)


def test_a_function_of_t_and_a_tensor_rate():
    lr = torch.tensor(0.3)
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=lr)
    imp = emais.create("rais", 96, batch_size=16, num_steps=T)
    schedule = EffectiveSchedule(lambda t: 1 - t / T, imp, optimizer=optimizer)
    for k in range(T):
        assert float(lr) == pytest.approx(0.3 * (1 - min(1.5 * k / T, 1)), abs=1e-7)
        move(schedule, imp, 1.5)
    assert optimizer.param_groups[0]["lr"] is lr


@pytest.mark.parametrize("at", [0, 1, 17])
def test_resume(at):
    optimizer, scheduler, imp = fresh("sequence")
    schedule = EffectiveSchedule(scheduler, imp)
    rates = []
    for k in range(25):
        if k == at:
            saved = schedule.state_dict(), optimizer.state_dict()
        rates.append(optimizer.param_groups[0]["lr"])
        move(schedule, imp, 1.37)
    optimizer, scheduler, imp = fresh("sequence")
    again = EffectiveSchedule(scheduler, imp)
    optimizer.load_state_dict(saved[1])
    again.load_state_dict(saved[0])
    for k in range(at, 25):
        assert optimizer.param_groups[0]["lr"] == rates[k]
        move(again, imp, 1.37)
    with pytest.raises(EmaisError, match="another kind of schedule"):
        EffectiveSchedule(lambda t: t, imp, optimizer=optimizer).load_state_dict(saved[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda o: S.ReduceLROnPlateau(o), "ReduceLROnPlateau follows a metric"),
        (lambda o: S.OneCycleLR(o, 1.0, total_steps=9), "OneCycleLR moves the momentum.*cycle_momentum=False"),
        (lambda o: S.CyclicLR(o, 0.1, 0.2), "CyclicLR moves the momentum"),
        (lambda o: S.SequentialLR(o, [S.LinearLR(o), S.CyclicLR(o, 0.1, 0.2)], [5]), "CyclicLR moves the momentum"),
        (lambda o: S.ChainedScheduler([S.OneCycleLR(o, 1.0, total_steps=9)]), "OneCycleLR moves the momentum"),
        (lambda o: lambda t: t, "needs optimizer="),
        (lambda o: None, "needs optimizer="),
        (lambda o: o, "SGD is not a torch LRScheduler"),
    ],
)
def test_what_cannot_be_driven_is_refused(make, message):
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3, momentum=0.9)
    with pytest.raises(EmaisError, match=message):
        EffectiveSchedule(make(optimizer), emais.create("rais", 96))


@pytest.mark.parametrize("resident", [False, True])
def test_rais_rule_is_the_gain_from_averaged_moments(task, resident):
    dataset, model = task
    imp = emais.create("rais", 96, batch_size=16, warmup_epochs=1, resident=resident)
    optimizer = WatchedSGD(model.parameters(), lr=0.5)
    imp.attach(optimizer)
    averages = [0.0, 0.0, 0.0]
    for k in range(1, 40):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        g, r = F.logit_gradients(losses, z).double(), draw.r.double()
        square = g.square().sum(1)
        new = ((r * square).mean(), (r * r * square).mean(), (r[:, None] * g).mean(0).square().sum())
        averages = [0.99 * a + 0.01 * float(x) for a, x in zip(averages, new, strict=True)]
        corrected = [a / (1 - 0.99**k) for a in averages]
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
        gain = max(1.0, 1 + (corrected[0] - corrected[1]) / (16 * corrected[2]))
        assert optimizer.applied[-1] == pytest.approx([0.5 * gain], rel=1e-5)
    assert optimizer.applied[-1][0] > 0.5 * 1.01


def test_a_schedule_ends_where_its_scheduler_does():
    """Without num_steps t_eff would go on, a cosine rise again and OneCycleLR raise."""
    for make in (SCHEDULERS["cosine"], lambda o: S.OneCycleLR(o, 0.3, total_steps=T, cycle_momentum=False)):
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
        imp = emais.create("rais", 96, batch_size=16)
        schedule = EffectiveSchedule(make(optimizer), imp)
        for _ in range(2 * T):
            move(schedule, imp, 1.5)
        assert schedule.t_eff == schedule.num_steps in (T, T - 1)
        assert optimizer.param_groups[0]["lr"] < 1e-4
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
    parts = SCHEDULERS["sequence"](optimizer)
    with pytest.raises(EmaisError, match="SequentialLR has an end that t_eff would pass: give num_steps="):
        EffectiveSchedule(parts, imp)
    assert EffectiveSchedule(parts, imp, num_steps=T).num_steps == T
    with pytest.raises(EmaisError, match="num_steps must be a number above 0, got 0"):
        EffectiveSchedule(parts, imp, num_steps=0)
    open_ended = S.SequentialLR(optimizer, [S.CosineAnnealingLR(optimizer, 5), S.ExponentialLR(optimizer, 0.9)], [5])
    assert EffectiveSchedule(open_ended, imp).num_steps == math.inf


def test_the_end_of_a_scheduler_that_has_been_stepped_before():
    for make in (SCHEDULERS["cosine"], SCHEDULERS["one cycle"]):
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
        scheduler = make(optimizer)
        for _ in range(4):
            optimizer.step()
            scheduler.step()
        assert EffectiveSchedule(scheduler, emais.create("rais", 96)).num_steps == T - 4


class WarmCosine(S.CosineAnnealingLR):
    """Ten steps of warm-up, and then T_max of a cosine; its total_steps means nothing to torch."""

    total_steps = None

    def get_lr(self):
        t = self.last_epoch - 10
        return [lr * (0.1 if t < 0 else (1 + math.cos(math.pi * t / self.T_max)) / 2) for lr in self.base_lrs]


def test_a_class_of_ones_own_may_end_where_it_likes():
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
    imp = emais.create("rais", 96, batch_size=16)
    assert EffectiveSchedule(WarmCosine(optimizer, 10), imp).num_steps == math.inf
    imp = emais.create("rais", 96, batch_size=16, num_steps=20)
    assert EffectiveSchedule(WarmCosine(optimizer, 10), imp).num_steps == 20


@pytest.mark.parametrize(("saved", "made"), [(20, 10), (10, 10)])
def test_a_resume_goes_on_to_the_end_of_the_schedule_that_was_saved(saved, made):
    """Also from beyond the present end: the rate never goes back, nor below 0."""
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
    imp = emais.create("rais", 96, batch_size=16)
    first = EffectiveSchedule(S.CosineAnnealingLR(optimizer, saved), imp, num_steps=1000)
    for _ in range(15):
        move(first, imp, 1.0)
    rate = optimizer.param_groups[0]["lr"]
    second = EffectiveSchedule(S.CosineAnnealingLR(optimizer, made), imp)
    second.load_state_dict(first.state_dict())
    assert second.num_steps == max(saved, 15)
    for _ in range(10):
        move(second, imp, 1.0)
    assert second.t_eff == second.num_steps
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0 if saved == 20 else rate, abs=1e-9)


# ---- states that cannot be


def saved_and_fresh(kind):
    _, scheduler, imp = fresh(kind)
    schedule = EffectiveSchedule(scheduler, imp)
    for _ in range(12):
        move(schedule, imp, 1.3)
    _, scheduler, imp = fresh(kind)
    return schedule.state_dict(), EffectiveSchedule(scheduler, imp)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_every_kind_takes_its_own_state(kind):
    state, schedule = saved_and_fresh(kind)
    schedule.load_state_dict(state)
    assert schedule.state_dict() == state


SPOILT = [
    {"t_eff": math.nan},
    {"t_eff": -5.0},
    {"t_eff": "x"},
    {"t_eff": 1e9},
    {"pending": math.inf},
    {"pending": 10**400},
    {"place": 2**64},
    {"place": None},
    {"place": 10**6},
    {"place": 10**6, "t_eff": 1e6},
    {"place": 2.0},
    {"low": None},
    {"low": []},
    {"low": [-1.0]},
    {"high": [math.nan]},
    {"rates": [1e300]},
    {"written": [1e300]},
    {"high": None},
    {"scheduler": {}},
    {"scheduler": {"T_max": None}},
    {"scheduler": 5},
    {"other": 1},
]


@pytest.mark.parametrize("kind", ["cosine", "exponential", "sequence"])
@pytest.mark.parametrize("change", [*SPOILT, "t_eff", "place", "scheduler", "low", "high", None], ids=repr)
def test_a_state_that_is_refused_changes_nothing(kind, change):
    state, schedule = saved_and_fresh(kind)
    before = copy.deepcopy(schedule.state_dict()), schedule.get_last_lr()
    if isinstance(change, str):
        del state[change]
    wrong = None if change is None else state if isinstance(change, str) else state | change
    with pytest.raises(EmaisError):
        schedule.load_state_dict(wrong)
    assert (schedule.state_dict(), schedule.get_last_lr()) == before


def test_a_whole_number_beyond_64_bits_is_a_number():
    state, schedule = saved_and_fresh("cosine")
    schedule.load_state_dict(state | {"pending": 2**64})
    assert schedule.state_dict()["pending"] == 2.0**64


def test_a_state_whose_scheduler_is_damaged_is_refused():
    for path, value in (
        ("T_max", None),
        ("T_max", 10**400),
        ("base_lrs", []),
        ("last_epoch", "x"),
        ("eta_min", math.nan),
    ):
        state, schedule = saved_and_fresh("cosine")
        state["scheduler"] = state["scheduler"] | {path: value}
        with pytest.raises(EmaisError, match=f"scheduler.{path}"):
            schedule.load_state_dict(state)


def test_a_scheduler_that_has_made_more_steps_than_anyone_trains_is_refused():
    state, schedule = saved_and_fresh("cosine")
    state["scheduler"] = state["scheduler"] | {"last_epoch": 2**70}
    with pytest.raises(EmaisError, match="the scheduler's state do not fit together"):
        schedule.load_state_dict(state)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_scheduler_that_is_stepped_elsewhere_too_is_told(kind):
    optimizer, scheduler, imp = fresh(kind)
    schedule = EffectiveSchedule(scheduler, imp)
    move(schedule, imp, 1.0)
    optimizer.step()
    scheduler.step()
    imp.progress.add(1.0)
    with pytest.raises(EmaisError, match="stepped outside of its EffectiveSchedule"):
        schedule.step()


def test_a_chained_scheduler_ends_where_it_would_after_a_resume():
    def made():
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.3)
        parts = [S.ConstantLR(optimizer, 0.3, 4), S.CosineAnnealingLR(optimizer, T)]
        imp = emais.create("rais", 96, batch_size=16, num_steps=T, effective_steps=True)
        return EffectiveSchedule(S.ChainedScheduler(parts), imp), imp

    first, imp = made()
    for _ in range(7):
        move(first, imp, 1.5)
    again, other = made()
    other.load_state_dict(imp.state_dict())
    again.load_state_dict(first.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while not other.finished:
            move(again, other, 1.5)
    assert again.t_eff == T


def test_a_step_that_the_schedule_has_not_followed_yet_is_saved():
    optimizer, scheduler, imp = fresh("cosine")
    schedule = EffectiveSchedule(scheduler, imp)
    optimizer.step()
    imp.progress.add(1.7)
    state = schedule.state_dict()
    schedule.step()
    optimizer, scheduler, imp = fresh("cosine")
    optimizer.step()
    again = EffectiveSchedule(scheduler, imp)
    again.load_state_dict(state)
    again.step()
    assert again.t_eff == schedule.t_eff == 1.7
    assert again.get_last_lr() == schedule.get_last_lr()
    del state["pending"]  # as 0.1.0 saved it
    again.load_state_dict(state)
    assert again.t_eff == 0
