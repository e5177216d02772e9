"""Runs side by side: each is the run that it would be alone, and the updates are torch's."""

from dataclasses import asdict, replace

import pytest
import torch
from reference import cosine_rates
from torch import nn

import emais
from emais import EmaisError
from emais.experiments.config import Config
from emais.experiments.data import Data
from emais.experiments.runs import runner
from emais.experiments.runs.leaders import length_of, recorded_sizes, sizes_to_follow, warmup_steps
from emais.experiments.runs.provenance import source_hash
from emais.experiments.runs.runner import groups, run_all
from emais.experiments.runs.store import Results
from emais.experiments.runs.sweep import parse
from emais.experiments.train.following import FollowingRuns
from emais.experiments.train.loop import initialised, train
from emais.experiments.train.models import LeNet5, LeNet5ReLU
from emais.experiments.train.stacked_network import StackedNetwork
from emais.experiments.train.stacked_runs import StackedRuns, rule_of
from emais.experiments.train.stacked_updates import make_update

METHODS = ",".join(emais.METHODS)
TEXT = "data=digits model=perceptron batch_size=16 weight_decay=1e-3"
PROGRESS = ("method=emais-auto rule=steady schedule=progress", "method=sgd-scan follow=progress")


def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))


def made_up(n=200):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, 1, 4, 4), generator=g, dtype=torch.uint8)
    y = (x.float().flatten(1)[:, :3] + 60 * torch.randn(n, 3, generator=g)).argmax(1)
    return Data("made-up", "Made up", ("a", "b", "c"), x, y, x[:100], y[:100])


def uneven():
    """Seven in eight samples are of one class and soon learned: importance sampling is worth many steps here."""
    data = made_up()
    return replace(data, y_train=torch.where(torch.arange(len(data.y_train)) % 8 == 0, data.y_train, 0))


@pytest.mark.parametrize("model", [LeNet5, LeNet5ReLU])
def test_stacked_networks_compute_what_they_would_alone(model):
    net = StackedNetwork(model, seeds=[3, 4])
    x = torch.rand(2, 5, 1, 28, 28)
    z = net(net.flat, x)
    for k, seed in enumerate((3, 4)):
        torch.testing.assert_close(z[k], initialised(model, seed)(x[k]))
        torch.testing.assert_close(z[k], net.module(k)(x[k]))
    (stacked,) = torch.autograd.grad(z.square().sum(), net.flat)
    alone = net.module(1)
    alone(x[1]).square().sum().backward()
    torch.testing.assert_close(stacked[1], torch.cat([p.grad.flatten() for p in alone.parameters()]))


def test_a_layer_that_cannot_be_stacked_is_named():
    with pytest.raises(EmaisError, match="networks side by side cannot have a layer GELU"):
        StackedNetwork(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.GELU()), seeds=[0])


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adam", torch.optim.Adam)])
def test_updates_are_those_of_torch(name, kind):
    start, decay, rates = torch.randn(2, 6), torch.tensor([[1e-2], [0.1]]), torch.tensor([0.1, 0.02])
    flat = start.clone().requires_grad_()
    momentum = torch.tensor([[0.9], [0.5]])
    update = make_update(name, flat, decay, momentum)
    more = [{"momentum": m} if name == "sgd" else {} for m in (0.9, 0.5)]
    rows = [nn.Parameter(row.clone()) for row in start]
    optimizers = [kind([p], lr=1.0, weight_decay=float(d), **m) for p, d, m in zip(rows, decay, more, strict=True)]
    for k in range(10):
        gradient, now = torch.randn(2, 6), rates * (1 - k / 10)
        update(gradient, now)
        for p, g, optimizer, lr in zip(rows, gradient, optimizers, now, strict=True):
            p.grad = g.clone()
            optimizer.param_groups[0]["lr"] = float(lr)
            optimizer.step()
    torch.testing.assert_close(flat.detach(), torch.stack([p.detach() for p in rows]))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_run_of_a_group_is_the_run_alone(optimizer):
    rate = 0.1 if optimizer == "sgd" else 0.003
    configs = parse(f"{TEXT} method={METHODS} optimizer={optimizer} lr={rate} num_steps=100 seed=0-1")
    data = made_up()
    together = StackedRuns(configs, data, small)
    together.train(points=4)
    for config, result in together.finish():
        alone = StackedRuns([config], data, small)
        alone.train(points=4)
        ((_, single),) = alone.finish()
        for name in ("loss", "lr", "lr_scale", "tr_unif"):
            got, want = (torch.tensor(r["curves"][name]) for r in (result, single))
            torch.testing.assert_close(got, want, rtol=2e-2, atol=1e-4, msg=f"{config.method} {name}")
        assert result["curves"]["test_error"] == pytest.approx(single["curves"]["test_error"], abs=2.1)


