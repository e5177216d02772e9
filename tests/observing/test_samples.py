"""The samples worth looking at: which ones are listed, in what order, with what, and who refuses."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import losses_of

import emais
from emais.errors import EmaisError
from emais.observing.samples import Sample, pick_samples
from emais.statistics.per_sample import SampleStatistics

KEEPS = ["emais", "emais-auto", "audit"]


def known(mean, deviation, last_step):
    mean, deviation, last = torch.tensor(mean), torch.tensor(deviation), torch.tensor(last_step)
    return SampleStatistics(mean, deviation, last, mean + deviation, torch.full((len(mean),), 1 / len(mean)))


def indices(samples):
    return [sample.index for sample in samples]


def train(imp, dataset, model, steps):
    for _, (batch, draw) in zip(range(steps), imp.loader(dataset), strict=False):
        imp.loss(*losses_of(model, batch), draw)


def test_the_lists_are_ranked_and_leave_out_what_was_never_seen():
    table = known([3.0, 9.0, 5.0, 9.0, 99.0], [1.0, 0.0, 4.0, 2.0, 99.0], [4, 7, 2, 1, 0])
    found = pick_samples("m", 7, table, 3, None)
    assert indices(found.hardest) == [1, 3, 2]  # of equal ones the lower index first
    assert indices(found.unstable) == [2, 3, 0]
    assert indices(found.never_seen) == [4]
    assert (found.method, found.step, found.num_samples, found.num_never_seen) == ("m", 7, 5, 1)
    assert found.hardest[0] == Sample(1, 9.0, 0.0, 7, 9.0, pytest.approx(1.0))
    unseen = found.never_seen[0]
    assert math.isnan(unseen.mean)
    assert math.isnan(unseen.deviation)
    assert unseen.last_step == 0


def test_fewer_than_asked_for_and_none_at_all():
    found = pick_samples("m", 0, known([1.0, 2.0], [0.0, 0.0], [0, 0]), 1, None)
    assert (found.hardest, found.unstable, indices(found.never_seen), found.num_never_seen) == ([], [], [0], 2)
    found = pick_samples("m", 0, known([1.0, 2.0], [0.0, 0.0], [1, 1]), 9, None)
    assert (indices(found.hardest), found.never_seen) == ([1, 0], [])


def test_losses_are_those_given_and_a_function_is_asked_once():
    table = known([1.0, 3.0, 2.0, 0.0], [1.0, 1.0, 1.0, 0.0], [1, 1, 1, 0])
    losses = torch.tensor([0.0, 10.0, 20.0, 30.0])
    by_tensor, asked = pick_samples("m", 1, table, 2, losses), []

    def ask(index):
        asked.append(index)
        return losses[index].requires_grad_()

    by_function = pick_samples("m", 1, table, 2, ask)
    assert indices(by_tensor.unstable) == [0, 1]  # of three equal ones
    assert by_tensor == replace(by_function, never_seen=by_tensor.never_seen)
    assert [s.loss for s in by_tensor.hardest] == [10.0, 20.0]
    assert by_function.never_seen[0].loss == 30.0
    assert [index.tolist() for index in asked] == [[0, 1, 2, 3]]
    with pytest.raises(EmaisError, match=r"\(4,\), got \(3,\)"):
        pick_samples("m", 1, table, 2, losses[:3])
    with pytest.raises(EmaisError, match=r"\(4,\), got \(\): .*reduction"):
        pick_samples("m", 1, table, 2, lambda index: losses[index].mean())


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("name", KEEPS)
def test_an_engine_lists_what_it_has_learned(name, resident):
    """Sample 7 always has the largest gradient, sample 3 one that comes and goes."""
    imp = emais.create(name, 40, batch_size=10, num_steps=30, seed=0, resident=resident)
    for _ in range(24):
        draw = imp.draw()
        norms = 1.0 + 4.0 * (draw.index == 7)
        norms = torch.where(draw.index == 3, 3.0 * (draw.step // 4 % 2), norms)
        z = torch.zeros(10, 1, requires_grad=True)
        imp.observe((z[:, 0] * norms), z, draw)
    found = imp.samples(5)
    assert (found.step, found.num_never_seen, len(found.unstable)) == (24, 0, 5)
    assert found.hardest[0].index == 7
    assert 3 in indices(found.unstable[:2])
    top, p = found.hardest[0], imp.probabilities()
    assert top.relative_probability == pytest.approx(40 * float(p[7]))
    assert top.relative_probability > 1.5
    assert top.last_step == int(imp.scores.last_step[7])
    assert top.weight == pytest.approx(float(imp.all_weights()[7]))
    assert top.loss is None


def test_emais_lists_algorithm_1s_numbers(task):
    imp = emais.EMAIS(96, batch_size=8, seed=1)
    train(imp, *task, steps=5)
    found = imp.samples(96)
    assert len(found.hardest) == 40  # no replacement in the warm-up: five minibatches of 8
    assert indices(found.never_seen) == (imp.scores.last_step == 0).nonzero().squeeze(1).tolist()
    for sample in found.hardest:
        assert sample.mean == float(imp.scores.mean[sample.index])
        assert sample.deviation == pytest.approx(float(imp.scores.var[sample.index].sqrt()))


def test_losses_that_are_neither_a_tensor_nor_a_function(task):
    imp = emais.EMAIS(96, batch_size=8)
    with pytest.raises(emais.EmaisError, match=r"losses must be a tensor .* or a function .*, got list"):
        imp.samples(losses=[0.5] * 96)


@pytest.mark.parametrize("name", KEEPS)
def test_looking_changes_nothing(task, name):
    """A run that was looked at draws what one that was not does."""
    drawn = []
    for look in (False, True):
        imp = emais.create(name, 96, batch_size=8, seed=1)
        train(imp, *task, steps=12)
        if look:
            imp.samples(losses=torch.zeros(96))
        train(imp, *task, steps=12)
        drawn.append(imp.draw().index.tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("name", sorted(emais.METHODS.keys() - set(KEEPS)))
def test_a_method_without_statistics_of_samples_says_what_to_do(name):
    with pytest.raises(EmaisError, match=rf"{name} keeps no statistics .* emais, emais-auto or audit"):
        emais.create(name, 20, batch_size=4).samples()


@pytest.mark.parametrize("count", [0, -1, 1.5, "all"])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(EmaisError, match="count"):
        emais.EMAIS(20, batch_size=4).samples(count)


def test_what_prints_is_short():
    shown = repr(emais.EMAIS(5000, batch_size=4).samples())
    assert "num_never_seen=5000" in shown
    assert len(shown) < 200
