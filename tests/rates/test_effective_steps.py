"""Equal progress: a run ends when its steps are worth as many as were asked for."""

import copy
import math
import warnings

import pytest
import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
)
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
    with pytest.warns(UserWarning, match="this pass is empty.*`if imp.finished: break`"):
        assert run.train().steps == run.imp.step  # no further step
    assert run.train().steps == run.imp.step  # told once
    summary = run.imp.summary()
    assert summary.steps == run.steps
    assert summary.steps_saved == pytest.approx(run.imp.effective_steps - run.steps)


def test_a_run_that_is_out_of_steps_before_its_goal_says_that(problem):
    """Its rule may give less than 1."""
    run = Run(problem, lambda o: StepLR(o, 1000), method="emais", num_steps=60, effective_steps=True)
    run.imp.progress.saved.sub_(1000)  # as if that had been so
    run.train()
    assert run.imp.finished
    assert run.imp.effective_steps < 60
    with pytest.warns(UserWarning, match="all num_steps=60 steps are done"):
        run.train()


def test_a_method_without_a_factor_makes_all_steps(problem):
    run = Run(problem, method="sgd-scan", num_steps=200, effective_steps=True).train()
    assert run.steps == 200 == run.imp.effective_steps


def test_epochs_end_at_the_goal_too(problem):
    run, lengths = Run(problem, lambda o: StepLR(o, 5, 0.1), per_epoch=True, effective_steps=200), []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(14):
            before = run.steps
            run.train()
            lengths.append(run.steps - before)
            assert len(run.loader) == 15
    assert ["this pass is empty" in str(warning.message) for warning in told] == [True]
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
        (
            {"effective_steps": True},
            r"needs an end to count to: give num_steps=.*epochs \* len\(loader\), a number of steps",
        ),
        ({"effective_steps": True, "num_steps": 50, "max_scale": 0.5}, "max_scale=0.5 .* give .* at least 1"),
        ({"effective_steps": 50, "max_scale": 0.9}, "max_scale=0.9 makes every step worth less"),
        ({"effective_steps": 100, "num_steps": 50}, "are two ends: pass effective_steps=True"),
        ({"effective_steps": -3}, "effective_steps must be"),
        ({"effective_steps": "yes"}, "effective_steps must be"),
    ],
)
def test_ends_that_cannot_be(settings, message):
    with pytest.raises(EmaisError, match=message):
        emais.EMAISAuto(100, 10, **settings)


def test_a_number_of_epochs_is_told_to_be_one_of_steps():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    few = emais.EMAISAuto(100, 10, effective_steps=5)
    with pytest.warns(UserWarning, match=r"effective_steps=5 is a number of steps.*epochs \* 10") as told:
        few.attach(optimizer)
    assert told[0].filename == __file__
    emais.EMAISAuto(100, 10, effective_steps=10).attach(optimizer)
    emais.EMAISAuto(100, 10, num_steps=5, effective_steps=True).attach(optimizer)


def test_a_rule_that_saves_nothing_is_told(problem):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp = emais.EMAISAuto(300, 20, num_steps=200, effective_steps=True)
    with pytest.warns(UserWarning, match="effective_steps has no effect with rule=\"none\".*rule='steady'"):
        imp.attach(optimizer, rule="none")
    emais.create("sgd-scan", 300, 20, num_steps=200, effective_steps=True).attach(optimizer)
    emais.EMAISAuto(300, 20, num_steps=200).attach(optimizer, rule="none")


# ---- steps that are skipped


def test_minibatches_of_skipped_steps_count_as_accumulated(problem):
    """GradScaler skips steps without a word to the optimizer: the run and its schedule still count the same steps."""
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(300, 20, num_steps=400, effective_steps=True)
    imp.attach(optimizer)
    schedule = EffectiveSchedule(CosineAnnealingLR(optimizer, 400), imp)
    factors, minibatches = [], []
    for k, ((x, y), draw) in enumerate(imp.loader(problem)):
        optimizer.zero_grad()
        z = model(x)
        imp.loss(torch.nn.functional.cross_entropy(z, y, reduction="none"), z, draw).backward()
        before = float(schedule.t_eff)
        if not (5 < k < 12 and k % 2):
            optimizer.step()
            factors.append(float(imp.attached.applied))
            minibatches.append(imp.attached.minibatches)
        schedule.step()  # a loop calls it in any case
        if 5 < k < 12 and k % 2:
            assert schedule.t_eff == before
    assert sum(minibatches) == imp.step
    assert minibatches.count(2) == 3
    assert imp.effective_steps == pytest.approx(sum(f * n for f, n in zip(factors, minibatches, strict=True)))
    assert schedule.t_eff == pytest.approx(sum(factors))


