"""EMAIS with a bound on r and with a fall-back to uniform draws; off, both leave the paper's method to the bit."""

import itertools

import numpy as np
import pytest
import torch

import emais
from emais import EmaisError
from emais.draws.sampler import ExactSampler
from emais.statistics.arrays import arrays_on
from emais.statistics.fallback import Fallback


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("kappa", [1.0, 30.0])  # flattened, and not
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_mixed_draws_come_from_the_mixture(resident, kappa, share):
    M, N, steps = 50, 10, 3000
    sampler = ExactSampler(M, N, kappa, resident=resident)
    sampler.fill(torch.exp(2 * torch.randn(M, generator=torch.Generator().manual_seed(0))))
    p = (1 - share) * sampler.probabilities() + share / M
    arrays, u = arrays_on("cpu", resident), torch.rand(steps, 3, N, dtype=torch.float64)
    counts = torch.zeros(M)
    for k in range(steps):
        index, r = map(arrays.tensor, sampler.tree.draw_mixed(arrays.array(u[k]), share))
        assert torch.allclose(r.double(), 1 / (M * p[index]), rtol=1e-6)
        counts.index_add_(0, index, torch.ones(N))
    expected = steps * N * p
    assert ((counts - expected).square() / expected).sum() < 110  # chi-squared with 49 degrees: p below 1e-6


def test_the_price_of_a_bound_by_enumeration():
    """E r^2|g|^2 of the mixture is at most 1/(1 - 1/bound) times the sampler's, and the estimate stays unbiased."""
    M, N = 6, 2
    g = torch.tensor([0.1, 0.3, 1.0, 2.0, 4.0, 9.0], dtype=torch.float64)
    for wrong in (1.0, 0.5, -1.0):  # the right distribution, a flat one, and the worst
        p = g**wrong / (g**wrong).sum()
        for bound in (1.5, 3.0, 10.0, 100.0):
            q = (1 - 1 / bound) * p + 1 / (bound * M)
            r = 1 / (M * q)
            assert r.max() <= bound * (1 + 1e-12)
            mean = sum(q[i] * q[j] * (r[i] * g[i] + r[j] * g[j]) / N for i, j in itertools.product(range(M), repeat=N))
            assert float(mean) == pytest.approx(float(g.mean()), rel=1e-12)
            drawn = [float((g.square() / (M * x)).mean()) for x in (p, q)]
            assert drawn[1] <= drawn[0] / (1 - 1 / bound) * (1 + 1e-12)


def run(steps=300, **settings):
    """EMAIS where half of the samples have much smaller gradients than the others."""
    torch.manual_seed(0)
    imp = emais.EMAIS(200, 10, num_steps=steps, warmup_epochs=1, **settings)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    imp.attach(optimizer, rule="none")
    scale = torch.ones(200)
    scale[:100] = 0.01
    draws = []
    for _ in range(steps):
        draw = imp.draw()
        z = torch.zeros(10, 1) + 0 * weight
        imp.loss(z.squeeze(1) * scale[draw.index], z, draw).backward()
        optimizer.step()
        draws.append((draw.index, draw.r))
    return imp, draws


@pytest.mark.parametrize("resident", [False, True])
def test_r_never_exceeds_the_bound(resident):
    free, bound = run(resident=resident)[1], run(resident=resident, bound=8.0)[1]
    assert max(float(r.max()) for _, r in free) > 30
    assert 4 < max(float(r.max()) for _, r in bound) <= 8.000001


