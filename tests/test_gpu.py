"""What only a CUDA device can show: no host sync, capture in a graph, and the same draws as on the CPU."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import emais
from emais.draws.sampler import ExactSampler
from emais.draws.uniforms import Uniforms
from emais.experiments.data import Data
from emais.experiments.runs.sweep import parse
from emais.experiments.train.sharing import StreamPool
from emais.experiments.train.stacked_runs import StackedRuns
from emais.statistics.arrays import DeviceArrays

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; CI has none"),
]
M, N = 2000, 64


def task(device):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(M, 20, generator=g)
    y = (x[:, 0] + 0.3 * torch.randn(M, generator=g) > 0).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    return x.to(device), y.to(device), model.to(device)


def cosine(t):
    return 0.5 + 0.5 * torch.cos(torch.pi / 500 * t)


def resident(method="emais", rate=0.05, schedule=None, **options):
    """(engine, step function, tensor with the latest indices, optimizer), with everything on the GPU."""
    x, y, model = task("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(rate, device="cuda"), momentum=0.9, fused=True)
    imp = emais.create(method, M, batch_size=N, num_steps=500, device="cuda", **options)
    imp.attach(optimizer)
    last = torch.zeros(N, dtype=torch.int64, device="cuda")
    effective = None if schedule is None else emais.EffectiveSchedule(schedule, imp, optimizer=optimizer)

    def outputs(index):
        z = model(x.index_select(0, index))
        return nn.functional.cross_entropy(z, y.index_select(0, index), reduction="none"), z

    def step():
        draw = imp.draw(outputs) if imp.needs_score else imp.draw()
        last.copy_(draw.index)
        losses, z = outputs(draw.index)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
        if effective is not None:
            effective.step()

    return imp, step, last, optimizer


def captured(step, warmup=3):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warmup):
            step()
    torch.cuda.current_stream().wait_stream(side)
    gc.collect()  # a graph that is freed while this one is captured would spoil it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


DECIDING = ("emais-auto", {"period": 2, "kappa": 0.1})  # and flattening
SAFE = ("emais", {"bound": 5.0, "fallback": True})


@pytest.mark.parametrize(("method", "options"), [*((m, {}) for m in emais.METHODS), DECIDING, SAFE])
def test_a_resident_step_never_waits(method, options):
    _, step, _, _ = resident(method, **options)
    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((m, {}) for m in emais.METHODS),
        ("emais", {"smoothing": 0.9}),
        DECIDING,
        SAFE,
        ("rais", {"buffer": 640}),
        ("rais", {"buffer": 640, "schedule": cosine}),
    ],
)
def test_a_captured_step_is_the_eager_step(method, options):
    """Through the end of the warm-up (step 63), refits of RAIS and on: the same samples, and the same report."""
    a, eager, seen_a, plain = resident(method, **options)
    b, step, seen_b, optimizer = resident(method, **options)
    replay = captured(step)
    for _ in range(3):
        eager()
    for k in range(3, 90):
        eager()
        b.maintain()
        replay()
        assert torch.equal(seen_a, seen_b), k
    assert a.step == b.step == 90
    want, got = a.diagnostics.as_dict(), b.diagnostics.as_dict()
    assert got == pytest.approx(want, rel=1e-3)
    rate = float(optimizer.param_groups[0]["lr"])
    assert rate == pytest.approx(float(plain.param_groups[0]["lr"]), rel=1e-3)
    assert rate < 0.047 if "schedule" in options else rate == pytest.approx(0.05)
    if "buffer" in options:
        assert got["refits"] == 3
        assert got["failed_refits"] == 0


@pytest.mark.parametrize("method", list(emais.METHODS))
def test_every_method_with_the_model_on_the_gpu_and_statistics_on_the_cpu(method):
    x, y, model = task("cpu")
    runs = []
    for device in ("cpu", "cuda"):
        net = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        imp = emais.create(method, M, batch_size=N, num_steps=66)  # 63 of them warm-up
        imp.attach(optimizer)

        def outputs(batch, net=net, device=device):
            z = net(batch[0].to(device))
            return nn.functional.cross_entropy(z, batch[1].to(device), reduction="none"), z

        more = {"score": outputs} if imp.needs_score else {}
        rows = []
        for batch, draw in imp.loader(TensorDataset(x, y), **more):
            losses, z = outputs(batch)
            optimizer.zero_grad()
            loss = imp.loss(losses, z, draw)
            loss.backward()
            optimizer.step()
            rows.append((draw.index, float(loss.detach())))
        runs.append((rows, imp.diagnostics.as_dict()))
    for a, b in zip(runs[0][0], runs[1][0], strict=True):
        assert (a[0] == b[0]).float().mean() > 0.9  # rounding may move a draw over an edge
        assert a[1] == pytest.approx(b[1], rel=5e-2, abs=1e-3)
    assert runs[0][1]["nonfinite"] == runs[1][1]["nonfinite"] == 0


def test_capture_without_eager_steps_before():
    imp, step, seen, _ = resident()
    _, eager, want, _ = resident()
    torch.zeros(8, 8, device="cuda", requires_grad=True).matmul(torch.ones(8, 8, device="cuda")).sum().backward()
    eager()  # loads what a capture must not load
    first = captured(step, warmup=1)
    for _ in range(70):
        first()
        eager()
        assert torch.equal(seen, want)
    assert imp.step == 71


@pytest.mark.parametrize(
    ("bad", "finite"), [(2.0, True), (float("nan"), False), (float("inf"), False), (-float("inf"), False)]
)
def test_what_is_not_finite_is_seen_and_not_averaged(bad, finite):
    arrays = DeviceArrays(torch.device("cuda"))
    old, new = torch.zeros(300, device="cuda"), torch.ones(300, device="cuda")
    new[130] = bad
    arrays.blend(old, new, 0.5, arrays.finite(new))
    assert bool(arrays.finite(new)) is finite
    assert old[:2].tolist() == ([0.5, 0.5] if finite else [0.0, 0.0])


@pytest.mark.filterwarnings("ignore:.*no optimizer is attached")
def test_the_same_draws_as_on_the_cpu():
    on_gpu = emais.EMAIS(M, N, device="cuda", warmup_epochs=0.5)
    on_cpu = emais.EMAIS(M, N, warmup_epochs=0.5)
    g = torch.Generator().manual_seed(0)
    for _ in range(60):
        a, b = on_gpu.draw(), on_cpu.draw()
        assert torch.equal(a.index.cpu(), b.index)
        torch.testing.assert_close(a.r.cpu(), b.r, rtol=1e-5, atol=0)
        grads = torch.rand(N, 3, generator=g)
        for imp, draw in ((on_gpu, a), (on_cpu, b)):
            z = torch.zeros(N, 3, device=imp.device, requires_grad=True)
            imp.observe((z * 1.0).sum(1), z, draw, grads=grads.to(imp.device))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("amp", [None, torch.bfloat16, torch.float16])
def test_training_on_the_gpu_with_statistics_on_the_cpu(workers, amp):
    x, y, model = task("cpu")
    dataset = TensorDataset(x, y)
    runs = []
    for device in ("cpu", "cuda"):
        net = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        imp = emais.EMAIS(M, N, num_steps=40, warmup_epochs=0.5)
        imp.attach(optimizer)
        scaler = torch.amp.GradScaler(device, enabled=amp == torch.float16 and device == "cuda")
        factors = []
        for (inputs, targets), draw in imp.loader(dataset, num_workers=workers, pin_memory=device == "cuda"):
            with torch.autocast(device, amp, enabled=amp is not None and device == "cuda"):
                z = net(inputs.to(device, non_blocking=True))
                targets = targets.to(device, non_blocking=True)
                losses = nn.functional.cross_entropy(z, targets, reduction="none")
            optimizer.zero_grad()
            scaler.scale(imp.loss(losses, z, draw.to(device))).backward()
            scaler.step(optimizer)
            scaler.update()
            factors.append(imp.diagnostics.lr_scale)
        runs.append((factors, imp.diagnostics.as_dict(), imp.scores.mean))
    (cpu, _, _), (gpu, report, _) = runs
    exact = 1e-3 if amp is None else 0.1
    assert gpu[:20] == pytest.approx(cpu[:20], rel=exact)
    assert report["step"] == 40
    assert report["nonfinite"] == 0


def test_a_default_device_changes_nothing():
    """The loader under torch.set_default_device("cuda"), which torch's own generator follows."""
    x, y, model = task("cpu")
    dataset, found = TensorDataset(x, y), []
    for default in (None, "cuda"):
        net = copy.deepcopy(model).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        torch.set_default_device(default)
        try:
            imp = emais.EMAIS(M, N, num_steps=40, warmup_epochs=0.5)
            imp.attach(optimizer)
            for (inputs, targets), draw in imp.loader(dataset):
                z = net(inputs.cuda())
                losses = nn.functional.cross_entropy(z, targets.cuda(), reduction="none")
                optimizer.zero_grad()
                imp.loss(losses, z, draw).backward()
                optimizer.step()
            found.append(imp.scores.mean)
        finally:
            torch.set_default_device(None)
    torch.testing.assert_close(*found)


