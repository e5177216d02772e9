"""How many items (tokens with a label) the loss of a step is divided by, when samples are not drawn alike."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..loading.draw import Draw


class ExpectedItems:
    """The number of items that a uniform draw would have had, from the r-weighted counts of earlier minibatches.

    Trainer divides the summed loss by the number of items in the minibatches of a step. That number depends on what was
    drawn: where long samples are drawn more often it is too large, and the loss too small. Here it is N n, with
    n = sum(r n_i) / sum(r) over all minibatches before this step. n does not depend on the step's own draw, so the
    gradient is unbiased for the gradient of (mean loss of a sample) / n; and n tends to the mean of n_i over the data
    set. Where all r are 1 the number is Trainer's own, and so is the loss.

    docs/guides/transformers.md has the mathematics.
    """

    def __init__(self) -> None:
        self.weighted, self.weight = 0.0, 0.0  # sum of r n_i, and of r

    def of_step(self, draws: Sequence[Draw], counts: Sequence[Tensor]) -> float:
        """What to divide the sum of r times the losses by; counts: of each minibatch its n_i, (N,) on the CPU."""
        weighted = sum(float(draw.r.double() @ count.double()) for draw, count in zip(draws, counts, strict=True))
        weight = sum(float(draw.r.sum()) for draw in draws)
        if all(bool((draw.r == 1).all()) for draw in draws):
            items = weighted  # the plain sum
        elif self.weight:
            items = sum(map(len, draws)) * self.weighted / self.weight
        else:  # nothing came before: a ratio of this step alone
            items = sum(map(len, draws)) * weighted / weight
        self.weighted, self.weight = self.weighted + weighted, self.weight + weight
        return items or 1.0  # no item at all: the loss is 0 whatever it is divided by

    def state_dict(self) -> dict[str, float]:
        """Both sums."""
        return {"weighted": self.weighted, "weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from both sums."""
        self.weighted, self.weight = float(state["weighted"]), float(state["weight"])
