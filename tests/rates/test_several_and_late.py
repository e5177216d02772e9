"""Several optimizers in turn, schedules that somebody else steps, states between steps: what a loop may come to."""

import warnings

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, MultiStepLR
from torch.utils.data import TensorDataset

import emais
from emais import EmaisError


@pytest.fixture
def task():
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    return TensorDataset(x, x[:, :3].argmax(1)), nn.Linear(6, 3)


def sgd(model, rate=0.05):
    return torch.optim.SGD(model.parameters(), lr=rate)


def half(imp, model, batch, draw):
    """Up to the backward pass."""
    z = model(batch[0])
    imp.loss(nn.functional.cross_entropy(z, batch[1], reduction="none"), z, draw).backward()


def epoch(imp, model, optimizer, dataset, after=lambda: None):
    for batch, draw in imp.loader(dataset):
        optimizer.zero_grad()
        half(imp, model, batch, draw)
        optimizer.step()
        after()


def test_a_second_optimizer_that_takes_over_counts_its_steps(task):
    dataset, model = task
    imp = emais.EMAISAuto(400, batch_size=20, effective_steps=100, warmup_epochs=0.5)
    first, second = sgd(model), sgd(model, 0.02)
    imp.attach(first)
    epoch(imp, model, first, dataset)
    imp.attach(second)
    schedule = emais.EffectiveSchedule(CosineAnnealingLR(second, 4), imp, per_epoch=True)
    for _ in range(4):
        epoch(imp, model, second, dataset, schedule.step)
    assert imp.finished
    assert imp.summary().steps <= imp.effective_steps + 1e-9
    assert schedule.t_eff == 80


@pytest.mark.parametrize(
    "who",
    [lambda k: [k % 2], lambda k: [0, 1] if k % 5 == 4 else [1], lambda k: [1, 0]],
    ids=["in turn", "one seldom", "both"],
)
def test_a_schedule_counts_the_steps_of_its_own_optimizer(task, who):
    """As torch's schedulers do: each comes to the end that it was made for with its last step, and none is warned."""
    dataset, model = task
    optimizers = [sgd(model), sgd(model)]
    imp = emais.EMAISAuto(400, batch_size=20, num_steps=60)
    for optimizer in optimizers:
        imp.attach(optimizer, rule="none")
    counts = [sum(which in who(k) for k in range(60)) for which in (0, 1)]
    schedules = [
        emais.EffectiveSchedule(CosineAnnealingLR(optimizer, count), imp)
        for optimizer, count in zip(optimizers, counts, strict=True)
    ]
    rates = [[], []]
    for k, (batch, draw) in enumerate(imp.loader(dataset)):
        half(imp, model, batch, draw)
        for which in who(k):
            rates[which].append(optimizers[which].param_groups[0]["lr"])
            optimizers[which].step()
            schedules[which].step()
    for own, count in zip(rates, counts, strict=True):
        plain = sgd(model)
        scheduler, wanted = CosineAnnealingLR(plain, count), []
        for _ in range(count):
            wanted.append(plain.param_groups[0]["lr"])
            plain.step()
            scheduler.step()
        assert own == pytest.approx(wanted)
    assert imp.effective_steps == 60


@pytest.mark.parametrize("attach_first", [False, True])
def test_a_state_that_was_saved_with_nothing_attached_is_not_counted_again(task, attach_first):
    dataset, model = task
    imp = emais.create("sgd-scan", 400, batch_size=20)
    for batch, draw in imp.loader(dataset):
        half(imp, model, batch, draw)
    again, optimizer = emais.create("sgd-scan", 400, batch_size=20), sgd(model)
    if attach_first:
        again.attach(optimizer)
    again.load_state_dict(imp.state_dict())
    if not attach_first:
        again.attach(optimizer)
    half(again, model, *next(iter(again.loader(dataset))))
    optimizer.step()
    assert (again.effective_steps, again.attached.minibatches) == (21, 1)


def test_optimizers_in_turn_count_each_minibatch_once(task):
    dataset, model = task
    imp = emais.EMAISAuto(400, batch_size=20)
    fast, slow = sgd(model), sgd(model)
    handle = imp.attach(fast, rule="none")
    imp.attach(slow, rule="none")
    for k, (batch, draw) in enumerate(imp.loader(dataset)):
        half(imp, model, batch, draw)
        fast.step()
        if k % 4 == 3:
            slow.step()
        if k == 9:
            handle.remove()
            fast = slow
    assert imp.effective_steps == imp.summary().steps == 20


def test_a_scheduler_that_the_loop_steps_as_well_is_an_error(task):
    dataset, model = task
    optimizer = sgd(model)
    imp = emais.EMAISAuto(400, batch_size=20, effective_steps=80)
    imp.attach(optimizer)
    scheduler = CosineAnnealingLR(optimizer, 4)
    schedule = emais.EffectiveSchedule(scheduler, imp, per_epoch=True)
    epoch(imp, model, optimizer, dataset, schedule.step)
    scheduler.step()
    with pytest.raises(EmaisError, match=r"leave scheduler.step\(\) out"):
        epoch(imp, model, optimizer, dataset, schedule.step)


@pytest.mark.parametrize("as_function", [False, True])
def test_a_schedule_that_is_never_stepped_is_told(task, as_function):
    dataset, model = task
    optimizer = sgd(model)
    imp = emais.EMAISAuto(400, batch_size=20, effective_steps=80)
    imp.attach(optimizer)
    shape = (lambda t: 1 - t / 80) if as_function else CosineAnnealingLR(optimizer, 80)
    emais.EffectiveSchedule(shape, imp, optimizer=optimizer)

    def to_the_end():
        while not imp.finished:
            epoch(imp, model, optimizer, dataset)

    with pytest.warns(UserWarning, match="its EffectiveSchedule was never stepped"):
        to_the_end()


