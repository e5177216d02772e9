"""What a saved state must carry and what it must refuse: open windows, damaged values, long runs, several threads."""

import copy
import math
import random
import threading

import numpy as np
import pytest
import torch
from conftest import losses_of

import emais
from emais import EmaisError, EMAScores

OPTIONS = {"num_steps": 60, "seed": 5, "warmup_epochs": 1}


def create(method, **options):
    plain = method in ("sgd-scan", "sgd-uni", "presampling")
    given = {k: v for k, v in (OPTIONS | options).items() if not (plain and k == "warmup_epochs")}
    small = {"presample": 32} if method == "presampling" else {}
    return emais.create(method, 96, batch_size=16, **given, **small)


def draw_of(imp, look):
    return imp.draw(look) if imp.needs_score else imp.draw()


# ---- between loss and step


class Accumulating:
    """Two minibatches an optimizer step; `half` is all that comes between two optimizer steps."""

    def __init__(self, method, dataset, model, **options):
        self.dataset, self.model, self.imp = dataset, model, create(method, **options)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.imp.attach(self.optimizer)

    def look(self, index):
        return losses_of(self.model, tuple(t[index] for t in self.dataset.tensors))

    def half(self):
        draw = draw_of(self.imp, self.look)
        losses, z = self.look(draw.index)
        self.imp.loss(losses, z, draw).backward()
        return draw.index.tolist(), draw.r.tolist()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.imp.diagnostics.lr_scale, [p.tolist() for p in self.model.parameters()]

    def saved(self):
        grads = [None if p.grad is None else p.grad.clone() for p in self.model.parameters()]
        return copy.deepcopy((self.imp.state_dict(), self.model.state_dict(), self.optimizer.state_dict())), grads

    def load(self, saved):
        (imp, model, optimizer), grads = saved
        self.imp.load_state_dict(imp)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        for p, grad in zip(self.model.parameters(), grads, strict=True):
            p.grad = None if grad is None else grad.clone()


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize(
    ("method", "options"), [*((m, {}) for m in emais.METHODS), ("emais", {"smoothing": 0.9}), ("rais", {"buffer": 32})]
)
def test_a_resume_between_loss_and_step_is_exact(task, method, options, resident):
    dataset, model = task
    run = Accumulating(method, dataset, model, resident=resident, **options)
    for k in range(14):
        run.half()
        if k < 13:
            run.half()
            run.step()
    saved = run.saved()
    want = [run.half(), run.step(), run.half(), run.half(), run.step()]
    again = Accumulating(method, dataset, copy.deepcopy(model), resident=resident, **options)
    again.load(saved)
    assert [again.half(), again.step(), again.half(), again.half(), again.step()] == want


def test_an_optimizer_that_is_attached_after_the_state_was_loaded_gets_the_open_window(task):
    dataset, model = task
    run = Accumulating("emais", dataset, model)
    for _ in range(12):
        run.half()
        run.step()
    run.half()
    state = run.imp.state_dict()
    want = run.step()[0]
    assert want != 1.0
    later = create("emais")
    later.load_state_dict(state)
    handle = later.attach(None, rule="linear")
    assert handle.lr_scale() == want


def test_the_factor_of_the_last_step_is_known_after_a_resume(task):
    """A schedule over effective steps asks for it after the optimizer's step."""
    dataset, model = task
    run = Accumulating("rais", dataset, model, buffer=32)
    for _ in range(20):
        run.half()
        run.step()
    again = create("rais", buffer=32)
    again.load_state_dict(run.imp.state_dict())
    assert again.diagnostics.lr_scale == run.imp.diagnostics.lr_scale != 1.0


# ---- damaged states


def leaves(state, path=()):
    for key, value in state.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def damaged(value, choice):
    """Something else in place of a value."""
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point()
    kinds = [
        lambda: None,
        lambda: "text",
        lambda: {"a": 1},
        lambda: np.zeros(3),
        lambda: torch.zeros(2, 3),
        lambda: [1, 2],
        lambda: -1,
        lambda: 2**70,
        lambda: math.nan,
        lambda: True,
        lambda: 1 << 40,
    ]
    if isinstance(value, torch.Tensor):
        bad = [-5, 2**62, -(2**62)] if whole else [math.nan, math.inf, -math.inf, -5.0, 1e38, 0.0]
        kinds += [lambda: torch.full_like(value, choice(bad)) if value.dtype != torch.bool else ~value] * 6
        kinds += [lambda: one_changed(value, choice(bad))] * 6
        kinds += [lambda: value[:0] if value.dim() else value.view(1), lambda: value.double(), lambda: value.to("meta")]
    return choice(kinds)()


