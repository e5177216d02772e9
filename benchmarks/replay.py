"""What other samplers would have done on a run: record what it drew and saw, then replay it with other statistics.

    python benchmarks/replay.py record "data=cifar10 model=resnet18 method=emais lr=0.1 num_steps=17500" FILE.npz
    python benchmarks/replay.py FILE.npz [FILE.npz ...] [--out FOLDER]

A recording has index, r and gradient norms of every minibatch. Replayed: moving statistics with tau = c t, turned into
w in three ways (mean + deviation as in the paper, root mean square, mean), and into weights (w + l mean(w))^a, where l
bounds r; and the non-negative combination of all means, class means and a constant that is best in hindsight. For each,
the second moment of r' g is the mean of r r' |g|^2, with r' from statistics that have not seen the minibatch: unbiased,
whoever drew. N_ems and S(W) over the second half of the run and over its last fifth. That is on the recorded run's
path: a sampler that draws some samples less often would find them changed more when it comes back to them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import save

from emais.engine import Engine
from emais.experiments.data import load
from emais.experiments.runs.machine import can_compile
from emais.experiments.runs.sweep import parse
from emais.experiments.train.models import SMALL
from emais.experiments.train.parallel_resnets import ParallelResNets
from emais.experiments.train.stacked_runs import StackedRuns
from emais.observing.observation import Observation

FACTORS = (1.0, 0.3, 0.1, 0.03)
POWERS = (1.0, 0.8, 0.6, 0.4)
BOUNDS = (np.inf, 30.0, 10.0, 4.0)
PERIOD = 50  # steps between two times that l mean(w) is laid down anew
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "mean + deviation": lambda mean, square: mean + np.sqrt(np.maximum(square - mean * mean, 0)),
    "root mean square": lambda mean, square: np.sqrt(square),
    "mean": lambda mean, square: mean,
}
PARTS = {"second half": 0.5, "last fifth": 0.8}


# ---- recording


def tap(engine: Engine, num_steps: int) -> list[torch.Tensor]:
    """Have an engine write down index, norms, r and |mean r g|^2 of every step, where a CUDA graph can."""
    n = engine.batch_size
    rows = [torch.zeros(num_steps, width, dtype=kind, device=engine.device) for width, kind in columns(n)]
    learn = engine.learn

    def written(observed: Observation) -> None:
        if observed.r is not None:
            place = torch.as_tensor(observed.step, device=engine.device).view(1) - 1
            for row, x in zip(
                rows, (observed.index, observed.norms, observed.r, observed.grad @ observed.grad / n**2), strict=True
            ):
                row.index_copy_(0, place, x.to(row.dtype).view(1, -1))
        learn(observed)

    engine.learn = written  # type: ignore[method-assign]
    return rows


def columns(n: int) -> list[tuple[int, torch.dtype]]:
    return [(n, torch.int32), (n, torch.float32), (n, torch.float32), (1, torch.float32)]


def record(text: str, path: Path, device: str) -> None:
    """Train the runs of a configuration, and keep a recording of each: FILE_0.npz, FILE_1.npz, ..."""
    configs = parse(text)
    data, first = load(configs[0].data), configs[0]
    if first.model in SMALL:
        group: Any = StackedRuns(configs, data, SMALL[first.model], device)
        engines = group.engines
    else:
        group = ParallelResNets(configs, data, device, compiled=can_compile(device))
        engines = [run.imp for run in group.runs]
    rows = [tap(engine, first.num_steps) for engine in engines]
    group.train(points=1)
    for k, (config, _) in enumerate(group.finish()):
        index, norms, r, mean = (x.cpu().numpy() for x in rows[k])
        kept = {"index": index.astype(np.uint16 if len(data.y_train) < 2**16 else np.int32), "mean_square": mean[:, 0]}
        kept |= {"norms": norms.astype(np.float16), "r": r.astype(np.float16), "labels": data.y_train.numpy()}
        name = path.with_name(f"{path.stem}_{k}.npz")
        np.savez(name, **kept, run=f"{config.data} {config.model} {config.method} wd={config.weight_decay:g}")
        print(name)


# ---- replaying


class Recording:
    """What a run drew and saw; second moments are over its steps."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as kept:
            self.index, self.labels = kept["index"].astype(np.int64), kept["labels"]
            self.norms, self.r = kept["norms"].astype(np.float32), kept["r"].astype(np.float32)
            self.mean_square, self.run = kept["mean_square"].astype(np.float64), str(kept["run"])
        self.num_steps, self.batch_size = self.index.shape
        g, r = self.norms.astype(np.float64), self.r.astype(np.float64)
        self.drawn, self.uniform = (r * r * g * g).mean(1), (r * g * g).mean(1)
        self.optimal = (r * g).mean(1) ** 2

    def judge(self, moments: np.ndarray, since: float) -> dict[str, float]:
        """N_ems and S(W) from the second moments of each step, after this share of the run."""
        part = slice(int(since * self.num_steps), None)
        own, unif, best = (float(x[part].mean()) for x in (moments, self.uniform, self.optimal))
        mean = float(self.mean_square[part].mean())
        n_ems = self.batch_size * (unif - mean) / (own - mean)
        return {"n_ems": round(n_ems, 1), "score": round((own - best) / (unif - best), 3)}


