"""Every method in the same loop: what it draws, what it trains on, what it reports, and what it refuses."""

import collections
import collections.abc
import itertools
import math
import types
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import losses_of
from reference import LiteralRAIS
from scipy import stats
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import emais
from emais import EmaisError
from emais import functional as F
from emais.methods.presampling import distribution
from emais.observing.scoring import scoring_mode

M, N, T = 96, 16, 60
WEIGHTED = ("rais", "confidence", "confvar", "emais")


def train(name, task, *, steps=T, optimizer=torch.optim.SGD, lr=0.1, resident=False, seed=3, **options):
    """The one loop for all. Yields (imp, draw, losses, logit gradients) after each step."""
    dataset, model = task
    imp = emais.create(name, M, batch_size=N, num_steps=T, seed=seed, resident=resident, **options)
    opt = optimizer(model.parameters(), lr=lr)
    imp.attach(opt)
    if resident:
        pairs = iter(lambda: resident_pair(imp, dataset, model), None)
    else:
        score = {"score": lambda batch: losses_of(model, batch)} if imp.needs_score else {}
        pairs = iter(imp.loader(dataset, **score))
    for _ in range(steps):
        batch, draw = next(pairs)
        losses, z = losses_of(model, batch)
        g = F.logit_gradients(losses, z)
        opt.zero_grad()
        loss = imp.loss(losses, z, draw)
        loss.backward()
        opt.step()
        yield imp, draw, losses.detach(), g, loss.detach()


def resident_pair(imp, dataset, model):
    def at(index):
        return tuple(t[index] for t in dataset.tensors)

    draw = imp.draw(lambda index: losses_of(model, at(index))) if imp.needs_score else imp.draw()
    return at(draw.index), draw


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("name", emais.METHODS)
def test_every_method_trains_with_every_optimizer(task, name, optimizer):
    losses = [float(row[2].mean()) for row in train(name, task, optimizer=optimizer)]
    assert len(losses) == T
    # a method may draw hard samples: judge the model on all of the data
    dataset, model = task
    losses, z = losses_of(model, dataset.tensors)
    assert (z.argmax(1) == dataset.tensors[1]).float().mean() > 0.65  # the most frequent class: 0.52
    if name != "self-paced":  # which gives up the hardest samples, and with Adam for good
        assert losses.mean() < 0.85 * math.log(3)


