"""The exact examples of docs/math.md: what stays biased although mean(r g) is not. Every minibatch counts: no noise."""

import itertools
import math
import re

import pytest
import torch
from places import ROOT
from torch import nn

from emais import functional as F
from emais.observing.monitor import Monitor
from emais.observing.observation import Observation
from emais.statistics.arrays import arrays_on

pytestmark = pytest.mark.usefixtures("one_thread")

PAGE = (ROOT / "docs" / "math.md").read_text()


def section(title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)[1]


def table(title):
    """Cells of the rows by the first cell; the head of the table is left out."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*$", section(title), re.M)
    ]
    return {name: cells for name, *cells in rows[2:]}


def numbers(title):
    """All numbers in the text of a section, outside its tables."""
    return re.findall(r"\d+\.\d+", re.sub(r"^\|.*$", "", section(title), flags=re.M))


def minibatches(p, n):
    """(index, probability) of every minibatch of n draws with replacement; all orders of it count as one."""
    for batch in itertools.combinations_with_replacement(range(len(p)), n):
        counts = torch.bincount(torch.tensor(batch), minlength=len(p)).tolist()
        orders = math.factorial(n) // math.prod(map(math.factorial, counts))
        yield torch.tensor(batch), orders * float(p[list(batch)].prod())


def test_every_minibatch_is_counted():
    assert sum(q for _, q in minibatches(P, N)) == pytest.approx(1)
    product = list(itertools.product(range(4), repeat=N))
    assert len(product) == 64
    for index, q in minibatches(P, N):
        same = [b for b in product if sorted(b) == index.tolist()]
        assert q == pytest.approx(sum(float(P[list(b)].prod()) for b in same))


# ---- the factor and the gradient share a minibatch

UPDATE = "Bias of the update: its factor comes from the same minibatch"
GRADS = torch.tensor([[3, 1], [3, -1], [2, 0], [-1, 1]], dtype=torch.float64)
P = torch.tensor([0.3, 0.3, 0.3, 0.1], dtype=torch.float64)
R = F.importance_coefficients(P)
N, RARE = 3, 3
FULL = GRADS.mean(0)


def own_factor(rule):
    """The factor from the minibatch at hand alone, guards included."""
    return lambda index: float(F.lr_scale(F.variance_traces(R[index], GRADS[index]), rule))


def sums(index):
    return F.gradient_sums(R[index], GRADS[index])


def expected_sums():
    """What the sums of a minibatch are on average."""
    parts = [sums(index) * q for index, q in minibatches(P, N)]
    return F.GradientSums(N, sum(s.moments for s in parts), sum(s.grad for s in parts))


def smoothed_factor(smoothing, before):
    """The factor that the engine's monitor gives with these sums before the minibatch."""

    def factor(index):
        monitor = Monitor(smoothing, False, F.MAX_SCALE, arrays_on("cpu"))
        empty = monitor.state_dict()
        own = {"num": torch.tensor(float(before.num)), "moments": before.moments, "grad": before.grad}
        monitor.load_state_dict(empty | {"before": empty["before"] | own})
        monitor.rule = "linear"
        r, g = R[index], GRADS[index]
        monitor.add(Observation(1, index.numpy(), r.numpy(), g.norm(dim=1).numpy(), (r @ g).numpy()))
        return monitor.lr_scale()

    return factor


def expected_update(factor, n=N):
    """E[factor], E[factor mean(r g)]/E[factor], and the rare sample's coefficient in the latter times M."""
    scale, update, weight = 0.0, torch.zeros(2, dtype=torch.float64), 0.0
    for index, q in minibatches(P, n):
        f = q * factor(index)
        scale += f
        update += f * (R[index] @ GRADS[index]) / n
        weight += f * float(R[RARE]) * (index == RARE).double().mean().item() * len(P)
    return scale, update / scale, weight / scale


