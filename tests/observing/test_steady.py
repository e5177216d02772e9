"""The steady factor: by enumeration, on gradients whose best factor is known, and never from its own minibatch."""

import itertools
import math

import numpy as np
import pytest
import torch

import emais
from emais.functional.rates import STEADY_MAX, steady_gain
from emais.functional.traces import gradient_sums
from emais.observing.steady import SteadyMoments
from emais.statistics.arrays import arrays_on


def factors(grads, method="emais-auto", batch_size=32, steps=400, rule="steady", **settings):
    """The factors of a run whose samples always have these gradients (M, D)."""
    imp = emais.create(method, len(grads), batch_size, num_steps=steps, **settings)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    imp.attach(optimizer, rule=rule)
    found = []
    for _ in range(steps):
        draw = imp.draw()
        z = torch.zeros(len(draw.index), grads.shape[1]) + 0 * weight
        imp.loss((z * grads[draw.index]).sum(1), z, draw).backward()
        optimizer.step()
        found.append(float(imp.attached.applied))
    return imp, found


def test_the_gain_is_the_ratio_of_second_moments_by_enumeration():
    """E|mean of r g|^2 over all minibatches of 3, uniform and drawn with p, is what the formula divides."""
    M, N = 4, 3
    g = torch.tensor([[1.0, 0.3], [0.5, -2.0], [0.1, 3.0], [-1.0, 0.2]], dtype=torch.float64)
    p = torch.tensor([0.1, 0.35, 0.4, 0.15], dtype=torch.float64)

    def second_moment(q):
        r = 1 / (M * q)
        every = itertools.product(range(M), repeat=N)
        return sum(float(q[list(b)].prod() * (r[list(b), None] * g[list(b)]).mean(0).square().sum()) for b in every)

    square = g.square().sum(1)
    drawn, uniform = float((square / (M * p)).mean()), float(square.mean())
    want = second_moment(torch.full_like(p, 1 / M)) / second_moment(p)
    assert want > 1.1
    assert steady_gain(uniform, drawn, float(g.mean(0).square().sum()), N) == pytest.approx(want, rel=1e-12)


def test_the_averages_are_unbiased_by_enumeration():
    """Over all minibatches of 3 drawn from p, what is averaged has the right means."""
    M, N = 4, 3
    g = torch.tensor([[1.0, 0.3], [0.5, -2.0], [0.1, 3.0], [-1.0, 0.2]], dtype=torch.float64)
    p = torch.tensor([0.1, 0.35, 0.4, 0.15], dtype=torch.float64)
    r, total = 1 / (M * p), np.zeros(3)
    for batch in itertools.product(range(M), repeat=N):
        sums = gradient_sums(r[list(batch)], g[list(batch)])
        moments = SteadyMoments(arrays_on("cpu", resident=True))
        moments.close(torch.cat((sums.moments, (sums.grad @ sums.grad)[None])), N)
        drawn, uniform, same, square, weight = moments.saved.tolist()
        total += float(p[list(batch)].prod()) * np.array([drawn, uniform, square - same]) / weight
    square = g.square().sum(1)
    want = [float((r * square).mean()), float(square.mean()), float(g.mean(0).square().sum())]
    assert total == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("resident", [False, True])
def test_steps_with_different_numbers_of_samples(resident):
    """As the last of an epoch under accumulation: sums at their expectation give the exact gain of every size."""
    drawn, uniform, mean = 1.5, 4.0, 1.0
    moments = SteadyMoments(arrays_on("cpu", resident=resident))
    for k in range(2000):
        n = 2 if k % 10 == 9 else 16
        sums = torch.tensor([n * drawn, n * uniform, n * 1.1, n * drawn + n * (n - 1) * mean], dtype=torch.float64)
        moments.close(sums if resident else sums.numpy(), n)
    for n in (1, 2, 16):
        assert float(moments.gain(n)) == pytest.approx(steady_gain(uniform, drawn, mean, n), rel=1e-9)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("method", ["emais", "emais-auto"])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_identical_samples_have_factor_1_in_every_step(method, batch_size, resident):
    _, found = factors(torch.ones(600, 3), method, batch_size, resident=resident)
    assert set(found) == {1.0}