def test_off_it_is_the_paper_s_to_the_bit():
    plain, same = run()[1], run(bound=None, fallback=False)[1]
    for a, b in zip(plain, same, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("resident", [False, True])
def test_it_falls_back_and_returns(resident):
    """While norms are the reverse of what was learnt the draws are uniform; then the sampler is used again."""
    torch.manual_seed(0)
    imp = emais.EMAIS(
        200, 10, num_steps=2000, warmup_epochs=1, tau=1e6, start="first", fallback=True, resident=resident
    )
    manual = imp.attach(None, rule="none")
    learnt = torch.cat((torch.full((100,), 0.1), torch.ones(100)))
    uniform = []
    for k in range(2000):
        draw = imp.draw()
        norms = learnt.flip(0) if 100 <= k < 900 else learnt
        z = torch.zeros(10, 1, requires_grad=True)
        imp.observe(z.squeeze(1) * norms[draw.index], z, draw)
        manual.lr_scale()
        uniform.append(bool((draw.r == 1).all()))
    assert not any(uniform[25:100])
    assert all(uniform[200:890])
    assert not any(uniform[-300:])
    steps = imp.diagnostics.fallback_steps
    assert 700 < steps < 1700
    assert imp.summary().fallback_steps == steps
    again = emais.EMAIS(200, 10, num_steps=2000, warmup_epochs=1, tau=1e6, start="first", fallback=True)
    again.load_state_dict(imp.state_dict())
    assert again.diagnostics.fallback_steps == steps


@pytest.mark.parametrize("resident", [False, True])
def test_the_warm_up_does_not_count(resident):
    """Constant norms far from the weight of samples not seen yet: nothing is wrong with the sampler."""
    norms = 20 * torch.exp(0.3 * torch.randn(2000, generator=torch.Generator().manual_seed(0)))
    imp = emais.EMAIS(2000, 32, num_steps=300, fallback=True, resident=resident)
    manual = imp.attach(None, rule="none")
    for _ in range(300):
        draw = imp.draw()
        z = torch.zeros(32, 1, requires_grad=True)
        imp.observe(z.squeeze(1) * norms[draw.index], z, draw)
        manual.lr_scale()
    assert imp.diagnostics.fallback_steps == 0
    assert not bool((draw.r == 1).all())


@pytest.mark.parametrize("resident", [False, True])
def test_a_sampler_with_a_bound_is_judged_with_it(resident):
    """Four samples' gradients grow 10,000-fold: with the uniform draws of the bound the sampler is still better."""
    settings = {"num_steps": 1500, "warmup_epochs": 1, "tau": 1e9, "start": "first", "kappa": 10.0, "bound": 4.0}
    imp = emais.EMAIS(200, 10, fallback=True, resident=resident, **settings)
    manual = imp.attach(None, rule="none")
    norms = torch.exp(1.5 * torch.randn(200, generator=torch.Generator().manual_seed(0)))
    norms[:4] = 1e-4
    p = norms.double() / norms.double().sum()
    for k in range(1500):
        draw = imp.draw()
        norms[:4] = 1e-4 if k < 20 else 1.0
        z = torch.zeros(10, 1, requires_grad=True)
        imp.observe(z.squeeze(1) * norms[draw.index], z, draw)
        manual.lr_scale()
    square = norms.double().square()
    alone, mixed = (float((square / (200 * q)).mean()) for q in (p, 0.75 * p + 0.25 / 200))
    assert alone > 1.5 * square.mean()
    assert mixed < 0.8 * square.mean()
    assert imp.diagnostics.fallback_steps == 0


def test_hysteresis():
    watch = Fallback(arrays_on("cpu"))
    one = np.ones(4)
    for _ in range(2000):
        watch.add(one, 1.04 * one, one)  # worse, but not by enough
    assert watch.active() == 0
    for _ in range(2000):
        watch.add(one, 1.2 * one, one)
    assert watch.active() == 1
    for _ in range(2000):
        watch.add(one, 0.97 * one, one)  # better, but not by enough
    assert watch.active() == 1
    for _ in range(2000):
        watch.add(one, 0.8 * one, one)
    assert watch.active() == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bound": 1.0}, "bound must be a number above 1, got 1.0"),
        ({"bound": "10"}, "bound must be a number above 1"),
        ({"fallback": 1}, "fallback must be True or False, got 1"),
    ],
)
def test_impossible_settings(settings, message):
    with pytest.raises(EmaisError, match=message):
        emais.EMAIS(100, 10, **settings)
