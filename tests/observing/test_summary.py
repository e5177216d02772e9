"""The summary of many steps: exact on streams that are known, an interval that covers, words that promise nothing."""

import math
from functools import partial

import numpy as np
import pytest
import torch

import emais
from emais.observing import summary
from emais.observing.summary import RecentWindows, RunCounts, Summary
from emais.statistics.arrays import arrays_on

M, N = 50, 8


def stream(seed, steps, grads, p):
    """Averages over `steps` minibatches drawn with p from gradients (M, D)."""
    rng, r = np.random.default_rng(seed), 1 / (M * p)
    arrays = arrays_on("cpu")
    recent = RecentWindows(steps, arrays)
    for _ in range(steps):
        index = rng.choice(M, N, p=p)
        norms = np.linalg.norm(grads[index], axis=1)
        recent.look(r[index], norms, joins=False)
        total = r[index] @ grads[index]
        recent.close(np.array([*arrays.moments(r[index], norms), total @ total]), 2.0, N)
    return recent.summary(RunCounts(0, 0, steps, steps, 2.0 * steps), "steady", 10.0)


@pytest.fixture(scope="module")
def known():
    rng = np.random.default_rng(0)
    grads = rng.normal(size=(M, 3)) * np.exp(rng.normal(size=(M, 1)))
    p = np.linalg.norm(grads, axis=1) ** 0.5
    p /= p.sum()
    square, mean = (grads**2).sum(1), (grads.mean(0) ** 2).sum()
    drawn, uniform, best = (square / (M * p)).mean(), square.mean(), np.sqrt(square).mean() ** 2
    return grads, p, (drawn - best) / (uniform - best), N * (uniform - mean) / (drawn - mean)


def test_it_converges_to_the_truth(known, monkeypatch):
    grads, p, score, n_ems = known
    monkeypatch.setattr(summary, "MOST_WINDOWS", 20_000)
    found = stream(1, 20_000, grads, p)
    assert found.score == pytest.approx(score, abs=0.01)
    assert found.n_ems == pytest.approx(n_ems, rel=0.02)
    assert found.batch_size == N
    assert found.max_r == pytest.approx(1 / (M * p.min()))
    assert (found.lr_scale, found.bounded, found.effective_steps) == (2.0, 0.0, 40_000.0)


def test_gradients_of_logits_that_point_one_way(known):
    """One output, and labels that are all alike: no reason to think that the parameters' gradients agree as much."""
    rng = np.random.default_rng(0)
    grads = np.exp(rng.normal(size=(M, 1)))
    p = grads[:, 0] ** 0.5 / (grads[:, 0] ** 0.5).sum()
    found = stream(1, 500, grads, p)
    assert found.alignment == pytest.approx(1.0)
    assert "(in the logits, where nearly all point the same way)" in str(found)
    grads, p, _, _ = known
    found = stream(1, 5000, grads, p)
    assert found.alignment == pytest.approx(
        (grads.mean(0) ** 2).sum() / np.linalg.norm(grads, axis=1).mean() ** 2, abs=0.03
    )
    assert "same way" not in str(found)


def gain(grads, p):
    """tr_unif/tr_is of all samples, exactly."""
    square, mean = grads.square().sum(1), grads.mean(0).square().sum()
    return (square.mean() - mean) / ((square / (len(p) * p)).mean() - mean)


@pytest.mark.parametrize("alike", [True, False])
def test_logits_stand_for_parameters_unless_they_point_one_way(alike):
    """Where labels are all alike, what logits promise is many times what the parameters have."""
    torch.manual_seed(0)
    x = torch.randn(600, 8)
    y = torch.ones(600, 1) if alike else (x[:, :1] > 0).float()
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer, loss = torch.optim.SGD(model.parameters(), 0.05), torch.nn.functional.binary_cross_entropy_with_logits
    for _ in range(400):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    logits = (model(x).sigmoid() - y).detach()
    p = (logits.abs() + 0.03 * logits.abs().mean()).squeeze(1)
    p = p / p.sum()
    promised, true = gain(logits, p), gain(emais.functional.parameter_gradients(model, loss, x, y), p)
    assert promised > 10 * true if alike else 0.5 < promised / true < 2