@pytest.mark.parametrize("name", emais.METHODS)
def test_resident_is_the_same_as_on_the_host(name):
    runs = []
    for resident in (False, True):
        torch.manual_seed(0)
        x = torch.randn(M, 5)
        y = (x[:, 0] + 0.5 * torch.randn(M) > 0).long() + (x[:, 1] > 1).long()
        task = torch.utils.data.TensorDataset(x, y), nn.Linear(5, 3)
        rows = [
            (d.index, d.r, loss, imp.diagnostics.lr_scale)
            for imp, d, _, _, loss in train(name, task, resident=resident)
        ]
        runs.append(rows)
    for a, b in zip(*runs, strict=True):
        assert torch.equal(a[0], b[0])
        torch.testing.assert_close(a[1], b[1], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(a[2], b[2], rtol=1e-3, atol=1e-5)
        assert a[3] == pytest.approx(b[3], rel=1e-3)


class Unasked(TorchDispatchMode):
    """Refuses whatever would make the host wait for a device: a number, a truth, a shape that depends on values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        asks = ("_local_scalar_dense", "nonzero", "masked_select", "aten.equal", "unique")
        assert not any(word in str(func) for word in asks), func
        by_mask = func is torch.ops.aten.index.Tensor and any(
            t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1]
        )
        assert not by_mask, func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("name", emais.METHODS)
def test_a_resident_step_asks_nothing_of_its_device(task, name, smoothing):
    """What a GPU does, here on the CPU: test_gpu.py lets torch look for waits itself."""
    *_, (imp, *_) = train(name, task, resident=True, steps=T // 2, smoothing=smoothing)
    imp.attached.scalers[0].remove()
    update = imp.attach(None, "rais" if name == "rais" else "linear")
    dataset, model = task
    for _ in range(3):
        with Unasked():
            draw = imp.make_draw(*imp.source.take())
        draw = imp._choose(draw, lambda i: losses_of(model, dataset[i]), draw.index)[1] if imp.needs_score else draw
        losses, z = losses_of(model, dataset[draw.index])
        g = F.logit_gradients(losses, z)
        with Unasked():
            imp.loss(losses, z, draw, grads=g)
            update.lr_scale()


@pytest.mark.parametrize("name", WEIGHTED)
def test_r_belongs_to_the_distribution_that_was_drawn_from(task, name):
    """r p M = 1, so sum_i p_i r_i f_i is the mean of f for every f: unbiased."""
    p = None
    for t, (imp, draw, _, _, _) in enumerate(train(name, task), 1):
        if p is not None and t > imp.epoch_steps + 1:
            torch.testing.assert_close(draw.r.double() * p[draw.index] * M, torch.ones(N).double(), rtol=1e-6, atol=0)
        p = imp.probabilities()
        assert float(p.sum()) == pytest.approx(1)
    assert p.max() > 1.2 / M


@pytest.mark.parametrize("name", ["rais", "confidence", "confvar"])
@pytest.mark.parametrize("resident", [False, True])
def test_draws_with_an_offset_have_the_stated_frequencies(task, name, resident):
    *_, (imp, *_) = train(name, task, resident=resident)
    p = imp.probabilities()
    counts = torch.zeros(M)
    for _ in range(2000):
        counts += torch.bincount(imp.draw().index, minlength=M)
    assert stats.chisquare(counts.double(), 2000 * N * p.double()).pvalue > 1e-3


@pytest.mark.filterwarnings("ignore:.* no optimizer is attached")  # the literal one trains
@pytest.mark.parametrize("augmented", [False, True])
def test_rais_is_the_literal_one(task, augmented):
    literal = LiteralRAIS(M, N, M, math.ceil(2 * M / N))
    p = None
    noise = 0.3 if augmented else 0.0
    dataset, model = task
    imp = emais.create("rais", M, batch_size=N, num_steps=T, seed=4)
    for t in range(1, T + 1):
        draw = imp.draw()
        x, y = (a[draw.index] for a in dataset.tensors)
        x = x + noise * torch.randn_like(x)
        losses, z = losses_of(model, (x, y))
        if t > imp.epoch_steps:
            np.testing.assert_allclose(draw.r, [1 / (M * p[i]) for i in draw.index], rtol=2e-3)
        norms = F.logit_gradients(losses, z).norm(dim=1).double()
        literal.observe(t, draw.index.tolist(), draw.r.tolist(), norms.tolist())
        p = literal.probabilities()
        imp.loss(losses, z, draw).backward()
        with torch.no_grad():
            for w in model.parameters():
                w -= 0.3 * w.grad
                w.grad = None
    c, d = imp.coefficients
    np.testing.assert_allclose(c, literal.cd[0], atol=1e-3 * literal.cd[0].max())
    np.testing.assert_allclose(d, literal.cd[1], atol=1e-3 * literal.cd[1].max())
    assert imp.diagnostics.refits == (T - imp.epoch_steps) // imp.period + 1
    assert imp.diagnostics.failed_refits == 0


def test_rais_without_enough_observations_keeps_what_it_has(task):
    dataset, model = task
    imp = emais.create("rais", M, batch_size=N, warmup_epochs=1)  # one epoch: nobody has been seen before
    for _ in range(imp.epoch_steps + 1):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        imp.observe(losses, z, draw)
    assert imp.diagnostics.failed_refits == imp.diagnostics.refits == 1
    torch.testing.assert_close(imp.probabilities(), torch.full((M,), 1 / M).double())


def test_presampling_is_unbiased_by_enumeration():
    """Over all candidate sets (uniform, with replacement) and all draws from them, E[r f] is the mean of f."""
    norms, f, B = torch.tensor([0.0, 1.0, 0.2, 5.0]), torch.tensor([0.0, -1.0, 2.5, 4.0]), 3
    expected = 0.0
    for candidates in itertools.product(range(4), repeat=B):
        q = distribution(norms[list(candidates)])
        inner = sum(float(q[j]) * float(f[i]) / (B * float(q[j])) for j, i in enumerate(candidates) if q[j] > 0)
        expected += inner / 4**B
    assert expected == pytest.approx(float(f.mean()), rel=1e-9)


def test_presampling_draws_from_its_candidates_in_proportion(task):
    dataset, model = task
    imp = emais.create("presampling", M, batch_size=N, presample=64)
    seen = {}

    def score(batch):
        losses, z = losses_of(model, batch)
        seen["norms"] = F.logit_gradients(losses, z).norm(dim=1)
        return losses, z

    for k, ((x, _), draw) in enumerate(imp.loader(dataset, score=score)):
        assert torch.equal(x, dataset.tensors[0][draw.index])
        all_norms = F.logit_gradients(*losses_of(model, dataset.tensors)).norm(dim=1)
        q = all_norms[draw.index].double() / seen["norms"].double().sum()
        torch.testing.assert_close(draw.r.double(), 1 / (64 * q), rtol=1e-5, atol=0)
        assert len(seen["norms"]) == 64
        if k == 3:
            break


def test_zero_and_broken_scores():
    torch.testing.assert_close(distribution(torch.zeros(4)), torch.full((4,), 0.25).double())
    assert distribution(torch.tensor([torch.inf, torch.nan, 1.0])).isfinite().all()


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("own", [False, True])
def test_scoring_leaves_the_model_alone(task, own):
    dataset, _ = task
    model = Noisy()
    model.layers[3].eval()  # a part that the user has frozen stays so
    before = {k: v.clone() for k, v in model.state_dict().items()}
    imp = emais.create("presampling", M, batch_size=N, presample=64, batch_statistics=own)
    grown = []

    def score(batch):
        z = model(batch[0])
        grown.append(z.grad_fn is not None)
        return nn.functional.cross_entropy(z, batch[1], reduction="none"), z

    random = torch.get_rng_state()
    _, draw = next(iter(imp.loader(dataset, score=score)))
    assert torch.equal(random, torch.get_rng_state())
    assert grown == [False]  # no activation was kept
    assert len(draw) == N
    for k, v in model.state_dict().items():
        assert torch.equal(v, before[k]), k
    assert [m.training for m in model.layers] == [True, True, True, False]
    assert model.training
    assert model.layers[1].track_running_stats
    assert model(dataset.tensors[0]).grad_fn is not None


def test_a_lazy_batchnorm_is_looked_at_before_it_has_averages():
    model = nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(4, 2))
    for _ in range(2):
        with scoring_mode(batch_statistics=True):
            model(torch.randn(8, 4))
    model(torch.randn(8, 4))
    assert model[0].running_mean.any()


@pytest.mark.parametrize("name", ["confidence", "confvar"])
def test_a_first_minibatch_that_is_not_finite_is_no_reason_to_stop(name):
    imp = emais.create(name, 100, batch_size=8)
    for value in (torch.nan, torch.inf):
        z = torch.full((8, 3), value, requires_grad=True)
        imp.loss(nn.functional.cross_entropy(z, torch.zeros(8).long(), reduction="none"), z, imp.draw())
    z = torch.randn(8, 3, requires_grad=True)
    with pytest.raises(EmaisError, match="needs p\\(true class\\)"):  # the check is still to come
        imp.loss(z.square().sum(1), z, imp.draw())


def test_rais_forgets_a_norm_that_was_far_too_large():
    """Beside 1e18 all others are rounded away: when it has gone, they must count again."""
    imp = emais.create("rais", 2000, batch_size=10, warmup_epochs=1)

    def see(norms, index=None):
        z = torch.zeros(len(norms), 1, requires_grad=True)
        losses = z[:, 0] * norms
        return imp.refresh(index, losses, z) if index is not None else imp.loss(losses, z, imp.draw())

    while imp.step < imp.epoch_steps:
        see(torch.full((10,), 1e-3))
    for norm in (1e18, 1e-3):
        see(torch.tensor([norm]), torch.tensor([5]))
    assert imp.offset() == pytest.approx(1e-3)
    drawn = torch.cat([imp.draw().index for _ in range(50)])
    assert len(drawn.unique()) > 350  # of 2000, as 500 uniform draws have it


@pytest.mark.parametrize("frozen", [False, True])
def test_candidates_may_be_normalised_by_their_own_statistics(frozen):
    """As in training, without its dropout; a BatchNorm that the user has put into evaluation mode stays there."""
    model, x = Noisy(), torch.randn(16, 5) + 3
    model.layers[1].train(not frozen)
    with scoring_mode(batch_statistics=True):
        found = model(x)
    h = model.layers[0](x)
    norm = model.layers[1]
    middle = h if frozen else (h - h.mean(0)) / (h.var(0, unbiased=False) + norm.eps).sqrt()
    expected = model.layers[3](norm(h) if frozen else middle)  # weight 1, bias 0
    torch.testing.assert_close(found, expected)
    with scoring_mode():
        averaged = model(x)
    assert torch.equal(averaged, found) == frozen


def test_a_score_that_fails_leaves_the_model_alone(task):
    dataset, _ = task
    model = Noisy()
    imp = emais.create("presampling", M, batch_size=N, presample=64)
    with pytest.raises(RuntimeError):
        next(iter(imp.loader(dataset, score=lambda batch: model(batch[0][:, :2]))))
    assert model.training
    assert torch.is_grad_enabled()
    with pytest.raises(EmaisError, match=r"score\(batch\) must return \(losses, logits\), got Tensor"):
        next(iter(imp.loader(dataset, score=lambda batch: model(batch[0]))))


def test_presampling_switch_saves_the_scoring_while_it_would_not_pay(task):
    dataset, _ = task
    calls = []

    def run(gradients):
        imp = emais.create("presampling", M, batch_size=N, presample=4 * N, switch=True, num_steps=40)
        calls.clear()

        def score(batch):
            calls.append(1)
            z = torch.zeros(len(batch[0]), 1, requires_grad=True)
            return gradients(batch[0]) * z.squeeze(1), z

        for (x, _), draw in imp.loader(dataset, score=score):
            z = torch.zeros(N, 1, requires_grad=True)
            imp.loss(gradients(x) * z.squeeze(1), z, draw)
        return imp

    imp = run(lambda x: torch.ones(len(x)))  # all gradients alike: nothing to gain
    assert not calls
    assert imp.diagnostics.on == 0
    imp = run(lambda x: (x[:, 0] > x[:, 0].sort().values[-2]).float() + 1e-3)  # one sample has all of the gradient
    assert calls
    assert imp.diagnostics.benefit > (4 * N + 3 * N) / (3 * N)


@pytest.mark.parametrize("name", ["confidence", "confvar"])
def test_confidence_and_confvar_by_hand(task, name):
    history, rows = [[] for _ in range(M)], list(train(name, task))
    for _, draw, losses, _, loss in rows:
        for place, i in enumerate(draw.index.tolist()):
            if i not in draw.index[:place].tolist():
                history[i].append(1 - math.exp(-losses[place]))
        assert float(loss) == pytest.approx(float(losses.mean()))  # the plain mean
    imp, w = rows[-1][0], []
    for h in history:
        var = float(np.var(h))
        w.append(np.mean(h) if name == "confidence" else math.sqrt(var + var**2 / max(len(h) - 1, 1)))
    w = np.array(w) + np.mean(w)
    np.testing.assert_allclose(imp.probabilities(), w / w.sum(), rtol=2e-4)
    assert "biased" in imp.diagnostics.estimator
    assert "biased" in repr(imp.diagnostics)


@pytest.mark.parametrize("name", ["confidence", "confvar"])
def test_the_bias_of_the_plain_mean(task, name):
    """E[mean(losses)] under p is sum p_i l_i: off by M times the covariance of p and l. With r it would not be."""
    *_, (imp, *_) = train(name, task)
    dataset, model = task
    losses = losses_of(model, dataset.tensors)[0].detach().double()
    p = imp.probabilities()
    bias = float((p * losses).sum() - losses.mean())
    assert bias == pytest.approx(M * float(((p - 1 / M) * (losses - losses.mean())).mean()))
    assert abs(bias) > 0.01
    if name == "confidence":  # hard samples come too often
        assert bias > 0
    assert float((p * losses / (M * p)).sum()) == pytest.approx(float(losses.mean()))


def test_confvar_with_the_plain_variance(task):
    *_, (imp, *_) = train("confvar", task, form="var")
    count, _, m2 = imp._history.all()
    np.testing.assert_allclose(imp.all_weights(), m2 / count)
    with pytest.raises(EmaisError, match=r'form must be "std".*got 5'):
        emais.create("confvar", M, batch_size=N, form=5)


bce = nn.functional.binary_cross_entropy_with_logits


@pytest.mark.parametrize("name", ["confidence", "confvar"])
@pytest.mark.parametrize(
    "losses",
    [
        lambda z: bce(z, torch.ones_like(z), reduction="none").sum(1),
        lambda z: (z - 1).square().sum(1),
        lambda z: nn.functional.cross_entropy(z, torch.zeros(N).long(), reduction="none", label_smoothing=0.1),
        lambda z: bce(z[:, 0], torch.ones(N), reduction="none"),
    ],
)
def test_no_probability_of_a_true_class(name, losses):
    imp = emais.create(name, M, batch_size=N)
    z = torch.randn(N, 3, requires_grad=True)
    with pytest.raises(EmaisError, match=r"needs p\(true class\).*Multi-label and regression.*\(16, 3\)"):
        imp.loss(losses(z), z, imp.draw())
    one = torch.randn(N, 1, requires_grad=True)
    with pytest.raises(EmaisError, match=r"logits here: \(16, 1\)"):
        imp.loss(bce(one, torch.ones(N, 1), reduction="none").sum(1), one, imp.draw())


@pytest.mark.parametrize(("epochs", "plain"), [({}, 12), ({"warmup_epochs": 0}, 0), ({"warmup_epochs": 1.4}, 9)])
@pytest.mark.parametrize("resident", [False, True])
def test_self_paced_keeps_samples_below_a_growing_bound(task, resident, epochs, plain):
    """All of them in the plain steps; the minibatch after these sets the bound, which grows from there."""
    bound, total = math.nan, 0
    for t, (imp, _, losses, _, loss) in enumerate(train("self-paced", task, resident=resident, **epochs), 1):
        if t == plain + 1:
            start = float(losses.quantile(0.6))
        if t > plain:
            bound = start * 1.2 ** ((t - 1 - plain) * N // M)
        kept = losses < (bound if t > plain else math.inf)
        total += int(kept.sum())
        assert imp.diagnostics.kept == int(kept.sum())
        assert imp.diagnostics.threshold == pytest.approx(bound, nan_ok=True)
        assert float(loss) == pytest.approx(float(losses[kept].mean()), rel=1e-5)
    assert imp.plain_steps == plain
    assert plain * N < total == imp.diagnostics.kept_so_far < T * N
    assert "biased towards easy" in imp.diagnostics.estimator


@pytest.mark.parametrize("at", [5, 12, 13, 20])
@pytest.mark.parametrize("resident", [False, True])
def test_self_paced_resumes_in_its_plain_epochs_and_after_them(resident, at):
    def run(imp, losses):
        rows = []
        for own in losses:
            z = torch.zeros(N, 1, requires_grad=True)
            imp.loss(own + z.squeeze(1), z, imp.draw())
            rows.append((imp.diagnostics.kept, imp.diagnostics.kept_so_far, imp.diagnostics.threshold))
        return torch.tensor(rows)

    losses = torch.rand(30, N)
    settings = {"batch_size": N, "num_steps": 30, "resident": resident}
    whole, first, second = (emais.create("self-paced", M, **settings) for _ in range(3))
    want = run(whole, losses)
    run(first, losses[:at])
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(run(second, losses[at:]), want[at:], rtol=0, atol=0, equal_nan=True)
    assert want[:12, 2].isnan().all()
    assert len(want[12:, 2].unique()) == 3  # three epochs


@pytest.mark.parametrize("resident", [False, True])
def test_self_paced_waits_for_a_first_minibatch_that_is_finite(resident):
    imp = emais.create("self-paced", M, batch_size=N, num_steps=T, warmup_epochs=0, resident=resident)
    for losses in (torch.full((N,), torch.nan), torch.arange(N).float()):
        z = torch.zeros(N, 1, requires_grad=True)
        imp.loss(losses + z.squeeze(1), z, imp.draw())
    assert imp.diagnostics.threshold == pytest.approx(9.0)
    assert imp.diagnostics.kept == 9


def test_self_paced_skips_a_step_with_nothing_kept(task):
    dataset, model = task
    imp = emais.create("self-paced", M, batch_size=N, warmup_epochs=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for step in range(1, 5):
        draw = imp.draw()
        losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
        before = [p.clone() for p in model.parameters()]
        moments = [s["exp_avg"].clone() for s in optimizer.state.values()]
        optimizer.zero_grad()
        imp.loss(losses + (100 if step == 3 else 0), z, draw).backward()
        optimizer.step()
        moved = any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        assert moved == (step != 3)
        if step == 3:
            assert all(torch.equal(a, s["exp_avg"]) for a, s in zip(moments, optimizer.state.values(), strict=True))
    assert imp.diagnostics.skipped == 1


@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("resident", [False, True])
def test_self_paced_does_not_hide_a_loss_that_is_not_finite(task, resident, epochs):
    """It is not kept, but its gradient is 0 times infinity: a guard on the loss must see it."""
    dataset, model = task
    inputs = dataset.tensors[0].clone()
    inputs[7] = torch.nan
    imp = emais.create("self-paced", 96, batch_size=16, num_steps=6, warmup_epochs=epochs, resident=resident)
    for _ in range(6):
        draw = imp.draw()
        losses, z = losses_of(model, (inputs[draw.index], dataset.tensors[1][draw.index]))
        loss = imp.loss(losses, z, draw)
        assert bool(loss.isfinite()) == (7 not in draw.index)
        model.zero_grad()
        loss.backward()
        assert bool(model.weight.grad.isfinite().all()) == bool(loss.isfinite())


def test_self_paced_does_not_train_on_a_loss_that_is_infinite():
    """Its gradient may well be finite: the sample is not kept all the same."""
    z = torch.tensor([[1.0], [2.0], [3.0], [1e30]], requires_grad=True)
    imp = emais.create("self-paced", 4, batch_size=4, warmup_epochs=0)
    loss = imp.loss(z.square().squeeze(1), z, imp.draw())
    loss.backward()
    assert loss == math.inf
    assert z.grad.flatten().tolist() == [1.0, 2.0, 0.0, 0.0]


def test_self_paced_with_accumulation_counts_the_whole_step(task):
    dataset, model = task
    imp = emais.create("self-paced", M, batch_size=N, warmup_epochs=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    for k in range(3):
        for part in range(2):
            draw = imp.draw()
            losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
            (imp.loss(losses + (100 if k and part else 0), z, draw) / 2).backward()
        before = model.weight.clone()
        optimizer.step()
        optimizer.zero_grad()
        assert not torch.equal(before, model.weight)
    assert imp.diagnostics.skipped == 0


@pytest.mark.parametrize("rule", ["none", "linear", "sqrt", "gain", "rais"])
@pytest.mark.parametrize("name", emais.METHODS)
def test_every_rule_with_every_method(task, name, rule):
    dataset, model = task
    imp = emais.create(name, M, batch_size=N, num_steps=T)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer, rule=rule)
    score = {"score": lambda batch: losses_of(model, batch)} if imp.needs_score else {}
    for batch, draw in imp.loader(dataset, **score):
        losses, z = losses_of(model, batch)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
    report = imp.diagnostics
    traces = emais.functional.VarianceTraces(report.tr_is, report.tr_unif, report.tr_opt)
    assert report.n_ems == pytest.approx(N * traces.tr_unif / traces.tr_is)
    assert math.isfinite(report.score)
    if rule in ("linear", "sqrt"):
        assert report.lr_scale == pytest.approx((report.n_ems / N) ** (1 if rule == "linear" else 0.5))


@pytest.mark.parametrize(
    ("name", "bound"),
    {"rais": 21 + 28, "confidence": 13, "confvar": 17, "emais": 21}.items(),
)
def test_bytes_a_sample(name, bound):
    assert emais.create(name, 50_000).nbytes() <= bound * 50_000 + 1000


@pytest.mark.parametrize("name", ["sgd-scan", "sgd-uni", "presampling", "self-paced"])
def test_no_bytes_a_sample(name):
    assert emais.create(name, 50_000).nbytes() < 100


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rias", {}, "unknown method 'rias'.*sgd-scan, sgd-uni, rais, presampling.*did you mean 'rais'"),
        ("rais", {"warmup_epochs": 0.5}, "warmup_epochs must be at least 1 for rais, got 0.5"),
        ("rais", {"buffer": -1}, "buffer must be a whole number of at least 1, got -1"),
        ("rais", {"kappa": 1.0}, "rais takes no 'kappa'"),
        ("presampling", {"presample": 8}, "presample=8 is below batch_size=16"),
        ("presampling", {"switch": True, "resident": True}, "switch=True decides on the CPU"),
        ("self-paced", {"percentile": 0.0}, "percentile must be .* got 0.0"),
        ("self-paced", {"percentile": 60}, "percentile must be .* got 60"),
        ("self-paced", {"growth": 0}, "growth must be .* got 0"),
        ("self-paced", {"warmup_epochs": -1}, "warmup_epochs must be .* got -1"),
        ("confidence", {"warmup_epochs": -1}, "warmup_epochs must be .* got -1"),
    ],
)
def test_bad_settings(name, options, message):
    with pytest.raises(EmaisError, match=message):
        emais.create(name, M, batch_size=N, **options)


def test_candidates_of_presampling_are_not_trained_on(task):
    dataset, model = task
    imp = emais.create("presampling", 96, batch_size=16, presample=32)
    draw = imp.draw()
    losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
    with pytest.raises(EmaisError, match=r"all 32 candidates, not the 16 to train on: imp\.draw\(f\)"):
        imp.loss(losses, z, draw)
    with pytest.raises(EmaisError, match="made by another engine"):
        emais.create("presampling", 96, batch_size=16, presample=32).loss(losses, z, draw)


@pytest.mark.parametrize("name", emais.METHODS)
def test_the_batch_size_may_come_third(name):
    assert emais.create(name, 96, 16).batch_size == emais.METHODS[name](96, 16).batch_size == 16


def test_a_method_of_ones_own_may_have_other_settings_first(monkeypatch):
    class Own(emais.Engine):
        name = "own"

        def __init__(self, num_samples, power=1.0, batch_size=32, **options):
            super().__init__(num_samples, batch_size, **options)
            self.power = power

    monkeypatch.setitem(emais.METHODS, "own", Own)
    made = emais.create("own", 96, 16)
    assert (made.batch_size, made.power) == (16, 1.0)
    assert emais.create("own", 96, power=2.0).batch_size == 32


def test_score_is_for_presampling(task):
    with pytest.raises(EmaisError, match="emais needs no score="):
        emais.create("emais", M, batch_size=N).loader(task[0], score=lambda b: b)
    with pytest.raises(EmaisError, match=r"imp.loader\(dataset, score=f\)"):
        emais.create("presampling", M, batch_size=N).loader(task[0])
    imp = emais.create("presampling", M, batch_size=N)
    with pytest.raises(EmaisError, match="one loss for each of 1024 candidates, got 3"):
        next(iter(imp.loader(task[0], score=lambda b: losses_of(task[1], (b[0][:3], b[1][:3])))))


class InADict(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return {"logits": self.head(x), "more": (x, [x])}


@dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    name: str = "output"


class InAnObject(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.inside, self.wrap = InADict(), wrap

    def forward(self, x):
        return self.wrap(logits=self.inside(x)["logits"])


@dataclass(slots=True)
class Slots:
    logits: torch.Tensor


class Reads:
    """Gives the logits through two levels, one of which refers to itself."""

    def __init__(self, logits):
        inner = SimpleNamespace(logits=logits)
        inner.me = inner
        self.inner, self.size = SimpleNamespace(deep=[inner]), torch.tensor(1)

    @property
    def logits(self):
        return self.inner.deep[0].me.logits


class Plain:
    def __init__(self, logits):
        self.logits, self.me = logits, self


@pytest.mark.parametrize("wrap", [dict, Output, Slots, SimpleNamespace, Reads, Plain])
def test_presampling_with_a_model_that_returns_an_object(task, wrap):
    dataset, _ = task
    model = InAnObject(wrap)

    def score(batch):
        output = model(batch[0])
        z = output["logits"] if wrap is dict else output.logits
        return nn.functional.cross_entropy(z, batch[1], reduction="none"), z

    imp = emais.create("presampling", M, batch_size=N, presample=32)
    (x, _), draw = next(iter(imp.loader(dataset, score=score)))
    assert torch.equal(x, dataset.tensors[0][draw.index])


@pytest.mark.parametrize(
    "collate",
    [
        lambda rows: ([x for x, _ in rows], torch.stack([y for _, y in rows])),
        lambda rows: {"x": [x for x, _ in rows], "y": tuple(int(y) for _, y in rows)},
        lambda rows: rows,
    ],
)
def test_presampling_picks_from_lists_of_samples(task, collate):
    dataset, model = task

    def score(batch):
        rows = (
            batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else [x for x, _ in batch]
        )
        z = model(torch.stack(rows))
        return z.square().sum(1), z

    imp = emais.create("presampling", M, batch_size=N, presample=32)
    batch, draw = next(iter(imp.loader(dataset, score=score, collate_fn=collate)))
    rows = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, tuple) else [x for x, _ in batch]
    assert torch.equal(torch.stack(rows), dataset.tensors[0][draw.index])


class Attributes(dict):
    """A dictionary whose entries are attributes, too."""

    def __init__(self, *args):
        super().__init__(*args)
        self.__dict__ = self


class Named(dict):
    """Its first argument is another than a dictionary's."""

    def __init__(self, entries=(), name=""):
        if isinstance(entries, str):
            raise ValueError("no")
        super().__init__(entries)
        self.name = name


class Box(collections.abc.MutableMapping):
    """Keeps its entries in a dictionary of its own, which a plain copy would share."""

    def __init__(self, entries):
        self.entries = dict(entries)

    def __getitem__(self, key):
        return self.entries[key]

    def __setitem__(self, key, value):
        self.entries[key] = value

    def __delitem__(self, key):
        del self.entries[key]

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)


