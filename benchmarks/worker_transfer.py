"""What receiving a minibatch from a worker costs the training process: tensors by value, and as shared memory.

    python benchmarks/worker_transfer.py [--out FOLDER]

A worker process puts minibatches of N = 128 images and labels on a queue, as a DataLoader's does; the time is that of
taking one off: elapsed, and of this thread's CPU, which it mostly spends holding Python's lock. Medians; the two ways
take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from common import hardware, save
from torch import Tensor

from emais.loading.by_value import PipedTensor

N = 128
SHAPES = ((1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 96, 96))
WAYS = ("shared", "labels by value", "by value")


def packed(x: Tensor, y: Tensor, way: str) -> list[Any]:
    return [PipedTensor(x) if way == "by value" else x, y if way == "shared" else PipedTensor(y)]


def work(asked: Any, answers: Any) -> None:
    while (job := asked.get()) is not None:
        shape, way = job
        answers.put(packed(torch.zeros(N, *shape, dtype=torch.uint8), torch.zeros(N, dtype=torch.int64), way))


def receive(answers: Any) -> tuple[float, float]:
    """Milliseconds to take one minibatch off the queue: elapsed, and of the CPU."""
    elapsed, cpu = time.perf_counter(), time.thread_time()
    batch = answers.get()
    times = 1e3 * (time.perf_counter() - elapsed), 1e3 * (time.thread_time() - cpu)
    del batch
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--repeats", type=int, default=200)
    args = parser.parse_args()
    asked, answers = mp.Queue(), mp.Queue()
    worker = mp.Process(target=work, args=(asked, answers), daemon=True)
    worker.start()
    rows: list[dict[str, object]] = []
    for shape in SHAPES:
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(args.repeats):
            for way, own in times.items():
                asked.put((shape, way))
                time.sleep(0.004)  # it has been made, and waits in the pipe
                own.append(receive(answers))
        for way, own in times.items():
            elapsed, cpu = (round(statistics.median(t), 4) for t in zip(*own[10:], strict=True))
            size = N * shape[0] * shape[1] * shape[2]
            row = {"case": f"{size} bytes and labels", "method": way, "ms": elapsed, "cpu_ms": cpu}
            rows.append(row | {"hardware": hardware()})
            print(f"{size:>9} bytes and labels  {way:<16} {elapsed:7.3f} ms, CPU {cpu:7.3f} ms", flush=True)
    asked.put(None)
    worker.join()
    print("saved", save("worker_transfer.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
