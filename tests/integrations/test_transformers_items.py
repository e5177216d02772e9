"""What the summed loss is divided by: the tokens that a uniform draw would have had, not those that were drawn."""

import math

import pytest
import torch

from emais import EMAIS, EmaisError
from emais.transformers.items import ExpectedItems

M, N, DRAWS = 60, 8, 20_000


@pytest.fixture
def sequences():
    """(tokens, summed loss) of all sequences: long ones are harder, a token at a time, too."""
    g = torch.Generator().manual_seed(2)
    tokens = torch.randint(2, 40, (M,), generator=g).double()
    return tokens, tokens * (0.5 + tokens / 40 + torch.rand(M, generator=g, dtype=torch.float64))


def engine(losses, warmup_epochs):
    """One that has seen all sequences, and draws each roughly in proportion to its loss."""
    imp = EMAIS(M, N, warmup_epochs=warmup_epochs, kappa=8, seed=1)
    norms = losses.float() * (0.5 + torch.rand(M, generator=torch.Generator().manual_seed(3)))
    z = norms.unsqueeze(1).requires_grad_()
    imp.refresh(torch.arange(M), z.squeeze(1), z, grads=norms.unsqueeze(1))
    return imp


def mean_and_error(values):
    x = torch.tensor(values, dtype=torch.float64)
    return float(x.mean()), float(x.std()) / math.sqrt(len(x))


@pytest.mark.statistical
def test_the_loss_of_unequal_draws_is_not_biased(sequences):
    """20,000 minibatches: the plain count of tokens is off by a tenth and more, ours within the noise."""
    tokens, losses = sequences
    truth = float(losses.sum() / tokens.sum())
    imp, items, plain, ours = engine(losses, warmup_epochs=1), ExpectedItems(M), [], []
    for step in range(DRAWS + 8):
        draw = imp.draw()
        n, total = tokens[draw.index], float(draw.r.double() @ losses[draw.index])
        divisor = items.of_step([draw], [n])
        if step < 8:  # the first epoch: all samples alike
            assert divisor == float(n.sum())
            continue
        plain.append(total / float(n.sum()))
        ours.append(total / divisor)
    mean, error = mean_and_error(plain)
    assert mean / truth < 0.89  # 11 % too small, or worse
    assert (truth - mean) / error > 50
    mean, error = mean_and_error(ours)
    assert error / truth < 0.01
    assert abs(mean - truth) / error < 4


@pytest.mark.statistical
def test_it_is_consistent_before_all_samples_were_seen(sequences):
    """No epoch without replacement comes first, and one sample is never drawn: r-weighted counts tell the mean."""
    tokens, losses = sequences
    imp, items, errors = engine(losses, warmup_epochs=0), ExpectedItems(M + 1), {}
    for step in range(1, 4001):
        draw = imp.draw()
        items.of_step([draw], [tokens[draw.index]])
        if step in (40, 4000):
            errors[step] = abs(items.mean / float(tokens.mean()) - 1)
    assert errors[40] < 0.15
    assert errors[4000] < 0.015


def test_once_all_samples_were_seen_the_mean_is_exact(sequences):
    tokens, losses = sequences
    imp, items = engine(losses, warmup_epochs=0), ExpectedItems(M)
    while (items.counts < 0).any():
        draw = imp.draw()
        items.of_step([draw], [tokens[draw.index]])
    for _ in range(3):
        assert items.mean == float(tokens.mean())
        draw = imp.draw()
        assert items.of_step([draw], [tokens[draw.index]]) == N * float(tokens.mean())


def test_counts_may_change(sequences):
    """With random truncation the latest count of each sample is the one that counts."""
    imp, items = EMAIS(16, 8, warmup_epochs=4, seed=1), ExpectedItems(16)
    for count in (3, 3, 5):
        items.of_step([draw := imp.draw()], [torch.full((8,), count)])
    assert items.mean == 4
    draw.r.fill_(0.5)
    assert items.of_step([draw], [torch.full((8,), 7)]) == 8 * 4
    assert items.mean == 5


def test_several_minibatches_of_one_step():
    """All are divided by one number, which the step itself has no part in."""
    imp, items = EMAIS(M, N, warmup_epochs=1, seed=1), ExpectedItems(M)
    draws = [imp.draw() for _ in range(3)]
    counts = [torch.full((N,), n) for n in (3, 5, 7)]
    assert items.of_step(draws, counts) == 15 * N  # all r are 1
    for draw in draws:
        draw.r.fill_(0.5)
    assert items.of_step(draws, [torch.full((N,), 100)] * 3) == 3 * N * 5
    mean = (24 * 5 + 12 * 100) / (24 + 12)
    assert items.of_step(draws, counts) == pytest.approx(3 * N * mean)


def test_equal_samples_are_counted_exactly():
    """With as many items in every sample the number is the plain one, whatever r is."""
    imp, items = EMAIS(M, N, warmup_epochs=0, seed=1), ExpectedItems(M)
    for r in (0.2, 3.0, 1.0, 0.7):
        draw = imp.draw()
        draw.r.fill_(r)
        assert items.of_step([draw], [torch.ones(N)]) == pytest.approx(N, rel=1e-12)


def test_samples_of_one_item_each():
    """Nothing is counted as long as all are; a sample without an item changes the mean from then on."""
    imp, items = EMAIS(M, N, warmup_epochs=0, seed=1), ExpectedItems(M)
    assert items.of_ones(3 * N) == 3 * N
    assert (items.counts < 0).all()
    other = ExpectedItems(M)
    other.load_state_dict(items.state_dict())
    draw = imp.draw()
    draw.r.fill_(0.5)
    count = torch.ones(N)
    count[0] = 0
    assert items.of_step([draw], [count]) == other.of_step([draw], [count]) == N  # the step itself has no part in it
    assert items.of_ones(N) is None
    changed = len(set(draw.index[count == 0].tolist()) - set(draw.index[1:].tolist()))
    assert items.of_step([draw], [torch.ones(N)]) == N * (M - changed) / M


def test_a_first_step_with_several_items_each():
    """No sample is taken for one of a single item that was not seen."""
    imp, items = EMAIS(M, N, warmup_epochs=0, seed=1), ExpectedItems(M)
    draw = imp.draw()
    draw.r.fill_(0.5)
    assert items.of_step([draw], [torch.full((N,), 4)]) == 4 * N
    assert items.of_ones(N) is None
    assert items.mean == 4


def test_a_step_without_items():
    draw = EMAIS(M, N, warmup_epochs=1).draw()
    assert ExpectedItems(M).of_step([draw], [torch.zeros(N)]) == 1.0


@pytest.mark.parametrize("steps", [1, 8])
def test_its_state(steps):
    """Before and after all samples were seen."""
    imp, items, other = EMAIS(M, N, seed=1), ExpectedItems(M), ExpectedItems(M)
    for _ in range(steps):
        items.of_step([imp.draw()], [torch.arange(N)])
    other.load_state_dict(items.state_dict())
    draw = imp.draw()
    draw.r.fill_(0.5)
    assert items.of_step([draw], [torch.ones(N)]) == other.of_step([draw], [torch.ones(N)])
    assert items.mean == other.mean
    with pytest.raises(EmaisError, match="items of 60 samples, the data set has 61"):
        ExpectedItems(M + 1).load_state_dict(items.state_dict())
