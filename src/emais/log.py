"""A log of a run: its numbers every so many steps, into a file, to TensorBoard, or to any function."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .engine import Engine
from .errors import EmaisError, positive_int, shortly
from .log_files import Numbers, sink_of

SUMMARY = (
    "n_ems", "score", "score_low", "score_high", "lr_scale", "tr_is", "tr_unif", "tr_opt", "max_r", "max_share",
    "effective_steps", "steps_saved", "fallback_steps",
)  # fmt: skip
FAILURES = ("nonfinite", "degenerate")
R_QUANTILES = {"r_p10": 0.1, "r_p50": 0.5, "r_p90": 0.9, "r_p99": 0.99}


def log_numbers(engine: Engine, steps: int | None = None) -> dict[str, float]:
    """The numbers of the latest steps (default: epoch) by the names that all loggers use, such as `emais/n_ems`.

    N_ems, S(W) and the factor are made from averages over these steps. `emais/lr` is the learning rate of the latest
    step, with its factor, and `emais/r_p50` the median r of its minibatch. docs/guides/logging.md has the list.

    >>> import emais
    >>> sorted(log_numbers(emais.EMAIS(100, 10)))[:3]
    ['emais/degenerate', 'emais/effective_steps', 'emais/fallback_steps']
    """
    summary, diagnostics = engine.summary(steps), engine.diagnostics
    found = {name: float(getattr(summary, name)) for name in SUMMARY}
    found |= {name: float(getattr(diagnostics, name)) for name in FAILURES}
    found |= engine.logged()
    if engine.attached.lr is not None:
        found["lr"] = float(engine.attached.lr) * float(engine.attached.applied)
    found |= quantiles(diagnostics.r)
    return {f"emais/{name}": value for name, value in found.items()}


def quantiles(r: Tensor) -> dict[str, float]:
    """What is below which so many of r lie; NaN of none.

    >>> quantiles(torch.tensor([0.5, 1.0, 1.5]))["r_p50"]
    1.0
    """
    if not len(r):
        return dict.fromkeys(R_QUANTILES, math.nan)
    found = r.quantile(torch.tensor(list(R_QUANTILES.values()), device="cpu")).tolist()
    return dict(zip(R_QUANTILES, found, strict=True))


class Log:
    """Writes down a run every so many steps. Call `step` after each `optimizer.step()`.

    to: a path that ends in .jsonl or .csv; TensorBoard's SummaryWriter; or a function that is called as
    to(numbers, step=...), such as wandb.log or mlflow.log_metrics. every: minibatches between two rows; a row is of
    these, of at most an epoch. A row comes at the multiples of `every`, also after a resume. A file that is there is
    appended to; rows of the same or later steps, which a resumed run makes again, are dropped from it.

    >>> import emais
    >>> imp = emais.EMAIS(100, 10)
    >>> log = Log(lambda numbers, step: print(step, numbers["loss"]), imp, every=2)
    >>> log.step(loss=0.5); log.step(loss=0.25)
    2 0.25
    """

    def __init__(self, to: Any, engine: Engine, *, every: int = 50) -> None:
        if not isinstance(engine, Engine):
            raise EmaisError(f"a log needs the engine, got {type(engine).__name__}: emais.Log(to, imp)")
        self._engine, self.every = engine, positive_int("every", every)
        self._calls, self._latest = 0, 0  # calls of `step`, and the step of the latest
        self._sink, self._closed = sink_of(to), False

    def step(self, **more: float) -> None:
        """An optimizer step was made; more: numbers of your own, such as loss=..., written as they are now."""
        if self._closed:
            raise EmaisError("this log is closed: make another, to the same file if you like")
        for name in more:
            if name == "step" or name.startswith("emais/"):
                raise EmaisError(f"the log writes {name} itself: give your number another name")
        for name, value in more.items():
            check_number(name, value)
        attached, self._calls = self._engine.attached, self._calls + 1
        step, before = attached.trained() or self._calls, self._latest
        if not 0 < before <= step:  # the first call, or a state was loaded
            before = step - attached.minibatches
        self._latest = step
        if step // self.every > before // self.every:
            row: Numbers = {name: float(torch.as_tensor(value).detach()) for name, value in more.items()}
            row |= log_numbers(self._engine, max(1, self.every // attached.minibatches))
            self._sink.write(row | {"emais/r": self._engine.diagnostics.r}, step)

    def close(self) -> None:
        """Close the file, if there is one. No step may follow."""
        self._closed = True
        self._sink.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_number(name: str, value: object) -> None:
    """Refuse what is not one number; a tensor is not read, which would wait for its device.

    >>> check_number("loss", torch.tensor(0.5))
    """
    if not hasattr(value, "__float__") or math.prod(getattr(value, "shape", ())) != 1:
        raise EmaisError(f"{name}= must be a number, got {shortly(value)}: of a tensor with one value, {name}.item()")
