"""Saving and resuming: to the bit, for every method, and refused by name when it cannot be right."""

import copy
import io
import math
import pickle

import pytest
import torch
from conftest import losses_of

import emais
from emais import EmaisError


def steps(imp, dataset, model, optimizer, count, workers=0):
    rows = []
    options = {"score": lambda batch: losses_of(model, batch)} if imp.needs_score else {}
    for k, (batch, draw) in enumerate(imp.loader(dataset, num_workers=workers, **options), 1):
        losses, z = losses_of(model, batch)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
        rows.append((draw.step, draw.index, draw.r, imp.diagnostics.lr_scale, imp.diagnostics.tr_is))
        if k == count:
            break
    return rows


def fresh(method, model, **options):
    imp = emais.create(method, 96, batch_size=16, num_steps=60, seed=5, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    imp.attach(optimizer)
    return imp, optimizer


def test_draw_goes_on_with_what_a_saved_loader_had_ahead(task):
    dataset, model = task
    imp, optimizer = fresh("emais", model)
    steps(imp, dataset, model, optimizer, 5, workers=2)
    ahead = imp.passes.ahead()
    assert len(ahead) > 1
    again, _ = fresh("emais", model)
    again.load_state_dict(imp.state_dict())
    for want in ahead:
        draw = again.draw()
        assert (draw.step, draw.index.tolist(), draw.r.tolist()) == (want.step, want.index.tolist(), want.r.tolist())
    assert again.draw().step == ahead[-1].step + 1


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [5, 23])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((m, {}) for m in emais.METHODS),
        ("emais", {"smoothing": 0.9, "kappa": 0.3}),
        ("presampling", {"switch": True}),
        ("emais-auto", {"powers": 0.5}),
        ("emais-auto", {"powers": (0.3, 0.7), "warmup_epochs": 0}),
        ("self-paced", {"warmup_epochs": 0}),
    ],
)
def test_resume_is_exact(task, method, options, at, workers):
    dataset, model = task
    imp, optimizer = fresh(method, model, **options)
    steps(imp, dataset, model, optimizer, at, workers)
    file = io.BytesIO()
    torch.save({"imp": imp.state_dict(), "model": model.state_dict(), "opt": optimizer.state_dict()}, file)
    drawn = imp.source.step
    want = steps(imp, dataset, model, optimizer, 30 - at, workers=0)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = copy.deepcopy(model)
    other.load_state_dict(saved["model"])
    again, optimizer = fresh(method, other, **options)
    optimizer.load_state_dict(saved["opt"])
    again.load_state_dict(saved["imp"])
    got = steps(again, dataset, other, optimizer, 30 - at, workers=0)
    assert [w[0] for w in want] == list(range(at + 1, 31))
    assert drawn > at if workers else drawn == at
    for a, b in zip(want, got, strict=True):
        assert a[0] == b[0]
        assert torch.equal(a[1], b[1])
        assert torch.equal(a[2], b[2])
        assert a[3:] == b[3:]


@pytest.mark.parametrize("method", ["emais", "rais", "confvar"])
def test_a_resumed_pass_ends_where_the_epoch_does(task, method):
    """With workers, too: where a pass ends, prefetching pauses, so a border that moves would change the draws."""
    dataset, model = task

    def epochs(imp, optimizer, count, save_at=0):
        rows, saved = [], None
        for _ in range(count):
            for batch, draw in imp.loader(dataset, num_workers=2):
                losses, z = losses_of(model, batch)
                optimizer.zero_grad()
                imp.loss(losses, z, draw).backward()
                optimizer.step()
                rows.append((draw.step, draw.index.tolist(), draw.r.tolist()))
                if draw.step == save_at:
                    saved = copy.deepcopy((imp.state_dict(), model.state_dict(), optimizer.state_dict()))
        return rows, saved

    def made():
        imp = emais.create(method, 96, batch_size=16, seed=5, warmup_epochs=1)  # 6 steps an epoch
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        imp.attach(optimizer)
        return imp, optimizer

    want, saved = epochs(*made(), 4, save_at=9)
    imp, optimizer = made()
    for part, state in zip((imp, model, optimizer), saved, strict=True):
        part.load_state_dict(state)
    loader = imp.loader(dataset)
    assert (len(loader), loader.remaining) == (6, 3)
    got, _ = epochs(imp, optimizer, 3)
    assert got == want[9:]
    assert len(loader) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_is_loaded_inside_the_loop(task, workers):
    """Back to the last good state, and out of the loop: the next pass is what was left then."""
    dataset, model = task
    imp = emais.EMAIS(96, 16)
    loader = imp.loader(dataset, num_workers=workers)
    for batch, draw in loader:
        losses, z = losses_of(model, batch)
        imp.loss(losses, z, draw)
        if draw.step == 2:
            saved = imp.state_dict()
        if draw.step == 4:
            imp.load_state_dict(saved)
            break
    assert loader.remaining == 4
    rest = iter(loader)
    _, draw = next(rest)
    assert draw.step == 3
    for state in (saved, imp.state_dict()):  # of another step, and of this one
        imp.load_state_dict(state)
        with pytest.raises(EmaisError, match="or a state was loaded, and this pass cannot go on"):
            next(rest)
        rest = iter(loader)
        (x, _), draw = next(rest)
        assert torch.equal(x, dataset.tensors[0][draw.index])


