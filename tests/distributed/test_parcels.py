"""Parts of a minibatch as bytes: put together again, they say what the whole minibatch says."""

import numpy as np
import pytest
import torch

from emais.functional.traces import gradient_sums
from emais.loading.draw import DrawRecord
from emais.observing.observation import Observation, from_norms
from emais.processes.group import WIDEST, common_width, gradient_length
from emais.processes.parcels import HEADER, Parcels
from emais.statistics.arrays import HostArrays

ARRAYS = HostArrays()


def minibatch(n, width):
    generator = torch.Generator().manual_seed(n)
    r, g = torch.rand(n, generator=generator) + 0.5, torch.randn(n, width, generator=generator) + 0.3
    return torch.arange(n) + 2**53 + 1, r, g


def observed(index, r, g, signal=None, pad=0):
    r, g = r.numpy(), np.pad(g.numpy(), ((0, 0), (0, pad)))
    return Observation(7, index.numpy(), r, ARRAYS.norms(g), r @ g, None if signal is None else signal.numpy())


def gathered(parts):
    parcels = Parcels(common_width([gradient_length(part) for part in parts]), ARRAYS)
    packed = [parcels.pack(part) for part in parts]
    assert len({len(part) for part in packed}) == 1
    return parcels.together(torch.stack(packed), parts[0]), packed[0]


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("signal", [False, True])
def test_parts_make_the_whole(processes, signal):
    index, r, g = minibatch(12, 5)
    parts = zip(*(x.chunk(processes) for x in (index, r, g)), strict=True)
    found, packed = gathered([observed(i, a, b, a if signal else None) for i, a, b in parts])
    whole = observed(index, r, g)
    assert packed.numel() == HEADER + (20 if signal else 16) * 12 // processes + 4 * 5
    assert found.step == 7
    assert found.index.tolist() == index.tolist()  # beyond what a float holds
    assert found.r.tolist() == r.tolist()
    assert found.norms.tolist() == whole.norms.tolist()
    assert signal == (found.signal is not None and found.signal.tolist() == r.tolist())
    expected = gradient_sums(r, g)
    assert found.sums(ARRAYS).moments == pytest.approx(expected.moments.numpy(), rel=1e-6)
    assert found.grad == pytest.approx(expected.grad.numpy(), rel=1e-5)
    assert found.sums(ARRAYS).num == 12


@pytest.mark.parametrize(("width", "pad"), [(5, 3), (WIDEST + 1, 0)], ids=["lengths that differ", "too long"])
def test_sums_that_stay_at_home_are_estimated_from_pairs(width, pad):
    """Pairs within a process stand for pairs of two: |sum r g|^2 is right on average over what goes where."""
    index, r, g = minibatch(6, width)
    squares = []
    for turn in range(10):  # all ways to make two halves of six samples
        halves = list(_halves())[turn]
        parts = [observed(index[h], r[h], g[h], pad=pad * k) for k, h in enumerate(halves)]
        found, packed = gathered(parts)
        assert packed.numel() == HEADER + 16 * 3
        assert len(found.grad) == 1
        squares.append(float(found.sums(ARRAYS).square()))
        assert float(found.grad[0]) ** 2 == pytest.approx(max(squares[-1], 0), rel=1e-9)
    expected = gradient_sums(r, g)
    assert np.mean(squares) == pytest.approx(float(expected.grad @ expected.grad), rel=1e-5)


def _halves():
    from itertools import combinations

    for rest in combinations(range(1, 6), 2):
        first = [0, *rest]
        yield first, [k for k in range(6) if k not in first]


def length(parcels, *parts):
    return len(parcels.together(torch.stack([parcels.pack(part) for part in parts]), parts[0]).grad)


def test_a_length_that_changes_later_sends_no_vector():
    index, r, g = minibatch(4, 5)
    parcels = Parcels(5, ARRAYS)
    same, longer = observed(index, r, g), observed(index, r, g, pad=2)
    assert length(parcels, same, same) == 5
    assert length(parcels, same, longer) == 1
    assert length(parcels, same, same) == 1


@pytest.mark.parametrize("known", [False, True])
def test_norms_travel(known):
    index, r, g = minibatch(8, 3)
    norms, parts = g.norm(dim=1), []
    for i, a, b, n in zip(*(x.chunk(2) for x in (index, r, g, norms)), strict=True):
        mean = (a @ b / len(a)).norm()[None] if known else n[:0]
        record = DrawRecord(None, i.numpy(), a.numpy())
        parts.append(from_norms(7, record, torch.cat((n, mean)).numpy(), None, ARRAYS))
    found, _ = gathered(parts)
    sums, separate = found.sums(ARRAYS), [part.sums(ARRAYS) for part in parts]
    assert sums.num_pairs == (2 * 4 * 3 if known else 0)
    assert float(sums.pairs[0]) == pytest.approx(sum(float(part.pairs[0]) for part in separate), rel=1e-12)
    assert sums.moments == pytest.approx(separate[0].moments + separate[1].moments, rel=1e-12)
