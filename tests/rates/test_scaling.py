"""The learning-rate factor: on for one step, off again, and invisible to every scheduler."""

import copy
import gc
import math
import pickle
import weakref

import pytest
import torch
from conftest import Watched, WatchedSGD, losses_of
from torch import nn
from torch.optim import lr_scheduler

import emais
from emais import EmaisError


class Adam(Watched, torch.optim.Adam):
    pass


class AdamW(Watched, torch.optim.AdamW):
    pass


OPTIMIZERS = {
    "sgd": lambda p, lr: WatchedSGD(p, lr=lr, momentum=0.9),
    "adam": lambda p, lr: Adam(p, lr=lr),
    "adamw": lambda p, lr: AdamW(p, lr=lr),
    "fused": lambda p, lr: WatchedSGD(p, lr=torch.tensor(lr), fused=True),
}
SCHEDULERS = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 12),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "step": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "onecycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=13, cycle_momentum=False),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "chained": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.CosineAnnealingLR(o, 8)], [4]
    ),
}


def forward(imp, dataset, model):
    draw = imp.draw()
    losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
    return imp.loss(losses, z, draw)


def train(task, optimizer_name, scheduler_name, attach, steps=12):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters(), 0.1)
    if attach:
        imp.attach(optimizer)
    scheduler = SCHEDULERS[scheduler_name](optimizer)
    rates, factors = [], []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.zero_grad()
        forward(imp, dataset, model).backward()
        optimizer.step()
        factors.append(imp.diagnostics.lr_scale)
        scheduler.step()
    return rates, [first for first, *_ in optimizer.applied], factors


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "fused"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_schedules_are_unchanged_by_the_factor(task, optimizer, scheduler):
    plain, _, _ = train(task, optimizer, scheduler, attach=False)
    rates, applied, factors = train(task, optimizer, scheduler, attach=True)
    assert rates == pytest.approx(plain, rel=1e-6)
    assert applied == pytest.approx([r * f for r, f in zip(rates, factors, strict=True)], rel=1e-5)
    assert any(abs(f - 1) > 0.05 for f in factors)


def test_rule_follows_the_optimizer(task):
    parameters = list(task[1].parameters())
    for name, rule in [("sgd", "linear"), ("adam", "sqrt"), ("adamw", "sqrt"), ("fused", "linear")]:
        assert emais.EMAIS(96, 16).attach(OPTIMIZERS[name](parameters, 0.1)).rule == rule

    class Mine(torch.optim.Optimizer):
        pass

    with pytest.raises(EmaisError, match="Mine: pass rule= one of linear, sqrt, gain, none"):
        emais.EMAIS(96, 16).attach(Mine(parameters, {}))
    with pytest.raises(EmaisError, match="got 'cubic'"):
        emais.EMAIS(96, 16).attach(OPTIMIZERS["sgd"](parameters, 0.1), rule="cubic")


