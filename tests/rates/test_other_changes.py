"""A schedule that follows effective steps beside others that change the rate: each multiplies what the others left."""

import copy

import pytest
import torch
from torch.optim import lr_scheduler as S

import emais
from emais import EffectiveSchedule

T, LR = 40, 0.3
EFFECTIVE = {
    "exponential": lambda o: S.ExponentialLR(o, 0.95),
    "cosine": lambda o: S.CosineAnnealingLR(o, T),
    "step": lambda o: S.StepLR(o, 9, 0.5),
}
# these compute each rate from the first one, so they undo what others have changed, here as in plain torch
FROM_THE_FIRST = {
    "lambda": lambda o: S.LambdaLR(o, lambda t: 1 - 0.9 * t / T),
    "one cycle": lambda o: S.OneCycleLR(o, LR, total_steps=T, cycle_momentum=False),
    "cyclic": lambda o: S.CyclicLR(o, LR / 10, LR, step_size_up=8, cycle_momentum=False),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 12),
}
ALL = EFFECTIVE | FROM_THE_FIRST


def plateau(optimizer, follow):
    scheduler = S.ReduceLROnPlateau(optimizer, factor=0.1, patience=5)
    return lambda: scheduler.step(1.0)  # never better


def by_hand(optimizer, follow):
    """A warm-up that sets the rate of the next step after each of the first ten."""
    left = list(range(2, 11))
    optimizer.param_groups[0]["lr"] *= 0.1

    def step():
        if left:
            k = left.pop(0)
            optimizer.param_groups[0]["lr"] *= k / (k - 1)

    return step


def floor(optimizer, follow):
    """No rate below this, set before each step of the optimizer."""

    def step():
        optimizer.param_groups[0]["lr"] = max(optimizer.param_groups[0]["lr"], LR / 5)

    return step


def second(optimizer, follow):
    return follow(S.StepLR(optimizer, 15, 0.2))


OTHERS = {"plateau": plateau, "by hand": by_hand, "a floor": floor, "a second scheduler": second}


