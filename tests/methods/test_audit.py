"""The audit: traces that are unbiased, a finding in words, and plain training underneath."""

import copy
import itertools
import math

import pytest
import torch
from conftest import losses_of

import emais
from emais import EmaisError
from emais.observing.projection import Projection
from emais.statistics.arrays import arrays_on


def projected(resident, replaced=False):
    arrays = arrays_on("cpu", resident)
    return Projection(M, N, replaced, -(-M // N), -(-M // N), arrays), arrays


M, N = 5, 2
GRADS = torch.tensor([[3.0, 0.0], [1.0, -2.0], [0.5, 0.5], [-1.0, 4.0], [0.0, 1.0]], dtype=torch.float64)
P = torch.tensor([0.4, 0.2, 0.05, 0.3, 0.05], dtype=torch.float64)  # of the sampler that does not draw


def row_of(index, r, resident, replaced=False):
    """What a minibatch leaves behind."""
    shadow, arrays = projected(resident, replaced)
    own, norms = 1 / (M * P[index]), GRADS[index].norm(dim=1)
    shadow.add(*map(arrays.array, (r, own, norms, r @ GRADS[index])))
    return shadow.rows[0]


def traces(rows):
    own, uniform, norm, mean, share = rows
    return torch.stack((own - mean, uniform - mean, norm - mean, share))


@pytest.mark.parametrize("resident", [False, True])
def test_the_projected_traces_are_unbiased_without_replacement(resident):
    """Over all minibatches of different samples, to the last digit."""
    every = [torch.tensor(pair) for pair in itertools.combinations(range(M), N)]
    found = torch.stack([row_of(index, torch.ones(N).double(), resident) for index in every]).mean(0)
    assert_close_to_the_population(found)


@pytest.mark.parametrize("resident", [False, True])
def test_the_traces_of_a_trial_are_unbiased_with_replacement(resident):
    """Over all minibatches of another sampler, each with its chance."""
    q = torch.tensor([0.1, 0.3, 0.2, 0.15, 0.25], dtype=torch.float64)
    every = [torch.tensor(pair) for pair in itertools.product(range(M), repeat=N)]
    rows = [q[index].prod() * row_of(index, 1 / (M * q[index]), resident, replaced=True) for index in every]
    assert_close_to_the_population(torch.stack(rows).sum(0))


def assert_close_to_the_population(found):
    squares, mean = GRADS.square().sum(1), GRADS.mean(0)
    want = torch.stack(((squares / (M**2 * P)).sum(), squares.mean(), GRADS.norm(dim=1).mean() ** 2)) - mean @ mean
    torch.testing.assert_close(traces(found), torch.cat((want, torch.ones(1).double())))


# ---- made-up gradients


def observed(norms, epochs, dims=4, seed=0, steps=None, **settings):
    """An audit of samples whose gradients are norms(step) (M,) long, in a direction that is drawn at each visit."""
    count, generator = len(norms(0)), torch.Generator().manual_seed(seed)
    imp = emais.create("audit", count, **settings)
    for step in range(steps or epochs * math.ceil(count / imp.batch_size)):
        draw = imp.draw()
        direction = torch.nn.functional.normalize(torch.randn(len(draw), dims, generator=generator))
        z = torch.zeros(len(draw), dims, requires_grad=True)
        imp.observe((z * direction * norms(step)[draw.index, None]).sum(1), z, draw)
    return imp


def test_it_projects_the_variance_of_an_importance_sampler():
    """Norms that stay: the statistics become exact, and the projection is the optimum, with r bounded by 10."""
    norms = torch.rand(400, generator=torch.Generator().manual_seed(1)) ** 3 + 0.2
    found = observed(lambda step: norms, 12, batch_size=20).finding()
    n = norms.double()
    want = 20 * float((n**2).mean() / n.mean() ** 2)
    assert found.n_ems == pytest.approx(want, rel=0.1)
    assert found.n_ems_low < found.n_ems < found.n_ems_high < 1.05 * found.bound
    assert found.bound == pytest.approx(want, rel=0.1)
    assert not found.measured
    assert (found.steps, found.epochs, found.batch_size) == (240, 12, 20)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(4))
def test_norms_that_change_with_every_visit_promise_nothing(seed):
    """The statistics have never seen the minibatch that they are judged by."""
    generator = torch.Generator().manual_seed(seed)
    found = observed(
        lambda step: torch.rand(300, generator=generator) ** 2 + 0.05, 12, batch_size=15, seed=seed
    ).finding()
    assert found.n_ems_low <= 15
    assert found.n_ems == pytest.approx(15, rel=0.25)
    assert found.bound > 20  # which is why it is no forecast
    assert "shows nothing to gain so far; a pilot with emais.audit can make sure" in str(found)


def test_the_trend_is_that_of_the_norms():
    """Samples that become more unequal."""
    place = torch.linspace(0, 1, 600)
    rising = observed(lambda step: place ** (step / 60) + 0.01, 6, batch_size=10).finding()
    assert 0 < rising.trend_low < rising.trend < rising.trend_high
    assert "rising" in str(rising)
    assert f"{rising.n_ems:.0f}" in str(rising)
    steady = observed(lambda step: place + 0.1, 6, batch_size=10).finding()
    assert abs(steady.trend) < 0.1 * steady.n_ems


@pytest.mark.parametrize("zero", [False, True])
def test_identical_samples_have_nothing_to_gain(zero):
    imp = emais.create("audit", 40, batch_size=8)
    for _ in range(15):
        z = torch.zeros(8, 3, requires_grad=True)
        imp.observe((z * torch.tensor([0.1, 0.7, -0.3]) * (not zero)).sum(1), z, imp.draw())
    found = imp.finding()
    assert found.n_ems == found.n_ems_low == found.n_ems_high == found.bound == 8
    assert "nothing to gain" in str(found)


def test_before_two_epochs_it_is_too_early():
    norms = torch.rand(100)
    for epochs, early in ((1, True), (2, False), (3, False)):
        found = observed(lambda step: norms, epochs, batch_size=10).finding()
        assert ("too early" in str(found)) == math.isnan(found.n_ems) == early
        assert math.isnan(found.bound) == math.isnan(found.n_ems_low) == early


def test_the_last_step_of_two_epochs_is_told_by_steps_not_by_samples():
    """181 samples by 20: two epochs are 20 steps, and 19 of them have 2.1 times as many samples as there are."""
    norms = torch.rand(181, generator=torch.Generator().manual_seed(0)) + 0.1
    imp = observed(lambda step: norms, 2, batch_size=20, steps=19)
    found = imp.finding()
    assert found.epochs > 2
    assert found.early
    assert str(found).startswith("It is too early to say after 19 steps (2.1 epochs): it takes 20,")
    assert not observed(lambda step: norms, 2, batch_size=20).finding().early


def test_the_bound_is_not_in_the_words():
    norms = torch.rand(400) ** 4 + 1e-3
    found = observed(lambda step: norms * (1 + step % 7), 4, batch_size=20).finding()
    assert f"{found.bound:.0f}" not in str(found)
    assert "would not help you" in str(found)


@pytest.mark.parametrize(("own", "known"), [(0.4, False), (0.5, False), (0.5 + 1e-12, False), (0.6, True), (2.0, True)])
def test_noise_that_drowns_the_trace_is_told_and_does_no_harm(own, known):
    """Of few minibatches the trace may come out at 0 or below, or just above it, with an interval without an end."""
    shadow, _ = projected(False)
    for k in range(4):
        shadow.rows[k] = torch.tensor([own + 0.05 * (-1) ** k, 1.0, 0.9, 0.5, 1.0], dtype=torch.float64)
    shadow.count.fill_(7)
    shadow.rows[4:7] = shadow.rows[:3]
    found = shadow.finding(2.0)
    assert math.isnan(found.n_ems) == (not known)
    assert ("differ too much to say" in str(found)) == (not known)
    if known:
        assert 0 <= found.n_ems_low < found.n_ems < found.n_ems_high < math.inf


def test_a_minibatch_that_is_not_finite_is_left_out():
    norms = torch.rand(100) + 0.1
    imp = observed(lambda step: norms, 4, batch_size=10)
    z = torch.zeros(10, 4, requires_grad=True)
    imp.observe((z * math.nan).sum(1), z, imp.draw())
    assert math.isfinite(imp.finding().n_ems)


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e30])
def test_gradients_that_are_not_finite_are_told_without_a_warning(value):
    """Warnings are errors here: an infinite norm must not leave one behind. Also before two epochs."""
    norms = torch.rand(100) + 0.1
    for epochs in (4, 1):
        imp = observed(lambda step: norms, epochs, batch_size=10)
        for _ in range(15):
            z = torch.zeros(10, 4, requires_grad=True)
            imp.observe((z * torch.tensor([value, 1.0, -value, 0.0])).sum(1), z, imp.draw())
        found = imp.finding()
        assert not found.finite
        assert math.isnan(found.n_ems)
        assert "not finite" in str(found)