def test_the_interval_covers(known):
    grads, p, score, _ = known
    found = [stream(seed, 100, grads, p) for seed in range(200)]
    inside = np.mean([s.score_low <= score <= s.score_high for s in found])
    assert 0.88 <= inside <= 0.99


def test_nothing_to_gain_has_no_score():
    rng = np.random.default_rng(0)
    grads = rng.normal(size=(M, 3))
    grads /= np.linalg.norm(grads, axis=1, keepdims=True)  # all norms are 1: no sampler beats uniform
    found = stream(0, 200, grads, np.full(M, 1 / M))
    assert math.isnan(found.score)
    assert "show no room" in str(found)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("resident", [False, True])
def test_of_an_engine(resident, equal):
    """Only a run of equal progress saves steps: one that makes all of them is worth more than they are, no more."""
    torch.manual_seed(0)
    x = torch.randn(300, 4) * torch.randn(300, 1).exp()
    y, model = (x[:, 0] > 0).long(), torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(300, 20, num_steps=1000, resident=resident, effective_steps=equal)
    assert str(imp.summary()) == "No minibatch was observed yet."
    imp.attach(optimizer)
    applied = []
    for _ in range(200):
        draw = imp.draw()
        z = model(x[draw.index])
        optimizer.zero_grad()
        imp.loss(torch.nn.functional.cross_entropy(z, y[draw.index], reduction="none"), z, draw).backward()
        optimizer.step()
        applied.append(float(imp.attached.applied))
    found = imp.summary()
    assert isinstance(found, Summary)
    assert found.steps == 200
    assert found.effective_steps == pytest.approx(sum(applied))
    assert found.score_low < found.score < found.score_high < 1
    assert found.n_ems > 25
    assert found.max_r <= 10
    assert f"200 minibatches were worth {sum(applied):.0f} (rule steady" in str(found)
    saved = sum(applied) - 200 if equal else 0.0
    assert (found.equal_progress, found.steps_saved) == (equal, pytest.approx(saved))
    assert (f"steps_saved is {saved:.0f}" in str(found)) == ("steps_saved" in str(found)) == equal
    assert found.as_dict()["n_ems"] == found.n_ems
    for word in ("accuracy", "test error", "better model"):
        assert word not in str(found)


def test_bad_gradients_leave_it_alone(known):
    grads, p, _, _ = known
    arrays, want = arrays_on("cpu"), stream(0, 50, grads, p)
    recent, rng, r = RecentWindows(100, arrays), np.random.default_rng(0), 1 / (M * p)
    for k in range(50):
        index = rng.choice(M, N, p=p)
        norms, total = np.linalg.norm(grads[index], axis=1), r[index] @ grads[index]
        recent.look(r[index], norms, joins=False)
        recent.close(np.array([*arrays.moments(r[index], norms), total @ total]), 2.0, N)
        if k % 5 == 0:
            bad = math.nan if k % 2 else math.inf
            recent.look(r[index], np.where(norms > 1, bad, norms), joins=False)
            recent.close(np.full(4, bad), 2.0, N)
    found = recent.summary(RunCounts(0, 0, 60, 60, 100.0), "steady", 10.0)
    assert (found.score, found.n_ems, found.max_share) == (want.score, want.n_ems, want.max_share)
    assert (found.effective_steps, found.steps_saved) == (100, 0)


@pytest.mark.parametrize("resident", [False, True])
def test_a_resume_between_two_minibatches_of_a_step_has_the_same_summary(resident):
    def made():
        imp = emais.EMAIS(100, 10, num_steps=100, resident=resident)
        return imp, imp.attach(None, rule="linear")

    def half(imp):
        draw = imp.draw()
        z = torch.ones(10, 2, requires_grad=True)
        imp.observe((z * grads[draw.index]).sum(1), z, draw)

    grads = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).exp()
    (imp, manual), (again, other) = made(), made()
    for _ in range(30):
        half(imp)
        half(imp)
        manual.lr_scale()
    half(imp)
    again.load_state_dict(imp.state_dict())
    for engine, step in ((imp, manual), (again, other)):
        half(engine)
        step.lr_scale()
    assert again.summary() == imp.summary()
    assert imp.summary().batch_size == 20