def test_an_engine_is_not_copied_but_saved():
    imp = emais.EMAIS(96, 16)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(EmaisError, match=r"EMAIS cannot be copied or pickled: save its state_dict\(\)"):
            copied(imp)


def test_state_of_a_resident_engine(task):
    a, b = (emais.EMAIS(96, 16, resident=True, warmup_epochs=0) for _ in range(2))
    for k in range(9):
        draw = a.draw()
        z = torch.randn(16, 2, requires_grad=True)
        a.loss((z * draw.index[:, None]).sum(1), z, draw)
        if k == 4:
            b.load_state_dict(a.state_dict())
        if k > 4:
            other = b.draw()
            assert torch.equal(draw.index, other.index)
            assert torch.equal(draw.r, other.r)
            b.loss((z * other.index[:, None]).sum(1), z, other)
    assert a.step == b.step == 9


def state_with(**changes):
    def change(state):
        for path, value in changes.items():
            *parents, last = path.split("__")
            place = state
            for p in parents:
                place = place[p]
            if value is KeyError:
                del place[last]
            else:
                place[last] = value
        return state

    return change


def one_draw_ahead(sample):
    index = torch.full((1, 16), sample)
    return state_with(passes__step=torch.ones(1).long(), passes__index=index, passes__r=torch.ones(1, 16))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: None, "state must be a dict made by state_dict.*got NoneType"),
        (state_with(version=99), "version is 99 in the state but 4"),
        (state_with(method="rais"), "method is 'rais' in the state but 'emais'"),
        (state_with(settings__num_samples=7), "settings.num_samples is 7 in the state but 96"),
        (state_with(settings__batch_size=7), "settings.batch_size is 7 in the state but 16"),
        (state_with(settings__tau=5.0), "settings.tau is 5.0 in the state but 'linear'"),
        (state_with(state__mean=KeyError), r"state does not fit.*missing keys \['mean'\]"),
        (state_with(state__extra=1), r"unexpected keys \['extra'\]"),
        (state_with(more=1), r"unexpected keys \['more'\]"),
        (state_with(state__mean=torch.zeros(95)), r"state.mean must be torch.float32 of shape \(96,\), got .*\(95,\)"),
        (state_with(state__mean=torch.zeros(96).double()), "state.mean must be torch.float32.*got torch.float64"),
        (state_with(state__mean=[0.0] * 96), "state.mean must be .* got list"),
        (state_with(step=-1), "step must be .* got -1"),
        (state_with(step=1.5), "step must be .* got 1.5"),
        (state_with(passes__delivered="x"), "passes.delivered must be .* got 'x'"),
        (state_with(passes__index=torch.zeros(1, 5, dtype=torch.int64)), r"passes.index must be .* got .*\(1, 5\)"),
        (
            state_with(passes__index=torch.zeros(1, 16, dtype=torch.int64)),
            "passes.index and passes.r must be of one leng",
        ),
        (one_draw_ahead(96), "indices must be from 0 to 95, got values from 96 to 96"),
        (
            state_with(version=1, more=1),
            "version is 1 in the state but 4 in this engine: use the release",
        ),
        (state_with(settings__tau=torch.ones(2)), "settings.tau is tensor.* in the state but 'linear'"),
        (state_with(state__mean=torch.zeros(96, requires_grad=True)), "state.mean must be a plain tensor"),
        (state_with(state__mean=torch.zeros(96, device="meta")), "state.mean must be a plain tensor"),
        (state_with(state__mean=torch.zeros(96).to_sparse()), "state.mean must be a plain tensor"),
    ],
)
def test_wrong_states_are_refused_by_name(change, message):
    imp = emais.EMAIS(96, 16)
    before = imp.state_dict()
    with pytest.raises(EmaisError, match=message):
        imp.load_state_dict(change(emais.EMAIS(96, 16).state_dict()))
    after = imp.state_dict()
    assert all(torch.equal(before["state"][k], after["state"][k]) for k in before["state"])


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        *(
            ("emais", state_with(monitor__lr_scale=torch.tensor(value).double()), "monitor.lr_scale must hold")
            for value in (math.inf, 1e30, -1.0)
        ),
        *(
            ("emais", state_with(monitor__recent__count=torch.tensor([count])), "monitor.recent.count must hold")
            for count in (-1, 1, 2**63 - 1)
        ),
        ("emais", state_with(monitor__recent__rows=torch.full((6, 8), -5.0).double()), "monitor.recent.rows must hold"),
        (
            "emais",
            state_with(monitor__recent__largest=torch.full((2,), -1.0).double()),
            "monitor.recent.largest must hold",
        ),
        ("audit", state_with(state__projected_count=torch.tensor([1])), "state.projected_count must hold"),
        (
            "emais",
            state_with(monitor__window__moments=torch.full((3,), -5.0).double()),
            "monitor.window.moments must hold",
        ),
        ("rais", state_with(state__total=torch.tensor(-1e6).double()), "state.total must hold"),
        ("rais", state_with(state__total=torch.tensor(1e300).double()), "state.total must hold"),
        ("rais", state_with(state__fit=torch.full((3, 5), -5.0).double()), "state.fit must hold"),
        ("confvar", state_with(state__m2=torch.full((96,), -1.0)), "state.m2 must hold"),
        ("confvar", state_with(state__mean=torch.full((96,), 1e38)), "state.mean must hold"),
        ("confidence", state_with(state__mean=torch.full((96,), -5.0)), "state.mean must hold"),
    ],
)
def test_values_that_no_run_has_are_refused(method, change, message):
    imp = emais.create(method, 96, 16)
    with pytest.raises(EmaisError, match=message):
        imp.load_state_dict(change(emais.create(method, 96, 16).state_dict()))


