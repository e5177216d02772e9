"""One ResNet alone: the loop against an ordinary one, all methods, several labels, and what a GPU must not change."""

import math
from dataclasses import replace

import pytest
import torch
from reference import cosine_rates
from torch import nn

import emais
from emais.draws.uniforms import Uniforms, mix
from emais.experiments.config import Config
from emais.experiments.data import Data
from emais.experiments.train.batchnorm import UNIFORM, fresh_statistics
from emais.experiments.train.loop import initialised
from emais.experiments.train.models import ResNet18, ResNet18GN, ResNet50
from emais.experiments.train.objectives import MANY_LABELS, ONE_LABEL, average_precision, error_percent, map_percent
from emais.experiments.train.resnet_run import ResNetRun
from emais.experiments.train.setup import make_optimizer

PAPERS = ("sgd-scan", "sgd-uni", "rais", "presampling", "confidence", "confvar", "self-paced", "emais")
SEVERAL = ("sgd-scan", "sgd-uni", "rais", "presampling", "self-paced", "emais")
OPTIONS = {"presampling": {"presample": 32}, "rais": {"warmup_epochs": 1, "buffer": 32}, "emais": {"warmup_epochs": 1}}


pytestmark = pytest.mark.usefixtures("one_thread")


def made_up(several=False, size=16, n=64):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n + 20, 3, size, size), generator=g, dtype=torch.uint8)
    y = torch.randint(4, (n + 20,), generator=g)
    if several:
        y = (torch.rand(n + 20, 5, generator=g) < 0.3).float()
    name, classes = ("chestxray14", tuple("abcde")) if several else ("cifar10", tuple("abcd"))
    return Data(name, name, classes, x[:n], y[:n], x[n:], y[n:])


def easy():
    """Most samples are of one class, and soon learned."""
    data = made_up()
    return replace(data, y_train=torch.where(torch.arange(64) % 8 == 0, data.y_train, 0))


def network():
    return ResNet18(4, width=4)


def deep():
    return ResNet50(5, width=4, stem="small", stochastic_depth=0.5)


def config(method="sgd-scan", **settings):
    options = OPTIONS.get(method, {})
    given = {"model": "resnet18", "num_steps": 14, "batch_size": 8, "options": options} | settings
    return Config("cifar10", method=method, **given)


def losses(trainer):
    return trainer.curves._rows[: trainer.done, 0, 0]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("method", PAPERS)
def test_all_methods(method, optimizer):
    trainer = ResNetRun(config(method, optimizer=optimizer, lr=0.01), made_up(), model=network)
    heard = []
    trainer.train(points=2, on_steps=heard.append)
    [(told, result)] = trainer.finish()
    assert told is trainer.config
    assert sum(heard) == trainer.done == 14
    assert result["test_error"] == result["curves"]["test_error"][-1]
    assert result["curves"]["test_step"] == [7, 14]
    assert {"loss", "lr", "lr_scale", "tr_is", "tr_unif", "tr_opt", "n_ems", "score"} <= set(result["curves"])
    assert all(map(math.isfinite, result["curves"]["loss"]))
    assert result["ms_per_step"] > 0
    assert result["nonfinite"] == 0
    assert ("skipped" in result) is (method == "self-paced")
    assert 12 < result["effective_steps"] <= 14
    assert trainer.imp.step == 14


