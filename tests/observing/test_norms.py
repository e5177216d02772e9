"""`norms=` instead of gradients: what is exact, what is right on average, and what is on the safe side."""

import copy
import itertools

import pytest
import torch
from conftest import losses_of

import emais
from emais import EmaisError
from emais import functional as F
from emais.loading.draw import DrawRecord
from emais.observing.monitor import Monitor
from emais.observing.observation import Observation, from_norms
from emais.statistics.arrays import arrays_on

GRADS = torch.tensor([[3, 1], [3, -1], [2, 0], [-1, 1]], dtype=torch.float64)
CENTRED = GRADS - GRADS.mean(0)
P = torch.tensor([0.3, 0.3, 0.3, 0.1], dtype=torch.float64)
R = F.importance_coefficients(P)
FORMS = ("grads", "norms and mean_norm", "norms")


def seen(index, grads, form, arrays):
    r, g, at = arrays.array(R[index]), grads[index], arrays.array(index)
    if form == "grads":
        return Observation(1, at, r, arrays.array(g.norm(dim=1)), arrays.array(R[index] @ g))
    mean = (R[index] @ g).norm()[None] / len(index) if form != "norms" else g.new_zeros(0)
    return from_norms(1, DrawRecord(None, at, r), arrays.array(torch.cat((g.norm(dim=1), mean))), None, arrays)


def monitor_of(batches, grads, form, unbiased=False, rule="none", resident=False, smoothing=0.0):
    """A monitor whose window holds these minibatches."""
    arrays = arrays_on("cpu", resident)
    monitor = Monitor(smoothing, unbiased, F.MAX_SCALE, arrays)
    monitor.rule = rule
    for batch in batches:
        monitor.add(seen(torch.tensor(batch), grads, form, arrays))
    return monitor


def values(monitor):
    return [float(trace) for trace in monitor.traces()]


def expected(size, parts, grads, form, unbiased):
    """The mean of the three traces over every sequence of `parts` minibatches of so many draws."""
    total = torch.zeros(3, dtype=torch.float64)
    for flat in itertools.product(range(4), repeat=size * parts):
        batches = [flat[k : k + size] for k in range(0, size * parts, size)]
        traces = values(monitor_of(batches, grads, form, unbiased))
        total += float(P[list(flat)].prod()) * torch.tensor(traces, dtype=torch.float64)
    return total


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("rule", ["linear", "sqrt", "gain", "rais", "steady"])
def test_with_mean_norm_every_number_of_a_minibatch_is_that_of_the_gradients(rule, resident):
    for batch in itertools.product(range(4), repeat=3):
        one, other = (monitor_of([batch], GRADS, form, False, rule, resident) for form in FORMS[:2])
        assert values(one) == pytest.approx(values(other), abs=1e-12)
        assert float(one.lr_scale()) == pytest.approx(float(other.lr_scale()))
        for monitor in (one, other):
            monitor.close()
        assert torch.allclose(one.recent.rows[0], other.recent.rows[0])
        assert torch.allclose(one._steady.saved, other._steady.saved)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("form", FORMS[:2])
def test_accumulated_traces_are_right_on_average(form, unbiased):
    """Two minibatches of 2: pairs across them are not seen, and those within stand for them."""
    want = expected(4, 1, GRADS, "grads", unbiased)  # all four at once
    assert torch.allclose(expected(2, 2, GRADS, form, unbiased), want)


@pytest.mark.parametrize("unbiased", [False, True])
def test_norms_alone_are_exact_where_the_mean_gradient_is_0(unbiased):
    want = expected(3, 1, CENTRED, "grads", unbiased)
    assert torch.allclose(expected(3, 1, CENTRED, "norms", unbiased), want)


@pytest.mark.parametrize(("parts", "size"), [(1, 4), (2, 2)])
def test_norms_alone_leave_the_mean_gradient_in_all_traces(parts, size):
    """Each is too large by |E g|^2, so N_ems is nearer to N than it is."""
    square = GRADS.mean(0).square().sum()
    right = expected(4, 1, GRADS, "grads", True)
    found = expected(size, parts, GRADS, "norms", True)
    assert torch.allclose(found, right + square)
    plain = expected(size, parts, GRADS, "norms", False)  # the paper's form has (1 - 1/N) of it
    assert torch.allclose(plain, expected(4, 1, GRADS, "grads", False) + 0.75 * square)
    assert 1 < found[1] / found[0] < right[1] / right[0]


def test_differences_of_traces_and_the_score_need_no_mean():
    for batch in itertools.product(range(4), repeat=3):
        one, other = (monitor_of([batch], GRADS, form).traces() for form in ("grads", "norms"))
        for a, b in itertools.combinations(range(3), 2):
            assert list(one)[a] - list(one)[b] == pytest.approx(float(list(other)[a] - list(other)[b]))
        assert F.efficiency_score(one) == pytest.approx(float(F.efficiency_score(other)), nan_ok=True)


