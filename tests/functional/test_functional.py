"""The formulas against the paper's pseudo code and, for small M, against exact enumeration over all samples."""

import itertools
import math

import pytest
import torch
from reference import Algorithm1, compute_tr_vars

from emais import EmaisError
from emais import functional as F


def population(M=4, D=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    grads = torch.randn(M, D, generator=g, dtype=torch.float64)
    w = torch.rand(M, generator=g, dtype=torch.float64) + 0.1
    return grads, w / w.sum()


def true_traces(grads, p):
    """Variances by their definition, over the whole population."""
    M = len(grads)
    mean = grads.mean(0)
    is_ = sum(p[i] * ((grads[i] / (M * p[i]) - mean) ** 2).sum() for i in range(M))
    unif = ((grads - mean) ** 2).sum() / M
    norms = grads.norm(dim=1)
    best = norms / norms.sum()
    opt = sum(best[i] * ((grads[i] / (M * best[i]) - mean) ** 2).sum() for i in range(M))
    return is_, unif, opt


def expectation(grads, p, N, statistic):
    """E[statistic(minibatch)] by enumeration of all M^N minibatches."""
    total = None
    r = F.importance_coefficients(p)
    for batch in itertools.product(range(len(p)), repeat=N):
        i = torch.tensor(batch)
        value = p[i].prod() * torch.stack(list(statistic(r[i], grads[i])))
        total = value if total is None else total + value
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7, 3), (5, 2, 4), (6,), (1, 3)])
def test_traces_equal_the_papers_pseudo_code(shape, dtype):
    r, g = torch.rand(shape[0], dtype=dtype) + 0.1, torch.randn(shape, dtype=dtype)
    want = compute_tr_vars(r.double(), g.double().reshape(shape[0], -1))
    for a, b in zip(F.variance_traces(r, g), want, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_expectation_is_that_of_uniform_sampling():
    """prop:exp_equiv."""
    grads, p = population()
    r = F.importance_coefficients(p)
    torch.testing.assert_close((p * r) @ grads, grads.mean(0))


def test_population_traces():
    """prop:tr_cov_est: with expectations in place of means, the three formulas are the variances."""
    grads, p = population()
    r, norms, mu = F.importance_coefficients(p), grads.norm(dim=1), grads.mean(0)
    got = (
        (p * (r * norms) ** 2).sum() - mu @ mu,
        (p * r * norms**2).sum() - mu @ mu,
        (p * r * norms).sum() ** 2 - mu @ mu,
    )
    for a, b in zip(got, true_traces(grads, p), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("N", [2, 3])
def test_bias_of_the_papers_form_and_its_correction(N):
    grads, p = population()
    tr_is, tr_unif, tr_opt = true_traces(grads, p)
    paper = expectation(grads, p, N, F.variance_traces)
    torch.testing.assert_close(paper, torch.stack([(1 - 1 / N) * tr_is, tr_unif - tr_is / N, (1 - 1 / N) * tr_opt]))
    exact = expectation(grads, p, N, lambda r, g: F.variance_traces(r, g, unbiased=True))
    torch.testing.assert_close(exact, torch.stack([tr_is, tr_unif, tr_opt]))


def test_effective_batch_size_matches_variances():
    """prop:ems: the mean of N draws from p has the variance of N_ems uniform draws."""
    grads, p = population()
    N = 3
    traces = F.VarianceTraces(*true_traces(grads, p))
    mean = grads.mean(0)
    var = expectation(grads, p, N, lambda r, g: [(((r[:, None] * g).mean(0) - mean) ** 2).sum()])
    torch.testing.assert_close(traces.tr_unif / F.effective_batch_size(traces, N), var[0])


def test_no_weights_beat_the_optimum():
    grads, _ = population(M=6)
    norms = grads.norm(dim=1)
    _, _, best = true_traces(grads, norms / norms.sum())
    for k in range(200):
        p = torch.rand(6, generator=torch.Generator().manual_seed(k), dtype=torch.float64) + 1e-3
        assert true_traces(grads, p / p.sum())[0] >= best - 1e-12


def test_sums_add_up():
    r, g = torch.rand(9), torch.randn(9, 4)
    parts = F.gradient_sums(r[:2], g[:2]) + F.gradient_sums(r[2:3], g[2:3]) + F.gradient_sums(r[3:], g[3:])
    for a, b in zip(parts.traces(), F.variance_traces(r, g), strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-5)


def test_score_bounds():
    def score(*t):
        return F.efficiency_score(F.VarianceTraces(*torch.tensor(t))).item()

    assert score(1.0, 3.0, 1.0) == 0
    assert score(3.0, 3.0, 1.0) == 1
    assert score(5.0, 3.0, 1.0) == 2
    assert math.isnan(score(1.0, 1.0, 1.0))
    assert math.isnan(score(1.0, 1.0, 2.0))


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), -1.0, 0.0, 0.3, 7.0, 1e9])
def test_guard_agrees_for_floats_and_tensors(ratio):
    factor, bad = F.guard_scale(torch.tensor(ratio, dtype=torch.float64))
    assert (float(factor), bool(bad)) == F.guard_scale(ratio)
    assert 0 < float(factor) <= F.MAX_SCALE


