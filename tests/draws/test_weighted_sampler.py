"""WeightedSampler: its distribution by enumeration and chi-square, changing weights, DataLoaders, resuming, errors."""

import copy
import io
import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy import stats
from torch.utils.data import Dataset

from emais import EmaisError, WeightedSampler
from emais.draws.distinct import draw_distinct
from emais.draws.host_tree import WideTree

REPLACEMENT = pytest.mark.parametrize("replacement", [True, False])
hostile = st.one_of(st.just(0.0), st.floats(-30, 30).map(lambda e: 10.0**e))


class Itself(Dataset):
    """Sample i is i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def uneven(M, spread=1e3):
    return spread ** torch.rand(M, dtype=torch.float64, generator=torch.Generator().manual_seed(M))


def fits(observed, expected):
    """Chi-square, over cells that expect five or more."""
    assert min(expected) >= 5
    return stats.chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-4


def drawn(sampler, count):
    """So many minibatches, over as many passes as that takes."""
    return list(itertools.islice(itertools.chain.from_iterable(itertools.repeat(sampler)), count))


# ---- the distribution


def test_every_place_of_the_uniforms_gives_the_sample_whose_share_it_is():
    """By enumeration: of 60 equal parts of [0, 1), each sample gets exactly its share."""
    tree = WideTree(4, 1)
    tree.fill(torch.tensor([10.0, 0.0, 20.0, 30.0]))
    found = [int(tree.draw(np.full((3, 1), (k + 0.5) / 60))[0][0]) for k in range(60)]
    assert np.bincount(found).tolist() == [10, 0, 20, 30]


@pytest.mark.statistical
@pytest.mark.parametrize(("M", "spread"), [(50, 1.0), (300, 1e3), (3000, 10)])
def test_frequencies(M, spread):
    weights = uneven(M, spread)
    weights[::7] = 0
    sampler = WeightedSampler(torch.ones(M), 64)
    sampler.update(torch.arange(M), weights)
    counts = np.bincount(np.concatenate(drawn(sampler, 4000)), minlength=M)
    assert not counts[::7].any()
    expected = sampler.probabilities().numpy() * 4000 * 64
    common = expected >= 5
    assert fits([*counts[common], counts[~common].sum() + 5], [*expected[common], expected[~common].sum() + 5])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64", "bool"])
def test_probabilities_are_the_shares_of_the_weights(dtype):
    weights = (torch.arange(100) % 5).to(getattr(torch, dtype))
    sampler = WeightedSampler(weights, 8)
    p = weights.double() / weights.double().sum()
    torch.testing.assert_close(sampler.probabilities(), p, rtol=1e-15, atol=0)
    assert torch.equal(sampler.weights, weights.double())


def test_weights_may_be_any_kind_of_numbers():
    """A list is not rounded to float32 on its way; arrays may be read-only or turned around."""
    for given_as in ([0.1, 0.2, 0.7], (0.1, 0.2, 0.7), np.array([0.7, 0.2, 0.1])[::-1]):
        assert WeightedSampler(given_as, 2).weights.tolist() == [0.1, 0.2, 0.7]
    assert WeightedSampler(np.broadcast_to(2.0, 5), 2).weights.tolist() == [2.0] * 5
    assert WeightedSampler(torch.ones(3, requires_grad=True), 2).weights.tolist() == [1.0] * 3


@pytest.mark.parametrize("replacement", [True, False])
def test_all_of_a_large_data_set_can_be_drawn(replacement):
    """Past 2^24, where torch refuses, with all the weight at the end."""
    M = 2**24 + 3
    weights = torch.zeros(M)
    weights[-3:] = torch.tensor([1.0, 2.0, 1.0])
    sampler = WeightedSampler(weights, 3, replacement=replacement, num_batches=20)
    assert {i for batch in sampler for i in batch} == {M - 3, M - 2, M - 1}
    sampler.update([M - 1, M - 2, M - 3, 2**24, 7, 0], [0, 0, 0, 5, 5, 5])
    assert {i for batch in sampler for i in batch} == {2**24, 7, 0}


# ---- without replacement


def chance_of(order, weights):
    """Of these samples in this order, each drawn from those that are left."""
    left, chance = sum(weights), 1.0
    for i in order:
        chance *= weights[i] / left
        left -= weights[i]
    return chance


def test_without_replacement_is_successive_drawing_by_enumeration():
    """All places of the uniforms that can decide, on a grid on which every share is a whole number of cells."""
    weights, cells = [1.0, 1.0, 2.0], 12
    grid = [(k + 0.5) / cells for k in range(cells)]
    tree = WideTree(3, 2)
    tree.fill(torch.tensor(weights))
    found = dict.fromkeys(itertools.permutations(range(3), 2), 0)
    for a, b, c in itertools.product(grid, grid, grid):  # c decides where a and b give the same sample
        turns = [np.array([[a, b]] * 3), np.array([[c, 0.9]] * 3)]
        found[tuple(draw_distinct(tree, turns.__getitem__).tolist())] += 1
    assert {order: count / cells**3 for order, count in found.items()} == pytest.approx(
        {order: chance_of(order, weights) for order in found}, rel=1e-12
    )
    assert tree.weights.tolist() == weights


@pytest.mark.statistical
def test_without_replacement_has_every_order_as_often_as_it_should():
    weights = [1.0, 3.0, 2.0, 5.0, 0.0, 2.0]
    sampler = WeightedSampler(weights, 3, replacement=False)
    orders = [order for order in itertools.permutations(range(6), 3) if 4 not in order]
    counts = dict.fromkeys(orders, 0)
    for batch in drawn(sampler, 8000):
        counts[tuple(batch)] += 1
    assert fits([counts[o] for o in orders], [8000 * chance_of(o, weights) for o in orders])


def test_without_replacement_of_extreme_weights():
    """Each turn finds one sample, and rounding leaves no trace."""
    weights = 10.0 ** -torch.arange(0, 120, 6, dtype=torch.float64)
    sampler = WeightedSampler(weights, 20, replacement=False)
    assert drawn(sampler, 1) == [list(range(20))]
    assert torch.equal(sampler.weights, weights)


def test_without_replacement_needs_enough_samples():
    with pytest.raises(EmaisError, match="needs at least batch_size=3 weights above 0, got 2"):
        WeightedSampler([1.0, 0.0, 2.0], 3, replacement=False)
    sampler = WeightedSampler([1.0, 1.0, 2.0, 4.0], 3, replacement=False)
    sampler.update([1, 2], 0)
    with pytest.raises(EmaisError, match="batch_size=3 different samples, and 2 have a weight above 0"):
        next(iter(sampler))
    assert sampler.weights.tolist() == [1, 0, 0, 4]
    sampler.update([1], 1)
    assert sorted(next(iter(sampler))) == [0, 1, 3]
    assert sampler.step == 1


# ---- weights that change


@REPLACEMENT
def test_an_update_holds_for_the_next_batch(replacement):
    sampler = WeightedSampler(torch.ones(40), 4, replacement=replacement)
    wanted = range(40)
    for k, batch in enumerate(sampler):
        assert set(batch) <= set(wanted)
        wanted = range(k, k + 7)
        sampler.update(range(40), [float(i in wanted) for i in range(40)])


def test_of_a_repeated_index_the_last_weight_stays():
    sampler = WeightedSampler(torch.ones(1000), 4)
    sampler.update([4, 4, 7], [3.0, 5.0, 2.0])
    assert sampler.weights[[4, 7]].tolist() == [5, 2]
    sampler.update(torch.arange(1000).repeat(2), torch.arange(2000.0))  # all sums anew
    assert torch.equal(sampler.weights, torch.arange(1000.0, 2000.0).double())
    sampler.update([], [])
    sampler.update(3, 0.5)
    assert sampler.weights[3] == 0.5


@REPLACEMENT
@pytest.mark.parametrize("deep", [False, True])
def test_draws_depend_on_seed_step_and_weights_alone(replacement, deep, monkeypatch):
    """Not on how the weights came about, however few or many were set at once."""
    if deep:
        monkeypatch.setattr("emais.draws.tree.DEEP", 1)
    M, weights = 3000, uneven(3000, 1e9)
    used = WeightedSampler(torch.ones(M), 16, replacement=replacement)
    first = drawn(used, 30)
    for part in (5, 1, 40, 2000, 954):
        index = torch.randperm(M)[:part]
        used.update(index, 1e12 * torch.rand(part))
    for part in torch.randperm(M).split([1, 99, 900, 2000]):
        used.update(part, weights[part])
    fresh = WeightedSampler(weights, 16, replacement=replacement)
    drawn(fresh, 30)
    second = drawn(used, 30)
    assert second == drawn(fresh, 30)
    assert first != second
    assert second != drawn(WeightedSampler(weights, 16, replacement=replacement, seed=1), 30)


def test_global_generators_are_left_alone():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    drawn(WeightedSampler(torch.ones(50), 20, replacement=False), 10)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()  # noqa: NPY002


# ---- passes


def test_a_pass_is_an_epochs_worth_of_whole_batches():
    sampler = WeightedSampler(torch.ones(50), 8)
    one, other = list(sampler), list(sampler)
    assert len(sampler) == len(one) == len(other) == 7
    assert all(type(i) is int for batch in one for i in batch)
    assert {len(batch) for batch in one + other} == {8}
    assert one != other
    assert sampler.step == 14
    assert len(list(WeightedSampler([1.0], 4, num_batches=3))) == 3


@pytest.mark.statistical
def test_the_loss_is_unbiased_while_weights_change_and_workers_prefetch():
    """Weights depend on what was drawn: r that is looked up later than the draw would be biased."""
    M, N = 12, 4
    losses = torch.arange(1.0, M + 1)
    sampler = WeightedSampler(torch.ones(M), N, num_batches=3000)
    found = []
    for batch, draw in sampler.loader(Itself(M), num_workers=2):
        found.append((draw.r * losses[batch]).mean())
        sampler.update(range(M), 1.0)
        sampler.update(draw.index, 4.0)
    found = torch.stack(found)
    z = (found.mean() - losses.mean()) / found.std() * math.sqrt(len(found))
    assert abs(z) < 4


def test_a_pass_that_was_left_by_break_is_over():
    sampler = WeightedSampler(torch.ones(100), 5)
    for _ in sampler:
        break
    saved = sampler.state_dict()
    assert saved["passes"]["delivered"] == len(saved["passes"]["step"]) == 0
    assert len(list(sampler)) == 20
    assert sampler.step == 21


def test_two_passes_at_once_are_refused():
    sampler = WeightedSampler(torch.ones(100), 5)
    one, other = iter(sampler), iter(sampler)
    next(one)
    next(other)
    with pytest.raises(EmaisError, match="a newer pass of this sampler has begun"):
        next(one)
    assert len(list(other)) == 19


def test_a_copy_goes_its_own_way():
    sampler = WeightedSampler(uneven(500), 5)
    drawn(sampler, 3)
    other = copy.deepcopy(sampler)
    assert drawn(other, 100) == drawn(sampler, 100)
    other.update(range(499), 0)
    assert drawn(other, 2) == [[499] * 5] * 2
    assert other.weights.count_nonzero() == 1
    assert sampler.weights.count_nonzero() == 500


# ---- resuming


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def train(sampler, passes, log, states=None, **options):
    """Draws into `log`, and a state after every batch; weights change with every batch."""
    loader = sampler.loader(Itself(sampler.num_samples), **options)
    for _ in range(passes):
        for batch, draw in loader:
            assert torch.equal(batch, draw.index)
            log.append((draw.step, draw.index.tolist(), draw.r.nan_to_num(0).tolist()))
            sampler.update(draw.index, torch.arange(1.0, 1 + len(batch)) * (draw.step % 3))
            if states is not None:
                states.append(sampler.state_dict())


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}], ids=str)
@REPLACEMENT
def test_resume_is_exact_from_every_batch(options, replacement):
    def make():
        return WeightedSampler(uneven(300), 30, replacement=replacement, seed=5)

    log, states = [], []
    train(make(), 2, log, states, **options)
    assert [step for step, *_ in log] == list(range(1, 21))
    for k in range(3, 20, 5 if options else 1):
        sampler, again = make(), []
        sampler.load_state_dict(through_a_file(states[k - 1]))
        assert len(sampler) == 10  # of a whole pass, whatever is left of this one
        train(sampler, 1 if k >= 10 else 2, again, **options)
        assert again == log[k:]


def test_resume_as_a_batch_sampler():
    """Batches count as delivered when they are handed out, which is right without workers."""
    sampler, states, seen = WeightedSampler(uneven(100), 10), [], []
    for _ in range(2):
        for batch in sampler:
            seen.append(batch)
            states.append(sampler.state_dict())
    for k in (1, 7, 10, 13, 20):
        other = WeightedSampler(torch.ones(100), 10)
        other.load_state_dict(states[k - 1])
        rest = list(other)
        assert len(rest) == 10 - k % 10
        assert [*rest, *other][: 20 - k] == seen[k:]


def test_a_state_is_a_moment():
    sampler = WeightedSampler(torch.ones(10), 2)
    saved = sampler.state_dict()
    sampler.update(0, 7.0)
    drawn(sampler, 1)
    assert saved["step"] == 0
    assert torch.equal(saved["weights"], torch.ones(10).double())


@REPLACEMENT
def test_steps_beyond_2_to_the_31(replacement):
    sampler = WeightedSampler(uneven(20), 3, replacement=replacement)
    sampler.load_state_dict(sampler.state_dict() | {"step": 2**31 - 2})
    found = [tuple(batch) for _ in range(4) for batch in sampler]
    assert len(found) == 28
    assert len(set(found)) > 20  # not the same random numbers again and again


def bad_state(path, value):
    def change(state):
        part = state
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bad_state(["version"], 0), "version is 0 in the state but 2 in this sampler: use the release"),
        (bad_state(["settings", "seed"], 3), "seed is 3 in the state but 0 in this sampler: make the sampler as"),
        (bad_state(["settings", "replacement"], False), "replacement is False"),
        (bad_state(["step"], -1), "step must be"),
        (bad_state(["step"], 1), "passes.step must hold"),
        (bad_state(["passes", "delivered"], 9), "passes.delivered is 9"),
        (bad_state(["passes", "index"], torch.full((2, 3), 20)), "indices must be from 0 to 19"),
        (bad_state(["passes", "r"], torch.full((2, 3), math.nan)), "passes.r must hold"),
        (bad_state(["weights"], torch.ones(19).double()), "weights must be torch.float64 of shape"),
        (bad_state(["weights"], torch.zeros(20).double()), "all 20 weights are 0"),
        (bad_state(["weights"], torch.full((20,), math.nan).double()), "weights must be 0 or from"),
        (lambda state: state.pop("weights"), r"does not fit this sampler: missing keys \['weights'\]"),
    ],
)
def test_a_state_that_cannot_be_is_refused_whole(change, message):
    def make():
        sampler = WeightedSampler(uneven(20), 3)
        batches = iter(sampler.loader(Itself(20), num_workers=1))
        next(batches)
        next(batches)
        return sampler, batches

    sampler, _open = make()
    state = sampler.state_dict()
    assert state["passes"]["step"].tolist() == [3, 4]
    changed = copy.deepcopy(state)
    change(changed)
    with pytest.raises(EmaisError, match=message):
        sampler.load_state_dict(changed)
    after = sampler.state_dict()
    assert torch.equal(after["weights"], state["weights"])
    assert (after["step"], after["passes"]["delivered"]) == (4, 2)
    sampler.load_state_dict(state)
    assert len(list(sampler)) == 5


# ---- what is refused


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], "got -1.0 at position 1"),
        ([math.nan, 1.0], "got nan at position 0"),
        ([1.0, math.inf], "got inf at position 1"),
        ([1e-200, 1.0], "got 1e-200 at position 0.*scale or clamp"),
        ([1e200, 1.0], "got 1e\\+200"),
        ([0.0, 0.0], "all 2 weights are 0"),
        ([], r"got shape \(0,\)"),
        (5.0, r"got shape \(\)"),
        (torch.ones(3, 1), r"got shape \(3, 1\)"),
        ([1.0, 1j], "must be real numbers"),
        (torch.ones(2) * 1j, "must be real numbers"),
        (["a", "b"], "must be real numbers"),
        ([[1.0], [1.0, 2.0]], "must be real numbers"),
        (torch.ones(2, device="meta"), "must be real numbers"),
    ],
)
def test_weights_that_are_none(weights, message):
    with pytest.raises(EmaisError, match=message):
        WeightedSampler(weights, 2)


@pytest.mark.parametrize(
    ("index", "weights", "message"),
    [
        ([0, 10], [1.0, 1.0], "indices must be from 0 to 9, got values from 0 to 10"),
        ([-1], [1.0], "from 0 to 9"),
        ([0.0], [1.0], "whole numbers"),
        (torch.ones(10, dtype=torch.bool), 0.0, "of a mask, mask.nonzero"),
        ([[0, 1]], [1.0, 1.0], r"indices must be of shape \(n,\), got shape \(1, 2\)"),
        (["a"], 1.0, "indices must be whole numbers"),
        ([0, 1], [1.0], r"of shape \(2,\), one for each index, got shape \(1,\)"),
        ([0, 1], [1.0, math.nan], "got nan at position 1"),
        ([0, 1], -2.0, "got -2.0: only"),
        (range(10), 0.0, "all weights 0"),
        ([3, 3, 4], [1.0, 0.0, math.inf], "got inf at position 2"),
    ],
)
def test_a_refused_update_changes_nothing(index, weights, message):
    sampler = WeightedSampler(uneven(10), 3)
    before, state = sampler.weights, [t.clone() for t in sampler._draws.tree.sums]
    with pytest.raises(EmaisError, match=message):
        sampler.update(index, weights)
    assert torch.equal(sampler.weights, before)
    assert all(torch.equal(a, b) for a, b in zip(sampler._draws.tree.sums, state, strict=True))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"batch_size": 0}, "batch_size must be"),
        ({"num_batches": 0}, "num_batches must be"),
        ({"num_batches": 1.5}, "num_batches must be"),
        ({"seed": -1}, "seed must be"),
        ({"replacement": 0}, "replacement must be True or False, got 0"),
        ({"batch_size": 11, "replacement": False}, "batch_size=11 weights above 0, got 10"),
    ],
)
def test_settings_that_are_refused(settings_, message):
    with pytest.raises(EmaisError, match=message):
        WeightedSampler(torch.ones(10), **settings_)


# ---- any weights


@settings(max_examples=80, deadline=None)
@given(
    st.lists(hostile, min_size=1, max_size=60),
    st.integers(1, 20),
    st.lists(st.lists(st.tuples(st.integers(0, 59), hostile), min_size=1, max_size=30), max_size=5),
    st.booleans(),
)
def test_any_weights(start, N, updates, replacement):
    expected = np.array(start)
    replacement = replacement or sum(w > 0 for w in start) < N
    if not expected.any():
        expected[0] = 1e-30
    M, sampler = len(start), WeightedSampler(expected, N, replacement=replacement, num_batches=1)
    for rows in updates:
        after = expected.copy()
        for i, w in rows:
            after[i % M] = w
        if np.count_nonzero(after) >= (1 if replacement else N):
            sampler.update([i % M for i, _ in rows], [w for _, w in rows])
            expected = after
    assert sampler.weights.tolist() == expected.tolist()
    p = sampler.probabilities()
    np.testing.assert_allclose(p, expected / expected.sum(), rtol=1e-14)
    draw = sampler.draw()
    batch = draw.index.tolist()
    assert (expected[batch] > 0).all()
    assert len(batch) == N
    if replacement:
        torch.testing.assert_close(draw.r.double() * p[batch] * M, torch.ones(N).double(), rtol=0, atol=1e-6)
    else:
        assert len(set(batch)) == N
    assert sampler.weights.tolist() == expected.tolist()