def test_more_steps_than_saved_for_is_fine(task):
    dataset, model = task
    imp, optimizer = fresh("emais", model)
    steps(imp, dataset, model, optimizer, 5)
    longer = emais.EMAIS(96, 16, num_steps=100, seed=5)
    longer.load_state_dict(imp.state_dict())
    assert len(longer.loader(dataset)) == 95


@pytest.mark.parametrize("resident", [False, True])
def test_a_minibatch_that_is_not_finite_is_not_averaged_even_if_it_is_the_first(resident):
    """With smoothing, and in the state that is saved after it."""

    def feed(engine, scale):
        z = torch.randn(8, 3, requires_grad=True)
        engine.loss((z**2).sum(1) * torch.rand(8) * scale, z, engine.draw())

    imp, again = (emais.EMAIS(64, 8, warmup_epochs=0, smoothing=0.5, resident=resident) for _ in range(2))
    feed(imp, torch.nan)
    again.load_state_dict(imp.state_dict())
    for engine in (imp, again):
        for _ in range(3):
            feed(engine, 1.0)
        assert math.isfinite(engine.diagnostics.tr_is)
    feed(imp, torch.nan)
    assert math.isfinite(imp.diagnostics.tr_is)


def trained_state(method, resident, dataset, net):
    """The state after some steps, which an engine made alike takes."""
    options = {"batch_size": 16, "num_steps": 40, "resident": resident}
    imp = emais.create(method, 96, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    imp.attach(optimizer)

    def look(index):
        return losses_of(net, tuple(t[index] for t in dataset.tensors))

    for _ in range(20):
        draw = imp.draw(look) if imp.needs_score else imp.draw()
        losses, z = look(draw.index)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
    state = imp.state_dict()
    emais.create(method, 96, **options).load_state_dict(state)
    return state["state"]


@pytest.mark.parametrize("kind", ["float64", "bfloat16", "meta"])
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("method", emais.METHODS)
def test_torchs_defaults_change_nothing(task, method, resident, kind):
    """A default dtype or device is for tensors of the user's own."""
    dataset, model = task
    plain = trained_state(method, resident, dataset, copy.deepcopy(model))
    dtype = torch.get_default_dtype()
    try:
        if kind == "meta":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(getattr(torch, kind))
        found = trained_state(method, resident, dataset, model)
    finally:
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
    for name in plain:
        torch.testing.assert_close(found[name], plain[name], rtol=0, atol=0, equal_nan=True)
