"""Samples that were looked at but not trained on: their statistics are brought up to date, nothing else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import EmaisError
from ..functional.precision import full_precision
from .checks import check_refresh, per_sample
from .observation import Observation

LEARNT_AT_ONCE = 4096  # samples to learn from at a time: it bounds the memory that this takes


def refresh(engine: Any, index: Tensor, losses: Tensor, logits: Tensor | None, given: dict[str, Tensor]) -> None:
    """Have an engine learn from samples at its present step; given: their gradients or norms, as for `loss`."""
    if engine.processes.shared:
        raise EmaisError("refresh takes no process_group yet: the processes would learn different things")
    check_refresh(index, losses, logits, given, engine.num_samples)
    index, g = index.long(), per_sample(losses, logits, **given)
    signal = engine.own_signal(losses, logits, g, engine.source.step)
    norms = g if g.dim() == 1 else torch.linalg.vector_norm(g.float(), dim=1)
    step, array = step_now(engine), engine.arrays.array
    for start in range(0, len(index), LEARNT_AT_ONCE):
        part = slice(start, start + LEARNT_AT_ONCE)
        own = None if signal is None else array(signal[part].float())
        with full_precision():
            engine.learn(Observation(step, array(index[part]), None, array(norms[part]), None, own))
    if engine.arrays.resident and engine.source.ready:
        engine.source.prepare()  # the draw that was made with the old weights, where a CUDA graph reads it
    else:
        engine.source.ready = False


def step_now(engine: Any) -> int | Tensor:
    """The latest step, and 1 before the first: an int, or a tensor that nobody waits for."""
    delivered = engine.source.step - len(engine.passes.ahead())
    step: int | Tensor = engine.arrays.number(engine.arrays.at_least(delivered, 1))
    return step