def test_a_closure_gets_the_factor_of_its_own_minibatch(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    seen = []

    class Spy(torch.optim.SGD):
        def step(self, closure=None):
            loss = closure()
            seen.append(self.param_groups[0]["lr"])
            return loss

    optimizer = Spy(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for use_keyword in (False, True, False):

        def closure():
            optimizer.zero_grad()
            loss = forward(imp, dataset, model)
            loss.backward()
            return loss

        result = optimizer.step(closure=closure) if use_keyword else optimizer.step(closure)
        assert result.requires_grad
        assert seen[-1] == pytest.approx(0.1 * imp.diagnostics.lr_scale)
        assert optimizer.param_groups[0]["lr"] == 0.1


def test_every_group_is_scaled_and_restored(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = WatchedSGD([{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.01}])
    imp.attach(optimizer, rule="sqrt")
    for _ in range(3):
        forward(imp, dataset, model).backward()
        optimizer.step()
    f = imp.diagnostics.lr_scale
    assert optimizer.applied[-1] == pytest.approx([0.1 * f, 0.01 * f])
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.01]


class Fragile(WatchedSGD):
    """A step that raises when it is told to, once it has read its rate."""

    fail = False

    def step(self, closure=None):
        if self.fail:
            assert self.param_groups[0]["lr"] > 0
            raise RuntimeError("out of luck")
        return super().step(closure)


def broken(*_):
    raise RuntimeError("out of luck")


def breaks_in_step(optimizer):
    optimizer.fail = True
    return lambda: setattr(optimizer, "fail", False)


def breaks_in_pre_hook(optimizer):
    return optimizer.register_step_pre_hook(broken).remove


def breaks_in_post_hook(optimizer):
    return optimizer.register_step_post_hook(broken).remove


@pytest.mark.parametrize("breaks", [breaks_in_step, breaks_in_pre_hook, breaks_in_post_hook])
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("hook_first", [True, False])
def test_whatever_raises_the_rate_is_what_it_would_be_without_us(task, breaks, lr, scheduler, hook_first):
    """A step that raises and is caught, then the scheduler's: with every scheduler, to the last bit."""
    dataset, model = task

    def rates(attach):
        imp = emais.EMAIS(96, 16, warmup_epochs=0)
        optimizer = Fragile(model.parameters(), lr=copy.deepcopy(lr))
        if attach and not hook_first:
            imp.attach(optimizer)
        schedule = SCHEDULERS[scheduler](optimizer)
        if attach and hook_first:
            imp.attach(optimizer)
        found = []
        for k in range(12):
            optimizer.zero_grad()
            forward(imp, dataset, model).backward()
            if k % 3 == 2:
                mend = breaks(optimizer)
                with pytest.raises(RuntimeError, match="out of luck"):
                    optimizer.step()
                mend()
            else:
                optimizer.step()
            schedule.step()
            found.append(float(optimizer.param_groups[0]["lr"]))
            assert optimizer.state_dict()["param_groups"][0]["lr"] == found[-1]
        if attach:
            assert any(abs(rate - 0.1) > 1e-3 for rate, *_ in optimizer.applied)
        return found

    assert rates(attach=True) == rates(attach=False)


def test_a_long_run_with_steps_that_raise(task):
    """Every third of 300 steps raises: the rate ends where ExponentialLR leaves it."""
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Fragile(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.999)
    for k in range(300):
        optimizer.zero_grad()
        forward(imp, dataset, model).backward()
        optimizer.fail = k % 3 == 2
        if optimizer.fail:
            with pytest.raises(RuntimeError, match="out of luck"):
                optimizer.step()
        else:
            optimizer.step()
        schedule.step()
    plain = 0.1
    for _ in range(300):
        plain *= 0.999
    assert optimizer.param_groups[0]["lr"] == plain


def test_a_closure_that_raises_leaves_the_rate_alone(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    for last in (False, False, True):

        def closure(last=last):
            loss = forward(imp, dataset, model)
            loss.backward()
            if last:
                raise RuntimeError("out of luck")
            return loss

        if last:
            with pytest.raises(RuntimeError, match="out of luck"):
                optimizer.step(closure)
        else:
            optimizer.step(closure)
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.1 * 0.9 * 0.9 * 0.9


def test_after_a_step_that_raised_training_goes_on(task):
    """It had read its rate, so its window is its own; groups that are loaded, set or held by others are theirs."""
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Fragile(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    held, before = optimizer.param_groups[0], copy.deepcopy(optimizer.state_dict())
    for load in (False, True):
        forward(imp, dataset, model).backward()
        optimizer.fail = True
        with pytest.raises(RuntimeError, match="out of luck"):
            optimizer.step()
        optimizer.fail = False
        if load:
            optimizer.load_state_dict(before)
            held = optimizer.param_groups[0]
        held["lr"] = 0.2
        forward(imp, dataset, model).backward()
        optimizer.step()
        assert optimizer.applied[-1] == pytest.approx([0.2 * imp.diagnostics.lr_scale])
        assert imp.diagnostics.batch_size == 16
        assert optimizer.param_groups[0]["lr"] == 0.2
        assert type(optimizer.param_groups[0]) is dict


def test_hooks_and_loggers_see_the_rate_of_the_schedule(task):
    """Also in pre-hooks that come after ours; one that sets the rate is obeyed."""
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    optimizer.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0]["lr"]))
    imp.attach(optimizer)
    optimizer.register_step_pre_hook(lambda o, *_: o.param_groups[0].update(lr=0.3))
    optimizer.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0]["lr"]))
    optimizer.register_step_post_hook(lambda o, *_: seen.append(o.param_groups[0]["lr"]))
    for _ in range(3):
        optimizer.zero_grad()
        forward(imp, dataset, model).backward()
        before = model.weight.detach().clone()
        optimizer.step()
    assert seen == [0.1] + [0.3] * 8
    applied = (before - model.weight.detach()).norm() / model.weight.grad.norm()
    assert float(applied) == pytest.approx(0.3 * imp.diagnostics.lr_scale, rel=1e-4)
    assert abs(imp.diagnostics.lr_scale - 1) > 1e-3


