"""emais.WeightedSampler beside torch.utils.data.WeightedRandomSampler: time, memory, distribution.

    python benchmarks/weighted_sampler.py [--out FOLDER] [--largest 1e8]

time: set 128 weights, then draw 128 samples by the new weights. torch's sampler has to be asked for 128 samples at a
time, because it draws all it is asked for at once. "torch, epoch at once" is its usual use, M draws by the same
weights, divided by the number of minibatches; weights cannot change during that epoch. All take turns in one process,
on one thread, in process time. ms: lower quartile over blocks; ratio: median over rounds of the ratio to emais.
memory: highest resident memory of a process that makes the sampler and draws, less what it had with the weights alone.
distribution: chi-square of a million draws over up to 1000 groups of samples with about equal probability; and the
share of draws of samples whose weights were set to 0 in the middle of an epoch.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
import torch
from common import hardware, save
from scipy import stats
from torch.utils.data import WeightedRandomSampler

from emais import WeightedSampler

SIZES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
N, DRAWS, GROUPS = 128, 1_024_000, 1000
OURS, THEIRS, EPOCH = "emais", "torch, 128 at a time", "torch, epoch at once"
Row = dict[str, object]


def weights_of(M: int) -> torch.Tensor:
    """Spread over many decades, as losses are."""
    return torch.empty(M, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(0)).pow_(3)


def ours(weights: torch.Tensor) -> Callable[[], object]:
    sampler = WeightedSampler(weights, N)
    batches = chain.from_iterable(repeat(sampler))
    changed, new = changes(len(weights))

    def step() -> None:
        sampler.update(changed, new)
        next(batches)

    return step


def theirs(weights: torch.Tensor) -> Callable[[], object]:
    sampler = WeightedRandomSampler(weights.clone(), N)
    changed, new = changes(len(weights))

    def step() -> None:
        sampler.weights[changed] = new
        list(sampler)

    return step


def changes(M: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(M, (N,), generator=generator), torch.rand(N, generator=generator, dtype=torch.float64)


def clocked(step: Callable[[], object], count: int = 1) -> float:
    """Milliseconds of process time."""
    start = time.process_time()
    for _ in range(count):
        step()
    return 1e3 * (time.process_time() - start) / count


def times(M: int, rounds: int = 15) -> list[Row]:
    weights = weights_of(M)
    steps = {OURS: ours(weights), THEIRS: theirs(weights)}
    found: dict[str, list[float]] = {name: [] for name in steps}
    counts: dict[str, int] = {}
    rows: list[Row] = []
    for name, step in list(steps.items()):
        try:
            step()
            counts[name] = max(1, min(500, int(40 / max(clocked(step, 3), 1e-3))))  # blocks of about 40 ms
        except RuntimeError as error:
            rows.append({"what": "refused", "M": M, "way": name, "error": str(error).splitlines()[0]})
            del steps[name], found[name]
    for k in range(rounds):
        for name in list(steps)[:: 1 if k % 2 else -1]:
            found[name].append(clocked(steps[name], counts[name]))
    if THEIRS in found and M <= 1_000_000:
        sampler = WeightedRandomSampler(weights, M)
        found[EPOCH] = [clocked(lambda: list(sampler)) * N / M for _ in range(rounds)]
    for name, ms in found.items():
        ratio = statistics.median(own / base for own, base in zip(ms, found[OURS], strict=True))
        low = statistics.quantiles(ms, n=4)[0]
        rows.append({"what": "time", "M": M, "way": name, "ms": round(low, 4), "ratio": round(ratio, 3)})
    return rows


def memory(M: int, way: str) -> None:
    """Print the bytes per sample that making the sampler and drawing once adds at most. Runs in its own process."""
    weights = weights_of(M)
    before = kilobytes("VmRSS")
    sampler: object = WeightedSampler(weights, N) if way == OURS else WeightedRandomSampler(weights, N)
    next(iter(sampler))  # type: ignore[call-overload]
    print(1024 * (kilobytes("VmHWM") - before) / M)


def kilobytes(key: str) -> int:
    """Of this process: VmRSS is what it has now, VmHWM the most that it ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


def memories(M: int) -> list[Row]:
    rows: list[Row] = []
    for way in (OURS, THEIRS) if M <= 2**24 else (OURS,):
        asked = subprocess.run([sys.executable, __file__, "--memory", str(M), way], capture_output=True, check=True)
        rows.append({"what": "memory", "M": M, "way": way, "bytes_per_sample": round(float(asked.stdout), 1)})
    return rows


def distribution(M: int) -> list[Row]:
    weights = weights_of(M)
    place = np.minimum((weights.cumsum(0) / weights.sum() * GROUPS).long().numpy(), GROUPS - 1)
    expected = np.bincount(place, weights=weights.numpy()) / float(weights.sum()) * DRAWS
    batches = chain.from_iterable(repeat(WeightedSampler(weights, N)))
    generator = torch.Generator().manual_seed(0)
    drawn = {
        OURS: np.concatenate(list(islice(batches, DRAWS // N))),
        THEIRS: np.array(list(WeightedRandomSampler(weights, DRAWS, generator=generator))),
    }
    rows: list[Row] = []
    for way, index in drawn.items():
        cells = expected > 0  # a sample of high probability may fill several groups
        found = stats.chisquare(np.bincount(place[index], minlength=GROUPS)[cells], expected[cells])
        row: Row = {"what": "distribution", "M": M, "way": way, "draws": DRAWS, "degrees": int(cells.sum()) - 1}
        rows.append(row | {"chi_square": round(float(found.statistic), 1), "p_value": round(float(found.pvalue), 4)})
    return rows


def stale(M: int = 10_000) -> list[Row]:
    """In the middle of an epoch half of the weights become 0: the share of them among the draws that follow."""
    half, sampler = torch.arange(0, M, 2), WeightedSampler(torch.ones(M), N)
    other = WeightedRandomSampler(torch.ones(M), M, generator=torch.Generator().manual_seed(0))
    after: dict[str, list[int]] = {OURS: [], EPOCH: []}
    for k, batch in enumerate(sampler):
        if k >= len(sampler) // 2:
            sampler.update(half, 0.0)
            after[OURS] += batch if k > len(sampler) // 2 else []
    for k, index in enumerate(other):
        if k == M // 2:
            other.weights[half] = 0
        after[EPOCH] += [index] if k > M // 2 else []
    return [
        {"what": "stale", "M": M, "way": way, "share": round(1 - float(np.mean(np.array(index) % 2)), 4)}
        for way, index in after.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--memory", nargs=2, metavar=("M", "WAY"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory:
        return memory(int(args.memory[0]), args.memory[1])
    rows = stale()
    print(*rows, sep="\n")
    for M in (size for size in SIZES if size <= args.largest):
        new = times(M)
        new += memories(M) if M >= 1_000_000 else []
        new += distribution(M) if M <= 1_000_000 else []
        print(*new, sep="\n", flush=True)
        rows += new
    print("saved", save("weighted_sampler.jsonl", [row | {"hardware": hardware()} for row in rows], args.out))


if __name__ == "__main__":
    main()