def test_a_run_is_the_loop_of_the_readme():
    """The same run by `training.train`, which goes through the loader, a torch optimizer and a torch scheduler."""
    configs = parse(f"{TEXT} method=sgd-scan,emais lr=0.1 num_steps=120")
    data = made_up()
    group = StackedRuns(configs, data, small)
    group.train(points=2)
    for config, result in group.finish():
        run = train(
            data, small, config.method, num_steps=120, batch_size=16, lr=0.1, weight_decay=1e-3, seed=config.seed
        )
        assert result["curves"]["step"] == run.curves["step"]
        assert result["curves"]["loss"] == pytest.approx(run.curves["train_loss"], rel=2e-3)
        # the schedule's rate at a point, here a mean over its steps
        assert result["curves"]["lr"][30] == pytest.approx(run.curves["lr"][30], rel=0.02)
        assert result["test_error"] == pytest.approx(run.test_error, abs=1.01)


def test_the_schedule_counts_steps_or_effective_steps():
    steps = 120
    configs = parse(f"{TEXT} method=rais,emais lr=0.1 num_steps={steps} schedule=steps,effective")
    group = StackedRuns(configs, uneven(), small)
    group.train(points=1)
    for k, (config, result) in enumerate(group.finish()):
        rates, factors = group.curves._rows[:, k, 1:3].double().T
        early = config.schedule == "effective"
        want = 0.1 * torch.tensor(cosine_rates(factors.tolist(), steps, early), dtype=torch.float64)
        torch.testing.assert_close(rates, want, rtol=1e-4, atol=1e-7)
        assert factors.sum() > 1.1 * steps
        assert result["effective_steps"] == steps
        assert bool(rates[-3] == 0) == early
        assert (result["curves"]["lr"][-1] == 0) == early


def test_refits_come_when_they_are_due():
    (config,) = parse(f"{TEXT} method=rais lr=0.1 num_steps=60")
    group = StackedRuns([config], made_up(), small)
    group.train(points=1)
    imp = group.engines[0]
    assert imp._done == 60
    # after the warm-up, then every period, as far as the engine is asked for another draw
    assert imp.diagnostics.refits == len(range(imp.epoch_steps, 60, imp.period))
    assert imp.diagnostics.failed_refits == 0


def test_refreshing_changes_the_statistics():
    plain, refreshed = (
        parse(f"{TEXT} method=emais lr=0.1 num_steps=60"),
        parse(f"{TEXT} method=emais lr=0.1 num_steps=60 refresh_every=20"),
    )
    group = StackedRuns(plain + refreshed, made_up(), small)
    group.train(points=1)
    last = [engine.scores.last_step for engine in group.engines]
    assert int(last[1].min()) == 60
    assert int(last[0].min()) < 60


def test_groups_are_of_runs_that_fit_together():
    runs = parse(f"{TEXT} method=sgd-scan,emais num_steps=20,10 seed=0-4 lr=0.1,0.2")
    sizes = [len(g) for g in groups(runs, lambda run: 8)]
    assert sizes == [6, 7, 7, 6, 7, 7]
    assert [g[0].num_steps for g in groups(runs, lambda run: 100)] == [10, 20]
    with pytest.raises(EmaisError, match="must share data"):
        StackedRuns(runs, made_up(), small)


