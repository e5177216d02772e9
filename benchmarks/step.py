"""Step time of the methods over plain SGD: the same model and data, taking turns in one process.

    python benchmarks/step.py [--device cpu|cuda] [--only CASE] [--methods emais,...] [--out FOLDER]

On the CPU: LeNet5, N = 128, RAIS, EMAIS and EMAIS-auto, through a DataLoader with 0 and with 2 workers. On a GPU:
ResNet18 on 32x32 images in bf16, eager through a DataLoader with 0 and with 4 workers, and all methods with data on
the GPU and captured as CUDA graphs. Through the DataLoader twice: a TensorDataset, of which our loader takes whole
minibatches where torch's takes samples, and, "by sample", a data set that both take samples from.

Every engine is past its warm-up. What RAIS (refits) and EMAIS-auto (decisions) do only now and then is timed apart and
added to a step, divided by the steps between two. With graphs EMAIS-auto's decisions are in the blocks: the host
launches them while the GPU is busy, which no time of one decision alone would show.

The ratio is the median over fresh processes, with its range: where memory happens to lie makes a process faster or
slower as a whole. On the CPU glibc is told to keep freed memory: else some processes, and within one process some of
the loops, ask the system for the same pages again in every step. "sgd again" is a second plain loop: what it differs
from 1 by, the measurement cannot tell.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import Step, hardware, save, seldom, side_by_side
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import emais
from emais.experiments.train.models import LeNet5, ResNet18
from emais.functional import cross_entropy_gradients

N = 128
GRAPH_BLOCK = 50  # steps, with one decision of EMAIS-auto
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def forever(loader: object) -> Iterator[object]:
    while True:
        yield from loader  # type: ignore[misc]


def loss_each(z: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(z, y, reduction="none")


def past_warm_up(imp: emais.Engine) -> emais.Engine:
    """Feed an engine made-up gradients until it draws from what it has learned."""
    labels = torch.randint(10, (N,), device=imp.device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*no optimizer is attached")  # it comes later
        for _ in range((imp.epoch_steps or 0) + 1):
            draw = imp.draw()
            z = (3 * torch.randn(N, 10, device=imp.device)).requires_grad_()
            if not imp.needs_score:
                imp.observe(loss_each(z, labels), z, draw)
    return imp


Makers = dict[str, Callable[[], Step]]


def loader_steps(make: Callable[[], nn.Module], data: TensorDataset, device: str, **options: object) -> Makers:
    """Plain SGD, twice, and methods with logit gradients from autograd (EMAIS in closed form, too)."""

    def forward(x: Tensor) -> Tensor:
        x = x.to(device, non_blocking=True).float().div(255)
        if device == "cpu":
            return model(x)
        with torch.autocast(device, torch.bfloat16):
            return model(x.contiguous(memory_format=torch.channels_last))

    def score(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        z = forward(batch[0])
        return loss_each(z, batch[1].to(device, non_blocking=True)), z

    # one model for all: two copies of it can differ in speed, by where their memory lies
    model = make()

    def sgd() -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def plain_step() -> Step:
        optimizer = sgd()
        batches = forever(DataLoader(data, N, shuffle=True, drop_last=True, **options))

        def plain() -> None:
            x, y = next(batches)
            loss = nn.functional.cross_entropy(forward(x), y.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return Step(plain)

    def method_step(name: str, closed_form: bool = False) -> Step:
        optimizer = sgd()
        imp = past_warm_up(emais.create(name, len(data), batch_size=N))
        imp.attach(optimizer)
        more = {"score": score} if imp.needs_score else {}
        batches = forever(imp.loader(data, **options, **more))

        def weighted() -> None:
            (x, y), draw = next(batches)
            z, y = forward(x), y.to(device, non_blocking=True)
            grads = cross_entropy_gradients(z, y) if closed_form else None
            loss = imp.loss(loss_each(z, y), z, draw, grads=grads)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return Step(weighted, seldom(imp))

    return {
        "sgd": plain_step,
        "sgd again": plain_step,  # what the measurement itself is worth
        **{name: partial(method_step, name) for name in ("rais", "emais", "emais-auto")},
        "emais closed form": partial(method_step, "emais", closed_form=True),
    }


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The step as a CUDA graph, after some eager steps on a side stream as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    gc.collect()  # a graph that is freed while this one is captured would spoil it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(_alive: object = step) -> None:  # the graph reads the memory of what the step refers to
        graph.replay()

    return replay


def resident_steps(images: Tensor, labels: Tensor) -> Makers:
    """All methods with data, draw, step and statistics on the GPU; SGD draws its epochs from the same engine."""

    def make(method: str) -> Step:
        model = ResNet18().cuda().to(memory_format=torch.channels_last)
        lr = torch.tensor(0.01, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4, fused=True)
        imp = past_warm_up(emais.create(method, len(images), batch_size=N, num_steps=4000, device="cuda"))
        plain = method == "sgd-scan"
        if not plain:
            imp.attach(optimizer)

        def outputs(index: Tensor) -> tuple[Tensor, Tensor]:
            x, y = images.index_select(0, index), labels.index_select(0, index)
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                return model(x.float().div_(255).contiguous(memory_format=torch.channels_last)), y

        def score(index: Tensor) -> tuple[Tensor, Tensor]:
            z, y = outputs(index)
            return loss_each(z, y), z

        def step() -> None:
            draw = imp.draw(score) if imp.needs_score else imp.draw()
            z, y = outputs(draw.index)
            loss = nn.functional.cross_entropy(z, y) if plain else imp.loss(loss_each(z, y), z, draw)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        replay = captured(step)

        def again() -> None:
            imp.maintain()
            replay()

        return Step(again, seldom(imp, GRAPH_BLOCK))

    return {"sgd" if name == "sgd-scan" else name: partial(make, name) for name in emais.METHODS}


class BySample(TensorDataset):
    """A data set of one's own, which gives one sample after the other: plain SGD and ours fetch it alike."""