def undocumented(function):
    """A decorator that does not say what it wraps."""

    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


class Renamed(torch.optim.SGD):
    def step(this, closure=None):
        this.applied = this.param_groups[0]["lr"]


class Decorated(torch.optim.SGD):
    @undocumented
    def step(self, closure=None):
        self.applied = self.param_groups[0]["lr"]


@pytest.mark.parametrize("kind", [Renamed, Decorated])
def test_steps_of_any_form_see_the_factor(task, kind):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = kind(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    factors = []
    for _ in range(6):
        forward(imp, dataset, model).backward()
        optimizer.step()
        factors.append(imp.diagnostics.lr_scale)
        assert optimizer.applied == pytest.approx(0.1 * factors[-1])
    assert max(abs(factor - 1) for factor in factors) > 0.05


def test_an_optimizer_that_keeps_its_rate_elsewhere_is_named(task):
    dataset, model = task

    class Elsewhere(torch.optim.SGD):
        def step(self, closure=None):
            return None

    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Elsewhere(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    forward(imp, dataset, model)
    optimizer.step()  # no gradient, nothing to scale
    forward(imp, dataset, model).backward()
    with pytest.warns(UserWarning, match="the step of Elsewhere did not read its learning rate"):
        optimizer.step()
    plain = emais.EMAIS(96, 16, warmup_epochs=0)
    other = Elsewhere(model.parameters(), lr=0.1)
    plain.attach(other, rule="none")
    forward(plain, dataset, model).backward()
    other.step()  # as the warning advises


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_a_step_without_a_minibatch_of_its_own_has_factor_one(task, lr):
    """Such as one of another loss; of two optimizers that share a minibatch both get its factor."""
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer, other = (WatchedSGD([p], lr=copy.deepcopy(lr)) for p in model.parameters())
    for one in (optimizer, other):
        imp.attach(one)
    for _ in range(3):
        forward(imp, dataset, model).backward()
        optimizer.step()
        model.weight.square().sum().backward()
        optimizer.step()
        other.step()
    factor = imp.diagnostics.lr_scale
    assert abs(factor - 1) > 1e-3
    applied = [*optimizer.applied[-2:], other.applied[-1]]
    assert [rate for rate, *_ in applied] == pytest.approx([0.1 * factor, 0.1, 0.1 * factor])


def test_attach_once_and_detach(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = WatchedSGD(model.parameters(), lr=0.1)
    handle = imp.attach(optimizer)
    with pytest.raises(EmaisError, match="attached already"):
        imp.attach(optimizer)
    with pytest.raises(EmaisError, match="share one rule, got 'sqrt' besides 'linear'"):
        imp.attach(torch.optim.Adam(model.parameters()))
    handle.remove()
    for _ in range(4):
        forward(imp, dataset, model).backward()
        optimizer.step()
    assert optimizer.applied == [[0.1]] * 4
    imp.attach(optimizer, rule="none")


def test_grad_scaler_and_autocast(task):
    """Half precision on the CPU: the statistics are those of the unscaled loss, in float32."""
    dataset, model = task
    imp, plain = emais.EMAIS(96, 16), emais.EMAIS(96, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    imp.attach(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    for (batch, draw), (_, other) in zip(imp.loader(dataset), plain.loader(dataset), strict=True):
        losses, z = losses_of(model, batch)
        plain.observe(losses, z, other)
        with torch.autocast("cpu", torch.bfloat16):
            losses, z = losses_of(model, batch)
        assert z.dtype == torch.bfloat16
        optimizer.zero_grad()
        scaler.scale(imp.loss(losses, z, draw)).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(imp.scores.weights(), plain.scores.weights(), rtol=0.05, atol=0.02)
    assert imp.diagnostics.nonfinite == 0


def test_detached_inside_a_closure(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = imp.attach(optimizer)
    for last in (False, False, True):

        def closure(last=last):
            loss = forward(imp, dataset, model)
            loss.backward()
            if last:
                handle.remove()
            return loss

        optimizer.step(closure)
        assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
@pytest.mark.parametrize("before", [True, False])
def test_a_scheduler_that_steps_in_a_hook(task, lr, before):
    """Whether the hook was there before the engine or not."""
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=copy.deepcopy(lr))
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    todo = [lambda: optimizer.register_step_post_hook(lambda *_: schedule.step()), lambda: imp.attach(optimizer)]
    for do in todo if before else reversed(todo):
        do()
    for _ in range(6):
        forward(imp, dataset, model).backward()
        optimizer.step()
    assert abs(imp.diagnostics.lr_scale - 1) > 1e-3
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1 * 0.9**6, rel=1e-5)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("name", ["emais", "emais-auto", "rais"])
def test_statistics_are_the_same_inside_autocast(task, name, resident):
    dataset, model = task
    mixed = torch.randn(3, 4)
    pair = [emais.create(name, 96, batch_size=16, resident=resident, warmup_epochs=1) for _ in range(2)]
    for _ in range(20):
        found = []
        for imp, half in zip(pair, (False, True), strict=True):
            draw = imp.draw()
            losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
            losses = losses + (z @ mixed).square().sum(1)
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                imp.loss(losses, z, draw)
                found.append([float(x) for x in (imp.diagnostics.tr_is, imp.diagnostics.tr_opt, *draw.r)])
        assert found[0] == found[1]
    r, g = torch.rand(4), torch.randn(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        inside = emais.functional.variance_traces(r, g).tr_is
    assert inside == emais.functional.variance_traces(r, g).tr_is


def test_two_optimizers_share_a_step(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    pair = [WatchedSGD([p], lr=0.1) for p in model.parameters()]
    for optimizer in pair:
        imp.attach(optimizer)
    for _ in range(3):
        forward(imp, dataset, model).backward()
        for optimizer in pair:
            optimizer.step()
        assert pair[0].applied[-1] == pair[1].applied[-1] == pytest.approx([0.1 * imp.diagnostics.lr_scale])
        assert imp.diagnostics.batch_size == 16


def test_module_with_batchnorm_and_dropout(task):
    dataset, _ = task
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    imp = emais.EMAIS(96, 16)
    before = model[1].num_batches_tracked.item()
    forward(imp, dataset, model).backward()
    assert model[1].num_batches_tracked.item() == before + 1


def test_a_tensor_rate_that_two_groups_share_is_scaled_once(task):
    dataset, model = task
    lr = torch.tensor(0.1)
    optimizer = WatchedSGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=lr)
    assert optimizer.param_groups[0]["lr"] is optimizer.param_groups[1]["lr"]
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    imp.attach(optimizer)
    for _ in range(40):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
        assert float(lr) == pytest.approx(0.1)
        assert optimizer.applied[-1] == pytest.approx([0.1 * imp.diagnostics.lr_scale] * 2)
    assert imp.diagnostics.lr_scale != 1


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("index", [[3], [3, 3]])
@pytest.mark.parametrize("rule", ["linear", "sqrt"])
def test_rounding_is_no_variance(index, resident, rule):
    """Minibatches of one sample, once or twice: tr_is is the rounding of a difference of equals, of either sign."""
    imp = emais.create("emais", 50, batch_size=len(index), resident=resident, warmup_epochs=0)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    imp.attach(optimizer, rule=rule)
    g = torch.Generator().manual_seed(0)
    for _ in range(40):
        draw = imp.draw()
        own = draw._record  # the engine's record of the draw
        own.index[:] = torch.tensor(index)
        own.r[:] = torch.rand(1, generator=g) + 0.5
        z = torch.zeros(len(index), 7, requires_grad=True)
        imp.observe(z.sum(1), z, draw, grads=torch.rand(1, 7, generator=g).expand(len(index), 7))
        assert imp.diagnostics.lr_scale == 1
        optimizer.step()
    assert imp.diagnostics.degenerate == 40


class Decaying(torch.optim.SGD):
    """Changes its own rate in its step."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] = 0.999 * group["lr"]
        return super().step(closure)


def test_a_step_that_changes_its_own_rate_is_refused_before_the_factor_is_in_it(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Decaying(model.parameters(), lr=0.1)
    handle = imp.attach(optimizer)
    forward(imp, dataset, model).backward()
    with pytest.raises(EmaisError, match="the step of Decaying changes its own learning rate"):
        optimizer.step()
    handle.remove()
    assert optimizer.param_groups[0]["lr"] == 0.1
    imp.attach(optimizer, rule="none")
    forward(imp, dataset, model).backward()
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0999)


class DecayingInPlace(torch.optim.SGD):
    """Changes its own rate in its step, as torch's schedulers change one that is a tensor."""

    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            group["lr"].mul_(0.5)
        return loss


class Scheduled(torch.optim.SGD):
    """Has a scheduler of its own, which it steps."""

    def step(self, closure=None):
        loss = super().step(closure)
        self.schedule.step()
        return loss


@pytest.mark.parametrize("kind", [DecayingInPlace, Scheduled])
def test_a_step_that_writes_to_a_rate_that_is_a_tensor(task, kind):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = kind(model.parameters(), lr=torch.tensor(0.1))
    optimizer.schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    handle = imp.attach(optimizer)
    forward(imp, dataset, model).backward()
    with pytest.raises(EmaisError, match=f"the step of {kind.__name__} changes its own learning rate"):
        optimizer.step()
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1)
    handle.remove()
    imp.attach(optimizer, rule="none")
    for _ in range(3):
        forward(imp, dataset, model).backward()
        optimizer.step()
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1 / 8)


class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise RuntimeError("no")


def test_groups_can_be_copied_after_a_step_that_raised(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Failing(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    forward(imp, dataset, model).backward()
    big = torch.zeros(3)
    alive = weakref.ref(big)

    def attempt(kept):
        with pytest.raises(RuntimeError, match="no"):
            optimizer.step()

    attempt(big)
    del big
    gc.collect()
    assert alive() is None  # the frames of the failed step are gone
    for copied in (copy.deepcopy(optimizer.param_groups), pickle.loads(pickle.dumps(optimizer.param_groups))):
        assert type(copied[0]) is dict
        assert copied[0]["lr"] == 0.1


def test_what_was_observed_before_attach_is_not_its_own(task):
    """Whether or not someone has looked at the report in between."""
    dataset, model = task
    for look in (False, True):
        imp = emais.EMAIS(96, 16, warmup_epochs=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        forward(imp, dataset, model).backward()
        if look:
            assert imp.diagnostics.n_ems > 0
        imp.attach(optimizer)
        optimizer.step()
        assert imp.attached.applied == 1.0


def test_effective_steps_count_what_was_applied(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0, num_steps=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = imp.attach(optimizer)
    schedule = emais.EffectiveSchedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100), imp)
    total = 0.0
    for k in range(12):
        if k == 8:
            handle.remove()
        forward(imp, dataset, model).backward()
        optimizer.step()
        schedule.step()
        total += imp.attached.applied
        assert (imp.attached.applied == 1.0) == (k in (0, 8, 9, 10, 11) or imp.diagnostics.lr_scale == 1.0)
    assert schedule.t_eff == pytest.approx(total)


# ---- weight decay


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
@pytest.mark.parametrize("scale_decay", [True, False])
def test_weight_decay_follows_the_factor_or_not(name, scale_decay):
    """A parameter without a gradient only decays: by the rate alone, or by the rate times the factor."""
    idle = torch.nn.Parameter(torch.ones(1))
    optimizer = getattr(torch.optim, name)([idle], lr=0.01, weight_decay=0.1)
    imp = emais.EMAISAuto(200, 10)
    imp.attach(optimizer, scale_decay=scale_decay)
    g = torch.Generator().manual_seed(0)
    grads, total = torch.randn(200, 3, generator=g) * torch.randn(200, 1, generator=g).exp(), 0.0
    for _ in range(100):
        draw = imp.draw()
        z = torch.zeros(10, 3, requires_grad=True)
        imp.observe((z * grads[draw.index]).sum(1), z, draw)
        idle.grad = torch.zeros(1)
        optimizer.step()
        total += float(imp.attached.applied) if scale_decay else 1.0
    assert imp.effective_steps > 105
    assert optimizer.param_groups[0]["weight_decay"] == 0.1
    assert math.log(idle.item()) == pytest.approx(-0.001 * total, rel=2e-3)


def test_weight_decay_that_cannot_be_kept_apart_is_refused():
    imp = emais.EMAISAuto(200, 10)
    adam = torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=0.01, weight_decay=0.1)
    with pytest.raises(EmaisError, match=r"scale_decay=False needs SGD, AdamW .* got Adam: leave it out"):
        imp.attach(adam, scale_decay=False)
    with pytest.raises(EmaisError, match="scale_decay must be True or False, got None"):
        imp.attach(adam, scale_decay=None)


# ---- a forgotten attach


def trained_without_attach(method, steps=150, **attach):
    imp = emais.create(method, 200, 10)
    if attach:
        imp.attach(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), **attach).remove()
    for _ in range(steps):
        draw = imp.draw()
        z = torch.randn(10, 3, requires_grad=True)
        imp.loss(z.square().sum(1), z, draw)


def test_a_forgotten_attach_is_told_once_at_the_end_of_the_warm_up():
    trained_without_attach("emais-auto", steps=50)  # up to here there would be no factor
    with pytest.warns(UserWarning, match="no optimizer is attached, so no learning rate is scaled") as told:
        trained_without_attach("emais-auto", steps=60)
    assert len(told) == 1
    trained_without_attach("sgd-scan")  # whose factor is 1 anyway
    trained_without_attach("emais", rule="none")  # on purpose


@pytest.mark.parametrize("divided", [1, 2])
def test_a_loop_that_trains_on_another_loss_is_told(task, divided):
    dataset, model = task
    imp = emais.EMAIS(96, 16, num_steps=30)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    imp.attach(optimizer)

    def train(steps, on_ours):
        for k in range(steps):
            draw = imp.draw()
            losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
            loss = imp.loss(losses, z, draw)
            (loss / divided if on_ours else losses.mean()).backward()
            if k % divided == divided - 1:
                optimizer.step()

    with pytest.warns(
        UserWarning, match="3 steps were made, and no gradient came to the loss that imp.loss ret"
    ) as told:
        train(5 * divided, on_ours=False)
    assert len(told) == 1
    imp = emais.EMAIS(96, 16, num_steps=30)
    model.zero_grad()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    imp.attach(optimizer)
    train(5 * divided, on_ours=True)


def test_a_forgotten_loss_is_told_in_the_first_step(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    imp.attach(optimizer)
    optimizer.step()  # before the loader was used: no word
    minibatches = iter(imp.loader(dataset))

    def forgetful_step():
        batch, _draw = next(minibatches)
        optimizer.zero_grad()
        losses_of(model, batch)[0].mean().backward()
        optimizer.step()

    with pytest.warns(UserWarning, match=r"no minibatch was observed: train on imp.loss"):
        forgetful_step()
    for _ in range(3):
        forgetful_step()  # a second warning would be an error