def test_a_schedule_says_what_to_do_about_another_parameter_group(task):
    _, model = task
    optimizer = torch.optim.SGD([model.weight], lr=0.1)
    imp = emais.EMAISAuto(400, batch_size=20, num_steps=20)
    imp.attach(optimizer)
    schedule = emais.EffectiveSchedule(ExponentialLR(optimizer, 0.9), imp)
    optimizer.add_param_group({"params": [model.bias]})
    with pytest.raises(EmaisError, match=r"had 1 parameter groups .* has 2 now: after add_param_group"):
        schedule.step()


def test_a_resumed_run_does_not_say_that_a_rate_never_moved(task):
    dataset, model = task

    def made():
        optimizer = sgd(model, 0.3)
        imp = emais.EMAISAuto(400, batch_size=20, effective_steps=200)
        imp.attach(optimizer)
        return imp, optimizer, MultiStepLR(optimizer, [2, 4], gamma=0.5)

    before = made()
    for _ in range(6):
        epoch(before[0], model, before[1], dataset)
        before[2].step()
    after = made()
    for old, new in zip(before, after, strict=True):
        new.load_state_dict(old.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while not after[0].finished:
            epoch(after[0], model, after[1], dataset)


def test_a_scheduler_of_steps_of_many_minibatches_is_none_of_epochs(task):
    optimizer = sgd(task[1])
    imp = emais.EMAISAuto(200, batch_size=20, num_steps=1600, effective_steps=True)
    imp.attach(optimizer)
    assert emais.EffectiveSchedule(CosineAnnealingLR(optimizer, 1600 // 16), imp).num_steps == 100


def test_a_state_loaded_after_a_step_that_raised_keeps_its_open_window(task):
    dataset, model = task
    optimizer = sgd(model)
    imp = emais.EMAISAuto(400, batch_size=20)
    imp.attach(optimizer)
    draws = iter(imp.loader(dataset))
    half(imp, model, *next(draws))
    state = imp.state_dict()

    def raises(*_):
        raise RuntimeError("a hook")

    handle = optimizer.register_step_post_hook(raises)
    with pytest.raises(RuntimeError, match="a hook"):
        optimizer.step()
    handle.remove()
    imp.load_state_dict(state)
    half(imp, model, *next(iter(imp.loader(dataset))))
    optimizer.step()
    assert imp.diagnostics.batch_size == 40


class Shrinking(emais.EMAIS):
    """Its steps are worth 1.5 at first, and 0.8 later."""

    def scale(self, factor):
        return 1.5 if self.monitor.added <= 50 else 0.8


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_pass_is_not_cut_short_where_steps_are_worth_less_than_one(task, interrupted):
    dataset, model = task
    optimizer = sgd(model, 0.01)
    imp = Shrinking(400, batch_size=20, num_steps=100, effective_steps=True)
    imp.attach(optimizer)
    for k, (batch, draw) in enumerate(imp.loader(dataset)):
        optimizer.zero_grad()
        half(imp, model, batch, draw)
        optimizer.step()
        if interrupted and k == 49:
            break
    if interrupted:
        epoch(imp, model, optimizer, dataset)
    assert imp.finished
    assert imp.effective_steps == pytest.approx(50 * 1.5 + 32 * 0.8)


def test_a_run_that_has_made_all_its_steps_is_finished(task):
    dataset, model = task
    optimizer = sgd(model)
    imp = emais.EMAIS(400, batch_size=20, num_steps=30, effective_steps=True, warmup_epochs=2)
    imp.attach(optimizer)
    for k, (batch, draw) in enumerate(imp.loader(dataset)):
        half(imp, model, batch, draw)
        if k % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert imp.effective_steps == 28
    assert imp.finished


def test_a_summary_before_the_first_step_speaks_of_no_bad_gradients(task):
    dataset, model = task
    imp = emais.EMAISAuto(400, batch_size=20)
    imp.attach(sgd(model))
    half(imp, model, *next(iter(imp.loader(dataset))))
    told = str(imp.summary())
    assert (
        told == "1 minibatch was observed, and the attached optimizer has made no step yet: attach the one that trains."
    )
    with pytest.raises(EmaisError, match="steps must be"):
        imp.summary(0)


def test_a_state_with_an_estimate_below_0_can_be_loaded(task):
    """|mean gradient|^2 from pairs of few samples is unbiased, and so it may be negative."""
    model = task[1]
    imp = emais.EMAISAuto(400, batch_size=4, num_steps=200)
    imp.attach(sgd(model))
    state = imp.state_dict()
    state["monitor"]["steady"] = torch.tensor([1.0, 1.0, 1.0, -0.1, 0.5], dtype=torch.float64)
    imp.load_state_dict(state)
    assert imp.state_dict()["monitor"]["steady"][3] == -0.1
    state["monitor"]["steady"][0] = -0.1
    with pytest.raises(EmaisError, match=r"monitor\.steady"):
        imp.load_state_dict(state)


def test_a_run_that_is_resumed_at_its_end_says_nothing_of_its_schedule(task):
    dataset, model = task

    def made():
        optimizer = sgd(model)
        imp = emais.EMAISAuto(400, batch_size=20, effective_steps=80)
        imp.attach(optimizer)
        schedule = emais.EffectiveSchedule(CosineAnnealingLR(optimizer, 4), imp, per_epoch=True)
        return imp, schedule, optimizer

    imp, schedule, optimizer = made()
    while not imp.finished:
        epoch(imp, model, optimizer, dataset, schedule.step)
    again, its_schedule, _ = made()
    again.load_state_dict(imp.state_dict())
    its_schedule.load_state_dict(schedule.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.finished