@pytest.mark.parametrize("method", SEVERAL)
def test_several_labels(method):
    trainer = ResNetRun(config(method, num_steps=10), made_up(several=True), model=deep)
    trainer.train(points=1)
    [(_, result)] = trainer.finish()
    assert "test_error" not in result
    assert "test_error" not in result["curves"]
    assert 0 < result["map"] <= 100
    assert result["curves"]["map"] == [result["map"]]
    assert losses(trainer).isfinite().all()
    assert trainer.pictures(torch.tensor([0])).shape[-1] == 14  # crops leave room


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.005), ("adam", 0.001)])
def test_sgd_scan_is_an_ordinary_loop(optimizer, lr):
    """At rates where rounding does not grow: at 0.02 it is multiplied by 10^5 within these steps."""
    data, run = made_up(), config(optimizer=optimizer, lr=lr, weight_decay=1e-2, num_steps=20)
    trainer = ResNetRun(run, data, model=network)
    trainer.advance(20)

    net = initialised(network, 0)
    kinds = {"sgd": torch.optim.SGD(net.parameters(), lr, 0.9, weight_decay=1e-2)}
    kinds["adam"] = torch.optim.Adam(net.parameters(), lr, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(kinds[optimizer], 20)
    draws = emais.create("sgd-scan", 64, batch_size=8, seed=0)
    u = Uniforms(mix(0, 2), 1, 8)
    expected, rates = [], []
    for step in range(1, 21):
        index = draws.draw().index
        rates.append(schedule.get_last_lr()[0])
        z = net(trainer.pictures(index, u(step)[0]))
        # summed as the engine does: Adam makes a step of full size out of a gradient that is nothing but rounding
        loss = nn.functional.cross_entropy(z, data.y_train[index], reduction="none") @ torch.full((8,), 1 / 8)
        kinds[optimizer].zero_grad()
        loss.backward()
        kinds[optimizer].step()
        schedule.step()
        expected.append(loss.item())
    torch.testing.assert_close(losses(trainer), torch.tensor(expected), rtol=1e-5, atol=0)
    torch.testing.assert_close(trainer.curves._rows[:, 0, 1], torch.tensor(rates), rtol=1e-5, atol=1e-8)
    for ours, theirs in zip(trainer.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", ["steps", "effective"])
@pytest.mark.parametrize("method", ["rais", "emais"])
def test_the_schedule_counts_steps_or_effective_steps(method, schedule):
    early = schedule == "effective"
    trainer = ResNetRun(config(method, schedule=schedule, num_steps=40), easy(), model=network)
    trainer.train(points=1)
    rates, factors = trainer.curves._rows[:, 0, 1:3].double().T
    want = 0.01 * torch.tensor(cosine_rates(factors.tolist(), 40, early), dtype=torch.float64)
    torch.testing.assert_close(rates, want, rtol=1e-4, atol=1e-8)
    assert factors.sum() > 41
    assert bool(rates[-1] == 0) == early
    assert next(trainer.finish())[1]["effective_steps"] == 40


def test_without_batchnorm_nothing_is_recalibrated():
    for model, there in ((network, True), (lambda: ResNet18GN(4, width=32), False)):
        trainer = ResNetRun(config(num_steps=2), made_up(size=8), model=model)
        trainer.train(points=1)
        [(_, result)] = trainer.finish()
        assert ("recalibrated" in result) == there
        assert 0 <= result["test_error"] <= 100


def test_scoring_leaves_batch_normalisation_alone():
    trainer = ResNetRun(config("presampling"), made_up(), model=network)
    before = {name: b.clone() for name, b in trainer.net.named_buffers()}
    draw = trainer.imp.draw(trainer._score)
    assert draw.index.shape == (8,)
    assert draw.r.std() > 0
    for name, b in trainer.net.named_buffers():
        assert torch.equal(b, before[name]), name
    assert all(m.training for m in trainer.net.modules())
    trainer.step()
    assert not torch.equal(dict(trainer.net.named_buffers())["stem.0.1.running_mean"], before["stem.0.1.running_mean"])


def test_candidates_are_trained_on_as_they_were_looked_at(monkeypatch):
    """The same crop of the same image: q belongs to what was seen."""
    trainer = ResNetRun(config("presampling"), made_up(), model=network)
    seen, pictures = [], trainer.pictures
    monkeypatch.setattr(trainer, "pictures", lambda index, u: seen.append((index, u)) or pictures(index, u))
    trainer.step()
    trainer.step()
    crops = [{(int(i), float(v)) for i, v in zip(*pair, strict=True)} for pair in seen]
    assert [len(index) for index, _ in seen] == [32, 8, 32, 8]
    assert crops[1] <= crops[0]
    assert crops[3] <= crops[2]
    assert len({u for _, u in crops[0]}) == len({i for i, _ in crops[0]}) > 16  # each sample its own
    assert not crops[0] & crops[2]  # and another in each step


@pytest.mark.parametrize("several", [False, True])
def test_recalibration_looks_at_the_data_evenly_and_leaves_no_trace(several, monkeypatch):
    trainer = ResNetRun(config("emais", num_steps=4), made_up(several), model=deep if several else network)
    trainer.train(points=1)
    buffers = dict(trainer.net.named_buffers())
    before, metric = {name: b.clone() for name, b in buffers.items()}, trainer.evaluate()
    seen = []
    inner = trainer.pictures

    class Counting:
        def __len__(self):
            return len(inner)

        def __call__(self, index, u=None):
            seen.append(index)
            assert u is not None  # cropped as in training
            return inner(index, u)

    monkeypatch.setattr(trainer, "train_loss", lambda: 0.0)  # which looks at all images, uncropped
    trainer.pictures = Counting()
    changed = []
    evaluate = trainer.evaluate
    monkeypatch.setattr(
        trainer, "evaluate", lambda: changed.append({k: b.clone() for k, b in buffers.items()}) or evaluate()
    )
    [(_, result)] = trainer.finish()
    counts = torch.cat(seen).bincount(minlength=64)
    assert counts.sum() == 100 * 8
    assert counts.max() - counts.min() <= 1  # uniform
    assert any(not torch.equal(b, before[name]) for name, b in changed[0].items())
    for name, b in trainer.net.named_buffers():
        assert torch.equal(b, before[name]), name
    assert trainer.evaluate() == metric
    assert 0 <= result["recalibrated"] <= 100


def test_more_samples_a_step_than_there_are():
    trainer = ResNetRun(config(num_steps=2, batch_size=80, options={}), made_up(), model=network)
    trainer.train(points=1)
    [(_, result)] = trainer.finish()
    assert 0 <= result["recalibrated"] <= 100


def test_a_run_at_equal_progress_ends_with_its_effective_steps():
    """It stops with the step that reaches num_steps, asks the device seldom, and its test is of that step."""
    run = config(
        "emais", num_steps=60, schedule="progress", rule="linear", options={"max_scale": 4.0, "warmup_epochs": 1}
    )
    trainer = ResNetRun(run, easy(), model=network)
    asked = []
    ask = type(trainer.imp).effective_steps.fget

    class Asked(type(trainer.imp)):
        effective_steps = property(lambda self: asked.append(1) or ask(self))

    trainer.imp.__class__ = Asked
    heard = []
    trainer.train(points=4, on_steps=heard.append)
    [(_, result)] = trainer.finish()
    assert result["steps"] == trainer.done < 60 <= result["effective_steps"]
    assert len(asked) < result["steps"]
    factors = trainer.curves._rows[: trainer.done, 0, 2].double().cumsum(0)
    assert factors[-2] < 60
    assert sum(heard) == 60
    assert result["curves"]["step"][-1] == result["curves"]["test_step"][-1] == result["steps"]
    assert result["train_loss"] > 0


def test_a_shortened_run_has_its_own_schedule():
    trainer = ResNetRun(config(num_steps=60), made_up(), model=network, length=20)
    trainer.train(points=2)
    [(told, result)] = trainer.finish()
    assert (told.num_steps, result["steps"]) == (60, 20)
    assert trainer.curves._rows[19, 0, 1] < 0.02 * trainer.curves._rows[0, 0, 1]


def test_signs_of_life_between_steps():
    """While it tests and recalibrates, which takes long on a CPU."""
    trainer, heard = ResNetRun(config(num_steps=2), made_up(), model=network), []
    trainer.train(points=1, on_steps=heard.append)
    assert heard == [1, 1, 0]
    [_] = trainer.finish()
    assert heard[3:] == [0] * (UNIFORM + 2)  # and two passes over images


def test_statistics_come_back_also_after_an_error():
    net = nn.BatchNorm2d(1).eval()

    def forward(k):
        net(torch.full((2, 1, 1, 1), 3.0))
        if k:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"), fresh_statistics(net, forward):
        pass
    assert (float(net.running_mean), net.momentum, net.training) == (0.0, 0.1, False)


def test_a_seed_is_a_run():
    def run(seed, model=network):
        trainer = ResNetRun(config("emais", seed=seed, num_steps=4), made_up(), model=model)
        crops = trainer._crops(torch.tensor(1))[0]
        index = trainer.imp.source._order[0]
        first = next(trainer.net.parameters()).detach().clone()
        trainer.advance(4)
        return losses(trainer).clone(), crops, index, first

    for a, b in zip(run(0), run(0), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(run(0), run(1), strict=True):
        assert not torch.equal(a, b)


def test_refresh_reaches_all_samples():
    trainer = ResNetRun(config("emais", refresh_every=2, num_steps=4), made_up(), model=network)
    trainer.advance(2)
    assert (trainer.imp.scores.last_step == 2).all()
    trainer.advance(2)
    assert losses(trainer).isfinite().all()


def test_the_network_of_the_configuration():
    trainer = ResNetRun(config(num_steps=2), made_up())
    assert isinstance(trainer.net, ResNet18)
    assert trainer.net(torch.zeros(1, 3, 16, 16)).shape == (1, 4)
    assert isinstance(ResNetRun(config(num_steps=2, model="resnet18-gn"), made_up()).net, ResNet18GN)


@pytest.mark.parametrize("objective", [ONE_LABEL, MANY_LABELS])
def test_gradients_belong_to_the_losses(objective):
    z = torch.randn(6, 5, requires_grad=True)
    y = torch.randint(5, (6,)) if objective is ONE_LABEL else (torch.rand(6, 5) < 0.4).float()
    want = emais.functional.logit_gradients(objective.losses(z, y), z)
    torch.testing.assert_close(objective.gradients(z.detach(), y), want)
    assert 0 <= objective.measure(z.detach(), y) <= 100


@pytest.mark.parametrize("ties", [False, True])
def test_average_precision_is_scikit_learns(ties):
    reference = pytest.importorskip("sklearn.metrics").average_precision_score
    scores = torch.randn(300, 6)
    scores = (2 * scores).round() if ties else scores
    labels = (torch.rand(300, 6) < torch.tensor([0.01, 0.05, 0.2, 0.5, 0.9, 1.0])).float()
    labels[0] = 1
    want = [reference(labels[:, k], scores[:, k]) for k in range(6)]
    torch.testing.assert_close(average_precision(scores, labels), torch.tensor(want, dtype=torch.float64))
    assert map_percent(scores, labels) == pytest.approx(100 * sum(want) / 6)


def test_measures_of_a_network_that_broke():
    labels = torch.zeros(4, 2)
    labels[0, 0] = 1
    assert map_percent(torch.full((4, 2), torch.nan), labels) == 25.0  # and the label that nobody has is left out
    assert error_percent(torch.full((4, 2), torch.nan), torch.zeros(4, dtype=torch.int64)) <= 100


# ---- what only a GPU can show

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; CI has none"),
]


def pair(method, optimizer="sgd", several=False):
    """The same run, eager and captured, after 30 steps in float32."""
    data = made_up(several, size=32, n=256)
    lr = {"sgd": 0.005, "adam": 0.001}[optimizer]
    run = config(method, optimizer=optimizer, lr=lr, num_steps=40, batch_size=16)
    runs = []
    for captured in (False, True):
        trainer = ResNetRun(run, data, "cuda", model=deep if several else network, captured=captured)
        trainer.mixed_precision = False
        trainer.advance(30)
        runs.append(trainer)
    assert runs[0]._graph is None
    assert runs[1]._graph is not None
    return runs


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("method", ["sgd-scan", "emais", "rais", "presampling"])
class TestOnTheGPU:
    pytestmark = on_gpu

    def test_a_captured_run_is_the_eager_run(self, exact, method, optimizer, several):
        eager, captured = pair(method, optimizer, several)
        assert eager.imp.step == captured.imp.step == 30
        torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-2, atol=1e-3)
        torch.testing.assert_close(captured.lr, eager.lr, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", PAPERS)
class TestAllMethodsOnTheGPU:
    pytestmark = on_gpu

    def test_in_half_precision(self, method):
        trainer = ResNetRun(config(method, num_steps=60, batch_size=16), made_up(size=32, n=256), "cuda", model=network)
        trainer.train(points=3)
        [(_, result)] = trainer.finish()
        assert all(map(math.isfinite, result["curves"]["loss"]))
        assert trainer.timed == 57
        assert trainer.imp.step == 60

    def test_a_step_never_waits(self, method):
        trainer = ResNetRun(config(method), made_up(), "cuda", model=network, captured=False)
        trainer.advance(2)
        torch.cuda.set_sync_debug_mode("error")
        try:
            trainer._start_step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_the_momentum_is_the_configuration_s():
    config = Config("cifar10", "resnet18", "emais", momentum=0.5)
    optimizer = make_optimizer(config, nn.Linear(2, 2), torch.tensor(0.1))
    assert optimizer.param_groups[0]["momentum"] == 0.5