def start(kind, other, engine, rate=LR):
    """An optimizer, and what follows each of its steps in the loop; engine None: plain torch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)

    def follow(scheduler):
        return (scheduler if engine is None else EffectiveSchedule(scheduler, engine)).step

    first = follow(ALL[kind](optimizer))
    also = OTHERS[other](optimizer, follow)
    return optimizer, (first, also)


@pytest.mark.parametrize(
    ("other", "tensor"),
    # torch's own ReduceLROnPlateau and the floor put a float in the place of a tensor
    [
        (other, tensor)
        for other in OTHERS
        for tensor in (False, True)
        if not (tensor and other in ("plateau", "a floor"))
    ],
)
@pytest.mark.parametrize("kind", ALL)
def test_steps_that_are_worth_one_give_torchs_rates(kind, other, tensor):
    rates = []
    for engine in (None, emais.create("rais", 96, 16, num_steps=T)):
        optimizer, after = start(kind, other, engine, torch.tensor(LR) if tensor else LR)
        rates.append([])
        for _ in range(T):
            rates[-1].append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if engine is not None:
                engine.progress.add(1.0)
            for step in after:
                step()
    assert rates[1] == pytest.approx(rates[0], rel=1e-5 if tensor else 1e-9)
    assert len(set(rates[0])) > 3


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("kind", [*EFFECTIVE, "lambda"])
def test_a_rate_of_0_stays_until_another_is_set(kind, tensor):
    """A warm-up by hand that begins at 0, or parameters that are frozen for a while; LambdaLR thaws them at once."""
    rates = []
    for engine in (None, emais.create("rais", 96, 16, num_steps=T)):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=torch.tensor(LR) if tensor else LR)
        group, scheduler = optimizer.param_groups[0], ALL[kind](optimizer)
        follow = (scheduler if engine is None else EffectiveSchedule(scheduler, engine)).step
        rates.append([])
        for k in range(12):
            if k in (0, 1, 2, 5):
                lr = LR / 10 if k == 5 else 0.0
                group["lr"].fill_(lr) if tensor else group.update(lr=lr)
            rates[-1].append(float(group["lr"]))
            optimizer.step()
            if engine is not None:
                engine.progress.add(1.0)
            follow()
    frozen = 3 if kind == "lambda" else 5
    assert rates[0][:frozen] == rates[1][:frozen] == [0.0] * frozen
    assert all(lr > 0 for lr in rates[1][frozen:])
    if (
        kind != "cosine"
    ):  # which torch computes from the present rate plus its last step: its thawed rates lie beside ours
        assert rates[1] == pytest.approx(rates[0], rel=1e-5)


def test_a_rate_of_0_stays_where_the_schedule_passes_through_0_itself():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    imp, group = emais.create("rais", 96, 16, num_steps=T), optimizer.param_groups[0]
    schedule = EffectiveSchedule(lambda t: abs(float(t) - 5), imp, optimizer=optimizer)
    group["lr"] = 0.0
    for _ in range(10):
        optimizer.step()
        imp.progress.add(1.0)
        schedule.step()
        assert group["lr"] == 0


@pytest.mark.parametrize("kind", EFFECTIVE)
def test_what_others_change_is_carried_on_between_two_steps_of_the_scheduler(kind):
    """Steps that are worth 1.3: a cosine halved once is half of the cosine that nobody has touched."""
    rates = []
    for times in (1.0, 0.5):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
        imp = emais.create("rais", 96, 16, num_steps=T)
        schedule = EffectiveSchedule(EFFECTIVE[kind](optimizer), imp)
        rates.append([])
        for k in range(25):
            optimizer.step()
            imp.progress.add(1.3)
            if k == 9:
                optimizer.param_groups[0]["lr"] *= times
            schedule.step()
            rates[-1].append(optimizer.param_groups[0]["lr"])
    assert rates[1] == pytest.approx([lr * (1.0 if k < 9 else 0.5) for k, lr in enumerate(rates[0])])


@pytest.mark.parametrize("kind", ["cosine", "lambda"])
def test_a_resume_keeps_what_others_have_changed(kind):
    """Also what they changed after the schedule's last step, to the bit."""

    def fresh():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
        imp = emais.create("rais", 96, 16, num_steps=T)
        return optimizer, imp, EffectiveSchedule(ALL[kind](optimizer), imp)

    def go(optimizer, imp, schedule, steps):
        for _ in range(steps):
            optimizer.step()
            imp.progress.add(1.3)
            schedule.step()
            yield optimizer.param_groups[0]["lr"]

    optimizer, imp, schedule = fresh()
    list(go(optimizer, imp, schedule, 7))
    optimizer.param_groups[0]["lr"] *= 0.37
    list(go(optimizer, imp, schedule, 2))
    optimizer.param_groups[0]["lr"] *= 0.71
    saved = copy.deepcopy((schedule.state_dict(), optimizer.state_dict()))
    want = list(go(optimizer, imp, schedule, 12))
    for order in (0, 1):
        other, imp, again = fresh()
        for k in (order, 1 - order):
            (again, other)[k].load_state_dict(copy.deepcopy(saved[k]))
        assert list(go(other, imp, again, 12)) == want


def test_a_function_of_t_keeps_a_warm_up_by_hand_and_its_tensors():
    lr = torch.tensor(LR)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    imp = emais.create("rais", 96, 16, num_steps=T)
    schedule = EffectiveSchedule(lambda t: 1 - torch.as_tensor(t) / T, imp, optimizer=optimizer)
    kept = [schedule._low[0], schedule._written[0]]  # a captured step reads them where they are
    for k in range(6):
        lr.mul_(0.5 if k == 2 else 2.0 if k == 4 else 1.0)
        optimizer.step()
        imp.progress.add(2.0)
        schedule.step()
        part = 0.5 if 2 <= k < 4 else 1.0
        assert float(lr) == pytest.approx(part * LR * (1 - 2 * (k + 1) / T))
    assert schedule._low[0] is kept[0]
    assert schedule._written[0] is kept[1]