# ---- in a loop


def trained(method, dataset, model, steps, accumulate=1, **settings):
    imp = emais.create(method, len(dataset), batch_size=16, **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    drawn, step = [], 0
    while step < steps:
        for batch, draw in imp.loader(dataset):
            losses, z = losses_of(model, batch)
            imp.loss(losses, z, draw).backward()
            drawn.append(draw.index.tolist())
            step += 1
            if step % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    return imp, drawn


def test_it_trains_as_sgd_scan_to_the_bit(task):
    dataset, model = task
    other = copy.deepcopy(model)
    imp, drawn = trained("audit", dataset, model, 30)
    assert drawn == trained("sgd-scan", dataset, other, 30)[1]
    assert torch.equal(model.weight, other.weight)
    assert imp.diagnostics.rule == "none"
    assert imp.diagnostics.projected == imp.finding().n_ems > 0


def test_accumulated_minibatches_count_together(task):
    dataset, model = task
    imp, _ = trained("audit", dataset, model, 36, accumulate=3)
    found = imp.finding()
    assert found.batch_size == 48
    assert found.n_ems == pytest.approx(3 * imp._projection.finding(16).n_ems)


def test_a_resumed_audit_finds_the_same(task):
    dataset, model = task
    imp, _ = trained("audit", dataset, model, 20)
    again = emais.create("audit", len(dataset), batch_size=16)
    again.load_state_dict(imp.state_dict())
    assert repr(again.finding()) == repr(imp.finding())  # the trend is NaN so early
    assert math.isfinite(again.finding().n_ems)


def test_it_needs_num_steps_where_epochs_are_laid_out_on_a_device():
    with pytest.raises(EmaisError, match="need num_steps"):
        emais.create("audit", 96, batch_size=16, resident=True)
