"""What runs leave behind: sums of every step on the device, turned into short curves at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...functional import VarianceTraces, efficiency_score

POINTS = 60  # about so many points a curve
LOGGED = ("loss", "lr", "lr_scale", "square_is", "square_unif", "mean_norm", "mean_square")


class Curves:
    """A row of `LOGGED` numbers for every step and run, written without a host sync, and test errors now and then.

    The traces of a point are made from sums averaged over its steps, and N_ems and S(W) from these traces: ratios of
    single minibatches have no mean worth the name where a denominator comes near 0.
    """

    def __init__(self, num_steps: int, runs: int, batch_size: int, device: torch.device | str = "cpu") -> None:
        self.num_steps, self.batch_size = num_steps, batch_size
        self._rows = torch.zeros(num_steps, runs, len(LOGGED), device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._errors: dict[int, list[float]] = {}

    def log(self, loss: Tensor, lr: Tensor, factor: Tensor, sums: Sequence[tuple[Tensor, Tensor]]) -> None:
        """One step of all runs: loss, lr and factor (K,); sums as `Monitor.sums` gives them."""
        n = self.batch_size
        moments = torch.stack([m for m, _ in sums]) / n
        squares = torch.stack([g for _, g in sums]) / n**2
        row = torch.cat((torch.stack((loss, lr, factor), 1), moments.float(), squares.float().unsqueeze(1)), 1)
        self._rows.index_copy_(0, self._step, row.unsqueeze(0))
        self._step.add_(1)

    def evaluated(self, step: int, errors: list[float]) -> None:
        """Test errors of all runs after this step."""
        self._errors[step] = errors

    @property
    def steps(self) -> int:
        """Steps so far."""
        return int(self._step)

    def of(self, run: int, steps: int | None = None) -> dict[str, list[Any]]:
        """The curves of one run: at about `POINTS` steps means over the steps since the point before.

        steps: where the run ended, if that was before the others; it has one test at most there or later.
        """
        steps = self.steps if steps is None else steps
        rows = self._rows[:steps, run].double().cpu()
        ends = evenly_spaced(len(rows), POINTS)
        means = [rows[a:b].mean(0) for a, b in zip([0, *ends], ends, strict=False)]
        table = torch.stack(means).unbind(1)
        named = dict(zip(LOGGED, table, strict=True))
        mu = named["mean_square"]
        tr_is, tr_unif = named["square_is"] - mu, named["square_unif"] - mu
        # the square of a mean over steps is not the mean of the squares: tr_opt is averaged as such
        optimal = (rows[:, LOGGED.index("mean_norm")].square() - rows[:, LOGGED.index("mean_square")]).split(
            [b - a for a, b in zip([0, *ends], ends, strict=False)]
        )
        tr_opt = torch.stack([part.mean() for part in optimal])
        curves = {
            "step": ends,
            "loss": named["loss"],
            "lr": named["lr"],
            "lr_scale": named["lr_scale"],
            "tr_is": tr_is,
            "tr_unif": tr_unif,
            "tr_opt": tr_opt,
            "n_ems": self.batch_size * tr_unif / tr_is,
            "score": efficiency_score(VarianceTraces(tr_is, tr_unif, tr_opt)),
        }
        listed: dict[str, list[Any]] = {k: torch.as_tensor(v).tolist() for k, v in curves.items()}
        tests: dict[int, Any] = {}
        for step, errors in self._errors.items():
            tests.setdefault(min(step, steps), errors[run])
        return listed | {"test_step": list(tests), "test_error": list(tests.values())}


def evenly_spaced(num_steps: int, points: int) -> list[int]:
    """About `points` steps at equal distances, the last step among them.

    >>> evenly_spaced(10, 3)
    [4, 7, 10]
    """
    return sorted({math.ceil(k * num_steps / points) for k in range(1, points + 1)})
