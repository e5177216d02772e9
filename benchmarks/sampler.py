"""Cost of one update and one draw of N samples, by data set size, on one core; and against the usual ways to draw.

    python benchmarks/sampler.py [--out FOLDER] [--largest 1e8]

Every way does the same job: N weights have changed, draw N samples from the new distribution. "emais" is
EMAScores.update + ExactSampler.update + draw, with the flattening bound checked. The others get the new weights for
free and skip the bound. Each is timed after the others have been freed; times are medians over single steps.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from common import hardware, save
from torch.utils.data import WeightedRandomSampler

from emais import EMAScores
from emais.draws.sampler import ExactSampler
from emais.draws.uniforms import Uniforms

SIZES = (10_000, 60_000, 1_000_000, 10_000_000, 100_000_000)
MULTINOMIAL_LIMIT = 2**24


def emais_step(M: int, N: int) -> tuple[Callable[[], object], float]:
    scores, sampler, uniforms = EMAScores(M), ExactSampler(M, N), Uniforms(0, 3, N)
    # a realistic state: all samples seen once, gradient norms spread over three decades
    scores.last_step.fill_(1)
    scores.mean.copy_(torch.empty(M).exponential_(generator=torch.Generator().manual_seed(0)) ** 3)
    sampler.fill(scores.weights())
    norms, t = np.random.default_rng(0).exponential(size=N).astype(np.float32) ** 3, 1

    def step() -> None:
        nonlocal t
        t += 1
        index, _ = sampler.tree.draw(uniforms.host(t))
        sampler.tree.put(*scores.learn(t, index, norms))

    return step, (sampler.nbytes() + 12 * M) / M


def rivals(M: int, N: int) -> dict[str, Callable[[], object]]:
    w = torch.empty(M).exponential_(generator=torch.Generator().manual_seed(0)) ** 3
    changed, new = torch.randint(M, (N,)), torch.rand(N)
    rng = np.random.default_rng(0)

    def probabilities() -> torch.Tensor:
        w[changed] = new
        p = w.double()
        return p.div_(p.sum())

    def searchsorted() -> torch.Tensor:
        w[changed] = new
        ends = w.cumsum(0, dtype=torch.float64)
        return torch.searchsorted(ends, torch.rand(N, dtype=torch.float64) * ends[-1], right=True)

    steps: dict[str, Callable[[], object]] = {
        "cumsum + searchsorted": searchsorted,
        "numpy choice": lambda: rng.choice(M, N, p=probabilities().numpy()),
    }
    if M <= MULTINOMIAL_LIMIT:
        steps["torch.multinomial"] = lambda: torch.multinomial(probabilities(), N, replacement=True)
        steps["WeightedRandomSampler"] = lambda: list(WeightedRandomSampler(probabilities(), N))
    return steps


def median_ms(step: Callable[[], object], seconds: float = 3.0) -> float:
    times: list[float] = []
    for _ in range(3):
        step()
    end = time.perf_counter() + seconds
    while (time.perf_counter() < end and len(times) < 2000) or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--largest", type=float, default=1e8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for N in (128, 4096):
        for M in (m for m in SIZES if m <= args.largest and m >= N):
            step, bytes_per_sample = emais_step(M, N)
            ours = median_ms(step)
            del step
            gc.collect()
            times = {"emais": ours}
            for name, rival in rivals(M, N).items():
                times[name] = median_ms(rival)
                del rival
            gc.collect()
            for name, ms in times.items():
                rows.append({"M": M, "N": N, "way": name, "ms": round(ms, 4), "times_emais": round(ms / ours, 2)})
            rows[-len(times)]["bytes_per_sample"] = round(bytes_per_sample, 2)
            shown = "  ".join(f"{k} {v:.3f} ms ({v / ours:.1f}x)" for k, v in times.items())
            print(f"M={M:<11,} N={N:<5} {bytes_per_sample:.1f} B  {shown}", flush=True)
    small = next(r["ms"] for r in rows if r["M"] == SIZES[0] and r["way"] == "emais")
    for r in rows:
        r["hardware"] = hardware()
        if r["way"] == "emais" and r["N"] == 128:
            print(f"M={r['M']:<11,} {r['ms'] / small:.2f} times M=10,000")  # type: ignore[operator]
    print("saved", save("sampler.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