@pytest.mark.parametrize("grads", [GRADS, CENTRED])
@pytest.mark.parametrize("rule", ["gain", "rais", "steady"])
def test_norms_alone_never_give_a_larger_factor(rule, grads):
    """These rules grow where gradients agree less, which norms cannot tell: they take the least that can be."""
    larger = 0
    for batch in itertools.product(range(4), repeat=3):
        factors = []
        for form in ("grads", "norms"):
            monitor = monitor_of([batch], grads, form, rule=rule)
            for _ in range(60):  # the steady rule looks back
                monitor.close()
                monitor.add(seen(torch.tensor(batch), grads, form, monitor._arrays))
            factors.append(float(monitor.lr_scale()))
        assert abs(factors[1] - 1) <= abs(factors[0] - 1) + 1e-9
        larger += factors[1] > 1 + 1e-3
    assert larger  # and not just 1


@pytest.mark.statistical
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("form", FORMS[1:])
def test_smoothing_averages_norms_as_it_does_gradients(form, resident):
    """The same on average over many windows: the centred gradients' mean is 0, which norms alone assume."""
    one, other = (monitor_of([], CENTRED, f, rule="linear", resident=resident, smoothing=0.9) for f in ("grads", form))
    generator, seen_so_far = torch.Generator().manual_seed(0), []
    for _ in range(1000):
        index = torch.multinomial(P, 16, replacement=True, generator=generator)
        for monitor, f in ((one, "grads"), (other, form)):
            monitor.add(seen(index, CENTRED, f, monitor._arrays))
            monitor.lr_scale()
            monitor.close()
        seen_so_far.append([values(one), values(other)])
    means = torch.tensor(seen_so_far[100:], dtype=torch.float64).mean(0)
    assert torch.allclose(means[1], means[0], rtol=0.01)
    first = monitor_of([(0, 1)], CENTRED, form, smoothing=0.9)
    first.close()
    assert values(first) == values(monitor_of([(0, 1)], CENTRED, form))


# ---- through an engine


