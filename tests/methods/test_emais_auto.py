"""EMAIS-auto: the estimator by enumeration, the candidates by hand, and who draws when the stream changes."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import emais
from emais import EmaisError
from emais import functional as F
from emais.statistics.arrays import arrays_on
from emais.statistics.candidates import CandidateScores

pytestmark = pytest.mark.filterwarnings("ignore:.* no optimizer is attached")  # these loops train nothing


def test_trace_under_by_enumeration():
    """Over all minibatches of 2 drawn from p: its mean is tr' - tr_is/2, and exactly tr' when unbiased."""
    M, N = 4, 2
    g = torch.tensor([[1.0, 0.0], [0.5, -2.0], [0.0, 3.0], [-1.0, 0.2]], dtype=torch.float64)
    p, other = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.3, 0.1, 0.2, 0.4]], dtype=torch.float64)
    r, r_other = 1 / (M * p), 1 / (M * other)
    mean = g.mean(0).square().sum()
    want = {name: float((1 / (M * q) * g.square().sum(1)).mean() - mean) for name, q in (("p", p), ("other", other))}
    for unbiased in (False, True):
        expected = 0.0
        for batch in itertools.product(range(M), repeat=N):
            i = list(batch)
            chance = float(p[i].prod())
            expected += chance * float(F.trace_under(r[i], r_other[i], g[i], unbiased=unbiased))
        assert expected == pytest.approx(want["other"] - (0 if unbiased else want["p"] / N), rel=1e-9)


def test_it_contains_the_paper_s_traces():
    g, r = torch.randn(16, 3), torch.rand(16) + 0.5
    traces = F.variance_traces(r, g)
    torch.testing.assert_close(F.trace_under(r, r, g), traces.tr_is)
    torch.testing.assert_close(F.trace_under(r, torch.ones(16), g), traces.tr_unif)


def test_trace_under_checks_what_it_is_given():
    g, r = torch.randn(4), (torch.rand(4) + 0.5).requires_grad_()
    torch.testing.assert_close(F.trace_under(r, r, g), F.variance_traces(r, g).tr_is)  # one number per sample
    assert not F.trace_under(r, r, g).requires_grad
    assert F.trace_under(r[:1], r[:1], g[:1], unbiased=True).isnan()
    assert F.variance_traces(r[:1], g[:1], unbiased=True).tr_is.isnan()
    for other in (torch.ones(1), torch.ones(4, 1)):
        with pytest.raises(EmaisError, match=r"r_other must be \(4,\) as r, got"):
            F.trace_under(r, other, g)
    with pytest.raises(EmaisError, match=r"r must be \(N,\)"):
        F.trace_under(torch.ones(3), torch.ones(3), g)


class Literal:
    """The candidates one sample at a time, in float64."""

    def __init__(self, M, factors, powers, bound, window, most):
        self.M, self.factors, self.powers, self.bound, self.window, self.most = M, factors, powers, bound, window, most
        self.mean = {c: [0.0] * M for c in factors}
        self.last = [0] * M
        self.moments = [0.0] * (len(factors) * len(powers) + 1)
        self.lay_out()

    def lay_out(self):
        self.center = {c: sum(self.w(c, i) for i in range(self.M)) / self.M for c in self.factors}
        self.exponent = {(c, a): a for a in self.powers for c in self.factors}
        for c, a in self.exponent:
            while max(own := [self.weight(c, a, i) for i in range(self.M)]) > self.most * sum(own):
                self.exponent[c, a] /= 2

    def w(self, c, i):
        return self.mean[c][i] if self.last[i] else 1.0

    def weight(self, c, power, i):
        shift = self.center[c] / (self.bound ** (1 / power) - 1) if power else 0.0
        return (self.w(c, i) + shift) ** self.exponent[c, power]

    def weights(self):
        return [[self.weight(c, a, i) for i in range(self.M)] for a in self.powers for c in self.factors]

    def update(self, t, index, norms, r, grad):
        new = []
        for own in self.weights():
            other = [sum(own) / self.M / own[i] for i in index]
            new.append(sum(a * b * v * v for a, b, v in zip(r, other, norms, strict=True)) / len(index))
        new.append(sum(x * x for x in grad) / len(index) ** 2)
        self.moments = [m + (x - m) / self.window for m, x in zip(self.moments, new, strict=True)]
        for place, i in enumerate(index):
            if i in index[:place]:
                continue
            for c in self.factors:
                alpha = math.exp(-(t - self.last[i]) / (c * t))
                self.mean[c][i] += (1 - alpha) * (norms[place] - self.mean[c][i])
            self.last[i] = t


@pytest.mark.parametrize("most", [1.0, 0.05])
@pytest.mark.parametrize("bound", [10.0, math.inf])
@pytest.mark.parametrize("powers", [(1.0, 0.6), (1.0, 0.5, 0.25, 0.0)])
@pytest.mark.parametrize("resident", [False, True])
def test_candidates_are_the_literal_ones(resident, powers, bound, most, monkeypatch):
    monkeypatch.setattr("emais.statistics.candidates.BLOCK", 7)
    M, factors = 30, (1.0, 0.2, 0.05)
    s = CandidateScores(M, factors, powers, bound=bound, most=most, window=20.0, arrays=arrays_on("cpu", resident))
    literal = Literal(M, factors, powers, bound, 20.0, most)
    rng = np.random.default_rng(0)
    for t in range(1, 60):
        index = rng.integers(M, size=8)
        norms, r = rng.random(8).astype(np.float32) + 0.1, (rng.random(8) + 0.5).astype(np.float32)
        grad = rng.random(3)
        arrays = [torch.from_numpy(x) for x in (index, norms, r, grad)] if resident else [index, norms, r, grad]
        index, w = s.update(torch.tensor(t) if resident else t, *arrays)
        literal.update(t, arrays[0].tolist(), norms.tolist(), r.tolist(), grad.tolist())
        want = torch.tensor(literal.weights())
        last = {i: place for place, i in enumerate(index.tolist())}  # of a sample that is listed twice the last counts
        assert last.keys() == set(arrays[0].tolist())
        got = torch.as_tensor(w)[:, list(last.values())]
        torch.testing.assert_close(got, want[:, list(last)], rtol=1e-4, atol=1e-6)
        assert s.totals.view(-1).tolist() == pytest.approx(want.double().sum(1).tolist(), rel=1e-5)
        if t % 10 == 0:
            s.lay_out()
            literal.lay_out()
            assert s.exponents.view(-1).tolist() == pytest.approx(list(literal.exponent.values()))
    assert any(own < a for (_, a), own in literal.exponent.items()) == (most < 1)  # flattening was at work, or not
    for k, w in enumerate(literal.weights()):
        torch.testing.assert_close(s.weights(torch.tensor([k])), torch.tensor(w), rtol=1e-4, atol=1e-6)
    assert s.moments.tolist() == pytest.approx(literal.moments, rel=1e-4)
    traces = [m - literal.moments[-1] for m in literal.moments[:-1]]
    assert s.traces().tolist() == pytest.approx(traces, rel=1e-3)


@pytest.mark.parametrize("power", [1.0, 0.6, 0.1])
def test_no_coefficient_is_above_the_bound(power):
    """All weight on one sample of many, and half of the samples without any."""
    s = CandidateScores(10_000, (1.0,), (power,), bound=4.0, unseen=0.0)
    for norm in (1e-9, 1.0, 1e6):
        s.means[:], s.means[0, 0], s.last_step[:] = norm * 1e-12, norm, 1
        s.lay_out()
        w = s.weights(torch.tensor([0])).double()
        assert float((w.mean() / w).max()) <= 4.0 * (1 + 1e-6)
    s.means[0, :5000], s.means[0, 5000:] = 0.0, 1.0
    s.lay_out()
    w = s.weights(torch.tensor([0])).double()
    assert 1.5 < float((w.mean() / w).max()) <= 4.0


def observe(imp, norms_of):
    """One step on made-up gradients in three directions."""
    draw = imp.draw()
    z = torch.zeros(len(draw), 3, requires_grad=True)
    direction = torch.nn.functional.one_hot(draw.index % 3, 3).float()
    imp.observe(z.sum(1), z, draw, grads=direction * norms_of(draw.index)[:, None])
    return draw


@pytest.mark.parametrize("resident", [False, True])
def test_the_means_are_algorithm_1_s(resident):
    M, norms = 200, torch.rand(200) + 0.05
    imp = emais.create("emais-auto", M, batch_size=16, factors=(1.0, 0.1), resident=resident, seed=2)
    linear = emais.EMAScores(M, "linear")
    for step in range(1, 121):
        index = observe(imp, lambda i: norms[i]).index
        linear.update(step, index, norms[index])
    assert torch.equal(imp.scores.last_step, linear.last_step)
    torch.testing.assert_close(imp.scores.means[0], linear.mean, rtol=1e-5, atol=0)
    assert not torch.allclose(imp.scores.means[1], linear.mean, rtol=1e-2)


@pytest.mark.parametrize("resident", [False, True])
def test_one_candidate_draws_from_its_weights(resident):
    alone = {"factors": 0.5, "powers": 0.6, "bound": math.inf}
    imp = emais.create("emais-auto", 200, batch_size=16, **alone, resident=resident, period=7)
    level = torch.rand(200) + 0.05
    for _ in range(60):
        observe(imp, lambda i: level[i])
    w = imp.scores.means[0].double() ** 0.6
    torch.testing.assert_close(imp.probabilities(), w / w.sum(), rtol=1e-6, atol=0)
    draw = imp.draw()
    torch.testing.assert_close(draw.r.double() * w[draw.index] / w.mean(), torch.ones(16).double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("bound", [10.0, math.inf])
@pytest.mark.parametrize("resident", [False, True])
def test_a_power_of_0_is_uniform_exactly(resident, bound):
    M, seen, rng = 30, [], np.random.default_rng(0)
    s = CandidateScores(
        M, (1.0, 0.1), (1.0, 0.0), bound=bound, most=0.05, window=1.0, arrays=arrays_on("cpu", resident)
    )
    for t in range(1, 40):
        arrays = rng.integers(M, size=8), np.exp(rng.normal(size=8) * 3), rng.random(8) + 0.5, rng.random(3)
        index, norms, r, grad = (x if x.dtype == np.int64 else x.astype(np.float32) for x in arrays)
        given = map(torch.from_numpy, (index, norms, r, grad)) if resident else (index, norms, r, grad)
        _, w = s.update(torch.tensor(t) if resident else t, *given)
        seen.append(torch.as_tensor(w[2:]).unique().tolist())
        assert s.totals[1].tolist() == [M, M]  # so r' = mean(w)/w = 1
        assert s.moments[2:4].tolist() == pytest.approx([float((r * norms**2).mean())] * 2, rel=1e-5)
        if t % 10 == 0:
            s.lay_out()
    assert seen == [[1.0]] * 39
    assert s.exponents[1].tolist() == [0.0, 0.0]
    assert s.exponents[0].max() < 1  # the other power was flattened meanwhile
    for candidate in (2, 3):
        assert s.weights(torch.tensor([candidate])).tolist() == [1.0] * M


@pytest.mark.parametrize("resident", [False, True])
def test_with_a_power_of_0_alone_it_draws_uniformly(resident):
    imp = emais.create("emais-auto", 200, batch_size=16, powers=0, warmup_epochs=0, period=7, resident=resident)
    level = torch.exp(2 * torch.randn(200))
    for _ in range(60):
        assert observe(imp, lambda i: level[i]).r.tolist() == [1.0] * 16
    torch.testing.assert_close(
        imp.probabilities(), torch.full((200,), 1 / 200, dtype=torch.float64), rtol=1e-12, atol=0
    )
    assert imp.diagnostics.n_ems == pytest.approx(16)


def second_moment_over_uniform(seed, steps=3000, M=2000, N=64, **powers):
    """E[r² n²]/E[r n²] over the second half of a run in which all norms n are drawn afresh: the mean of all 1/(M p)."""
    g = torch.Generator().manual_seed(seed)
    imp = emais.create("emais-auto", M, batch_size=N, num_steps=steps, seed=seed, **powers)
    found = []
    for step in range(1, steps + 1):
        observe(imp, lambda i: torch.exp(1.5 * torch.randn(len(i), generator=g)))
        if step > steps // 2 and step % 25 == 0:
            found.append(float((1 / (M * imp.probabilities())).mean()))
    return np.mean(found)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", [0, 2])
def test_where_no_sample_differs_from_another_it_samples_uniformly(seed):
    """Each weight is noise then, and costs. Over five seeds: at most 1.016, and without the power 0 at least 1.038."""
    assert second_moment_over_uniform(seed) < 1.03 < second_moment_over_uniform(seed, powers=(1.0, 0.5))


def changing_stream(step, half, g):
    """First noise around levels that stay, where a long memory is best; then levels that move, without noise."""
    base = changing_stream.base
    if step <= half:
        return base * torch.exp(0.8 * torch.randn(len(base), generator=g))
    if step % 150 == 0:
        changing_stream.moving = base[torch.randperm(len(base), generator=g)]
    return changing_stream.moving


@pytest.mark.parametrize("resident", [False, True])
def test_it_follows_the_best_candidate(resident):
    M, N, half = 300, 64, 1500
    g = torch.Generator().manual_seed(0)
    changing_stream.base = changing_stream.moving = torch.exp(1.5 * torch.randn(M, generator=g))
    imp = emais.create("emais-auto", M, batch_size=N, factors=(1.0, 0.01), powers=(1.0,), resident=resident)
    excess, drawing = {1: [], 2: []}, {1: [], 2: []}
    for step in range(1, 2 * half + 1):
        norms = changing_stream(step, half, g)
        observe(imp, lambda i, norms=norms: norms[i])
        part = 1 if step <= half else 2
        if (step - 1) % half >= 400:  # after the window, and a decision or two
            traces = imp.scores.traces()
            excess[part].append(float(traces[int(imp._active)] / traces.min()))
            drawing[part].append(imp.scores.candidates[int(imp._active)][0])
    assert np.mean(excess[1]) < 1.05
    assert np.mean(excess[2]) < 1.05
    assert np.mean(np.array(drawing[1]) == 1.0) > 0.9
    assert np.mean(np.array(drawing[2]) == 0.01) > 0.9
    assert imp.diagnostics.switches >= 1


def test_report_and_size():
    imp = emais.create("emais-auto", 50_000)
    assert imp.nbytes() <= (12.75 + 4 * 4 + 0.1) * 50_000
    names = imp.diagnostics.as_dict()
    assert names["tau_factor"] == 1.0
    assert "trace_0.1_0.5" in names


def test_a_report_takes_as_many_operations_for_any_number_of_candidates():
    """A logger may ask in every step; one by one, 16 candidates took three times as long as all the rest."""

    def operations(**candidates):
        report = emais.create("emais-auto", 200, **candidates).diagnostics
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            report.as_dict()
        return sum(event.count for event in seen.key_averages() if event.key.startswith("aten::"))

    assert operations() == operations(factors=1.0, powers=1.0)


@pytest.mark.parametrize("resident", [False, True])
def test_what_is_compared_is_what_would_be_drawn_from(resident):
    """Norms so uneven that all powers are flattened: it still finds the one whose flattened distribution is best."""
    M, powers = 600, (1.0, 0.8, 0.6)
    norms = torch.exp(1.3 * torch.randn(M, generator=torch.Generator().manual_seed(0)))

    def engine(own):
        imp = emais.create(
            "emais-auto", M, batch_size=64, factors=0.1, powers=own, bound=1e6, resident=resident, hysteresis=0.0
        )
        for _ in range(400):
            observe(imp, lambda i: norms[i])
        return imp

    def second_moment(imp):
        return float((norms.double() ** 2 / imp.probabilities()).mean()) / M

    alone = {power: second_moment(engine(power)) for power in powers}
    assert min(alone, key=alone.get) != 1.0
    chosen = engine(powers)
    assert chosen.diagnostics.power == min(alone, key=alone.get)
    assert second_moment(chosen) == pytest.approx(min(alone.values()), rel=0.05)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e19])
def test_a_minibatch_without_a_usable_norm_changes_nothing(resident, bad):
    imp = emais.create("emais-auto", 50, batch_size=8, warmup_epochs=0, resident=resident)
    for _ in range(10):
        observe(imp, lambda i: 1.0 + i % 3)
    before = imp.state_dict()["state"]
    observe(imp, lambda i: torch.full((8,), bad))
    assert all(torch.equal(before[name], value) for name, value in imp.state_dict()["state"].items())
    assert imp.diagnostics.nonfinite == 8


@pytest.mark.parametrize("resident", [False, True])
def test_after_a_refresh_r_is_bounded_at_the_next_decision(resident):
    M = 400
    imp = emais.create("emais-auto", M, batch_size=20, warmup_epochs=0, kappa=20, resident=resident)
    observe(imp, lambda i: torch.ones(20))
    norms = torch.where(torch.arange(M) % 40 == 0, 1e4, 1e-3)
    imp.refresh(torch.arange(M), torch.zeros(M), torch.zeros(M, 1), grads=norms[:, None])
    assert float((1 / (M * imp.probabilities())).max()) > 1000
    observe(imp, lambda i: norms[i])  # the decision comes with the next minibatch, not after a period
    observe(imp, lambda i: norms[i])
    p = imp.probabilities()
    assert 5 < float((1 / (M * p)).max()) < 15  # means go on growing from there


@pytest.mark.parametrize("resident", [False, True])
def test_a_refresh_in_parts_is_that_of_all(resident, monkeypatch):
    def refreshed():
        imp = emais.create("emais-auto", 300, batch_size=20, resident=resident, seed=1)
        observe(imp, lambda i: 1.0 + i % 5)
        g = torch.linspace(0.1, 3.0, 300)[:, None]
        imp.refresh(torch.arange(300), torch.zeros(300), torch.zeros(300, 1), grads=g)
        return imp.state_dict()["state"]

    whole = refreshed()
    monkeypatch.setattr("emais.observing.refreshing.LEARNT_AT_ONCE", 7)
    parts = refreshed()
    for name in ("means", "last_step", "moments"):
        assert torch.equal(whole[name], parts[name])
    assert not torch.equal(whole["means"][0], torch.ones(300))


@pytest.mark.parametrize("resident", [False, True])
def test_a_negative_trace_hands_over_to_nobody(resident):
    """With one sample a minibatch the estimate is often below 0: no candidate is better than itself then."""
    imp = emais.create("emais-auto", 30, batch_size=1, factors=0.3, powers=1, period=2, window=2, resident=resident)
    negative = 0
    for _ in range(200):
        observe(imp, lambda i: 0.5 + (i % 7) / 7)
        negative += bool(imp.scores.traces()[0] < 0)
    assert negative > 20
    assert imp.diagnostics.switches == 0


@pytest.mark.parametrize("settings", [{"powers": (1, 0.003)}, {"bound": 1e200}, {"bound": math.inf, "powers": 0.01}])
def test_extreme_settings_leave_the_weights_as_they_are(settings):
    s = emais.create("emais-auto", 50, batch_size=5, **settings).scores
    assert float(s.shifts[-1].max()) < 1e-90
    assert s.weights(torch.tensor([len(s.candidates) - 1])).tolist() == [1.0] * 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factors": (0.1, 0.1000001)}, r"factors must differ .* got \(0.1, 0.1000001\)"),
        ({"powers": (1, 1)}, r"powers must differ .* got \(1.0, 1.0\)"),
        ({"tau": 10}, "emais-auto takes no 'tau'"),
        ({"factors": ()}, "at least one time constant"),
        ({"factors": (0.0,)}, "factors must be .* got 0.0"),
        ({"powers": (-0.1,)}, "powers must be .* got -0.1"),
        ({"powers": (1.5,)}, r"from 0 to 1, got \(1.5,\)"),
        ({"powers": "x"}, "powers must be .* got 'x'"),
        ({"powers": ()}, "at least one number"),
        ({"bound": 1}, "bound.* must be a number above 1, got 1"),
        ({"bound": math.nan}, "bound.* must be a number above 1, got nan"),
        ({"hysteresis": 1.0}, "hysteresis must be .* got 1.0"),
        ({"period": 0}, "period must be .* got 0"),
        ({"window": -1}, "window must be .* got -1"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(EmaisError, match=message):
        emais.create("emais-auto", 100, batch_size=10, **options)


def test_tau_auto_says_where_it_is():
    with pytest.raises(EmaisError, match=r'emais.create\("emais-auto"'):
        emais.EMAIS(100, 10, tau="auto")


def test_decisions_are_rarer_where_samples_are_many():
    """A decision looks at all samples, so its share of a step must not grow with their number."""
    assert emais.EMAISAuto(60_000, 128).period == 50
    assert emais.EMAISAuto(400_000, 16).period == 400_000 // 16 // 20
    assert emais.EMAISAuto(400_000, 16, period=30).period == 30