def drifting(norms, batch_size, steps=200):
    """The summary of EMAIS whose gradients are norms (M,), times a scale that falls to a half in every 100 steps."""
    imp = emais.EMAIS(len(norms), batch_size, num_steps=steps, warmup_epochs=1)
    manual = imp.attach(None, rule="none")
    for step in range(steps):
        draw = imp.draw()
        z = torch.ones(batch_size, 1, requires_grad=True)
        imp.observe((z * norms[draw.index, None] * 0.5 ** (step / 100)).sum(1), z, draw)
        manual.lr_scale()
    return imp.summary()


@pytest.mark.parametrize("batch_size", [2, 4, 32])
def test_identical_samples_whose_gradients_shrink_leave_nothing_to_gain(batch_size):
    found = drifting(torch.ones(1000), batch_size)
    assert math.isnan(found.score)
    assert math.isnan(found.n_ems)
    assert "hardly differed" in str(found)


def test_gradients_that_shrink_do_not_move_the_score():
    rng, scores = np.random.default_rng(0), []
    norms = np.exp(rng.normal(size=M))
    p = norms**0.5 / (norms**0.5).sum()
    arrays, r = arrays_on("cpu"), 1 / (M * p)
    for factor in (1.0, 0.995):
        recent = RecentWindows(1000, arrays)
        for step in range(1000):
            index = rng.choice(M, N, p=p)
            drawn = norms[index] * factor**step
            recent.look(r[index], drawn, joins=False)
            recent.close(np.array([*arrays.moments(r[index], drawn), (r[index] @ drawn) ** 2]), 1.0, N)
        scores.append(recent.summary(RunCounts(0, 0, 1000, 1000, 1000.0), "none", 10.0))
    square, best = (norms**2).mean(), norms.mean() ** 2
    truth = ((norms**2 / p).mean() / M - best) / (square - best)
    for found in scores:
        assert found.score_low < truth < found.score_high
    assert scores[1].score_high - scores[1].score_low < 0.2


def fed(grads, rule, steps, method, **settings):
    """The summary of a run whose samples have these gradients at step k."""
    imp = emais.create(method, 512, 16, warmup_epochs=1, **settings)
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp.attach(sgd, rule=rule)
    for k in range(steps):
        draw = imp.draw()
        z = torch.ones(16, 5, requires_grad=True)
        imp.observe((z * grads(k)[draw.index]).sum(1), z, draw)
        sgd.step()
    return imp.summary()


def test_a_run_of_bad_gradients_is_called_that():
    imp = emais.EMAIS(100, 10, num_steps=100)
    imp.attach(None, rule="linear")
    for _ in range(20):
        draw = imp.draw()
        z = torch.ones(10, 1, requires_grad=True)
        imp.loss((z * math.nan).sum(1), z, draw)
    found = imp.summary()
    assert found.nonfinite == 200
    assert "200 gradient norms were not finite" in str(found)
    assert "20 minibatches were observed, and the attached optimizer has made no step yet" in str(found)


def test_one_sample_a_minibatch_has_no_pairs():
    found = drifting(torch.rand(50) + 0.5, 1)
    assert math.isnan(found.score)
    assert found.n_ems > 0
    assert "gradient of 1 sample had" in str(found)


