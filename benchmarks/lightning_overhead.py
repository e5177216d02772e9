"""What the Lightning callback adds to a training step: fits with and without it take turns, in process time.

    python benchmarks/lightning_overhead.py [--pairs 9] [--out FOLDER]     (needs emais[lightning])

One module, one thread, the default method, its engine past the warm-up. A round fits one epoch without the callback,
one with it, and one without it again, in an order that rotates; the first batches of a fit are not timed. The ratio is
the median over rounds of the ratio within a round. "again" is the second fit without the callback over the first: what
it differs from 1 by, the measurement cannot tell.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from common import hardware, save
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import emais.lightning

N, BATCHES, UNTIMED = 128, 40, 5
WIDTH = 2000


class Net(LightningModule):
    """Three wide layers: a step of 40 ms or more on one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
        )

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        logits = self.net(batch[0])
        losses = nn.functional.cross_entropy(logits, batch[1], reduction="none")
        return emais.lightning.loss(self, losses, logits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


class Timer(Callback):
    """Process time of a step, from the start of one batch to the start of a later one."""

    def __init__(self) -> None:
        self.started = self.ms = 0.0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == UNTIMED:
            self.started = time.process_time()
        elif batch_idx == BATCHES - 1:
            self.ms = 1e3 * (time.process_time() - self.started) / (BATCHES - 1 - UNTIMED)


class Fits:
    """Fits the module for one more epoch whenever it is called, and returns the milliseconds of a step."""

    def __init__(self, module: Net, loader: DataLoader[Any], *callbacks: Callback) -> None:
        self.module, self.loader, self.timer = module, loader, Timer()
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        self.trainer = Trainer(accelerator="cpu", max_epochs=0, callbacks=[*callbacks, self.timer], **quiet)

    def __call__(self) -> float:
        self.trainer.fit_loop.max_epochs = self.trainer.current_epoch + 1
        self.trainer.fit(self.module, self.loader)
        return self.timer.ms


def measure(pairs: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(N * BATCHES, 784), torch.randint(10, (N * BATCHES,)))
    module, loader = Net(), DataLoader(data, N, shuffle=True)
    sampling = emais.lightning.ImportanceSampling()
    fits = {"plain": Fits(module, loader), "emais": Fits(module, loader, sampling), "again": Fits(module, loader)}
    for _ in range(3):  # two epochs of warm-up, and one with draws from what was learned
        fits["emais"]()
    fits["plain"]()
    times: dict[str, list[float]] = {name: [] for name in fits}
    names = list(fits)
    for k in range(pairs):
        for name in names[k % 3 :] + names[: k % 3]:
            times[name].append(fits[name]())
    assert sampling.engine is not None
    plain, ours, again = times.values()
    ratios = sorted(b / a for a, b in zip(plain, ours, strict=True))
    return {
        "case": f"three layers of {WIDTH}, N = {N}, Lightning {lightning.__version__}, {sampling.engine.name}",
        "pairs": pairs,
        "plain_ms": round(statistics.median(plain), 3),
        "added_ms": round(statistics.median(b - a for a, b in zip(plain, ours, strict=True)), 3),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_low": round(ratios[0], 4),
        "ratio_high": round(ratios[-1], 4),
        "again": round(statistics.median(b / a for a, b in zip(plain, again, strict=True)), 4),
        "load": os.getloadavg()[0],  # processes that wanted a core: above their number the machine was shared
        "hardware": hardware(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers")
    warnings.filterwarnings("ignore", ".*LeafSpec")
    row = measure(args.pairs)
    print("{plain_ms:.1f} ms a step; with the callback {ratio:.3f} times that, {added_ms:+.2f} ms".format(**row))
    print("between {ratio_low:.3f} and {ratio_high:.3f}; two fits without it: {again:.3f}".format(**row))
    print("saved", save("lightning_overhead.jsonl", [row], args.out))


if __name__ == "__main__":
    main()