def one_changed(value, new):
    changed = value.clone()
    if changed.numel() and changed.dtype != torch.bool:
        changed.view(-1)[changed.numel() // 2] = new
    return changed


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
    return a == b


@pytest.mark.filterwarnings("ignore:logits of another shape", "ignore:.* minibatches were observed since")
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("method", emais.METHODS)
def test_a_damaged_state_is_refused_and_changes_nothing_or_can_be_trained_with(task, method, resident):
    dataset, model = task
    rng = random.Random(method)
    made = Accumulating(method, dataset, model, resident=resident)
    for _ in range(9):
        made.half()
        made.step()
    made.half()
    good, refused = made.imp.state_dict(), 0
    twin = create(method, resident=resident)
    twin.load_state_dict(good)
    for _ in range(30):
        state = copy.deepcopy(good)
        *parents, last = rng.choice(list(leaves(state)))
        place = state
        for key in parents:
            place = place[key]
        place[last] = damaged(place[last], rng.choice)
        run = Accumulating(method, dataset, copy.deepcopy(model), resident=resident)
        run.imp.load_state_dict(good)
        before = copy.deepcopy(run.imp.state_dict())
        try:
            run.imp.load_state_dict(state)
        except EmaisError:
            refused += 1
            assert same(run.imp.state_dict(), before)
        for _ in range(3):
            run.half()
            run.step()
    assert refused > 15


@pytest.mark.parametrize("method", emais.METHODS)
def test_a_refused_state_leaves_the_next_draws_as_they_were(task, method):
    dataset, model = task
    run, twin = (Accumulating(method, dataset, copy.deepcopy(model)) for _ in range(2))
    for one in (run, twin):
        for _ in range(9):
            one.half()
            one.step()
    bad = run.imp.state_dict()
    bad["step"] = -1
    with pytest.raises(EmaisError, match="step must be a whole number of at least 0, got -1"):
        run.imp.load_state_dict(bad)
    for _ in range(5):
        assert (run.half(), run.step()) == (twin.half(), twin.step())


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (RuntimeError("too much"), EmaisError, r"emais cannot take this state over \(too much\)"),
        (KeyboardInterrupt("Ctrl-C"), KeyboardInterrupt, "Ctrl-C"),
    ],
)
def test_a_method_that_cannot_take_a_state_over_keeps_its_own(error, raised, message):
    class Picky(emais.EMAIS):
        def load_state(self, state):
            super().load_state(state)
            if float(state["mean"].sum()) > 1:
                raise error

    imp = Picky(96, 16)
    before, state = imp.state_dict(), imp.state_dict()
    state["state"]["mean"] = torch.ones(96)
    with pytest.raises(raised, match=message):
        imp.load_state_dict(state)
    assert same(imp.state_dict(), before)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("state", "mean"), torch.full((96,), math.nan), "state.mean must hold finite numbers of at least 0"),
        (
            ("state", "mean"),
            torch.full((96,), -1.0),
            "state.mean must hold .* got values from -1 to -1",
        ),
        (("state", "last_step"), torch.full((96,), 10**6), "state.last_step must hold .* at most"),
        (("monitor", "added"), -1, "monitor.added must be a whole number of at least 0, got -1"),
        (("settings", "kappa"), np.zeros(2), "settings.kappa is array.* in the state but 1.0"),
        (("used",), torch.tensor([99]), "used must hold"),
    ],
)
def test_wrong_values_are_refused_by_name(place, value, message):
    imp = emais.EMAIS(96, 16)
    state = imp.state_dict()
    *parents, last = place
    inner = state
    for key in parents:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(EmaisError, match=message):
        imp.load_state_dict(state)


# ---- long runs


BY_EPOCHS = ("sgd-scan", "self-paced", "audit")  # resident, they lay out their epochs beforehand, for num_steps of them


