"""Orders that are computed: every sample once an epoch, in an order that looks shuffled, without memory."""

import math
import tracemalloc

import numpy as np
import pytest
import torch

from emais.draws import epochs
from emais.draws.epochs import LISTED, PLACES, Epochs
from emais.draws.permutation import Permutation

LARGE = LISTED + 12_345


@pytest.mark.parametrize("samples", [*range(1, 20), 1000, 4096, 4097, 100_003])
def test_every_sample_has_one_place(samples):
    for key in range(3):
        assert sorted(Permutation(samples, key)(np.arange(samples)).tolist()) == list(range(samples))


def test_places_may_be_asked_for_in_any_order():
    order = Permutation(LARGE, key=1)
    places = np.random.default_rng(0).integers(LARGE, size=1000)
    assert np.array_equal(order(places), [order(place[None])[0] for place in places])


@pytest.mark.statistical
def test_an_order_looks_shuffled():
    """z-scores: places, neighbours, lowest and highest bits, minibatches, and two epochs beside each other."""
    order, other = (Permutation(LARGE, key)(np.arange(LARGE)) for key in (1, 2))
    for one, two in ((order, np.arange(LARGE)), (order[:-1], order[1:]), (order, other)):
        assert abs(np.corrcoef(one, two)[0, 1]) * math.sqrt(LARGE) < 4

    def z_score(counts, freedom):
        expected = counts.sum() / counts.size
        return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)

    for part in (order % 16, order * 16 // LARGE):  # lowest and highest bits, of two neighbours
        assert abs(z_score(np.bincount(part[:-1] * 16 + part[1:], minlength=256), 225)) < 4
    batches = order[: LARGE // 128 * 128].reshape(-1, 128)
    lower = (batches < LARGE // 2).sum(1)  # hypergeometric
    variance = 128 / 4 * (LARGE - 128) / (LARGE - 1)
    assert abs(lower.var() / variance - 1) * math.sqrt(len(batches) / 2) < 4


def test_large_epochs_take_each_sample_once(monkeypatch):
    """Minibatches that end inside a block, or reach into the next epoch; any step on its own is the same."""
    monkeypatch.setattr(epochs, "LISTED", 1000)
    samples, batch = 2 * PLACES + 77, 1000
    scan = Epochs(samples, batch, seed=3)
    stream = torch.cat([scan(step) for step in range(1, 3 * samples // batch + 2)])
    for epoch in range(3):
        assert sorted(stream[epoch * samples : (epoch + 1) * samples].tolist()) == list(range(samples))
    assert not torch.equal(stream[:samples], stream[samples : 2 * samples])
    for step in (40, 7, 17, 1):
        assert torch.equal(Epochs(samples, batch, seed=3)(step), stream[(step - 1) * batch : step * batch])
        assert torch.equal(scan(step), stream[(step - 1) * batch : step * batch])


def test_a_minibatch_of_a_trillion_samples_takes_no_memory():
    tracemalloc.start()
    scan = Epochs(10**12, 128, seed=0)
    seen = torch.cat([scan(step) for step in (1, 2, 10**9)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(seen.unique()) == 3 * 128
    assert 10**9 < seen.max() < 10**12
    assert peak < 2**21
