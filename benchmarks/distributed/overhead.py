"""What importance sampling adds to a step of DistributedDataParallel on two CPU processes.

    python -m benchmarks.distributed.overhead [--rounds 12] [--out FOLDER]

Both processes train the same network without us, with EMAIS and EMAIS-auto in both forms, and without us again, in
blocks that take turns. A step is timed on each process in CPU time, which counts all threads, and in wall
time. Within a round, the ratio and the added time compare with the mean of both plain loops; each is the median over
rounds, of rank 0. "waited" is the part of the wall time of a step in which the engine waited for the other process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import emais
from benchmarks.common import hardware, save
from emais.distributed import Connection

N, SAMPLES, STEPS = 64, 6400, 12  # of one process, of all, of a block
OURS = tuple((method, form) for method in ("emais", "emais-auto") for form in ("replicated", "sharded"))
NAMES = ("ddp", *map(", ".join, OURS), "ddp again")
WIDTHS = (1600, 2400)  # of a layer


def network(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def endless(loader: Any) -> Any:
    while True:
        yield from loader


def plain_step(width: int, data: TensorDataset) -> Callable[[], None]:
    net = DistributedDataParallel(network(width))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    batches = endless(DataLoader(data, N, sampler=DistributedSampler(data)))

    def step() -> None:
        x, y = next(batches)
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def our_step(width: int, data: TensorDataset, method: str, form: str) -> Callable[[], None]:
    sharded = form == "sharded"
    if sharded:
        data = TensorDataset(*(x.chunk(2)[dist.get_rank()] for x in data.tensors))
    net = DistributedDataParallel(network(width))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    settings = {"process_group": dist.group.WORLD, "sharded": sharded, "warmup_epochs": 0.2}
    imp = emais.create(method, len(data), N, **settings)
    imp.attach(optimizer)
    batches = endless(imp.loader(data))

    def step() -> None:
        (x, y), draw = next(batches)
        logits = net(x)
        losses = nn.functional.cross_entropy(logits, y, reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()

    return step


class Waiting:
    """Seconds that the engine has waited for an exchange: `Connection.wait` with a clock around it."""

    def __init__(self) -> None:
        self.seconds, wait = 0.0, Connection.wait

        def timed(connection: Connection, flight: Any) -> Any:
            start = time.perf_counter()
            try:
                return wait(connection, flight)
            finally:
                self.seconds += time.perf_counter() - start

        Connection.wait = timed  # type: ignore[method-assign]


def measure(rank: int, width: int, rounds: int, port: int, found: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    generator, waiting = torch.Generator().manual_seed(0), Waiting()
    data = TensorDataset(
        torch.randn(SAMPLES, 784, generator=generator), torch.randint(10, (SAMPLES,), generator=generator)
    )
    ours = [our_step(width, data, *case) for case in OURS]
    made = [plain_step(width, data), *ours, plain_step(width, data)]
    steps, rows = dict(zip(NAMES, made, strict=True)), []
    for step in made:
        for _ in range(40):  # beyond the warm-up
            step()
    for k in range(rounds):
        for name in NAMES[k % len(NAMES) :] + NAMES[: k % len(NAMES)]:
            dist.barrier()
            cpu, wall, waiting.seconds = time.process_time(), time.perf_counter(), 0.0
            for _ in range(STEPS):
                steps[name]()
            spent = time.process_time() - cpu, time.perf_counter() - wall, waiting.seconds
            rows.append({"name": name, "round": k, **dict(zip(("cpu", "wall", "waited"), spent, strict=True))})
    if rank == 0:
        found.put(rows)
    dist.destroy_process_group()


def summary(rows: list[dict[str, Any]], name: str, rounds: int) -> dict[str, object]:
    def times(which: str, what: str) -> list[float]:
        return [row[what] for row in rows if row["name"] == which]

    plain = [(a + b) / 2 for a, b in zip(times("ddp", "cpu"), times("ddp again", "cpu"), strict=True)]
    pairs = list(zip(times(name, "cpu"), plain, strict=True))
    ratios = sorted(own / base for own, base in pairs)
    waited = [w / t for w, t in zip(times(name, "waited"), times(name, "wall"), strict=True)]
    return {
        "case": name,
        "rounds": rounds,
        "cpu_ms": round(1e3 * statistics.median(times(name, "cpu")) / STEPS, 3),
        "wall_ms": round(1e3 * statistics.median(times(name, "wall")) / STEPS, 3),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_low": round(ratios[0], 4),
        "ratio_high": round(ratios[-1], 4),
        "added_ms": round(1e3 * statistics.median(own - base for own, base in pairs) / STEPS, 3),
        "waited": round(statistics.median(waited), 5),
        "load": os.getloadavg()[0],
        "hardware": hardware(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    # malloc keeps what it has: else gradients are faulted in again in some loops and not in others, for milliseconds
    os.environ.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="100000000000")
    torch.set_num_threads(1)
    table = []
    for width in WIDTHS:
        found = mp.get_context("spawn").SimpleQueue()
        settings = (width, args.rounds, 29500 + (os.getpid() + width) % 1000, found)
        started = mp.spawn(measure, settings, nprocs=2, join=False)
        rows = found.get()
        started.join()
        for name in NAMES:
            table.append({"width": width, **summary(rows, name, args.rounds)})
            print({k: v for k, v in table[-1].items() if k != "hardware"}, flush=True)
    save("distributed_overhead.jsonl", table, args.out)


if __name__ == "__main__":
    main()