def trained(task, imp, form, steps=20, micro=1, state=None, save=0, rule=None):
    """Losses, draws and reports of a run; what was saved inside step `save`, between two minibatches."""
    dataset, model = task[0], copy.deepcopy(task[1])
    optimizer, rows, saved = torch.optim.SGD(model.parameters(), lr=0.1), [], None
    imp.attach(optimizer, rule)
    if state is not None:
        for part, own in zip((imp, model, optimizer), copy.deepcopy(state[:3]), strict=True):
            part.load_state_dict(own)
    for k in range(steps):
        for j in range(micro):
            if state is not None and (k, j) == (0, 0):
                model.weight.grad, model.bias.grad = (g.clone() for g in state[3])  # what was accumulated already
                continue
            draw = imp.draw()
            losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
            g = F.logit_gradients(losses, z)
            norms, mean = g.norm(dim=1), (draw.r @ g / len(g)).norm()
            given = {"grads": g} if form == "grads" else {"norms": norms}
            given |= {"mean_norm": mean} if form == "norms and mean_norm" else {}
            loss = imp.loss(losses, z if form == "grads" else None, draw, **given)
            (loss / micro).backward()
            if k == save and j == 0:
                saved = imp.state_dict(), model.state_dict(), optimizer.state_dict()
                saved = copy.deepcopy((*saved, [p.grad for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
        rows.append((draw.index.tolist(), draw.r.tolist(), loss.item(), imp.diagnostics.as_dict()))
    return rows, saved


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("method", ["sgd-uni", "emais", "emais-auto", "rais", "self-paced"])
def test_a_run_with_norms_and_mean_norm_is_the_run_with_gradients(task, method, resident):
    settings = {"batch_size": 16, "resident": resident, "num_steps": 20}
    runs = [trained(task, emais.create(method, 96, **settings), form)[0] for form in FORMS[:2]]
    for one, other in zip(*runs, strict=True):
        assert one[0] == other[0]
        assert one[1:3] == (pytest.approx(other[1], rel=1e-4), pytest.approx(other[2], rel=1e-4))
        assert one[3] == pytest.approx(other[3], rel=1e-3, abs=1e-5, nan_ok=True)


def test_norms_alone_train_the_same_model_where_the_rate_is_left_alone(task):
    """The statistics see norms only, and so do the draws."""
    runs = [trained(task, emais.EMAIS(96, 16, warmup_epochs=1), form, rule="none")[0] for form in ("grads", "norms")]
    for one, other in zip(*runs, strict=True):
        assert one[0] == other[0]
        assert one[2] == pytest.approx(other[2], rel=1e-5)
        assert one[3]["score"] == pytest.approx(other[3]["score"], rel=1e-2, abs=1e-3, nan_ok=True)


@pytest.mark.parametrize("smoothing", [0.0, 0.9])
@pytest.mark.parametrize("form", FORMS[1:])
def test_a_resume_inside_an_accumulation_is_exact(task, form, smoothing):
    def made():
        return emais.EMAIS(96, 16, warmup_epochs=1, smoothing=smoothing)

    rows, saved = trained(task, made(), form, steps=8, micro=2, save=4)
    assert len(saved[0]["monitor"]["window"]["grad"]) == 0
    got = trained(task, made(), form, steps=4, micro=2, state=saved)[0]
    assert list(map(str, got)) == list(map(str, rows[4:]))  # a score may be NaN


def test_sequences_of_different_lengths_are_reported_together():
    """With gradients only the latest counts, with a warning; norms have no shape."""
    imp = emais.EMAIS(20, 4, warmup_epochs=0)
    imp.attach(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))
    for length in (3, 5):
        z = torch.randn(4, length, requires_grad=True)
        losses = z.square().sum(1)
        imp.loss(losses, z, imp.draw(), norms=F.logit_gradients(losses, z).norm(dim=1))
    assert imp.diagnostics.batch_size == 8


def test_what_is_given_is_copied():
    imp = emais.EMAIS(20, 4, warmup_epochs=0)
    z, norms = torch.zeros(4, requires_grad=True), torch.ones(4)
    imp.loss(z, None, imp.draw(), norms=norms, mean_norm=torch.tensor(0.5))
    norms.fill_(7.0)
    assert imp.diagnostics.tr_unif == pytest.approx(0.75)


def test_refresh_takes_norms(task):
    one, other = (emais.EMAIS(96, 16) for _ in range(2))
    losses, z = losses_of(task[1], task[0].tensors)
    index = torch.arange(96)
    one.refresh(index, losses, z)
    other.refresh(index, losses, None, norms=F.logit_gradients(losses, z).norm(dim=1))
    assert torch.allclose(one.scores.mean, other.scores.mean)


def test_observe_takes_norms():
    imp = emais.EMAIS(20, 4, warmup_epochs=0)
    imp.observe(torch.zeros(4), None, imp.draw(), norms=torch.ones(4))
    assert imp.diagnostics.step == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"norms": torch.ones(3)}, r"norms must be \(N,\) with N = 4.*got \(3,\)"),
        ({"norms": torch.ones(4, 2)}, r"one gradient norm per sample, got \(4, 2\)"),
        ({"norms": [1.0] * 4}, "got list"),
        ({"norms": torch.ones(4), "grads": torch.ones(4, 2)}, "not both"),
        ({"norms": torch.ones(4), "mean_norm": torch.ones(2)}, r"one number, \|mean\(r g\)\|.*got \(2,\)"),
        ({"norms": torch.ones(4), "mean_norm": 1.0}, "got float"),
        ({"mean_norm": torch.ones(())}, "mean_norm goes with norms="),
        ({}, "logits must be a tensor"),
    ],
)
def test_what_is_wrong_is_said(given, words):
    imp = emais.EMAIS(20, 4, warmup_epochs=0)
    draw = imp.draw()
    with pytest.raises(EmaisError, match=words):
        imp.loss(torch.zeros(4, requires_grad=True), None, draw, **given)
    imp.loss(torch.zeros(4, requires_grad=True), None, draw, norms=torch.ones(4))  # the draw is still unused


@pytest.mark.parametrize("method", ["confidence", "confvar"])
def test_methods_that_look_at_gradients_refuse_norms(method):
    imp = emais.create(method, 20, batch_size=4)
    with pytest.raises(EmaisError, match=f"{method} looks at the gradients themselves, norms= cannot serve"):
        imp.loss(torch.zeros(4, requires_grad=True), None, imp.draw(), norms=torch.ones(4))


@pytest.mark.parametrize("method", ["emais", "emais-auto"])
def test_a_norm_below_0_is_refused(method):
    """One that is NaN is counted and left out; the sample keeps its weight."""
    imp = emais.create(method, 8, batch_size=4, warmup_epochs=0)
    z = torch.zeros(4, 2, requires_grad=True)
    draw = imp.draw()
    with pytest.raises(EmaisError, match=r"norms must be at least 0, got -1\.5 at place 1"):
        imp.loss(z.sum(1), z, draw, norms=torch.tensor([1.0, -1.5, 2.0, 3.0]))
    imp.loss(z.sum(1), z, draw, norms=torch.tensor([1.0, torch.nan, 2.0, 3.0]))  # the draw was not used up
    assert imp.diagnostics.nonfinite == 1
    assert imp.probabilities().min() > 1e-3