def test_the_page_has_the_example():
    def row(values, form):
        return ", ".join(form(v) for v in values)

    text = section(UPDATE).replace("−", "-")
    assert f"g = {row(GRADS.tolist(), lambda v: f'({v[0]:g}, {v[1]:g})')} " in text
    assert f"p = {row(P.tolist(), '{:g}'.format)} " in text
    assert f"r = {row(R.tolist(), lambda v: f'{v:.3g}')} " in text
    assert f"N = {N}\n" in text
    assert f"({FULL[0]:g}, {FULL[1]:g})" in text


def test_the_gradient_is_unbiased():
    mean = sum(q * (R[index] @ GRADS[index]) / N for index, q in minibatches(P, N))
    torch.testing.assert_close(mean, FULL, rtol=0, atol=1e-12)


def test_the_update_is_not_and_the_page_has_the_numbers():
    before = expected_sums()
    cases = {
        '`rule="none"`': (own_factor("none"), N),
        "`linear`, the paper's": (own_factor("linear"), N),
        "`linear`, N = 12": (own_factor("linear"), 12),
        "`linear`, `smoothing=0.9`": (smoothed_factor(0.9, before), N),
        "`linear`, `smoothing=0.99`": (smoothed_factor(0.99, before), N),
        "`sqrt`": (own_factor("sqrt"), N),
        "`gain`": (own_factor("gain"), N),
    }
    found = {name: expected_update(*case) for name, case in cases.items()}
    cells = {k: [f"{s:.2f}", f"({u[0]:.2f}, {u[1]:.2f})", f"{w:.2f}"] for k, (s, u, w) in found.items()}
    assert table(UPDATE) == cells
    torch.testing.assert_close(found['`rule="none"`'][1], FULL)
    assert found["`linear`, the paper's"][2] < 0.25


def test_rare_samples_make_their_own_factor_small():
    mean = {}
    for held in (True, False):
        pairs = [(q, own_factor("linear")(i)) for i, q in minibatches(P, N) if bool((i == RARE).any()) is held]
        mean[held] = sum(q * f for q, f in pairs) / sum(q for q, _ in pairs)
    traces = expected_sums().traces()
    true = float(traces.tr_unif / traces.tr_is)
    assert mean[True] < true < mean[False]
    told = [f"{value:.2f}" for value in (true, mean[True], mean[False])]  # in this order
    assert [value for value in numbers(UPDATE) if value in told] == told


def test_only_copies_of_one_sample_are_degenerate():
    """And have factor 1."""
    share = 0.0
    for index, q in minibatches(P, N):
        ratio = F.scale_ratio(F.variance_traces(R[index], GRADS[index]), "linear")
        factor, bad = F.guard_scale(ratio)
        assert bool(bad) == (len(set(index.tolist())) == 1)
        assert factor == 1 if bad else 0 < factor < F.MAX_SCALE
        share += q * bool(bad)
    assert f"{100 * share:.1f}" in numbers(UPDATE)


def test_without_smoothing_the_monitor_has_the_factor_of_the_minibatch():
    """Whatever was before."""
    for index, _ in minibatches(P, N):
        assert smoothed_factor(0.0, expected_sums())(index) == pytest.approx(own_factor("linear")(index))


def test_smoothing_near_1_removes_the_bias_for_any_usable_sums_before():
    usable = [i for i, _ in minibatches(P, N) if len(set(i.tolist())) > 1]
    assert len(usable) == 16
    for before in map(sums, usable):
        _, update, _ = expected_update(smoothed_factor(1 - 1e-6, before))
        torch.testing.assert_close(update, FULL, rtol=0, atol=1e-4)


def test_sums_before_that_fluctuate_leave_a_little_more_bias():
    """The minibatch before enumerated, too: no longer at its expectation."""
    weights = []
    for s in (0.5, 0.9, 0.99):
        scale = weight = 0.0
        for index, q in minibatches(P, N):
            a, _, w = expected_update(smoothed_factor(s, expected_sums() * s + sums(index) * (1 - s)))
            scale, weight = scale + q * a, weight + q * a * w
        weights.append(weight / scale)
        assert weights[-1] < expected_update(smoothed_factor(s, expected_sums()))[2]
    assert weights == sorted(weights)
    assert weights[-1] > 0.98


