"""Draws from parts, over every outcome that there is: the gradient is unbiased, and so are the traces."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

from emais.functional.traces import GradientSums
from emais.loading.draw import DrawRecord
from emais.observing.observation import Observation, from_norms
from emais.processes.group import WIDEST, common_width, own_sums
from emais.processes.parcels import HEADER
from emais.processes.part_sums import PartSums, as_if_independent
from emais.statistics.arrays import HostArrays

ARRAYS = HostArrays()
N = 2  # samples that a process draws
WEIGHTS = {
    "unequal": [[1.0, 2.0, 3.0], [2.0, 1.0]],
    "three parts": [[1.0, 2.0], [3.0, 0.5, 1.0], [1.0]],
    "all the weight in one": [[1e6, 2e6, 5e5], [1.0, 1e-3]],
    "almost none in one": [[1e-9, 3e-9], [1.0, 2.0, 1.0]],
    "alike": [[1.0, 1.0], [1.0, 1.0]],
}


class Parts:
    """Samples with gradients, cut into parts, each with its own probabilities."""

    def __init__(self, weights, width=3):
        self.sizes = [len(part) for part in weights]
        self.total = sum(self.sizes)
        rng = np.random.default_rng(self.total)
        self.g = [rng.normal(size=(size, width)) + 0.4 * k for k, size in enumerate(self.sizes)]
        self.p = [np.array(part) / np.sum(part) for part in weights]
        self.coefficients = [len(weights) * size / self.total for size in self.sizes]

    def outcomes(self):
        """(probability, samples of each process) of all that can be drawn."""
        of_one = [list(product(range(size), repeat=N)) for size in self.sizes]
        for chosen in product(*of_one):
            yield np.prod([self.p[k][list(i)].prod() for k, i in enumerate(chosen)]), [list(i) for i in chosen]

    def r(self, k, index):
        """In its part: without the coefficient, as the statistics know it."""
        return 1 / (self.sizes[k] * self.p[k][index])

    def observed(self, k, index, known=True):
        r, g = self.r(k, index), self.g[k][index]
        if known:
            return Observation(5, np.array(index), r, np.linalg.norm(g, axis=1), r @ g)
        values = np.append(np.linalg.norm(g, axis=1), np.linalg.norm(r @ g) / N)
        return from_norms(5, DrawRecord(None, np.array(index), r), values, None, ARRAYS)

    def variance(self):
        """Of the mean gradient of a step, its trace, from all outcomes."""
        mean, square = 0.0, 0.0
        for chance, chosen in self.outcomes():
            found = self.gradient(chosen)
            mean, square = mean + chance * found, square + chance * found @ found
        return mean, square - mean @ mean

    def gradient(self, chosen):
        """As DDP averages it: the mean over processes of mean(r g)."""
        drawn = zip(range(len(chosen)), self.coefficients, chosen, strict=True)
        return np.mean([c * self.r(k, i) @ self.g[k][i] / N for k, c, i in drawn], 0)

    def truth(self):
        """tr_is by definition, tr_unif, tr_opt, and |mean|^2 of all samples."""
        g = np.concatenate(self.g)
        mean, norms = g.mean(0), np.linalg.norm(g, axis=1)
        square = mean @ mean
        return self.variance()[1] * N * len(self.sizes), (norms**2).mean() - square, norms.mean() ** 2 - square, square


@pytest.fixture(params=WEIGHTS, ids=str)
def parts(request):
    return Parts(WEIGHTS[request.param])


def sums_of(parts, chosen, known=True):
    """As they are after they have travelled."""
    packing = [PartSums(3 if known else 0, c, ARRAYS) for c in parts.coefficients]
    rows = [packed.pack(parts.observed(k, i, known)) for k, (packed, i) in enumerate(zip(packing, chosen, strict=True))]
    return packing[0].sums(torch.stack(rows), N)


def exact_sums(parts, chosen):
    """The same in float64 all through: sum r g travels in float32."""
    observed = [parts.observed(k, i) for k, i in enumerate(chosen)]
    scale = [np.array([c * c, c, c, c * c, 1.0]) for c in parts.coefficients]
    sums = np.stack([own_sums(x, ARRAYS) * c for x, c in zip(observed, scale, strict=True)])
    grad = sum(c * x.grad for x, c in zip(observed, parts.coefficients, strict=True))
    total = sums.sum(0)
    first, last = as_if_independent(sums, total, grad, N)
    return GradientSums(N * len(chosen), np.array([first, total[1], last]), grad)


def test_the_gradient_is_unbiased(parts):
    mean, _ = parts.variance()
    expected = np.concatenate(parts.g).mean(0)
    assert np.abs(mean - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())


def test_the_variance_is_the_stated_one(parts):
    """mean over k of (E|r g|^2 - |mu_k|^2), over all samples of a step."""
    of_parts = []
    for c, p, g, size in zip(parts.coefficients, parts.p, parts.g, parts.sizes, strict=True):
        mean = c * g.mean(0)
        of_parts.append(((c / size) ** 2 * (g**2).sum(1) / p).sum() - mean @ mean)
    stated = np.mean(of_parts) / (N * len(parts.sizes))
    assert parts.variance()[1] == pytest.approx(stated, rel=1e-9)


def expected_traces(parts, unbiased):
    """As for independent draws: the traces themselves, or with the bias of the plug-in mean."""
    (tr_is, tr_unif, tr_opt, _), num = parts.truth(), N * len(parts.sizes)
    if unbiased:
        return [tr_is, tr_unif, tr_opt]
    return [(1 - 1 / num) * tr_is, tr_unif - tr_is / num, (1 - 1 / num) * tr_opt]


@pytest.mark.parametrize("unbiased", [False, True])
def test_traces_are_unbiased(parts, unbiased):
    found = np.zeros(3)
    for chance, chosen in parts.outcomes():
        found += chance * np.array([float(x) for x in exact_sums(parts, chosen).traces(unbiased)])
    expected = expected_traces(parts, unbiased)
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-10 * expected[0])


def test_what_travels_is_what_counts(parts):
    for _, chosen in list(parts.outcomes())[:40]:
        found, expected = sums_of(parts, chosen), exact_sums(parts, chosen)
        if all(len(set(p)) == 1 for p in parts.p):  # drawn uniformly: reported as uniform sampling
            assert found.moments[0] == found.moments[1]
            assert float(found.traces().tr_is) == float(found.traces().tr_unif)
            continue
        assert found.moments == pytest.approx(expected.moments, rel=1e-4, abs=1e-4)
        assert found.grad == pytest.approx(expected.grad, rel=1e-5, abs=1e-5)
        assert found.num == expected.num


def test_from_norms_the_own_trace_is_unbiased(parts):
    """The means of other parts are unknown: theirs count as alike, which makes tr_unif too small, never too large."""
    found = np.zeros(3)
    for chance, chosen in parts.outcomes():
        found += chance * np.array([float(x) for x in sums_of(parts, chosen, known=False).traces(unbiased=True)])
    tr_is, tr_unif, _, _ = parts.truth()
    assert found[0] == pytest.approx(tr_is, rel=1e-9)
    assert found[1] <= tr_unif * (1 + 1e-9)


def test_the_size_in_bytes():
    parts = Parts(WEIGHTS["unequal"])
    assert PartSums(3, 1.0, ARRAYS).pack(parts.observed(0, [0, 1])).numel() == HEADER + 12 == 76
    assert PartSums(0, 1.0, ARRAYS).pack(parts.observed(0, [0, 1])).numel() == 64
    assert common_width([WIDEST + 1] * 2) == 0


def within(g, w, parts):
    """mean over parts of the trace of r g, drawn in proportion to w in each; r with its coefficient."""
    found = []
    for part in parts:
        c = len(parts) * len(part) / len(g)
        mean, p = c * g[part].mean(0), w[part] / w[part].sum()
        found.append(((c / len(part)) ** 2 * (g[part] ** 2).sum(1) / p).sum() - mean @ mean)
    return np.mean(found)


def partitions(samples, size):
    """All ways to cut samples into parts of one size."""
    if not samples:
        yield []
        return
    for rest in combinations(samples[1:], size - 1):
        part = [samples[0], *rest]
        left = [i for i in samples if i not in part]
        for others in partitions(left, size):
            yield [part, *others]


@pytest.mark.parametrize(("samples", "processes"), [(6, 2), (6, 3), (8, 2), (9, 3), (8, 4)])
def test_random_parts_of_equal_size_cost_nothing(samples, processes):
    """Over all partitions the trace is 1 - (K - 1)/(M - 1) of that of one process with all samples."""
    rng = np.random.default_rng(samples)
    g, w = rng.normal(size=(samples, 3)) + 0.5, rng.uniform(0.1, 3.0, samples)
    every = list(partitions(list(range(samples)), samples // processes))
    average = np.mean([within(g, w, parts) for parts in every])
    whole = within(g, w, [list(range(samples))])
    assert average == pytest.approx((1 - (processes - 1) / (samples - 1)) * whole, rel=1e-10)
