"""The exact sampler against ComputeAdjustedProbabilities, after any history of updates, and its draws by chi-square."""

import weakref

import numpy as np
import pytest
import torch
from scipy import stats

from emais import EmaisError
from emais import functional as F
from emais.draws.epochs import Epochs
from emais.draws.sampler import ExactSampler
from emais.draws.source import HostSource
from emais.draws.tree import WEIGHT_MAX, WEIGHT_MIN
from emais.draws.uniforms import Uniforms

BOTH = pytest.mark.parametrize("resident", [False, True])


def make(M, N, kappa=1.0, resident=False):
    return ExactSampler(M, N, kappa, resident=resident)


def drawn_frequencies(s, N, steps, seed=0):
    u, counts = Uniforms(seed, 3, N), np.zeros(s.num_samples)
    for step in range(1, steps + 1):
        np.add.at(counts, s.draw(u(step))[0].numpy(), 1)
    return counts


def assert_fits(counts, p):
    """Chi-square over cells of at least 5 expected draws, the rest pooled."""
    expected = p.numpy() * counts.sum()
    small = expected < 5
    obs, exp = list(counts[~small]), list(expected[~small])
    if small.any():
        obs.append(counts[small].sum())
        exp.append(expected[small].sum())
    exp = np.array(exp) * sum(obs) / sum(exp)
    assert stats.chisquare(obs, exp).pvalue > 1e-4


