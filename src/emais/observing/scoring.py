"""A forward pass that only looks: evaluation mode and no gradients, in whatever function makes it."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ..errors import EmaisError
from ..functional.gradients import logit_gradients
from ..loading.draw import Score


def score_norms(score: Score, batch: Any, batch_statistics: bool = False) -> Tensor:
    """Logit-gradient norms (n,) of a batch, from score(batch) -> (losses (n,), logits (n, ...)), in `scoring_mode`."""
    with scoring_mode(batch_statistics), torch.enable_grad():
        result = score(batch)
        if not isinstance(result, tuple) or len(result) != 2:
            raise EmaisError(f"score(batch) must return (losses, logits), got {type(result).__name__}")
        grads = logit_gradients(*result)
    norms: Tensor = torch.linalg.vector_norm(grads.flatten(1), dim=1)
    return norms


def _begin_graph(output: Any, seen: dict[int, Any] | None = None) -> Any:
    """The same output, whose floating-point tensors require gradients.

    Containers are entered, and so are dataclasses, namespaces and objects that hold tensors themselves; seen: copies
    that were made of these, by the id of the original.
    """
    seen = {} if seen is None else seen
    if isinstance(output, Tensor):
        return output.detach().requires_grad_() if output.is_floating_point() else output
    if id(output) in seen:
        return seen[id(output)]
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*(_begin_graph(x, seen) for x in output))
    if isinstance(output, (list, tuple)):
        return type(output)(_begin_graph(x, seen) for x in output)
    mapping, names = isinstance(output, MutableMapping), _attributes(output)
    if not mapping and not names:
        return output
    new = seen[id(output)] = copy.copy(output)
    if mapping:
        for key in list(new):
            new[key] = _begin_graph(new[key], seen)
    else:
        for name in names:
            object.__setattr__(new, name, _begin_graph(getattr(new, name), seen))
    return new


def _attributes(output: Any) -> list[str]:
    """Names of what to enter of an object that is no container."""
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return [field.name for field in dataclasses.fields(output)]
    own = getattr(output, "__dict__", {})
    enter = isinstance(output, SimpleNamespace) or any(isinstance(x, Tensor) for x in own.values())
    return list(own) if enter and not isinstance(output, nn.Module) else []


def _is_lazy(module: nn.Module) -> bool:
    """Whether it is still to learn its shapes: this call will make its averages, if it is to have some."""
    return isinstance(module, LazyModuleMixin) and module.has_uninitialized_params()


@contextmanager
def scoring_mode(batch_statistics: bool = False) -> Iterator[None]:
    """Inside, every model that this thread calls is in evaluation mode and builds no graph; its output begins one.

    So BatchNorm's statistics stand still, dropout neither drops nor uses random numbers, no activation is kept, and
    logit gradients can still be taken from the output. On leaving, the models are as they were.

    batch_statistics: BatchNorm that was training normalises by the batch, as in training; its averages stand still.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    >>> with scoring_mode():
    ...     z = model(torch.ones(1, 2))
    >>> z.requires_grad, z.grad_fn is None, model.training
    (True, True, True)
    """
    thread, depth = threading.get_ident(), 0
    were_training: list[nn.Module] = []
    were_tracking: list[_BatchNorm] = []
    gradients = torch.is_grad_enabled()

    def enter(module: nn.Module, args: Any) -> None:
        nonlocal depth, gradients
        if threading.get_ident() != thread:
            return
        depth += 1
        if depth == 1:  # the outermost: what the user calls
            gradients = torch.is_grad_enabled()
            for m in [m for m in module.modules() if m.training]:
                if not (batch_statistics and isinstance(m, _BatchNorm)) or _is_lazy(m):
                    m.training = False
                    were_training.append(m)
                elif m.track_running_stats:
                    m.track_running_stats = False
                    were_tracking.append(m)
            torch.set_grad_enabled(False)

    def leave(module: nn.Module, args: Any, output: Any) -> Any:
        nonlocal depth
        if threading.get_ident() != thread:
            return None
        depth -= 1
        if depth == 0:
            torch.set_grad_enabled(gradients)
            return _begin_graph(output)
        return None

    handles = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave))
    outside = torch.is_grad_enabled()
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        torch.set_grad_enabled(outside)
        for module in were_training:
            module.training = True
        for norm in were_tracking:
            norm.track_running_stats = True
