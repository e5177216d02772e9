"""What one of many processes spends on a step: CPU time, memory and bytes, with the other processes simulated.

    python -m benchmarks.distributed.one_rank [--out FOLDER]

The engine is the real one. Its connection answers at once, with rows that other processes could have sent, so that the
time is that of this process alone: draw, observe, unpack what has arrived, learn, factor. What the network adds is not
in it; `exchange.py` measures that on one machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import emais
from benchmarks.common import hardware, save, seldom
from emais.distributed import Connection, Flight
from emais.terms import Terms

N, D = 32, 10  # samples of a process, numbers of a gradient
BLOCKS, STEPS = 9, 60
# method, M, K, and whether the samples are sharded
CASES = [("emais", 10**6, k, False) for k in (2, 8, 64, 512)] + [
    ("emais", 10**7, 64, False),
    ("emais-auto", 10**7, 64, False),
    ("emais", 10**6, 64, True),
    ("emais", 10**9, 64, True),
    ("emais-auto", 10**9, 64, True),
    ("emais", 10**9, 1024, True),
    ("emais", 10**10, 1024, True),
]


class Simulated(Connection):
    """Other processes that always answer, with other samples of the same size."""

    def __init__(self, size: int, shift: int) -> None:
        self.size, self.rank, self.timeout, self._broken = size, 0, 1.0, None
        self._shift, self._per_sample = shift, shift > 0

    def ask_all(self, value: Any, otherwise: str) -> list[Any]:
        return [value] * self.size

    def start(self, terms: Terms, own: torch.Tensor) -> Flight:
        self.bytes = len(own)
        rows = own.expand(self.size, -1).clone()
        if self._per_sample:  # every process has observed samples of its own
            index = rows.numpy()[:, 64 : 64 + 8 * N].copy().view("int64")
            index += np.arange(self.size)[:, None] * self._shift
            index %= self._samples
            rows.numpy()[:, 64 : 64 + 8 * N] = index.view("uint8")
        return Flight(terms, own, rows)

    _samples = 1


@contextmanager
def simulated(connection: Simulated) -> Any:
    """Engines that are made inside have this connection."""
    with patch("emais.processes.Connection", lambda group, timeout: connection):  # noqa: SIM117
        with patch("emais.processes.group_size", lambda group: connection.size):
            yield


def measure(method: str, samples: int, processes: int, sharded: bool) -> dict[str, object]:
    """The time of a step, with its share of what comes once in many steps (EMAIS-auto's decisions)."""
    own = samples // processes if sharded else samples
    connection = Simulated(processes, 0 if sharded else 7919)
    connection._samples = own
    with simulated(connection):
        imp = emais.create(method, own, N, process_group=object(), sharded=sharded, warmup_epochs=0)
    decisions = seldom(imp)
    weights = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    imp.attach(optimizer)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(STEPS, N, D, generator=generator)
    times = []
    for block in range(BLOCKS + 1):
        start = time.process_time()
        for k in range(STEPS):
            draw = imp.draw()
            z = logits[k]
            imp.loss(z[:, 0], z, draw, grads=z)
            optimizer.step()
        if block:
            times.append(1e3 * (time.process_time() - start) / STEPS)
    form = "sharded" if sharded else "replicated"
    sizes = {"method": method, "M": samples, "processes": processes, "form": form, "samples_here": own, "N": N, "D": D}
    extra = decisions()
    times = [ms + extra for ms in times]
    spread = {"ms": statistics.median(times), "ms_low": min(times), "ms_high": max(times)}
    measured = {name: round(ms, 3) for name, ms in spread.items()}
    return sizes | measured | {"bytes_sent": connection.bytes, "MB": round(imp.nbytes() / 1e6, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        rows.append(measure(*case))
        print(rows[-1], flush=True)
    save("one_rank.jsonl", [row | {"hardware": hardware()} for row in rows], args.out)


if __name__ == "__main__":
    main()
