"""The whole of Algorithm 2: the engine in a real training loop beside the literal reference, and every misuse."""

import math

import numpy as np
import pytest
import torch
from conftest import WatchedSGD, losses_of
from reference import algorithm2
from torch import nn

import emais
from emais import EmaisError
from emais import functional as F


def run(imp, dataset, model, steps, *, lr=0.1, loader=True):
    """Train and record (step, index, r, gradients, lr during the step, diagnostics)."""
    optimizer, records = WatchedSGD(model.parameters(), lr=lr), []
    optimizer.register_step_pre_hook(lambda *_: None)
    imp.attach(optimizer)
    source = iter(imp.loader(dataset)) if loader else None
    for _ in range(steps):
        if source is not None:
            batch, draw = next(source)
        else:
            draw = imp.draw()
            batch = tuple(t[draw.index] for t in dataset.tensors)
        losses, z = losses_of(model, batch)
        g = F.logit_gradients(losses, z)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
        assert optimizer.param_groups[0]["lr"] == lr
        records.append((int(draw.step), draw.index, draw.r, g, optimizer.applied[-1][0], imp.diagnostics.as_dict()))
    return records


@pytest.mark.parametrize(
    ("options", "loader"),
    [
        ({}, True),
        ({"tau": 20.0}, True),
        ({"kappa": 0.25}, True),
        ({"warmup_epochs": 1}, False),
        ({"resident": True}, False),
        ({"resident": True, "kappa": 0.25, "warmup_epochs": 2.5}, False),
    ],
)
def test_training_is_algorithm_2(task, options, loader):
    dataset, model = task
    M, N, T = 96, 16, 60
    imp = emais.EMAIS(M, N, num_steps=T, seed=3, **options)
    records = run(imp, dataset, model, T, loader=loader)
    warmup = math.ceil(options.get("warmup_epochs", 2) * M / N)
    tau = options.get("tau")
    reference = algorithm2(
        M,
        N,
        T,
        warmup,
        lambda t: records[t - 1][1].tolist(),
        lambda t: records[t - 1][3],
        0.1,
        options.get("kappa", 1.0),
        tau,
    )
    for t, (_, want_r, want_lr) in enumerate(reference, 1):
        step, _, r, _, lr, report = records[t - 1]
        assert step == report["step"] == t
        torch.testing.assert_close(r.double(), want_r, rtol=2e-4, atol=0)
        assert lr == pytest.approx(min(want_lr, 0.1 * F.MAX_SCALE), rel=2e-3)
        assert report["n_ems"] == pytest.approx(N * want_lr / 0.1, rel=2e-3)
    first = torch.cat([rec[1] for rec in records[: M // N]])
    assert sorted(first.tolist()) == list(range(M))


def test_loss_is_the_weighted_mean(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0.2)
    for batch, draw in imp.loader(dataset):
        losses, z = losses_of(model, batch)
        torch.testing.assert_close(imp.loss(losses, z, draw), (draw.r * losses).mean())
    assert imp.diagnostics.step == 6


@pytest.mark.filterwarnings("ignore:a whole pass went by")
def test_batch_belongs_to_the_draw(task):
    dataset, _ = task
    for (x, y), draw in emais.EMAIS(96, 16).loader(dataset):
        assert torch.equal(x, dataset.tensors[0][draw.index])
        assert torch.equal(y, dataset.tensors[1][draw.index])


def test_observe_without_training_and_closed_form_gradients(task):
    dataset, model = task
    a, b = emais.EMAIS(96, 16), emais.EMAIS(96, 16)
    for (batch, d1), (_, d2) in zip(a.loader(dataset), b.loader(dataset), strict=True):
        losses, z = losses_of(model, batch)
        a.observe(losses, z, d1)
        b.loss(losses, z, d2, grads=F.cross_entropy_gradients(z, batch[1])).backward()
    torch.testing.assert_close(a.scores.weights(), b.scores.weights())
    assert a.diagnostics.tr_is == pytest.approx(b.diagnostics.tr_is, rel=1e-4)


def test_given_gradients_may_be_written_over(task):
    """The statistics are taken in after the backward pass; the caller's buffer is the caller's by then."""
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    batch, draw = next(iter(imp.loader(dataset)))
    losses, z = losses_of(model, batch)
    grads = F.cross_entropy_gradients(z, batch[1])
    norms = grads.norm(dim=1)
    imp.loss(losses, z, draw, grads=grads)
    grads.zero_()
    torch.testing.assert_close(imp.scores.mean[draw.index], (1 - math.exp(-1)) * norms)


def test_refresh_updates_samples_that_were_not_drawn(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    imp.draw()
    index = torch.arange(96)
    with torch.no_grad():
        z = model(dataset.tensors[0])
    z.requires_grad_()
    losses = nn.functional.cross_entropy(z, dataset.tensors[1], reduction="none")
    imp.refresh(index, losses, z)
    assert (imp.scores.last_step == 1).all()
    norms = F.logit_gradients(losses, z).norm(dim=1)
    gain = 1 - math.exp(-1)
    torch.testing.assert_close(imp.scores.mean, gain * norms)
    p = F.adjusted_probabilities(imp.scores.weights(), 16)
    draw = imp.draw()
    torch.testing.assert_close(draw.r * p[draw.index] * 96, torch.ones(16), rtol=1e-5, atol=0)


def test_accumulated_minibatches_count_as_one(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    rs, gs = [], []
    for k, (batch, draw) in enumerate(imp.loader(dataset), 1):
        losses, z = losses_of(model, batch)
        rs.append(draw.r)
        gs.append(F.logit_gradients(losses, z))
        (imp.loss(losses, z, draw) / 3).backward()
        if k % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
            want = F.variance_traces(torch.cat(rs), torch.cat(gs))
            assert imp.diagnostics.batch_size == 48
            assert imp.diagnostics.tr_is == pytest.approx(want.tr_is.item(), rel=1e-4)
            assert imp.diagnostics.n_ems == pytest.approx(F.effective_batch_size(want, 48).item(), rel=1e-4)
            rs.clear()
            gs.clear()


@pytest.mark.parametrize("resident", [False, True])
def test_smoothing_averages_the_sums(task, resident):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0, smoothing=0.75, resident=resident)
    mixed = None
    for _ in range(5):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        imp.loss(losses, z, draw)
        sums = F.gradient_sums(draw.r, F.logit_gradients(losses, z))
        mixed = sums if mixed is None else mixed * 0.75 + sums * 0.25
        assert imp.diagnostics.tr_unif == pytest.approx(float(mixed.traces().tr_unif), rel=1e-4)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_bad_numbers_never_reach_state_or_optimizer(task, smoothing, resident):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0, smoothing=smoothing, resident=resident)
    optimizer = WatchedSGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for k in range(12):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        grads = F.logit_gradients(losses, z)
        if k % 3 == 1:
            grads[:4] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        if k % 3 == 2:
            grads = torch.ones_like(grads)  # no variance at all
        imp.observe(losses, z, draw, grads=grads)
        optimizer.step()
    assert all(0 < rate <= 0.1 * F.MAX_SCALE for rate, *_ in optimizer.applied)
    assert imp.scores.weights().isfinite().all()
    assert imp.diagnostics.nonfinite == 16
    assert imp.diagnostics.degenerate >= (0 if smoothing else 4)
    assert math.isfinite(imp.diagnostics.lr_scale)


def test_warmup_has_factor_one_and_score_one(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for batch, draw in imp.loader(dataset):
        losses, z = losses_of(model, batch)
        imp.loss(losses, z, draw).backward()
        optimizer.step()
        assert imp.diagnostics.lr_scale == 1
        assert imp.diagnostics.score == pytest.approx(1)
        assert imp.diagnostics.n_ems == pytest.approx(16)


def test_every_step_can_follow_from_equal_weights():
    imp = emais.EMAIS(50, 10, warmup_epochs=0)
    assert torch.equal(imp.draw().r, torch.ones(10))


def test_diagnostics_before_anything():
    report = emais.EMAIS(50, 10).diagnostics
    assert report.step == 0
    assert math.isnan(report.score)
    assert report.lr_scale == 1
    assert "score=nan" in repr(report)
    assert "rule='none'" in repr(report)
    assert repr(emais.EMAIS(50, 10, seed=3)) == "EMAIS(num_samples=50, batch_size=10, num_steps=None, seed=3)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 0}, "num_samples must be .* got 0"),
        ({"num_samples": 100.5}, "num_samples must be .* got 100.5"),
        ({"batch_size": 0}, "batch_size must be .* got 0"),
        ({"batch_size": 101}, "batch_size=101 is above kappa"),
        ({"num_steps": 0}, "num_steps must be .* got 0"),
        ({"tau": -1.0}, "tau must be"),
        ({"kappa": 0}, "kappa must be"),
        ({"tau": np.ones(2)}, "tau must be"),
        ({"num_samples": torch.tensor(True)}, "num_samples must be .* got tensor"),
        ({"warmup_epochs": -1}, "warmup_epochs must be .* got -1"),
        ({"seed": -1}, "seed must be .* got -1"),
        ({"seed": 1.5}, "seed must be .* got 1.5"),
        ({"smoothing": 1.0}, "smoothing must be .* got 1.0"),
        ({"max_scale": 0}, "max_scale must be .* got 0"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here: "),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here: "),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(EmaisError, match=message):
        emais.EMAIS(**({"num_samples": 100, "batch_size": 10} | settings))


def test_unknown_settings_and_methods():
    for error in (TypeError, EmaisError):
        with pytest.raises(error, match=r"emais takes no 'kapa': it takes .*did you mean 'kappa'"):
            emais.EMAIS(1000, kapa=1)
    with pytest.raises(EmaisError, match="sgd-scan takes no 'kappa'"):
        emais.create("sgd-scan", 1000, kappa=1)
    for name in emais.METHODS:
        for internal in ("candidates", "epoch_steps"):
            with pytest.raises(EmaisError, match=f"{name} takes no '{internal}'"):
                emais.create(name, 1000, **{internal: 2})
    with pytest.raises(EmaisError, match=r"unknown method 'emas': .*sgd-scan.* did you mean 'emais'"):
        emais.create("emas", 100)
    with pytest.raises(EmaisError, match=r"unknown method 'EMAIS': .* did you mean 'emais'"):
        emais.create("EMAIS", 100)


def test_misuse_of_a_draw(task):
    dataset, model = task
    imp, other = emais.EMAIS(96, 16), emais.EMAIS(96, 16)
    batch, draw = next(iter(imp.loader(dataset)))
    losses, z = losses_of(model, batch)
    for args, message in [
        ((losses.mean(), z, draw), r'shape \(16,\).*got \(\).*reduction="none"'),
        ((losses[:5], z, draw), r"shape \(16,\).*got \(5,\): the minibatch lost samples .* collate_fn"),
        ((losses[:, None].expand(16, 3), z, draw), r"got \(16, 3\): .*every dimension but the first"),
        ((losses.repeat(3), z, draw), r"got \(48,\): .*losses.view\(16, 3\).*losses.view\(3, 16\).mean\(0\) where"),
        ((losses.repeat(3)[1:], z, draw), r"got \(47,\): .*every dimension but the first"),
        ((losses, z[:5], draw), r"got \(5, 3\)"),
        ((losses, z.detach(), draw), "logits do not require grad"),
        ((losses, z.clone(), draw), "do not depend on logits"),
        ((losses, z, draw.index), "draw must be .* got Tensor"),
        ((losses.tolist(), z, draw), "losses must be a tensor, one number per sample, got list"),
        ((losses, (z, z), draw), "logits must be a tensor, .* got tuple"),
    ]:
        with pytest.raises(EmaisError, match=message):
            imp.loss(*args)
    with pytest.raises(EmaisError, match="another engine"):
        other.loss(losses, z, draw)
    with pytest.raises(EmaisError, match=r"grads must be .* got \(3, 3\)"):
        imp.loss(losses, z, draw, grads=torch.zeros(3, 3))
    imp.loss(losses, z, draw)  # none of the refusals used it up
    with pytest.raises(EmaisError, match="attach takes a torch optimizer, got Linear"):
        imp.attach(model)
    with pytest.raises(EmaisError, match=r"used already.* second forward pass .* closure several times, such as LBFGS"):
        imp.loss(losses, z, draw.to("cpu"))
    with pytest.raises(EmaisError, match=r"index and losses must both be \(n,\), .* got \(2,\) and \(16,\)"):
        imp.refresh(torch.tensor([0, 1]), losses, z)
    with pytest.raises(EmaisError, match=r"got torch.bool: of a mask, mask.nonzero\(\).squeeze\(1\)"):
        imp.refresh(torch.ones(16, dtype=torch.bool), losses, z)
    with pytest.raises(EmaisError, match=r"take z = model\(x\)\.detach\(\)\.requires_grad_\(\) .* or pass grads="):
        imp.refresh(torch.arange(16), losses, z.detach())
    with pytest.raises(AttributeError, match=r"no 'nems': they have step, .* did you mean 'n_ems'\?"):
        _ = imp.diagnostics.nems
    with pytest.raises(EmaisError, match=r"grads must be a tensor .* got ndarray"):
        other.loss(losses, z, other.draw(), grads=np.zeros((16, 3)))


def test_an_optimizer_that_is_not_attached_is_noticed(task):
    """A second phase of training with a new one: once, and not because minibatches are accumulated."""
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    handle = imp.attach(first)

    def train(steps, optimizer):
        for _ in range(steps):
            draw = imp.draw()
            losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
            imp.loss(losses, z, draw).backward()
        optimizer.step()
        return imp.diagnostics.batch_size

    assert train(100, first) == 1600
    with pytest.warns(
        UserWarning, match=r"101 minibatches were observed since .*: attach the one that trains now"
    ) as seen:
        train(250, second)
    assert len(seen) == 1
    handle.remove()
    imp.attach(second)
    train(1, second)
    assert train(2, second) == 32
    before = imp.state_dict()["state"]["last_step"].max()
    with pytest.raises(UserWarning, match="minibatches were observed"):  # filters make it an error: nothing is lost
        train(250, first)
    assert imp.state_dict()["state"]["last_step"].max() == before + 101


def test_global_generators_are_left_alone(task):
    dataset, model = task
    before = torch.get_rng_state()
    imp = emais.EMAIS(96, 16, warmup_epochs=0.1)
    for batch, draw in imp.loader(dataset):
        losses, z = losses_of(model, batch)
        imp.loss(losses, z, draw).backward()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("method", ["sgd-scan", "sgd-uni"])
@pytest.mark.parametrize("resident", [False, True])
def test_uniform_methods(task, method, resident):
    dataset, model = task
    imp = emais.create(method, 96, batch_size=16, num_steps=12, resident=resident)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    seen = []
    for _ in range(12):
        draw = imp.draw()
        assert torch.equal(draw.r, torch.ones(16))
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        loss = imp.loss(losses, z, draw)
        torch.testing.assert_close(loss, losses.mean())
        loss.backward()
        optimizer.step()
        assert imp.diagnostics.lr_scale == 1
        seen += draw.index.tolist()
    repeats = len(seen) - len(set(seen))
    assert repeats == 96 if method == "sgd-scan" else repeats > 96


def test_resident_engine_refuses_a_loader(task):
    with pytest.raises(EmaisError, match=r"resident on cpu: call draw\(\)"):
        emais.EMAIS(96, 16, resident=True).loader(task[0])
    with pytest.raises(EmaisError, match="num_steps"):
        emais.create("sgd-scan", 96, batch_size=16, resident=True)


def observe_made_up(imp, shape):
    draw = imp.draw()
    z = torch.randn(len(draw), *shape, requires_grad=True)
    imp.observe((z * torch.randn_like(z)).flatten(1).sum(1), z, draw)


def test_logits_of_another_shape_begin_the_report_anew(task):
    """Sequences of several lengths, with a step that was skipped or while accumulating."""
    imp, alone = emais.EMAIS(96, 16), emais.EMAIS(96, 16)
    for one in (imp, alone):
        one.attach(torch.optim.SGD(task[1].parameters(), lr=0.1))
    observe_made_up(imp, (3, 5))
    alone.draw()
    for one in (imp, alone):
        torch.manual_seed(0)
        observe_made_up(one, (3, 7))
    with pytest.warns(UserWarning, match="logits of another shape.*come from the latest alone"):
        found = imp.diagnostics.tr_is
    assert found == alone.diagnostics.tr_is > 0
    assert imp.diagnostics.batch_size == 16
    observe_made_up(imp, (3, 7))
    assert imp.diagnostics.batch_size == 32


def test_smoothing_starts_again_with_logits_of_another_shape(task):
    imp, alone = (emais.EMAIS(96, 16, smoothing=0.5) for _ in range(2))
    observe_made_up(imp, (3, 5))
    alone.draw()  # the first minibatch, which it never sees
    for k in range(2):
        for engine in (imp, alone):
            torch.manual_seed(k)
            observe_made_up(engine, (3, 7))
        if k == 0:
            with pytest.warns(UserWarning, match="the average over steps that smoothing makes starts again"):
                _ = imp.diagnostics.tr_is
        assert imp.diagnostics.tr_is == alone.diagnostics.tr_is


@pytest.mark.parametrize("name", emais.METHODS)
def test_numpy_integers_will_do(name):
    imp = emais.create(name, np.int64(96), batch_size=np.int32(16), num_steps=np.int64(30), seed=np.uint8(3))
    same = emais.create(name, 96, batch_size=16, num_steps=30, seed=3)
    assert torch.equal(imp.draw().index, same.draw().index)
    assert type(imp.num_samples) is type(imp.batch_size) is type(imp.num_steps) is type(imp.seed) is int


def test_a_data_set_instead_of_its_length(task):
    with pytest.raises(EmaisError, match=r"num_samples must be .* got a TensorDataset: pass len\(dataset\)"):
        emais.EMAIS(task[0], 16)


@pytest.mark.parametrize("bad", [torch.tensor(0), torch.tensor(0.5), torch.tensor([1, 2]), np.array([3]), [], "x" * 99])
def test_what_is_no_whole_number(bad):
    with pytest.raises(EmaisError, match="num_samples must be a whole number of at least 1, got "):
        emais.EMAIS(bad, 16)
    if not (isinstance(bad, torch.Tensor) and bad.dim() == 0 and bad == 0):
        with pytest.raises(EmaisError, match="seed must be a whole number from 0 to"):
            emais.EMAIS(96, 16, seed=bad)


@pytest.mark.parametrize("rule", [None, "none"])
def test_lbfgs_is_refused(task, rule):
    with pytest.raises(EmaisError, match="LBFGS cannot be used: it evaluates its closure several times"):
        emais.EMAIS(96, 16).attach(torch.optim.LBFGS(task[1].parameters()), rule=rule)


def test_a_loss_that_could_not_be_made_can_be_tried_again(task, monkeypatch):
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    draw = imp.draw()
    losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
    monkeypatch.setattr(imp, "reduce", lambda *_: bytearray(-1))
    with pytest.raises(ValueError, match="negative count"):
        imp.loss(losses, z, draw)
    monkeypatch.undo()
    imp.loss(losses, z, draw).backward()
    assert imp.diagnostics.step == 1


def test_a_spoilt_minibatch_whose_step_was_skipped_is_forgotten(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for k in range(4):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        loss = imp.loss(losses * (float("nan") if k == 2 else 1), z, draw)
        if k == 2:
            continue  # as a GradScaler does
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert imp.diagnostics.batch_size == 16
    assert imp.diagnostics.degenerate == 0
    assert math.isfinite(imp.diagnostics.tr_is)


def test_unbiased_traces_with_smoothing_are_unbiased():
    M, N = 40, 4
    g = torch.randn(M, 3, generator=torch.Generator().manual_seed(1))
    true = float(g.square().sum(1).mean() - g.mean(0).square().sum())
    imp = emais.create("sgd-uni", M, batch_size=N, smoothing=0.8, unbiased=True)
    found = []
    for k in range(4000):
        draw = imp.draw()
        z = torch.zeros(N, 3, requires_grad=True)
        imp.observe(z.sum(1), z, draw, grads=g[draw.index])
        if k >= 50 and k % 10 == 0:
            found.append(imp.diagnostics.tr_is)
    mean, error = sum(found) / len(found), torch.tensor(found).std() / len(found) ** 0.5
    assert abs(mean - true) < 4 * float(error)


def test_the_step_of_the_report_survives_a_resume(task):
    dataset, model = task
    imp = emais.create("self-paced", 96, batch_size=16)
    for _ in range(20):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        imp.observe(losses, z, draw)
    again = emais.create("self-paced", 96, batch_size=16)
    again.load_state_dict(imp.state_dict())
    assert again.diagnostics.step == 20
    assert again.diagnostics.threshold == pytest.approx(imp.diagnostics.threshold)


@pytest.mark.parametrize("resident", [False, True])
def test_who_writes_to_a_draw_changes_no_statistics(task, resident):
    dataset, model = task
    states = []
    for write in (False, True):
        imp = emais.EMAIS(96, 16, warmup_epochs=0, resident=resident)
        for _ in range(5):
            draw = imp.draw()
            losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
            if write:
                draw.index.fill_(0)
                draw.r.mul_(100)
            imp.observe(losses, z, draw)
        states.append(imp.state_dict()["state"])
    for name, want in states[0].items():
        assert torch.equal(states[1][name], want)


def test_half_precision_losses_keep_small_coefficients():
    """r/N of a sample that is drawn often is below what fp16 can hold."""
    imp = emais.create("sgd-uni", 30_000_000, batch_size=16)
    draw = imp.draw()
    draw.r.fill_(1e-5)
    losses = torch.full((16,), 2.0, dtype=torch.half, requires_grad=True)
    z = losses.unsqueeze(1)
    loss = imp.loss(z.squeeze(1), z, draw)
    assert loss.item() == pytest.approx(2e-5, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half])
def test_a_refresh_takes_signals_of_any_precision(dtype):
    imp = emais.create("confidence", 96, batch_size=16)
    z = torch.randn(8, 3).to(dtype).requires_grad_()
    losses = torch.nn.functional.cross_entropy(z, torch.zeros(8, dtype=torch.int64), reduction="none")
    imp.refresh(torch.arange(8), losses, z)
    assert imp.probabilities().shape == (96,)


@pytest.mark.parametrize("bad", ["no", 1, 0.0])
def test_resident_is_true_or_false(bad):
    with pytest.raises(EmaisError, match="resident must be True or False"):
        emais.EMAIS(96, 16, resident=bad)


@pytest.mark.parametrize(("name", "value"), [("smoothing", 0.9), ("unbiased", True), ("max_scale", 2.0)])
def test_a_resume_wants_the_same_report(name, value):
    state = emais.EMAIS(96, 16).state_dict()
    with pytest.raises(EmaisError, match=f"settings.{name} is .* in the state but {value}"):
        emais.EMAIS(96, 16, **{name: value}).load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_size", [48, 64])
def test_the_training_loss_is_in_the_precision_of_the_losses(dtype, batch_size):
    """r/N in float64 for losses in float64: K processes have N/K samples each."""
    imp = emais.EMAIS(96, batch_size=batch_size, warmup_epochs=0)
    draw = imp.draw()
    draw.r.copy_(torch.rand(batch_size) + 0.3)
    z = torch.randn(batch_size, 3, dtype=dtype, requires_grad=True)
    losses = z.square().sum(1)
    (found,) = torch.autograd.grad(imp.loss(losses, z, draw), losses)
    expected = draw.r.double() / batch_size if dtype == torch.float64 else draw.r / batch_size
    assert torch.equal(found, expected)


def test_several_views_of_a_sample_as_the_guide_has_them(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    (x, y), draw = next(iter(imp.loader(dataset)))
    k, cross_entropy = 2, torch.nn.functional.cross_entropy
    logits = model(torch.cat((x, -x))).unflatten(0, (k, 16)).transpose(0, 1)
    losses = cross_entropy(logits.flatten(0, 1), y.repeat_interleave(k), reduction="none").view(16, k).mean(1)
    one_after_the_other = cross_entropy(model(torch.cat((x, -x))), y.repeat(k), reduction="none").view(k, 16).mean(0)
    torch.testing.assert_close(losses, one_after_the_other)
    imp.loss(losses, logits, draw).backward()
    assert imp.diagnostics.step == 1