def test_two_losses_in_one_backward_pass_are_one_step(problem):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(300, 20)
    imp.attach(optimizer)
    for _ in range(5):
        losses = []
        for _ in range(2):
            draw = imp.draw()
            x, y = problem[draw.index]
            z = model(x)
            losses.append(imp.loss(torch.nn.functional.cross_entropy(z, y, reduction="none"), z, draw))
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()  # a second look at the same samples, as SAM takes it
        optimizer.step()
        assert imp.diagnostics.batch_size == 40
    assert imp.effective_steps == pytest.approx(10, abs=0.5)


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


@pytest.mark.parametrize(("end", "per_epoch"), [(4, True), (20, False)])
def test_a_goal_in_steps_of_the_optimizer_is_told_as_one(end, per_epoch):
    """4 epochs of 20 minibatches are meant, 20 steps of 4 each: the goal is wrong, not the schedule."""
    x = torch.randn(200, 4)
    y, model = (x[:, 0] > 0).long(), torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(200, 10, effective_steps=20)
    imp.attach(optimizer)
    schedule = emais.EffectiveSchedule(CosineAnnealingLR(optimizer, end), imp, per_epoch=per_epoch)
    loader = imp.loader(torch.utils.data.TensorDataset(x, y))

    def train():
        while not imp.finished:
            for k, (batch, draw) in enumerate(loader, 1):
                z = model(batch[0])
                imp.loss(torch.nn.functional.cross_entropy(z, batch[1], reduction="none"), z, draw).backward()
                if k % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    schedule.step()

    with pytest.warns(UserWarning, match=r"and 4 are accumulated .* if 20 was meant .* give 80"):
        train()


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
        schedule = emais.EffectiveSchedule(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), imp)
        made = []
        own = schedule.step
        schedule.step = lambda: made.append(1) or (own() if len(made) % 20 == 0 else None)
        return schedule

    with pytest.warns(UserWarning, match="20 optimizer steps were made since the last step of the schedule"):
        accumulated(1, goal=False, schedule=seldom)


# ---- schedulers in another unit


WRONG = {
    "cosine": lambda o: CosineAnnealingLR(o, 20),
    "one cycle": lambda o: OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
    "linear": lambda o: LinearLR(o, 1.0, 0.0, 20),
    "polynomial": lambda o: PolynomialLR(o, 20),
    "sequence": lambda o: SequentialLR(o, [LinearLR(o, 0.1, 1.0, 2), CosineAnnealingLR(o, 18)], [2]),
    "chained": lambda o: ChainedScheduler([LinearLR(o, 0.1, 1.0, 2), PolynomialLR(o, 20)]),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("goal", [{"num_steps": 300, "effective_steps": True}, {"effective_steps": 300}])
def test_a_scheduler_of_epochs_is_refused_where_steps_are_counted(kind, goal):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp = emais.EMAISAuto(300, 20, **goal)
    with pytest.raises(EmaisError, match=r"20 epochs of 15: it counts epochs\. Pass per_epoch=True, or make it for 3"):
        EffectiveSchedule(WRONG[kind](optimizer), imp)
    EffectiveSchedule(WRONG[kind](optimizer), imp, per_epoch=True)


def test_what_falls_early_on_purpose_is_not_refused():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp = emais.EMAISAuto(300, 20, num_steps=300, effective_steps=True)
    for scheduler in (LinearLR(optimizer, 0.1, 1.0, 20), StepLR(optimizer, 5), LinearLR(optimizer, 1.0, 0.1, 20)):
        EffectiveSchedule(scheduler, imp)


def test_a_schedule_that_ends_long_before_the_run_is_told():
    def short(optimizer, imp):
        return EffectiveSchedule(CosineAnnealingLR(optimizer, 100), imp)

    with pytest.warns(UserWarning, match="end at 10. effective steps, and the run goes on to 400.*make it for 400 of"):
        accumulated(1, schedule=short)


def test_a_schedule_made_for_minibatches_is_told_where_they_are_accumulated():
    def in_minibatches(optimizer, imp):
        return EffectiveSchedule(CosineAnnealingLR(optimizer, 400), imp)

    with pytest.warns(UserWarning, match="schedule was at 20. of its 400 steps.*of 2 minibatches each.*for 200"):
        accumulated(2, schedule=in_minibatches)


@pytest.mark.parametrize("stop", [None, 40])
def test_a_schedule_that_was_under_way_ends_where_its_rest_does(problem, stop):
    def under_way(optimizer):
        scheduler = CosineAnnealingLR(optimizer, 400)
        for _ in range(300):
            optimizer.step()
            scheduler.step()
        return scheduler

    settings = {"scheduler": under_way, "num_steps": 100, "effective_steps": True}
    run = Run(problem, **settings)
    if stop is not None:
        run = Run(problem, **settings).load(run.train(stop).state())
    run.train()  # a word about the schedule's end would be an error
    assert run.imp.finished
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-6)