def test_the_runner_leaves_what_another_process_has_done_meanwhile(tmp_path, monkeypatch):
    path, trained = tmp_path / "runs.jsonl", []
    runs = parse("data=digits model=perceptron method=sgd-scan batch_size=32 num_steps=5 seed=0-2")
    real = runner.run_group

    def run_group(group, *args):
        trained.extend(config.seed for config in group)
        if group[0].seed == 0:  # the other process does seed 1 meanwhile
            Results(path).append({**runs[1].__dict__, "test_error": 3.0})
        return real(group, *args)

    monkeypatch.setattr(runner, "run_group", run_group)
    assert run_all(runs, path) == []
    assert trained == [0, 2]


def test_the_runner_does_only_what_is_missing(tmp_path):
    path = tmp_path / "runs.jsonl"
    runs = parse("data=digits model=perceptron method=emais batch_size=32 num_steps=30 seed=0-2 warmup_epochs=0.1")
    assert run_all(runs[:1], path) == []
    first = path.read_text()
    assert run_all(runs, path, budget=1e-9) == runs[1:]  # no time: nothing is begun
    assert run_all(runs, path) == []
    assert path.read_text().startswith(first)
    records = Results(path).read()
    assert [r["seed"] for r in records] == [0, 1, 2]
    for r in records:
        assert {"data", "model", "method", "optimizer", "lr", "weight_decay", "num_steps", "seed"} <= r.keys()
        assert {"test_error", "ms_per_step", "torch", "emais", "source", "hardware"} <= r.keys()
        assert r["source"] == source_hash()
        assert {"loss", "test_error", "tr_is", "tr_unif", "tr_opt", "n_ems", "score", "lr"} <= r["curves"].keys()
        assert 0 <= r["test_error"] <= 100


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_gpu_is_said_before_training(tmp_path):
    with pytest.raises(EmaisError, match="no CUDA device here"):
        run_all(parse(f"{TEXT} method=emais"), tmp_path / "runs.jsonl", device="cuda")