@BOTH
@pytest.mark.parametrize(
    ("M", "N", "kappa"), [(50, 8, 1.0), (100, 100, 1.0), (64, 60, 1.0), (40, 64, 2.0), (1000, 1, 1.0)]
)
@pytest.mark.parametrize("spread", [1.0, 1e2, 1e6, 1e30])
def test_every_r_is_that_of_the_distribution(M, N, kappa, spread, resident):
    s = make(M, N, kappa, resident)
    w = spread ** (torch.rand(M) - 0.5)
    s.update(torch.arange(M), w)
    p = F.adjusted_probabilities(w.clamp(WEIGHT_MIN, WEIGHT_MAX), N, kappa).double()
    u = Uniforms(0, 3, N)
    for step in range(1, 40):
        index, r = s.draw(u(step))
        torch.testing.assert_close(r.double() * p[index] * M, torch.ones(N, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.statistical
@BOTH
@pytest.mark.parametrize(("M", "spread"), [(300, 1.0), (300, 1e3), (5000, 1e2), (300, 1e12)])
def test_frequencies(M, spread, resident):
    s = make(M, 64, resident=resident)
    s.fill(spread ** (torch.rand(M) - 0.5))
    assert_fits(drawn_frequencies(s, 64, 4000), s.probabilities())


@BOTH
def test_sums_do_not_drift(resident):
    """1e6 single updates, weights 1e12 times the others coming and going, then a fresh sampler's sums."""
    M, N = 20_000, 500
    s = make(M, N, resident=resident)
    g = torch.Generator().manual_seed(0)
    for _ in range(2000):
        index = torch.randperm(M, generator=g)[:N]
        w = torch.rand(N, generator=g) + 1e-3
        w[:3] *= 1e12
        s.update(index, w)
        s.update(index[:3], w[3:6])
    s.draw(Uniforms(0, 3, N)(1))
    fresh = make(M, N, resident=resident)
    fresh.fill(s.weights)
    fresh.draw(Uniforms(0, 3, N)(1))
    # torch's pow, which the resident path uses, may round an entry differently with its place in memory
    torch.testing.assert_close(s.tree.sums[0], fresh.tree.sums[0], rtol=1e-7 if resident else 1e-12, atol=0)
    assert torch.equal(s.tree.tops[0], fresh.tree.tops[0])
    (i, r), (j, q) = (x.draw(Uniforms(0, 3, N)(2)) for x in (s, fresh))
    assert torch.equal(i, j)
    torch.testing.assert_close(r, q, rtol=1e-6 if resident else 0, atol=0)


@pytest.mark.parametrize("deep", [False, True])
def test_sums_are_those_of_a_fresh_sampler_to_the_bit(deep, monkeypatch):
    """So that a run that is saved and loaded draws what it would have drawn."""
    if deep:
        monkeypatch.setattr("emais.draws.tree.DEEP", 1)
    s, fresh = make(5000, 32, None), make(5000, 32, None)
    assert s.tree.tiers == 1 + deep
    g = torch.Generator().manual_seed(0)
    for _ in range(200):
        s.update(torch.randperm(5000, generator=g)[:32], (10 * torch.randn(32, generator=g)).exp())
    fresh.fill(s.weights)
    assert all(torch.equal(a, b) for a, b in zip(s.tree.sums, fresh.tree.sums, strict=True))


def test_host_and_resident_paths_draw_the_same():
    w = 1e4 ** torch.rand(777)
    a, b = make(777, 32), make(777, 32, resident=True)
    a.fill(w)
    b.fill(w)
    u = Uniforms(3, 3, 32)
    for step in range(1, 30):
        (i, r), (j, q) = a.draw(u(step)), b.draw(u(step))
        assert torch.equal(i, j)
        torch.testing.assert_close(r, q, rtol=1e-6, atol=0)


@BOTH
def test_weights_are_kept_positive_and_finite(resident):
    s = make(10, 2, resident=resident)
    s.update(torch.arange(4), torch.tensor([0.0, float("inf"), 1e-45, 3e38]))
    assert s.weights.min() == WEIGHT_MIN
    assert s.weights.max() == WEIGHT_MAX
    _, r = s.draw(Uniforms(0, 3, 2)(1))
    assert r.isfinite().all()


def test_of_a_repeated_index_the_first_weight_stays():
    s = make(10, 2)
    s.update(torch.tensor([4, 4]), torch.tensor([3.0, 5.0]))
    assert s.weights[4] == 3


@BOTH
def test_all_of_a_large_data_set_can_be_drawn(resident):
    """Past 2^24, where torch.multinomial refuses and a float32 index would repeat."""
    M, N = 2**24 + 3, 4
    s = make(M, N, resident=resident)
    chosen = torch.tensor([M - 1, M - 2, M - 3, 7])
    s.update(chosen, torch.full((4,), 1e18))
    p = 1e18 / (4e18 + M - 4)
    seen = set()
    for step in range(1, 20):
        index, r = s.draw(Uniforms(0, 3, N)(step))
        seen |= set(index.tolist())
        torch.testing.assert_close(r, torch.full((N,), 1 / (M * p)))
    assert seen == set(chosen.tolist())


def test_at_most_twenty_bytes_a_sample_with_the_scores():
    for M, N in [(10_000, 128), (60_000, 128), (10**6, 128), (10**6, 4096)]:
        for resident in (False, True):
            assert make(M, N, resident=resident).nbytes() / M + 12 <= 20


def test_refuses_what_cannot_be_flattened():
    with pytest.raises(
        EmaisError, match=r"batch_size=11 is above kappa \* num_samples = 1 \* 10.*kappa of at least 1.1"
    ):
        make(10, 11)
    for kappa in (0, -1.0, float("nan")):
        with pytest.raises(EmaisError, match="kappa must be"):
            make(10, 2, kappa)


@pytest.mark.parametrize(("M", "N"), [(10, 5), (10, 3), (7, 16), (1, 1)])
def test_scan_covers_each_epoch_once(M, N):
    scan = Epochs(M, N, seed=1)
    stream = torch.cat([scan(t) for t in range(1, 3 * M + 1)])
    for epoch in range(3):
        assert sorted(stream[epoch * M : (epoch + 1) * M].tolist()) == list(range(M))
    if M > 5:
        assert not torch.equal(stream[:M], stream[M : 2 * M])
    assert torch.equal(Epochs(M, N, seed=1)(2), scan(2))
    assert torch.equal(Epochs(M, N, seed=1).table(4)[2].long(), scan(3))


@pytest.fixture
def orders(monkeypatch):
    """Counts the shuffled orders whose memory is in use, by a tensor or a view of it; none is made beside another."""
    shuffle, made = torch.randperm, []

    def counted(*args, **options):
        assert all(memory() is None for memory in made)
        memory = shuffle(*args, **options).numpy().copy()  # the tensor over it keeps it
        made.append(weakref.ref(memory))
        return torch.from_numpy(memory)

    monkeypatch.setattr(torch, "randperm", counted)
    return lambda: sum(memory() is not None for memory in made), made


def test_there_are_never_two_shuffled_orders(orders):
    """Each takes 4 bytes a sample; and a minibatch that spans two epochs may be made again without another shuffle."""
    count, made = orders
    scan, most = Epochs(4099, 100, seed=1), 0
    for step in range(1, 101):
        assert torch.equal(scan(step), scan(step))
        most = max(most, count())
    assert most == 1
    assert len(made) == 3  # 10,000 samples are of three epochs


def test_a_state_from_after_the_warm_up_frees_the_order(orders):
    count, _ = orders
    source = HostSource(4099, 10, seed=1, epoch_steps=500)
    source.take()
    assert count() == 1
    source.restore(600)
    assert count() == 0


@BOTH
def test_a_deeper_tree_is_the_same_distribution(resident, monkeypatch):
    """Two tiers of nodes, which otherwise begin past a million samples, against one."""
    M, N = 5000, 64
    w = 1e3 ** torch.rand(M)
    shallow = make(M, N, resident=resident)
    monkeypatch.setattr("emais.draws.tree.DEEP", 1)
    deep = make(M, N, resident=resident)
    assert (shallow.tree.tiers, deep.tree.tiers) == (1, 2)
    g = torch.Generator().manual_seed(0)
    for _ in range(300):
        index = torch.randperm(M, generator=g)[:N]
        deep.update(index, w[index])
        shallow.update(index, w[index])
    assert torch.equal(deep.probabilities(), shallow.probabilities())
    for a, b in zip(deep.tree.sums[0].unbind(), shallow.tree.sums[0].unbind(), strict=True):
        torch.testing.assert_close(a.sum(), b.sum(), rtol=1e-12, atol=0)
        torch.testing.assert_close(deep.tree.sums[1].sum(1)[0], deep.tree.sums[0].sum(1)[0], rtol=1e-12, atol=0)
    p = deep.probabilities()
    u = Uniforms(0, 3, N)
    for step in range(1, 20):
        index, r = deep.draw(u(step))
        torch.testing.assert_close(r.double() * p[index] * M, torch.ones(N).double(), rtol=0, atol=1e-6)
    assert_fits(drawn_frequencies(deep, N, 4000), p)
