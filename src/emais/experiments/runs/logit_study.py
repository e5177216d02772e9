"""Do logit gradients stand for full gradients? Norms, traces, N_ems and S(W) from both, on a trained LeNet5.

    python -m emais.experiments.runs.logit_study [--out results/full_logit.jsonl]

Paper: fig:full_logit_grad, fig:full_logit_trvar, fig:full_logit_nems_score
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ... import functional as F
from ..config import Config
from ..data import Data, load
from ..progress import ProgressLine
from ..train.models import LeNet5
from ..train.stacked_runs import StackedRuns
from .machine import check_device
from .provenance import surroundings
from .record import LAYOUT, Record, rounded, upgraded
from .store import Results

SNAPSHOTS = (5000, 25000)
SAMPLES, MINIBATCHES, N = 500, 100, 128
NOISE = 2.0  # largest standard deviation of log w around the optimal log w


def snapshots(data: Data, steps: tuple[int, ...], seed: int, device: str) -> Iterator[tuple[int, nn.Module]]:
    """LeNet5 as EMAIS has trained it after so many steps of a run that ends with the last."""
    run = StackedRuns([Config("fmnist", "lenet5", "emais", num_steps=steps[-1], seed=seed)], data, LeNet5, device)
    with ProgressLine(total_steps=steps[-1], total_runs=0) as progress:
        for step in range(1, steps[-1] + 1):
            run.step()
            progress.advance()
            if step in steps:
                yield step, run.net.module(0)


def full_and_logit(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Per-sample gradients with respect to all parameters (n, P) and to the logits (n, C)."""
    full = F.parameter_gradients(model, lambda z, t: cross_entropy(z, t), x, y)
    with torch.no_grad():
        return full, F.cross_entropy_gradients(model(x), y)


def optimal_weights(model: nn.Module, x: Tensor, y: Tensor, chunk: int = 500) -> Tensor:
    """W*: the norm of every sample's full gradient, (M,)."""
    parts = zip(x.split(chunk), y.split(chunk), strict=True)
    return torch.cat([full_and_logit(model, a, b)[0].norm(dim=1) for a, b in parts])


def study(model: nn.Module, x: Tensor, y: Tensor, g: torch.Generator) -> dict[str, Any]:
    """Norms of `SAMPLES` samples, and the report of minibatches drawn with noisy weights, from both gradients."""
    some = torch.randperm(len(x), generator=g)[:SAMPLES]
    full, logit = full_and_logit(model, x[some], y[some])
    best = optimal_weights(model, x, y).double()
    rows = []
    for k in range(MINIBATCHES):
        noise = NOISE * k / (MINIBATCHES - 1)
        w = best * torch.exp(noise * torch.randn(len(best), generator=g, dtype=torch.float64))
        p = F.adjusted_probabilities(w, N)
        index = torch.searchsorted(p.cumsum(0), torch.rand(N, generator=g, dtype=torch.float64)).clamp(max=len(p) - 1)
        r = 1 / (len(p) * p[index])
        both = full_and_logit(model, x[index], y[index])
        rows.append({"noise": noise} | {kind: numbers(r, grads) for kind, grads in zip(KINDS, both, strict=True)})
    return {"norms": {"full": full.norm(dim=1).tolist(), "logit": logit.norm(dim=1).tolist()}, "minibatches": rows}


KINDS = ("full", "logit")


def numbers(r: Tensor, grads: Tensor) -> dict[str, float]:
    """Traces, N_ems and S(W) of a minibatch."""
    traces = F.variance_traces(r, grads.double())
    named = dict(zip(("tr_is", "tr_unif", "tr_opt"), map(float, traces), strict=True))
    return named | {"n_ems": float(F.effective_batch_size(traces, N)), "score": float(F.efficiency_score(traces))}


def read_study(path: Path, model: str | None = "lenet5") -> list[Record]:
    """What `write_study` wrote of a network, or of all, without what is not whole; none if there is no such file."""
    lines = [line for line in Results(path).lines() if is_study(line)]
    return [line for line in map(upgraded, lines) if model in (line["model"], None)]


def is_study(line: object) -> bool:
    """Whether this is a line of `write_study`."""
    return isinstance(line, dict) and line.keys() >= {"model", "method", "step", "norms", "minibatches"}


def write_study(out: Path, steps: tuple[int, ...], seed: int, device: str, folder: Path | None) -> None:
    """Train, study all snapshots, write one JSON line for each after what the file holds already."""
    check_device(device)
    Results(out).must_be_writable(known=is_study)
    data = load("fmnist", folder)
    x, y = data.scaled(data.x_train), data.y_train
    lines = []
    for step, model in snapshots(data, tuple(sorted(steps)), seed, device):
        found = study(model.cpu(), x, y, torch.Generator().manual_seed(seed))
        about = {"data": "fmnist", "model": "lenet5", "method": "emais", "seed": seed, "step": step}
        lines.append(json.dumps(rounded(about | found | {"layout": LAYOUT} | surroundings(device))))
    torn = out.exists() and out.read_bytes()[-1:] not in (b"", b"\n")  # a last line that was never finished
    with out.open("a", encoding="utf-8") as file:
        file.write("\n".join([*([""] if torn else []), *lines]) + "\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/full_logit.jsonl"))
    parser.add_argument("--steps", type=int, nargs="+", default=list(SNAPSHOTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, default=None)
    args = parser.parse_args()
    write_study(args.out, tuple(args.steps), args.seed, args.device, args.folder)
    print(f"saved {args.out}")


if __name__ == "__main__":
    main()