def cases(device: str) -> Iterator[tuple[str, Callable[[], Makers], int]]:
    """(name, how to make the entries, workers), one after the other so that only one lives at a time."""
    shape, model, some = ((60_000, 1, 28, 28), "LeNet5", 2) if device == "cpu" else ((50_000, 3, 32, 32), "ResNet18", 4)
    images, labels = torch.randint(0, 256, shape, dtype=torch.uint8), torch.randint(10, shape[:1])

    def make() -> nn.Module:
        return LeNet5() if device == "cpu" else ResNet18().cuda().to(memory_format=torch.channels_last)

    for workers, kind in itertools.product((0, some), (TensorDataset, BySample)):
        name = f"{model} {'cpu' if device == 'cpu' else 'gpu eager'}, {workers} workers"
        options = {"num_workers": workers, "pin_memory": device != "cpu"}
        steps = partial(loader_steps, make, kind(images, labels), device, **options)
        yield name + (", by sample" if kind is BySample else ""), steps, workers
    if device == "cuda":
        yield "ResNet18 gpu resident graph", lambda: resident_steps(images.cuda(), labels.cuda()), 1


def measure(device: str, blocks: int, only: str, methods: str) -> list[dict[str, object]]:
    """All cases in this process, or only those whose names contain this; all methods, or only these."""
    torch.manual_seed(0)
    rows: list[dict[str, object]] = []
    wanted = {"sgd", "sgd again", *methods.split(",")}
    for name, makers, workers in cases(device):
        if only not in name:
            continue
        # workers refill their queues during the next entry's block: long blocks, so that this weighs little
        per_block, count = (20, max(2, 2 * blocks // 5)) if workers else (5, blocks)
        if "graph" in name:
            per_block, count = GRAPH_BLOCK, max(2, blocks // 4)
        steps = {method: make() for method, make in makers().items() if method in wanted or not methods}
        for method, (ms, ratio) in side_by_side(steps, per_block, count).items():
            rows.append({"case": name, "method": method, "ms": round(ms, 4), "ratio": round(ratio, 4)})
            print(f"{name:<34} {method:<18} {ms:9.3f} ms  ratio {ratio:.3f}", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--blocks", type=int, default=41)
    parser.add_argument("--processes", type=int, default=5, help="fresh processes to take the median ratio over")
    parser.add_argument("--only", default="", help="cases whose names contain this, such as: graph")
    parser.add_argument("--methods", default="", help="with commas between; plain SGD is always measured")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(measure(args.device, args.blocks, args.only, args.methods)))
        return
    command = [sys.executable, __file__, "--once", "--device", args.device, "--blocks", str(args.blocks)]
    command += ["--only", args.only, "--methods", args.methods]
    repeats: list[list[dict[str, Any]]] = []
    for _ in range(args.processes):
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | KEEP_MEMORY)
        repeats.append(json.loads(done.stdout))
        # after each process: one that is cut off loses nothing but itself
        path = save(f"step_{args.device}.jsonl", medians(repeats), args.out)
    for row in medians(repeats):
        print("{case:<34} {method:<18} ratio {ratio:.3f} ({ratio_low:.3f} to {ratio_high:.3f})".format(**row))
    print("saved", path)


def medians(repeats: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The same rows from several processes as one: median time, median ratio and its range."""
    rows = []
    for same in zip(*repeats, strict=True):
        ratios = sorted(row["ratio"] for row in same)
        found = {"ms": statistics.median(row["ms"] for row in same), "ratio": statistics.median(ratios)}
        found |= {"ratio_low": ratios[0], "ratio_high": ratios[-1], "processes": len(same), "hardware": hardware()}
        rows.append(same[0] | found)
    return rows


if __name__ == "__main__":
    main()