def test_lr_rules():
    r, g = torch.tensor([2.0, 0.5, 1.0]), torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.5, 0.5]])
    t = F.variance_traces(r, g)
    assert F.lr_scale(t, "linear") == t.tr_unif / t.tr_is
    assert F.lr_scale(t, "sqrt").item() == pytest.approx(math.sqrt(t.tr_unif / t.tr_is))
    mu2 = (r[:, None] * g).mean(0).square().sum()
    gain = (t.tr_unif / 3 + mu2) / (t.tr_is / 3 + mu2)
    assert F.lr_scale(t, "gain").item() == pytest.approx(gain.item(), rel=1e-6)
    assert F.lr_scale(t, "none") == 1
    with pytest.raises(EmaisError, match="linear, sqrt, gain, none, got 'cubic'"):
        F.lr_scale(t, "cubic")
    with pytest.raises(EmaisError, match="gain"):
        F.lr_scale(F.VarianceTraces(*t), "gain")


def test_the_gain_of_averaged_moments_is_that_of_the_second_moments():
    """E|g_U|^2 / E|g_R|^2 of minibatch means, by enumeration; the `gain` rule, from one minibatch, is nearer to 1."""
    grads, _ = population()
    grads[0] *= 5
    grads -= 0.97 * grads.mean(0)  # a small mean: there the two differ most
    p = (grads.norm(dim=1) + 0.1) / (grads.norm(dim=1) + 0.1).sum()
    N = 3

    def moments(r, g):
        n = g.norm(dim=1)
        return (r * n**2).mean(), (r * n).square().mean(), (r[:, None] * g).mean(0).square().sum()

    found = F.moment_gain(*expectation(grads, p, N, moments), N)
    is_, unif, _ = true_traces(grads, p)
    mean2 = grads.mean(0).square().sum()
    true = (unif / N + mean2) / (is_ / N + mean2)
    assert true > 1.05
    assert float(found) == pytest.approx(float(true))
    plug_in = (unif / N + mean2 + is_ / N) / (is_ / N + mean2 + is_ / N)
    assert 1 < plug_in < 0.99 * true


def test_degenerate_minibatch_gives_factor_one():
    same = F.variance_traces(torch.ones(3), torch.ones(3, 2))
    assert F.lr_scale(same) == 1
    assert math.isnan(F.efficiency_score(same))


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("spread", [1.0, 1e3, 1e9])
def test_adjusted_probabilities_equal_the_reference(spread, kappa):
    w = spread ** torch.rand(50, dtype=torch.float64)
    want = Algorithm1(50, 10, kappa).compute_adjusted_probabilities(w.tolist())
    torch.testing.assert_close(F.adjusted_probabilities(w, 10, kappa), torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize("weights", [[1.0, 0, 0, 0], [0.0] * 4, [1e-300, 1, 1, 1], [1e300, 1, 0, 0]])
@pytest.mark.parametrize("N", [1, 3, 4])
def test_adjusted_probabilities_of_hostile_weights(weights, N):
    p = F.adjusted_probabilities(torch.tensor(weights, dtype=torch.float64), N)
    assert (p > 0).all()
    assert p.sum().item() == pytest.approx(1)
    assert p.max() * N <= 1 + 1e-6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.adjusted_probabilities(torch.ones(3), 4), "batch_size=4 is above kappa .* Take a smaller"),
        (lambda: F.adjusted_probabilities(torch.ones(3), 0), "batch_size must be .* got 0"),
        (lambda: F.adjusted_probabilities(torch.ones(3), 2, 0), "kappa must be .* got 0"),
        (lambda: F.adjusted_probabilities(torch.ones(0), 1), r"got \(0,\)"),
        (lambda: F.adjusted_probabilities(torch.tensor([1.0, float("nan")]), 1), "finite"),
        (lambda: F.adjusted_probabilities(torch.tensor([1.0, -1.0]), 1), "not negative"),
        (lambda: F.variance_traces(torch.ones(3), torch.ones(4, 2)), r"got \(3,\) and \(4, 2\)"),
        (lambda: F.variance_traces(torch.ones(0), torch.ones(0, 2)), "at least 1"),
    ],
)
def test_errors_say_what_was_given(call, message):
    with pytest.raises(EmaisError, match=message):
        call()


@pytest.mark.parametrize(("num_samples", "batch_size"), [(11, 15), (3, 4), (7, 128), (600, 1000)])
def test_the_kappa_that_the_refusal_names_is_enough(num_samples, batch_size):
    F.check_flattening(num_samples, batch_size, batch_size / num_samples)  # with rounding
    with pytest.raises(EmaisError, match="above kappa") as caught:
        F.check_flattening(num_samples, batch_size, 0.999 * batch_size / num_samples)
    F.check_flattening(num_samples, batch_size, float(str(caught.value).rpartition(" ")[2]))