# ---- BatchNorm

NORMS = "BatchNorm: losses that depend on the rest of the minibatch"
X = torch.tensor([[4, 0, 1], [0, 3, 1], [1, 1, 0], [0, 1, 2], [1, 0, 1]], dtype=torch.float64)
Y = torch.tensor([1, 0, 1, 0, 1], dtype=torch.float64)
LAYER = torch.tensor([2, -1, 1], dtype=torch.float64)
COUNTS = {"uniform": torch.tensor([1, 1, 1, 1, 1]), "weighted": torch.tensor([3, 3, 2, 1, 1])}


def batch_norm(training=True):
    norm = nn.BatchNorm1d(3, momentum=1.0, dtype=torch.float64)
    norm(X)  # running statistics: those of the data
    return norm.train(training)


LAYERS = {
    "BatchNorm, training mode": batch_norm,
    "BatchNorm, evaluation mode": lambda: batch_norm(training=False),
    "LayerNorm, or GroupNorm with one group": lambda: nn.LayerNorm(3, dtype=torch.float64),
    "none": nn.Identity,
}


def loss(norm, index, r, layer):
    """mean(r * loss) of a minibatch."""
    losses = nn.functional.binary_cross_entropy_with_logits(norm(X[index]) @ layer, Y[index], reduction="none")
    return (r[index] * losses).mean()


def distribution(counts):
    p = counts.double() / counts.sum()
    return p, F.importance_coefficients(p)


def expected_loss(norm, counts, n=N):
    """E[mean(r * loss)] and its gradient with respect to the linear layer."""
    p, r = distribution(counts)
    layer = LAYER.clone().requires_grad_()
    total = sum(q * loss(norm, index, r, layer) for index, q in minibatches(p, n))
    return total.item(), torch.autograd.grad(total, layer)[0]


def large_minibatch(counts):
    """The limit N to infinity: every sample as often as p has it."""
    return loss(batch_norm(), torch.repeat_interleave(counts), distribution(counts)[1], LAYER).item()


def test_only_batchnorm_in_training_mode_depends_on_the_draws_and_the_page_has_the_numbers():
    found = {}
    for name, make in LAYERS.items():
        (a, grad_a), (b, grad_b) = (expected_loss(make(), counts) for counts in COUNTS.values())
        found[name] = (a, b)
        same = name != "BatchNorm, training mode"
        assert (abs(a - b) < 1e-12) == same
        assert torch.allclose(grad_a, grad_b, rtol=0, atol=1e-12) == same
    found["BatchNorm, training mode, N → ∞"] = tuple(large_minibatch(counts) for counts in COUNTS.values())
    assert table(NORMS) == {name: [f"{a:.3f}", f"{b:.3f}"] for name, (a, b) in found.items()}


def test_group_norm_with_one_group_is_layer_norm():
    group = nn.GroupNorm(1, 3, dtype=torch.float64)
    for counts in COUNTS.values():
        layer = LAYERS["LayerNorm, or GroupNorm with one group"]()
        assert expected_loss(group, counts)[0] == pytest.approx(expected_loss(layer, counts)[0])


def test_a_larger_minibatch_does_not_help():
    """At N = 12 the expected losses are near their limits, and as far from each other."""
    limits = [large_minibatch(counts) for counts in COUNTS.values()]
    losses = [expected_loss(batch_norm(), counts, 12)[0] for counts in COUNTS.values()]
    assert losses == pytest.approx(limits, abs=0.01)
    assert losses[1] - losses[0] > 0.1


def test_the_page_names_the_distribution_of_batchnorms_example():
    p = ", ".join(f"{v:g}" for v in distribution(COUNTS["weighted"])[0].tolist())
    assert f"p = {p}" in section(NORMS)
