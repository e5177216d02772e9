"""Welch's test and Holm's correction against scipy's and against the definition."""

import math

import numpy as np
import pytest
from scipy import special, stats

from emais.experiments.analysis.significance import holm, incomplete_beta, welch

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_welch_is_scipys(scale):
    for _ in range(300):
        n_a, n_b = (int(n) for n in RANDOM.integers(2, 60, 2))
        a, b = scale * RANDOM.normal(10, 1, 2)
        sd_a, sd_b = scale * 10 ** RANDOM.uniform(-2, 1, 2)
        want = stats.ttest_ind_from_stats(a, sd_a, n_a, b, sd_b, n_b, equal_var=False).pvalue
        got = welch((a, sd_a, n_a), (b, sd_b, n_b))
        assert got == pytest.approx(want, rel=1e-9, abs=1e-300)
        assert welch((b, sd_b, n_b), (a, sd_a, n_a)) == pytest.approx(got)  # whichever comes first


def test_one_side_without_a_spread():
    want = stats.ttest_ind_from_stats(10.0, 0.0, 5, 10.3, 0.2, 4, equal_var=False).pvalue
    assert welch((10.0, 0.0, 5), (10.3, 0.2, 4)) == pytest.approx(want)


@pytest.mark.parametrize(
    "first", [(10.0, math.nan, 1), (10.0, 0.1, 1), (math.nan, math.nan, 0), (math.inf, 0.1, 3), (10.0, 0.0, 3)]
)
def test_where_there_is_nothing_to_test(first):
    second = (11.0, 0.0 if first[1] == 0 else 0.1, 3)
    assert math.isnan(welch(first, second))
    assert math.isnan(welch(second, first))


def test_equal_means_without_a_spread_do_not_differ():
    assert welch((10.0, 0.0, 3), (10.0, 0.0, 3)) == 1.0
    assert welch((10.0, 0.1, 3), (10.0, 0.2, 4)) == 1.0


def test_the_incomplete_beta_function_is_scipys():
    for a in (0.5, 1.0, 2.5, 30.0, 500.0):
        for x in (0.0, 1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9, 1.0):
            assert incomplete_beta(a, 0.5, x) == pytest.approx(special.betainc(a, 0.5, x), rel=1e-8, abs=1e-300)


def literal_holm(values):
    """Hypothesis by hypothesis: the largest of the smallest p-values so far, each times the number of those left."""
    found = []
    for p in values:
        smaller = sorted(q for q in values if q <= p)
        found.append(min(1.0, max((len(values) - k) * q for k, q in enumerate(smaller))))
    return found


def test_holm_is_the_literal_one():
    for count in range(1, 12):
        values = RANDOM.uniform(0, 0.2, count).tolist()
        assert holm(values) == pytest.approx(literal_holm(values))
    assert holm([0.02, 0.02, 0.02]) == pytest.approx([0.06] * 3)
    assert holm([]) == []


def test_holm_leaves_out_what_was_not_tested():
    values, known = [math.nan, 0.01, math.nan, 0.04], [0.01, 0.04]
    found = holm(values)
    assert [math.isnan(p) for p in found] == [True, False, True, False]
    assert [found[1], found[3]] == holm(known) == pytest.approx([0.02, 0.04])
