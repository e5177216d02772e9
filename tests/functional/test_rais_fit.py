"""RAIS's mathematics: the fit against a general solver, and the minimax property by brute force."""

import numpy as np
import pytest
import torch
from reference import constrained_fit

from emais import EmaisError
from emais.functional.rais_fit import fit_uncertainty, minimax_values, misfit


def problem(seed, n, noise=0.5, useless=0):
    """Features that predict the norms with some error, as histories of a gradient norm do; some predict nothing."""
    g = torch.Generator().manual_seed(seed)

    def rough(scale):
        return torch.exp(scale * torch.randn(n, generator=g, dtype=torch.float64))

    base = 2 * torch.rand(n, generator=g, dtype=torch.float64) ** 3 + 0.01
    own = [base * rough(noise) for _ in range(4 - useless)] + [rough(1.0) for _ in range(useless)]
    s = torch.stack([own[0].mean().expand(n), *own], 1)
    return s, base * rough(0.3), rough(0.3), s.mean(0)


@pytest.mark.parametrize(("seed", "n", "useless"), [(0, 60, 0), (1, 300, 1), (2, 1000, 2), (3, 300, 3), (4, 80, 1)])
@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e4])
def test_fit_agrees_with_a_constrained_solver(seed, n, useless, unit):
    s, v, w, mean = problem(seed, n, useless=useless)
    s, v, mean = s * unit, v * unit, mean * unit
    c, d = fit_uncertainty(s, v, w, mean)
    want_c, want_d = constrained_fit(s.numpy(), v.numpy(), w.numpy(), mean.numpy())
    assert float(misfit(c, d, s, v, w)) == pytest.approx(1, rel=1e-9)
    assert float(mean @ d) == pytest.approx(float(mean.numpy() @ want_d), rel=1e-4)
    np.testing.assert_allclose(c, want_c, atol=1e-4 * want_c.max())
    np.testing.assert_allclose(d, want_d, atol=1e-4 * want_d.max())


def test_fit_is_a_minimum_of_its_convex_problem():
    s, v, w, mean = problem(5, 400)
    c, d = fit_uncertainty(s, v, w, mean)
    g = torch.Generator().manual_seed(0)
    for _ in range(200):
        e = torch.randn(2, 5, generator=g, dtype=torch.float64) * 0.05
        c2, d2 = (c + e[0] * c.max()).clamp(min=0), (d + e[1] * d.max()).clamp(min=1e-9)
        d2 = d2 * misfit(c2, d2, s, v, w)  # back into the set of allowed uncertainties
        assert mean @ d2 >= (mean @ d) * (1 - 1e-12)


def test_observations_without_weight_do_not_count():
    s, v, w, mean = problem(6, 300)
    c, d = fit_uncertainty(s, v, w, mean)
    junk = torch.full((50, 5), torch.nan, dtype=torch.float64)
    more = torch.cat((s, junk)), torch.cat((v, junk[:, 0])), torch.cat((w, torch.zeros(50, dtype=torch.float64)))
    torch.testing.assert_close(fit_uncertainty(*more, mean), (c, d), rtol=1e-9, atol=1e-12)


def test_norms_that_are_explained_exactly_leave_no_uncertainty():
    s, _, w, mean = problem(7, 300)
    c, d = fit_uncertainty(s, 0.7 * s[:, 1] + 0.1 * s[:, 2], w, mean)
    torch.testing.assert_close(c, torch.tensor([0, 0.7, 0.1, 0, 0]).double(), rtol=0, atol=1e-6)
    assert d.max() < 1e-9


def test_features_that_are_copies_of_each_other_share():
    s, v, w, mean = problem(8, 300)
    s[:, 3], mean[3] = s[:, 2], mean[2]
    c, d = fit_uncertainty(s, v, w, mean)
    assert c.isfinite().all()
    assert float(c[2]) == pytest.approx(float(c[3]), rel=1e-3)
    assert float(misfit(c, d, s, v, w)) == pytest.approx(1, rel=1e-9)


def test_bad_shapes_are_refused():
    with pytest.raises(EmaisError, match=r"features must be \(n, F\).*\(3, 2\), \(4,\), \(4,\)"):
        fit_uncertainty(torch.ones(3, 2), torch.ones(4), torch.ones(4), torch.ones(2))


def worst_case(p, middle, spread):
    """max of sum_i v_i^2 / p_i over {v: mean_i (middle_i - v_i)^2 / spread_i <= 1}, and where, by its multiplier."""
    a = 1 / p
    low = (a * spread).max()

    def norms(lam):
        return lam * middle / (lam - a * spread)

    def excess(lam):
        return (((norms(lam) - middle) ** 2) / spread).mean() - 1

    lo, hi = low * (1 + 1e-12), low * 2
    while excess(hi) > 0:
        hi *= 2
    for _ in range(200):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if excess(mid) > 0 else (lo, mid)
    v = norms(hi)
    return float((v**2 / p).sum()), v


@pytest.mark.parametrize("seed", range(4))
def test_distribution_is_minimax(seed):
    g = torch.Generator().manual_seed(seed)
    s = torch.rand(7, 3, generator=g, dtype=torch.float64) + 0.05
    c, d = torch.rand(2, 3, generator=g, dtype=torch.float64) + 0.01
    middle, spread = s @ c, s @ d
    best = minimax_values(c, d, s)
    p = best / best.sum()
    value, v = worst_case(p, middle, spread)
    torch.testing.assert_close(v, best, rtol=1e-6, atol=1e-8)  # the worst norms for p are the ones p was made for
    assert value == pytest.approx(float(best.sum()) ** 2, rel=1e-9)
    for scale in (1e-3, 1e-2, 0.1, 1.0):  # and no other distribution has a smaller worst case
        for _ in range(25):
            other = p * torch.exp(scale * torch.randn(7, generator=g, dtype=torch.float64))
            assert worst_case(other / other.sum(), middle, spread)[0] >= value * (1 - 1e-10)
