"""Memory and time of a language model's loss: plain cross-entropy, importance sampling by gradients and by norms.

    python benchmarks/tokens.py [--out FOLDER]

The model is an embedding and a linear layer to V = 50,257 logits, so that the logits are nearly all there is. One step
is forward, loss, backward and the optimizer's step. Peak memory: the largest resident size (VmHWM) that three steps
reach in a process of their own, less its size before them; also in multiples of the logits. Time: this process's CPU
time for a step, one thread, in rounds in which the three take turns; medians, and the median of the ratios in a round.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import hardware, save
from torch import Tensor, nn

import emais
from emais import functional as F

V, WIDTH = 50_257, 32
WAYS = ("plain", "gradients", "norms")
SIZES = ((8, 128), (32, 64))  # N, T


def losses_of(z: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(z.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels).mean(1)


def training_step(way: str, n: int, length: int) -> Callable[[], None]:
    torch.manual_seed(0)
    data = torch.randint(0, V, (4 * n, length + 1))
    model = nn.Sequential(nn.Embedding(V, WIDTH), nn.Linear(WIDTH, V))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(len(data), batch_size=n, warmup_epochs=0)
    if way != "plain":
        imp.attach(optimizer)

    def loss() -> Tensor:
        draw = imp.draw()
        batch = data[draw.index]
        z, labels = model(batch[:, :-1]), batch[:, 1:]
        if way == "plain":
            return nn.functional.cross_entropy(z.flatten(0, 1), labels.flatten())
        if way == "gradients":
            return imp.loss(losses_of(z, labels), z, draw)
        losses, norms, mean_norm = F.token_cross_entropy(z, labels, draw.r)
        return imp.loss(losses, z, draw, norms=norms, mean_norm=mean_norm)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def resident(name: str) -> float:
    """MiB of this process: VmRSS, now, or VmHWM, at most so far. (ru_maxrss would begin with that of the parent.)"""
    return int(re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M)[1]) / 2**10


def peak(way: str, n: int, length: int) -> float:
    """MiB that three steps take at most, of this process."""
    step, before = training_step(way, n, length), resident("VmRSS")
    for _ in range(3):
        step()
    return resident("VmHWM") - before


def peak_elsewhere(way: str, n: int, length: int) -> float:
    done = subprocess.run(
        [sys.executable, __file__, "--peak", way, str(n), str(length)], check=True, capture_output=True
    )
    return float(json.loads(done.stdout))


def times(n: int, length: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each step, by turns."""
    steps = {way: training_step(way, n, length) for way in WAYS}
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for k in range(rounds + 1):
        for way in (*WAYS[k % 3 :], *WAYS[: k % 3]):
            start = time.process_time()
            steps[way]()
            if k:  # the first round warms up
                found[way].append(1e3 * (time.process_time() - start))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peak", nargs=3, metavar=("WAY", "N", "T"), help="one number, as json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        print(json.dumps(peak(args.peak[0], *map(int, args.peak[1:]))))
        return
    rows: list[dict[str, object]] = []
    for n, length in SIZES:
        logits = n * length * V * 4 / 2**20
        peaks = {way: peak_elsewhere(way, n, length) for way in WAYS}
        took = times(n, length, args.rounds)
        for way in WAYS:
            ratio = statistics.median(a / b for a, b in zip(took[way], took["plain"], strict=True))
            row = {"case": f"N={n}, T={length}, V={V}", "method": way, "peak_mib": round(peaks[way], 1)}
            row |= {"logits": round(peaks[way] / logits, 3), "of_plain": round(peaks[way] / peaks["plain"], 3)}
            row |= {"ms": round(statistics.median(took[way]), 1), "time_of_plain": round(ratio, 3)}
            print(row)
            rows.append(row | {"hardware": hardware()})
    print(save("tokens.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
