"""Properties that must hold for any shape, dtype and hostile value."""

import math

import hypothesis.strategies as st
import torch
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from reference import Algorithm1

import emais
from emais import functional as F
from emais.draws.sampler import ExactSampler
from emais.draws.uniforms import Uniforms

quick = settings(max_examples=60, deadline=None)
finite = st.floats(0, 2.0**100, width=32)
anything = st.floats(width=32)  # NaN and infinities included


@quick
@given(arrays("float32", st.integers(1, 40), elements=finite), st.integers(1, 40), st.floats(0.1, 4))
def test_adjusted_probabilities_are_a_bounded_distribution(w, N, kappa):
    if kappa * len(w) < N:
        return
    p = F.adjusted_probabilities(torch.from_numpy(w), N, kappa).double()
    assert (p > 0).all() or p.min() >= 0
    assert math.isclose(p.sum(), 1, rel_tol=1e-5)
    assert p.max() * N <= kappa * (1 + 1e-5)
    order = torch.from_numpy(w).argsort()
    assert (p[order].diff() >= -1e-9).all()  # heavier samples are never drawn less


@quick
@given(st.integers(1, 6), st.integers(1, 4), st.sampled_from(["float16", "float32", "float64", "bfloat16"]), st.data())
def test_traces_of_any_dtype(N, D, dtype, data):
    g = torch.from_numpy(data.draw(arrays("float32", (N, D), elements=st.floats(-100, 100, width=16))))
    r = torch.from_numpy(data.draw(arrays("float32", N, elements=st.floats(0.0625, 16, width=16))))
    traces = F.variance_traces(r, g.to(getattr(torch, dtype)))
    scale = 1 + float((r[:, None] * g).square().sum())
    assert traces.tr_is >= -1e-5 * scale
    assert traces.tr_opt >= -1e-5 * scale
    assert traces.tr_is >= traces.tr_opt - 1e-5 * scale  # the optimum is the lower bound, in every minibatch
    assert 0 < F.lr_scale(traces) <= F.MAX_SCALE


@quick
@given(arrays("float32", (5, 3), elements=anything), arrays("float32", 5, elements=anything))
def test_no_values_make_an_unusable_factor(g, r):
    traces = F.variance_traces(torch.from_numpy(r), torch.from_numpy(g))
    for rule in F.LR_RULES:
        assert 0 < F.lr_scale(traces, rule) <= F.MAX_SCALE
    score = F.efficiency_score(traces)
    assert score.dim() == 0


@quick
@given(st.lists(st.lists(st.tuples(st.integers(0, 7), anything), min_size=1, max_size=10), max_size=8))
def test_scores_follow_the_reference_through_anything(minibatches):
    host, device, reference = emais.EMAScores(8), emais.EMAScores(8, resident=True), Algorithm1(8, 1)
    for t, rows in enumerate(minibatches, 1):
        index = torch.tensor([i for i, _ in rows])
        g = torch.tensor([abs(x) for _, x in rows])
        host.update(t, index, g)
        device.update(torch.tensor(t), index, g)
        for i, x in zip(index.tolist(), g.tolist(), strict=True):
            if x <= 2.0**62:
                reference.update_stats(t, i, x)
    assert torch.equal(host.last_step.long(), device.last_step)
    assert host.last_step.tolist() == reference.t_prev
    for s in (host, device):
        assert s.weights().isfinite().all()
        torch.testing.assert_close(s.mean.double(), torch.tensor(reference.mu).double(), rtol=1e-4, atol=1e-37)


@quick
@given(
    st.integers(1, 200),
    st.integers(1, 40),
    st.lists(st.lists(st.tuples(st.integers(0, 199), finite), min_size=1, max_size=12), max_size=6),
    st.booleans(),
)
def test_sampler_after_any_updates(M, N, updates, resident):
    kappa = max(1.0, N / M)
    s = ExactSampler(M, N, kappa, resident=resident)
    for rows in updates:
        last = {i % M: w for i, w in rows}  # one weight a sample
        s.update(torch.tensor(list(last)), torch.tensor(list(last.values())))
    p = s.probabilities()
    index, r = s.draw(Uniforms(0, 3, N)(1))
    assert index.min() >= 0
    assert index.max() < M
    assert p.max() * N <= kappa * (1 + 1e-6)
    torch.testing.assert_close(r.double() * p[index] * M, torch.ones(N).double(), rtol=0, atol=2e-6)