def test_large_logits_are_summed_up_before_they_travel():
    imp = emais.EMAIS(M, N, warmup_epochs=0)
    other = emais.EMAIS(M, N, warmup_epochs=0)
    a, b = imp.draw(), other.draw()
    g = torch.randn(N, 3000)  # more than 2^16 numbers
    z = torch.zeros(N, 3000, requires_grad=True, device="cuda")
    imp.observe(z.sum(1), z, a, grads=g.cuda())
    z = torch.zeros(N, 3000, requires_grad=True)
    other.observe(z.sum(1), z, b, grads=g)
    assert imp.diagnostics.tr_is == pytest.approx(other.diagnostics.tr_is, rel=1e-4)
    torch.testing.assert_close(imp.scores.mean, other.scores.mean)


def test_state_moves_between_devices():
    imp, step, _, _ = resident()
    for _ in range(70):
        step()
    state = imp.state_dict()
    again = emais.EMAIS(M, N, num_steps=500, device="cuda")
    again.load_state_dict(state)
    on_cpu = emais.EMAIS(M, N, num_steps=500)
    on_cpu.load_state_dict(state)
    want = imp.draw()
    assert torch.equal(want.index, again.draw().index)
    assert torch.equal(want.index.cpu(), on_cpu.draw().index)


@pytest.mark.parametrize("options", [{}, {"powers": (0.5, 0.3)}, {"kappa": 0.1}])
def test_emais_auto_goes_on_exactly_on_the_gpu(options):
    """From a state in the middle of a period: the draws that the engine makes next, indices and r to the bit."""
    imp, step, _, _ = resident("emais-auto", **options)
    for _ in range(80):
        step()
    again = resident("emais-auto", **options)[0]
    again.load_state_dict(imp.state_dict())
    for _ in range(5):
        a, b = imp.draw(), again.draw()
        assert torch.equal(a.index, b.index)
        assert torch.equal(a.r, b.r)


