"""Algorithm 1's vectorised update against the sequential one."""

import pytest
import torch
from reference import Algorithm1

from emais import EmaisError, EMAScores

NAN, INF = float("nan"), float("inf")


class OnDevicePath(EMAScores):
    """The code that runs on a GPU, here on the CPU."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options, resident=True)

    def update(self, step, index, grad_norms):
        return super().update(torch.tensor(step), index, grad_norms)


BOTH = pytest.mark.parametrize("cls", [EMAScores, OnDevicePath])


def compare(scores, reference, atol=1e-5):
    torch.testing.assert_close(scores.mean.double(), torch.tensor(reference.mu).double(), rtol=1e-5, atol=atol)
    torch.testing.assert_close(scores.var.double(), torch.tensor(reference.sigma2).double(), rtol=1e-4, atol=atol)
    assert scores.last_step.tolist() == reference.t_prev


@BOTH
@pytest.mark.parametrize("tau", ["linear", 3.0, 1000.0])
def test_equals_the_sequential_algorithm(cls, tau):
    M, N = 20, 8
    scores, reference = cls(M, tau), Algorithm1(M, N, tau=None if tau == "linear" else tau)
    for t in range(1, 60):
        index, g = torch.randint(M, (N,)), torch.rand(N) * 3  # repeats happen
        scores.update(t, index, g)
        for i, x in zip(index.tolist(), g.tolist(), strict=True):
            reference.update_stats(t, i, x)
        compare(scores, reference)
    want = torch.tensor(reference.compute_importance())
    torch.testing.assert_close(scores.weights(), want, rtol=1e-4, atol=1e-4)


@BOTH
def test_of_repeated_samples_the_first_counts(cls):
    scores, reference = cls(5, tau=2.0), Algorithm1(5, 6, tau=2.0)
    index, g = torch.tensor([3, 1, 3, 3, 1, 0]), torch.tensor([1.0, 2.0, 9.0, 8.0, 7.0, 3.0])
    scores.update(4, index, g)
    for i, x in zip(index.tolist(), g.tolist(), strict=True):
        reference.update_stats(4, i, x)
    compare(scores, reference)


@BOTH
def test_non_finite_norms_change_nothing(cls):
    scores = cls(4)
    scores.update(1, torch.tensor([0, 1, 2]), torch.tensor([1.0, 2.0, 3.0]))
    before = scores.state_dict()
    scores.update(2, torch.tensor([0, 1, 2, 3]), torch.tensor([NAN, INF, 3.4e38, NAN]))
    for name, value in scores.state_dict().items():
        assert torch.equal(value, before[name]), name


@BOTH
def test_what_is_below_0_is_no_norm(cls):
    scores = cls(2)
    scores.update(1, torch.tensor([0, 1]), torch.tensor([-INF, -1.0]))
    assert not any(value.any() for value in scores.state_dict().values())


@BOTH
def test_first_usable_of_repeated_samples(cls):
    scores, reference = cls(3), Algorithm1(3, 4)
    index, g = torch.tensor([1, 1, 1, 2]), torch.tensor([NAN, 5.0, 7.0, INF])
    scores.update(1, index, g)
    for i, x in zip(index.tolist(), g.tolist(), strict=True):
        reference.update_stats(1, i, x)
    compare(scores, reference)
    assert scores.last_step.tolist() == [0, 1, 0]


@BOTH
def test_start_from_the_first_observation(cls):
    scores = cls(2, start="first")
    scores.update(7, torch.tensor([1]), torch.tensor([4.0]))
    assert scores.mean.tolist() == [0, 4]
    assert scores.var.tolist() == [0, 0]


@BOTH
def test_an_observation_older_than_the_last_is_ignored(cls):
    scores = cls(2)
    scores.update(9, torch.tensor([0]), torch.tensor([1.0]))
    before = scores.state_dict()
    scores.update(8, torch.tensor([0]), torch.tensor([5.0]))
    assert all(torch.equal(v, before[k]) for k, v in scores.state_dict().items())


def test_returned_weights_are_the_new_ones():
    scores = EMAScores(4, unseen=1.0)
    w = scores.update(1, torch.tensor([2, 0, 2]), torch.tensor([1.0, 3.0, 5.0]))
    assert torch.equal(w, scores.weights()[torch.tensor([2, 0, 2])])
    assert scores.weights()[1] == 1


@pytest.mark.parametrize("tau", [0, -1.0, NAN, INF, "quadratic", True])
def test_bad_tau(tau):
    with pytest.raises(EmaisError, match="tau must be"):
        EMAScores(3, tau)


def test_bad_shapes_and_values():
    for index, message in [([0, 3], "from 0 to 2, got values from 0 to 3"), ([-1, 1], "got values from -1 to 1")]:
        with pytest.raises(EmaisError, match=message):
            EMAScores(3).update(1, torch.tensor(index), torch.ones(2))
    for index in (torch.ones(3, dtype=torch.bool), torch.ones(3)):
        scores = EMAScores(3)
        with pytest.raises(EmaisError, match=f"whole numbers .*, got {index.dtype}"):
            scores.update(1, index, torch.ones(3))
        assert not scores.mean.any()
    for step in (0, -1, 1.5):
        with pytest.raises(EmaisError, match=f"step must be .* got {step}"):
            EMAScores(3).update(step, torch.tensor([0]), torch.ones(1))
    with pytest.raises(EmaisError, match=r"got \(2,\) and \(3,\)"):
        EMAScores(3).update(1, torch.tensor([0, 1]), torch.ones(3))
    with pytest.raises(EmaisError, match=r"num_samples .* got 0"):
        EMAScores(0)
    with pytest.raises(EmaisError, match="start must be one of zero, first, got 'last'"):
        EMAScores(3, start="last")
