"""The summary of many steps: exact on streams that are known, an interval that covers, words that promise nothing."""

import math

import numpy as np
import pytest
import torch

import emais
from emais.observing import summary
from emais.observing.summary import RecentWindows, Summary
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
    return recent.summary(steps, 2.0 * steps, 0, "steady", 10.0)


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
    monkeypatch.setattr(summary, "MOST", 20_000)
    found = stream(1, 20_000, grads, p)
    assert found.score == pytest.approx(score, abs=0.01)
    assert found.n_ems == pytest.approx(n_ems, rel=0.02)
    assert found.batch_size == N
    assert found.max_r == pytest.approx(1 / (M * p.min()))
    assert (found.lr_scale, found.bounded, found.steps_saved) == (2.0, 0.0, 20_000.0)


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
    assert "could gain nothing" in str(found)


@pytest.mark.parametrize("resident", [False, True])
def test_of_an_engine(resident):
    torch.manual_seed(0)
    x = torch.randn(300, 4) * torch.randn(300, 1).exp()
    y, model = (x[:, 0] > 0).long(), torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(300, 20, num_steps=200, resident=resident)
    assert str(imp.summary()) == "No step was observed yet."
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
    assert f"200 steps with the rule steady were worth {sum(applied):.0f}." in str(found)
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
    found = recent.summary(60, 100.0, 0, "steady", 10.0)
    assert (found.score, found.n_ems, found.max_share) == (want.score, want.n_ems, want.max_share)
    assert found.steps_saved == 40


@pytest.mark.parametrize("resident", [False, True])
def test_a_resume_between_two_minibatches_of_a_step_has_the_same_summary(resident):
    def made():
        imp = emais.EMAIS(100, 10, num_steps=100, resident=resident)
        return imp, imp.attach(None, rule="linear")

    def half(imp):
        draw = imp.draw()
        z = torch.ones(10, 2, requires_grad=True)
        imp.loss((z * grads[draw.index]).sum(1), z, draw)

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
