"""Time of one refit of RAIS on one core: the fit itself and new weights for all samples.

python benchmarks/refit.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
from common import block_time, hardware, save

import emais

N = 128


def filled(num_samples: int) -> emais.Engine:
    """RAIS after its warm-up, with norms that differ from sample to sample and from visit to visit."""
    imp = emais.create("rais", num_samples, batch_size=N)
    level = torch.exp(torch.randn(num_samples))
    for _ in range(imp.epoch_steps + 1):
        draw = imp.draw()
        z = torch.zeros(N, 1, requires_grad=True)
        grads = level[draw.index] * torch.exp(0.3 * torch.randn(N))
        imp.observe((z * grads.unsqueeze(1)).sum(1), z, draw)
    return imp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for num_samples in (5_000, 50_000, 500_000):
        imp = filled(num_samples)
        ms = 1e3 * statistics.median(block_time(imp.refit, 1) for _ in range(11))
        rows.append({"num_samples": num_samples, "buffer": imp.buffer, "ms": round(ms, 2), "hardware": hardware()})
        print(f"M = {num_samples:>7}, |D| = {imp.buffer:>6}: {ms:7.2f} ms a refit, {ms / imp.period:.4f} ms a step")
    print("saved", save("refit.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