class Samplers:
    """Moving statistics of all samples, (M, C), and the weights (n, C, forms, powers, bounds) that they give."""

    def __init__(self, num_samples: int) -> None:
        self.mean, self.square = np.zeros((2, num_samples, len(FACTORS)), np.float32)
        self.last = np.zeros(num_samples, np.int64)
        powers, bounds = np.array(POWERS)[:, None], np.array(BOUNDS)
        self.powers, self.shrinks = powers.astype(np.float32), 1 / (bounds ** (1 / powers) - 1)
        self.lay_out()

    def scores(self, i: Any) -> np.ndarray:
        """w, (n, C, forms): 1 for a sample that was never seen."""
        mean, square = self.mean[i], self.square[i]
        w = np.stack([form(mean, square) for form in FORMS.values()], 2)
        return np.where((self.last[i] > 0)[:, None, None], w, np.float32(1))

    def shape(self, w: np.ndarray) -> np.ndarray:
        """The weights from w."""
        return np.maximum(w[..., None, None] + self.shift, 1e-12) ** self.powers

    def lay_out(self) -> None:
        """The shifts as the mean of w is now, and the sums of all weights."""
        parts = np.array_split(np.arange(len(self.last)), 1 + len(self.last) // 5000)
        center = sum(self.scores(i).sum(0, dtype=np.float64) for i in parts) / len(self.last)
        self.shift = (center[..., None, None] * self.shrinks).astype(np.float32)
        self.totals = sum(self.shape(self.scores(i)).sum(0, dtype=np.float64) for i in parts)

    def learn(self, t: int, i: np.ndarray, g: np.ndarray) -> None:
        """A minibatch; of a sample that is in it twice the first."""
        i, first = np.unique(i, return_index=True)
        before = self.shape(self.scores(i))
        new = (1 - np.exp((t - self.last[i])[:, None] / (-np.array(FACTORS) * t))).astype(np.float32)
        g = g[first, None]
        self.mean[i] += new * (g - self.mean[i])
        self.square[i] += new * (g * g - self.square[i])
        self.last[i] = t
        self.totals += (self.shape(self.scores(i)) - before).sum(0, dtype=np.float64)
        if t % PERIOD == 0:
            self.lay_out()


def replay(run: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Second moments (T, C, forms, powers, bounds), and features (T, N, C + 2), each over its mean over all samples.

    The features are the moving means, a class's mean of the one with c = 0.3 (one label per sample), and 1.
    """
    samples, count = len(run.labels), len(FACTORS)
    all_of_them = Samplers(samples)
    labels = run.labels.astype(np.int64) if run.labels.ndim == 1 else np.zeros(samples, np.int64)
    of_class = center = np.ones(1)
    moments = np.zeros((run.num_steps, *all_of_them.totals.shape))
    features = np.ones((run.num_steps, run.batch_size, count + 2), np.float32)
    for t in range(1, run.num_steps + 1):
        i, g, r = run.index[t - 1], run.norms[t - 1], run.r[t - 1]
        if t % PERIOD == 1:
            center = all_of_them.mean.mean(0).clip(1e-12)
            of_class = np.bincount(labels, all_of_them.mean[:, 1]) / np.bincount(labels) / center[1]
        w = all_of_them.scores(i)
        other = all_of_them.totals / samples / all_of_them.shape(w)
        moments[t - 1] = ((r * g * g)[:, None, None, None, None] * other).mean(0)
        features[t - 1, :, :count] = w[:, :, -1] / center
        features[t - 1, :, count] = of_class[labels[i]]
        all_of_them.learn(t, i, g)
    return moments, features


def best_combination(features: np.ndarray, rg2: np.ndarray, rounds: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Shares that minimise the mean of rg2 / (features @ shares), by exponentiated gradients; and moments a step."""
    x, y = features.reshape(-1, features.shape[-1]).astype(np.float64).clip(1e-9), rg2.reshape(-1).astype(np.float64)
    shares = np.full(x.shape[1], 1 / x.shape[1])
    for _ in range(rounds):
        p = x @ shares
        slope = (x * (y / p**2)[:, None]).mean(0) / (y / p).mean()
        shares *= np.exp(0.5 * (slope - slope.max()))
        shares /= shares.sum()
    return shares, (y / (x @ shares)).reshape(rg2.shape).mean(1)


def report(path: Path) -> list[dict[str, object]]:
    """Rows of one recording."""
    run = Recording(path)
    moments, features = replay(run)
    rows: list[dict[str, object]] = []

    def row(what: str, values: np.ndarray, since: dict[str, float] = PARTS, **more: object) -> None:
        found = {f"{k} {part}": v for part, share in since.items() for k, v in run.judge(values, share).items()}
        rows.append({"run": run.run, "steps": run.num_steps, "sampler": what, **more, **found})
        print(*(f"{v}" for v in rows[-1].values()), sep="  ", flush=True)

    row("as drawn", run.drawn)
    for k, form in enumerate(FORMS):
        for c, factor in enumerate(FACTORS):
            for (a, power), (b, bound) in itertools.product(enumerate(POWERS), enumerate(BOUNDS)):
                limit = float(bound) if np.isfinite(bound) else None
                row(form, moments[:, c, k, a, b], factor=factor, power=power, bound=limit)
    half = run.num_steps // 2
    shares, late = best_combination(features[half:], (run.r * run.norms**2)[half:])
    names = [*(f"mean {c:g}" for c in FACTORS), "class mean 0.3", "constant"]
    told = {name: round(float(x), 3) for name, x in zip(names, shares, strict=True)}
    whole = np.concatenate((np.full(half, np.nan), late))
    row("best combination in hindsight", whole, {"second half": half / run.num_steps}, shares=told)
    return rows


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "record":
        parser = argparse.ArgumentParser(description="train and record")
        parser.add_argument("record")
        parser.add_argument("text")
        parser.add_argument("path", type=Path)
        parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        args = parser.parse_args()
        record(args.text, args.path, args.device)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    print("saved", save("replay.jsonl", [row for path in args.paths for row in report(path)], args.out))


if __name__ == "__main__":
    main()