@pytest.mark.parametrize(
    "kind",
    [
        collections.OrderedDict,
        collections.UserDict,
        lambda columns: collections.defaultdict(list, columns),
        types.MappingProxyType,
        Attributes,
        Named,
        Box,
    ],
    ids=["ordered", "user", "default", "proxy", "attributes", "named", "box"],
)
def test_presampling_picks_from_any_mapping(task, kind):
    dataset, model = task

    def collate(rows):
        return kind({"x": torch.stack([x for x, _ in rows]), "y": torch.stack([y for _, y in rows])})

    imp = emais.create("presampling", M, batch_size=N, presample=32)
    loader = imp.loader(dataset, score=lambda b: losses_of(model, (b["x"], b["y"])), collate_fn=collate)
    batch, draw = next(iter(loader))
    assert type(batch) is type(kind({}))
    assert torch.equal(batch["x"], dataset.tensors[0][draw.index])
    assert len(batch) == 2
    assert torch.equal(getattr(batch, "x", batch["x"]), batch["x"])


def test_presampling_refuses_a_batch_it_cannot_cut(task):
    dataset, model = task
    imp = emais.create("presampling", M, batch_size=N, presample=32)
    loader = imp.loader(
        dataset,
        score=lambda batch: losses_of(model, (batch[0].T, batch[1])),
        collate_fn=lambda rows: (torch.stack([x for x, _ in rows]).T, torch.stack([y for _, y in rows])),
    )
    with pytest.raises(EmaisError, match=r"cannot pick samples out of a tensor of shape \(5, 32\)"):
        next(iter(loader))