def test_schedulers_drive_a_tensor_rate():
    imp, step, _, optimizer = resident(warmup_epochs=0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    plain = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.05)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(plain, 20)
    for _ in range(20):
        step()
        plain.step()
        scheduler.step()
        reference.step()
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(plain.param_groups[0]["lr"], abs=1e-7)
    assert imp.diagnostics.lr_scale != 1


def test_refresh_on_the_gpu():
    x, y, model = task("cuda")
    imp = emais.EMAIS(M, N, device="cuda", warmup_epochs=0)
    z = model(x)
    imp.refresh(torch.arange(M), nn.functional.cross_entropy(z, y, reduction="none"), z)
    assert (imp.scores.last_step == 1).all()
    assert imp.draw().r.std() > 0


def test_past_two_to_the_24():
    big = 2**24 + 10**6
    s = ExactSampler(big, N, device="cuda")
    assert s.tree.tiers == 2
    index = torch.arange(big - N, big, device="cuda")
    s.update(index, torch.full((N,), 1e18, device="cuda"))
    drawn, r = s.draw(Uniforms(0, 3, N, "cuda")(torch.tensor(1, device="cuda")))
    assert (drawn >= big - N).all()
    torch.testing.assert_close(r, torch.full_like(r, N / big), rtol=1e-4, atol=0)


def small_group(device, seeds="0"):
    """Runs of all methods side by side, with both schedules."""
    text = f"data=digits model=perceptron method={','.join(emais.METHODS)} lr=0.05 num_steps=60 batch_size=32"
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (300, 1, 4, 4), generator=g, dtype=torch.uint8)
    data = Data("made-up", "Made up", ("a", "b"), x, x[:, 0, 0, 0].long() // 128, x[:50], x[:50, 0, 0, 0].long() // 128)

    def model():
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 2))

    return StackedRuns(parse(f"{text} schedule=steps,effective seed={seeds}"), data, model, device)


def curves_of(group):
    group.train(points=3)
    return [result["curves"] for _, result in group.finish()]


def test_runs_side_by_side_are_the_same_as_on_the_cpu():
    group = small_group("cuda")
    for config, a, b in zip(group.configs, curves_of(small_group("cpu")), curves_of(group), strict=True):
        for name in ("loss", "lr", "lr_scale"):
            assert b[name] == pytest.approx(a[name], rel=5e-2, abs=1e-3), (config.method, name)


def test_runs_side_by_side_are_the_same_without_streams():
    """With more runs than streams."""
    pooled, plain = small_group("cuda", "0-2"), small_group("cuda", "0-2")
    plain.streams = StreamPool("cpu")
    assert len(pooled.configs) > 2 * len(pooled.streams._streams)
    for config, a, b in zip(pooled.configs, curves_of(plain), curves_of(pooled), strict=True):
        for name in ("loss", "lr", "lr_scale", "tr_unif"):
            assert b[name] == pytest.approx(a[name], rel=1e-2, abs=1e-3), (config.method, name)
