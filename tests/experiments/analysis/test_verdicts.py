"""Who differs from whom by more than chance, seed by seed and row by row."""

from dataclasses import asdict, replace

import pytest

from emais.experiments.analysis import paper
from emais.experiments.analysis.settings import Setting
from emais.experiments.analysis.significance import welch
from emais.experiments.analysis.verdicts import differ, p_value, standard_error, tally, verdict
from emais.experiments.config import Config

EMAIS = Config("fmnist", "lenet5", "emais")


def setting(*values, **changes):
    config = replace(EMAIS, **changes)
    return Setting(config, tuple(asdict(config) | {"seed": k, "test_error": v} for k, v in enumerate(values)))


NEAR = setting(10.0, 10.2, 10.4), setting(10.5, 10.7, 10.9)  # p = 0.04
FAR = setting(10.0, 10.01, 10.02), setting(20.0, 20.01, 20.02)


def test_two_seeds_never_differ_by_more_than_chance():
    two, three = setting(10.0, 10.01), setting(20.0, 20.01, 20.02)
    for a, b in ((two, three), (three, two), (two, setting(20.0, 20.01))):
        assert p_value(a, b) != p_value(a, b)  # NaN
        assert differ([(a, b)]) == [False]
        assert differ([(a, b)]) == [False]
    assert differ([FAR]) == [True]


def test_a_seed_that_diverged_is_no_seed():
    """Its value is NaN: two others beside it are two."""
    with_one, without = setting(10.0, 10.01, None), setting(10.0, 10.01)
    assert differ([(with_one, FAR[1])]) == [False]
    four = setting(10.0, 10.2, 10.4, None)
    assert p_value(four, NEAR[1]) == p_value(*NEAR)
    assert standard_error(with_one, FAR[1]) == standard_error(without, FAR[1])
    value = paper.find(EMAIS)
    assert verdict(with_one, value) == verdict(without, value)


def test_p_is_welchs():
    (a, b), triples = NEAR, [(s.mean, s.sd, 3) for s in NEAR]
    assert p_value(a, b) == welch(*triples) == pytest.approx(0.0376, abs=1e-4)


def test_holm_over_rows():
    """A p of 0.04 alone is a difference, among three rows it is not; one far below stays one."""
    assert differ([NEAR]) == [True]
    assert differ([NEAR] * 3) == [False] * 3
    same = NEAR[0], NEAR[0]
    assert differ([NEAR, same]) == [False, False]
    assert differ([FAR, NEAR, same]) == [True, False, False]
    assert differ([NEAR, (setting(9.0, 9.1), NEAR[0])]) == [True, False]  # two seeds are no test
    assert differ([]) == []


def test_values_beside_the_papers_are_counted_with_and_without_correction():
    """Beside 10.52 ± 0.10 over five seeds: p is 0.07, 0.03 and 0.004. Among three, 0.03 is chance."""
    near, off, ahead = setting(10.7, 10.9, 11.1), setting(10.65, 10.75, 10.85), setting(10.0, 10.1, 10.2)
    value = paper.find(EMAIS)
    assert [verdict(s, value).kind for s in (near, off, ahead)] == ["agrees", "worse", "better"]
    told = tally([(near, value), (off, value), (ahead, value), (setting(), value), (near, None)])
    assert told == (
        "1 of 3 agree with the paper, ours are better in 1 and worse in 1. With Holm's correction for 3 tests 2 agree."
    )
    assert tally([(setting(), value)]) == "None of these values is compared with the paper's."
