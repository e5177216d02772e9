"""How long the exchange of a step takes on one machine: gloo's all_gather between 2, 4 and 8 processes.

    python -m benchmarks.distributed.exchange [--out FOLDER]

All processes share this machine's cores, so with more processes than cores the figures hold the time that a process
waits for a core. An all_gather of gloo is a ring of K - 1 rounds: docs/distributed.md multiplies from here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.common import hardware, save
from emais.distributed import Connection
from emais.terms import Terms

SIZES = (104, 616, 4160, 262_208)  # bytes: sharded D = 10; replicated N = 32; D = 1000 and D = 65,536
BLOCKS, ROUNDS = 9, 50


def measure(rank: int, size: int, port: int, found: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    connection, times = Connection(dist.group.WORLD, 60.0), {}
    for length in SIZES:
        own, spent = torch.zeros(length, dtype=torch.uint8), []
        for block in range(BLOCKS + 1):
            dist.barrier()
            start = time.perf_counter()
            for step in range(ROUNDS):
                connection.wait(connection.start(Terms(step), own))
            if block:
                spent.append(1e3 * (time.perf_counter() - start) / ROUNDS)
        times[length] = statistics.median(spent)
    if rank == 0:
        found.put(times)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for size in (2, 4, 8):
        found = mp.get_context("spawn").SimpleQueue()
        started = mp.spawn(measure, (size, 29500 + (os.getpid() + size) % 1000, found), nprocs=size, join=False)
        times = found.get()
        started.join()
        for length, ms in times.items():
            rows.append({"processes": size, "bytes": length, "ms": round(ms, 3), "hardware": hardware()})
            print({k: v for k, v in rows[-1].items() if k != "hardware"}, flush=True)
    save("exchange.jsonl", rows, args.out)


if __name__ == "__main__":
    main()