@pytest.mark.parametrize(
    ("method", "resident"),
    [(m, resident) for m in emais.METHODS for resident in (False, True) if not (resident and m in BY_EPOCHS)],
)
def test_steps_beyond_2_to_the_31(task, method, resident):
    dataset, model = task
    run = Accumulating(method, dataset, model, resident=resident, num_steps=None)
    for _ in range(9):
        run.half()
        run.step()
    state = run.imp.state_dict()
    state["step"] = 2**31 + 7
    run.imp.load_state_dict(state)
    for _ in range(5):
        run.half()
        factor, _ = run.step()
        assert 0 < factor < math.inf
    assert run.imp.step == run.imp.diagnostics.step == 2**31 + 12
    if method == "emais":
        assert int(run.imp.scores.last_step.max()) == 2**31 + 12


def test_self_paced_after_very_many_epochs():
    for resident in (False, True):
        imp = emais.create("self-paced", 4, batch_size=4, num_steps=8, warmup_epochs=0, resident=resident)
        z = torch.tensor([[0.0], [1.0], [2.0], [3.0]], requires_grad=True)
        imp.loss(z.squeeze(1), z, imp.draw())
        draw = imp.draw()
        late = emais.Draw(draw.index, draw.r, draw.step * 0 + 5000, draw._record)
        assert imp.loss(z.squeeze(1), z, late).item() == 1.5  # all of them are kept
        assert imp.diagnostics.kept == 4


@pytest.mark.parametrize("resident", [False, True])
def test_the_statistics_still_learn_after_a_hundred_million_steps(resident):
    """1 - exp(-1/t) at t = 1e8: its digits would be gone in float32."""
    t = 10**8
    scores = EMAScores(2, resident=resident)
    scores.last_step.fill_(t - 1)
    step = torch.tensor(t) if resident else t
    scores.update(step, torch.tensor([0]), torch.tensor([1.0]))
    torch.testing.assert_close(scores.mean, torch.tensor([-math.expm1(-1 / t), 0.0]), rtol=1e-6, atol=0)
    auto = emais.create("emais-auto", 2, batch_size=1, resident=resident, factors=1.0, powers=1.0)
    auto._scores.last_step.fill_(t - 1)
    auto._scores.means.fill_(0.0)
    index, norms = torch.tensor([0]), torch.tensor([1.0])
    auto._scores.update(*((step, index, norms) if resident else (t, index.numpy(), norms.numpy())))
    torch.testing.assert_close(auto._scores.means[0, 0].item(), -math.expm1(-1 / t), rtol=1e-6, atol=0)


# ---- several threads


@pytest.mark.parametrize("method", ["emais", "emais-auto", "rais", "self-paced"])
def test_a_run_that_others_look_at_is_the_same_run(task, method):
    """Another thread reads the report and saves the state all the while, as a logger or a checkpointer does."""
    dataset, model = task

    def train(run):
        rows = []
        for k, (batch, draw) in enumerate(run.imp.loader(dataset)):
            losses, z = losses_of(run.model, batch)
            run.optimizer.zero_grad()
            run.imp.loss(losses, z, draw).backward()
            run.optimizer.step()
            rows.append((draw.index.tolist(), draw.r.tolist()))
            if k == 39:
                break
        return rows

    want = train(Accumulating(method, dataset, copy.deepcopy(model)))
    run, over, failed = Accumulating(method, dataset, model), threading.Event(), []

    def look():
        try:
            while not over.is_set():
                report = run.imp.diagnostics.as_dict()
                assert math.isnan(report["n_ems"]) or report["batch_size"] == 16
                run.imp.state_dict()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        got = train(run)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert got == want


@pytest.mark.filterwarnings("ignore:.* no optimizer is attached")
def test_draws_and_observations_of_several_threads_are_whole(task):
    """Four threads train with one engine: no draw is handed out twice, and every observation counts once."""
    dataset, model = task
    imp, failed, steps = emais.EMAIS(96, 16, warmup_epochs=1), [], []

    def work():
        try:
            for _ in range(50):
                draw = imp.draw()
                losses, z = losses_of(model, tuple(t[draw.index] for t in dataset.tensors))
                imp.observe(losses, z, draw)
                steps.append(draw.step)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(steps) == list(range(1, 201))
    assert imp.diagnostics.step <= 200
    assert imp.monitor.added == 200