def test_a_loaded_run_that_is_not_attached_yet_says_what_its_steps_were_worth():
    make = partial(emais.EMAISAuto, 400, 10, effective_steps=10_000)
    imp, sgd = make(), torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp.attach(sgd)
    norms = torch.rand(400, generator=torch.Generator().manual_seed(0)) ** 4
    for _ in range(300):
        draw = imp.draw()
        z = torch.ones(10, 1, requires_grad=True)
        imp.observe((z * norms[draw.index, None]).sum(1), z, draw)
        sgd.step()
    loaded = make()
    loaded.load_state_dict(imp.state_dict())
    saved = f"steps_saved is {round(imp.summary().steps_saved)}"
    assert imp.summary().steps_saved > 1
    assert saved in str(imp.summary())
    assert saved in str(loaded.summary())
    assert "left alone" not in str(loaded.summary())


def test_a_factor_that_is_noise_saves_no_steps():
    imp = emais.EMAIS(512, 2, warmup_epochs=1)
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    imp.attach(sgd)
    grads = torch.randn(512, 5, generator=torch.Generator().manual_seed(0))
    grads[:, 0] += 100 * 5**0.5
    for _ in range(800):
        draw = imp.draw()
        z = torch.ones(2, 5, requires_grad=True)
        imp.observe((z * grads[draw.index]).sum(1), z, draw)
        sgd.step()
    said = imp.summary()
    assert math.isnan(said.n_ems)
    assert said.lr_scale > 2
    assert "noise" in str(said)
    assert "steps_saved is" not in str(said)


def test_a_factor_below_1_is_noise_too_where_gradients_hardly_differ():
    said = fed(lambda _: torch.ones(512, 5), "linear", 60, "emais", max_scale=0.7)
    assert math.isnan(said.n_ems)
    assert said.lr_scale < 0.9
    assert "which is noise where gradients hardly differ" in str(said)


def test_the_steady_rule_is_not_advised_to_those_who_have_it():
    """Its averages are of squares: while gradients shrink, large old ones count more than small new ones."""
    grads = torch.randn(512, 5, generator=torch.Generator().manual_seed(0)) ** 3

    def at(k):
        return grads if k < 300 else math.exp((300 - k) / 60) * torch.ones(512, 5)

    said = fed(at, "steady", 600, "emais-auto")
    assert math.isnan(said.n_ems)
    assert said.lr_scale > 1.1
    assert "use rule steady" not in str(said)
    assert "which lags behind: the latest steps are worth 1 each" in str(said)


def trained(name, steps, **options):
    """Of 20 samples, 5 a minibatch: epochs of 4."""
    imp = emais.create(name, 20, batch_size=5, **options)
    norms = torch.rand(20, generator=torch.Generator().manual_seed(0))
    for _ in range(steps):
        draw = imp.draw()
        z = torch.ones(5, 1, requires_grad=True)
        imp.observe((z * norms[draw.index, None]).sum(1), z, draw)
    return imp


@pytest.mark.parametrize("name", ["emais", "emais-auto", "rais"])
def test_a_run_within_its_warm_up_says_that_it_is_plain(name):
    for steps, told in ((1, "the only minibatch was"), (8, "all 8 minibatches were"), (9, None)):
        found = trained(name, steps).summary()
        assert found.warming_up == found.as_dict()["warming_up"] == (told is not None)
        assert (f"{told} of the warm-up, which draws as plain training does." in str(found)) == (told is not None)
    assert not trained(name, 0).summary().warming_up


@pytest.mark.parametrize("name", ["sgd-scan", "sgd-uni", "audit", "self-paced"])
def test_methods_that_never_draw_by_importance_have_no_warm_up(name):
    found = trained(name, 3).summary()
    assert not found.warming_up
    assert "warm-up" not in str(found)


def test_a_warm_up_of_minibatches_that_were_not_observed_is_over_as_well():
    imp = trained("emais", 3)
    for _ in range(6):
        imp.draw()
    draw, z = imp.draw(), torch.ones(5, 1, requires_grad=True)
    imp.observe(z.squeeze(1) * 2, z, draw)
    assert imp.summary().observed == 4
    assert not imp.summary().warming_up


def test_a_resumed_run_is_past_its_warm_up():
    again = emais.EMAIS(20, batch_size=5)
    again.load_state_dict(trained("emais", 9).state_dict())
    assert not again.summary().warming_up