@pytest.mark.parametrize("mean", [1.0, 3.3, 20.0, 100.0])
def test_where_the_mean_dominates_the_factor_stays_near_1(mean):
    torch.manual_seed(0)
    _, found = factors(torch.randn(600, 3) + mean)
    assert 1 <= min(found) <= max(found) < 1.02


@pytest.mark.parametrize("batch_size", [2, 32])
def test_the_factor_approaches_the_best_one(batch_size):
    torch.manual_seed(0)
    grads = torch.randn(600, 3) * torch.exp(torch.randn(600, 1))
    grads = torch.cat((grads, -grads))  # no mean: all is noise
    imp, found = factors(grads, batch_size=batch_size, steps=4000, powers=1.0, factors=0.1, bound=1000.0)
    norms = grads.norm(dim=1)
    best = float(norms.square().mean() / norms.mean() ** 2)
    assert best > 2
    assert np.mean(found[-500:]) == pytest.approx(best, rel=0.08)
    assert max(found) < STEADY_MAX
    assert imp.summary().score < 0.1


def test_bounds_hold_whatever_the_gradients():
    torch.manual_seed(0)
    grads = torch.randn(400, 2) * torch.exp(3 * torch.randn(400, 1))
    for method in ("emais", "emais-auto"):
        _, found = factors(grads, method, 8)
        assert 1 <= min(found) <= max(found) <= STEADY_MAX
        _, found = factors(grads, method, 8, max_scale=1.5)
        assert max(found) == 1.5


def test_a_factor_does_not_know_its_own_minibatch():
    """The factor of a step is the same whatever that step's gradients are."""
    torch.manual_seed(0)
    grads = torch.randn(300, 3) * torch.exp(torch.randn(300, 1))
    results = []
    for last in (1.0, 50.0):
        imp = emais.EMAISAuto(300, 16)
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        imp.attach(optimizer)
        for k in range(80):
            draw = imp.draw()
            z = torch.zeros(16, 3, requires_grad=True)
            imp.observe((z * grads[draw.index]).sum(1) * (last if k == 79 else 1.0), z, draw)
            optimizer.step()
        results.append(imp.attached.applied)
    assert results[0] == results[1] > 1


def test_nonfinite_minibatches_change_nothing():
    moments = SteadyMoments(arrays_on("cpu"))
    before = moments.saved.clone()
    for bad in (math.nan, math.inf):
        moments.close(np.array([bad, 1.0, 1.0, 1.0]), 2)
    assert torch.equal(moments.saved, before)
    assert moments.gain(2) == 1


def test_the_bound_is_one_of_the_gain_and_max_scale_one_of_the_factor():
    torch.manual_seed(0)
    grads = torch.zeros(400, 2)
    grads[:8] = 100 * torch.randn(8, 2)
    imp, found = factors(grads, "emais-auto", 8, rule="steady-sqrt", bound=1000.0)
    assert max(found) == imp.monitor.bound == math.sqrt(STEADY_MAX)
    assert imp.summary().bounded > 0
    _, found = factors(grads, "emais-auto", 8, rule="steady-sqrt", bound=1000.0, max_scale=5.0)
    assert math.sqrt(STEADY_MAX) < max(found) <= 5


def test_adam_takes_the_root():
    imp = emais.EMAISAuto(100, 10)
    adam, sgd = (cls([torch.nn.Parameter(torch.zeros(1))], lr=0.1) for cls in (torch.optim.AdamW, torch.optim.SGD))
    assert imp.attach(adam).rule == imp.diagnostics.rule == "steady-sqrt"
    other = emais.EMAISAuto(100, 10)
    assert other.attach(sgd).rule == other.diagnostics.rule == "steady"
