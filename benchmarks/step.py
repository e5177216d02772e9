"""Step time of EMAIS over plain SGD: the same model and data, taking turns in one process.

    python benchmarks/step.py [--device cpu|cuda] [--out FOLDER]

On the CPU: LeNet5, N = 128, through a DataLoader with 0 and with 2 workers. On a GPU: ResNet18 on 32x32 images in
bf16, eager through a DataLoader, and with data on the GPU and both steps captured as CUDA graphs.

The ratio is the median over fresh processes, with its range: where memory happens to lie makes a process faster or
slower as a whole. On the CPU glibc is told to keep freed memory: else some processes, and within one process some of
the loops, ask the system for the same pages again in every step. "sgd again" is a second plain loop: what it differs
from 1 by, the measurement cannot tell.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from common import hardware, save, side_by_side
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import emais
from emais.experiments.models import LeNet5, ResNet18
from emais.functional import cross_entropy_gradients

N = 128
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def forever(loader: object) -> Iterator[object]:
    while True:
        yield from loader  # type: ignore[misc]


def loss_each(z: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(z, y, reduction="none")


def loader_steps(make: Callable[[], nn.Module], data: TensorDataset, device: str, **options: object) -> dict:
    """Plain SGD, twice, and EMAIS with logit gradients from autograd or in closed form, on one model."""

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        x = x.to(device, non_blocking=True).float().div(255)
        if device == "cpu":
            return model(x)
        with torch.autocast(device, torch.bfloat16):
            return model(x.contiguous(memory_format=torch.channels_last))

    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    # one model for all: two copies of it can differ in speed, by where their memory lies
    model = make()

    def plain_step() -> Callable[[], None]:
        optimizer = sgd(model)
        batches = forever(DataLoader(data, N, shuffle=True, drop_last=True, **options))

        def plain() -> None:
            x, y = next(batches)
            loss = nn.functional.cross_entropy(forward(model, x), y.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return plain

    def weighted_step(closed_form: bool) -> Callable[[], None]:
        optimizer = sgd(model)
        imp = emais.EMAIS(len(data), N, warmup_epochs=0.2)
        imp.attach(optimizer)
        batches = forever(imp.loader(data, **options))

        def weighted() -> None:
            (x, y), draw = next(batches)
            z, y = forward(model, x), y.to(device, non_blocking=True)
            grads = cross_entropy_gradients(z, y) if closed_form else None
            loss = imp.loss(loss_each(z, y), z, draw, grads=grads)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return weighted

    return {
        "sgd": plain_step(),
        "sgd again": plain_step(),  # what the measurement itself is worth
        "emais": weighted_step(False),
        "emais closed form": weighted_step(True),
    }


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph, after some eager steps on a side stream as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def resident_steps(images: Tensor, labels: Tensor) -> dict[str, Callable[[], None]]:
    """Both methods with data, draw, step and statistics on the GPU; SGD draws its epochs from the same engine."""

    def make(method: str) -> Callable[[], None]:
        model = ResNet18().cuda().to(memory_format=torch.channels_last)
        lr = torch.tensor(0.01, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4, fused=True)
        imp = emais.create(method, len(images), batch_size=N, num_steps=2000, device="cuda")
        if method != "sgd-scan":
            imp.attach(optimizer)

        def step() -> None:
            draw = imp.draw()
            x, y = images.index_select(0, draw.index), labels.index_select(0, draw.index)
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                z = model(x.float().div_(255).contiguous(memory_format=torch.channels_last))
            plain = method == "sgd-scan"
            loss = nn.functional.cross_entropy(z, y) if plain else imp.loss(loss_each(z, y), z, draw)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    return {"sgd": make("sgd-scan"), "emais": make("emais")}


def cases(device: str) -> Iterator[tuple[str, Callable[[], dict[str, Callable[[], object]]], int]]:
    """(name, how to make the entries, workers), one after the other so that only one lives at a time."""
    if device == "cpu":
        images = torch.randint(0, 256, (60_000, 1, 28, 28), dtype=torch.uint8)
        data = TensorDataset(images, torch.randint(10, (60_000,)))
        for workers in (0, 2):
            yield (
                f"LeNet5 cpu, {workers} workers",
                lambda w=workers: loader_steps(LeNet5, data, "cpu", num_workers=w),
                workers,
            )
        return
    images = torch.randint(0, 256, (50_000, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(10, (50_000,))

    def make() -> nn.Module:
        return ResNet18().cuda().to(memory_format=torch.channels_last)

    for workers in (0, 4):
        options = {"num_workers": workers, "pin_memory": True}
        data = TensorDataset(images, labels)
        yield (
            f"ResNet18 gpu eager, {workers} workers",
            lambda o=options, d=data: loader_steps(make, d, "cuda", **o),
            workers,
        )
    steps = resident_steps(images.cuda(), labels.cuda())
    yield "ResNet18 gpu resident eager", lambda: steps, 0
    yield "ResNet18 gpu resident graph", lambda: {name: captured(step) for name, step in steps.items()}, 1


def measure(device: str, blocks: int) -> list[dict[str, object]]:
    """All cases in this process."""
    torch.manual_seed(0)
    rows: list[dict[str, object]] = []
    for name, make, workers in cases(device):
        # workers refill their queues during the next entry's block: long blocks, so that this weighs little
        per_block, count = (40, max(2, blocks // 5)) if workers else (5, blocks)
        for method, (ms, ratio) in side_by_side(make(), per_block, count).items():
            rows.append({"case": name, "method": method, "ms": round(ms, 4), "ratio": round(ratio, 4)})
            print(f"{name:<34} {method:<18} {ms:9.3f} ms  ratio {ratio:.3f}", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--blocks", type=int, default=41)
    parser.add_argument("--processes", type=int, default=5, help="fresh processes to take the median ratio over")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(measure(args.device, args.blocks)))
        return
    command = [sys.executable, __file__, "--once", "--device", args.device, "--blocks", str(args.blocks)]
    environment = os.environ | KEEP_MEMORY
    repeats = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)
        for _ in range(args.processes)
    ]
    rows = []
    for same in zip(*repeats, strict=True):
        ratios = sorted(row["ratio"] for row in same)
        row = same[0] | {"ms": statistics.median(r["ms"] for r in same), "ratio": statistics.median(ratios)}
        rows.append(row | {"ratio_low": ratios[0], "ratio_high": ratios[-1], "hardware": hardware()})
        print(f"{row['case']:<34} {row['method']:<18} ratio {row['ratio']:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
    print("saved", save(f"step_{args.device}.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