def test_a_stopped_run_keeps_what_is_finished(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    runs = parse("data=digits model=perceptron method=emais batch_size=32 num_steps=20 seed=0-2")
    import emais.experiments.runs.runner as runner

    real, calls = runner.run_group, []

    def stop_at_second(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "run_group", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, path)
    assert [r["seed"] for r in Results(path).read()] == [0]


def test_whom_a_run_is_beside_does_not_matter_to_one_that_follows():
    data, steps = made_up(), list(range(1, 31))
    configs = parse(f"{TEXT} method=sgd-uni lr=0.1 num_steps=30 follow=emais seed=0-1")
    runs = parse(f"{TEXT} method=emais lr=0.1 num_steps=30 seed=0-1")
    records = [
        {**asdict(run), "curves": {"step": steps, "lr_scale": [1.0] * 20 + [factor] * 10}}
        for run, factor in zip(runs, (2.0, 3.0), strict=True)
    ]

    def losses(some):
        trained = FollowingRuns(some, data, small, "cpu", sizes_to_follow(some, data, records))
        trained.train(points=1)
        return [result["curves"]["loss"] for _, result in trained.finish()]

    assert losses(configs)[0] == pytest.approx(losses(configs[:1])[0], rel=1e-4)


def test_a_minibatch_that_follows_another_run(tmp_path):
    """With the size held at N it is SGD-Uni; the sizes it takes are the recorded ones."""
    data = made_up()
    (emais_run,) = parse(f"{TEXT} method=emais lr=0.1 num_steps=90")
    (config,) = parse(f"{TEXT} method=sgd-uni lr=0.1 num_steps=90 follow=emais")
    steps = list(range(3, 93, 3))
    flat = {**asdict(emais_run), "curves": {"step": steps, "lr_scale": [1.0] * 30}}
    run = FollowingRuns([config], data, small, "cpu", sizes_to_follow([config], data, [flat]))
    run.train(points=1)
    ((_, result),) = run.finish()
    plain = StackedRuns([replace(config, follow="")], data, small)
    plain.train(points=1)
    ((_, want),) = plain.finish()
    assert result["curves"]["loss"] == pytest.approx(want["curves"]["loss"], rel=1e-3)
    assert result["curves"]["n_ems"] == [16.0] * 60

    rising = {**flat, "curves": {"step": steps, "lr_scale": [1.0 + k for k in range(30)]}}
    assert recorded_sizes(config, [rising]).tolist() == [16 * (1 + k) for k in range(30) for _ in range(3)]
    rising["curves"]["lr_scale"][:2] = [1.0, 3.0]  # a warm-up of 4 steps: the second point has 1, and 4 twice
    sizes = recorded_sizes(config, [rising], warmup=4)
    assert sizes[:8].tolist() == [16, 16, 16, 16, 64, 64, 48, 48]
    assert warmup_steps(config, data) == 2 * len(data.x_train) // 16
    with pytest.raises(EmaisError, match="no run of emais with seed 0 and 90 steps"):
        recorded_sizes(config, [])
    with pytest.raises(EmaisError, match="follow= needs the rule linear, whose factor is N_ems/N, got sqrt"):
        recorded_sizes(replace(config, optimizer="adam"), [flat])
    with pytest.raises(
        EmaisError, match="only sgd-uni can follow 'emais' and sgd-scan can follow 'progress': got rais"
    ):
        parse(f"{TEXT} method=rais follow=emais")


def test_equal_progress_and_a_run_shortened_to_it(tmp_path):
    """Each run ends with the step that reaches T, and stands still while others go on; SGD-Scan gets its length."""
    texts = [f"{TEXT} lr=0.1 num_steps=80 seed=0,1 {text}" for text in PROGRESS]
    leaders, followers = map(parse, texts)
    group = StackedRuns(leaders, uneven(), small)
    heard = []
    group.train(points=8, on_steps=heard.append)
    found = list(group.finish())
    assert sum(heard) == 2 * 80
    for k, (_, result) in enumerate(found):
        factors = group.curves._rows[:, k, 2].double().cumsum(0)
        assert result["steps"] == int((factors < 80).sum()) + 1 < 80
        assert result["effective_steps"] == 80
        assert result["curves"]["step"][-1] == result["curves"]["test_step"][-1] == result["steps"]
        alone = StackedRuns([leaders[k]], uneven(), small)
        alone.train(points=8)
        assert next(alone.finish())[1]["test_error"] == result["test_error"]
    records = [asdict(config) | result for config, result in found]
    lengths = [length_of(config, records) for config in followers]
    assert lengths == [result["steps"] for _, result in found]
    short = StackedRuns(followers, uneven(), small, lengths=lengths)
    short.train(points=2)
    assert [result["steps"] for _, result in short.finish()] == lengths
    with pytest.raises(EmaisError, match="no run of emais-auto at equal progress with seed 0 and 80 steps"):
        length_of(followers[0], [])


def test_a_run_that_follows_may_count_effective_steps():
    runs = parse(f"{TEXT} method=emais lr=0.1 num_steps=30 schedule=steps,effective")
    followers = [replace(run, method="sgd-uni", follow="emais") for run in runs]
    curves = {"step": list(range(1, 31)), "lr_scale": [1.0] * 25 + [4.0] * 5}
    records = [{**asdict(run), "curves": curves} for run in runs]
    group = FollowingRuns(followers, made_up(), small, "cpu", sizes_to_follow(followers, made_up(), records))
    group.train(points=1)
    for k, config in enumerate(followers):
        rates, factors = group.curves._rows[:, k, 1:3].double().T
        want = torch.tensor(cosine_rates(factors.tolist(), 30, config.schedule == "effective"), dtype=torch.float64)
        torch.testing.assert_close(rates, 0.1 * want, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("method", "given", "sgd", "adam"),
    [
        ("emais", None, "linear", "sqrt"),
        ("emais-auto", None, "linear", "sqrt"),  # as in all records; the library's own default is steady
        ("emais-auto", "steady", "steady", "steady"),
        ("emais", "none", "none", "none"),
        ("rais", None, "rais", "rais"),
        ("sgd-scan", None, "none", "none"),
    ],
)
def test_runs_keep_the_rules_of_their_records(method, given, sgd, adam):
    runs = [Config("digits", "perceptron", method, optimizer=o, rule=given) for o in ("sgd", "adam")]
    assert [rule_of(run) for run in runs] == [sgd, adam]
