"""Puts a model, an optimizer and the random states back as they were, bit by bit, whatever happened in between."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import EmaisError
from ..rates.attached import innermost
from .kept import Kept


@contextmanager
def put_back(model: nn.Module, optimizer: Optimizer) -> Iterator[None]:
    """Inside, train as you like; afterwards all is as before, also after an exception.

    It covers parameters, their gradients, buffers, plain attributes and the mode of every module; the optimizer's
    state, parameter groups and attributes; the random states of torch (CPU and GPUs), numpy and Python. Of attributes
    it covers lists, dicts, sets, deques, tensors, arrays and generators, in each other, too, but not what other objects
    have inside. It takes as much memory as all these.

    >>> layer = nn.Linear(2, 1)
    >>> before = layer.weight.clone()
    >>> with put_back(layer, torch.optim.SGD(layer.parameters(), 0.1)):
    ...     _ = nn.init.zeros_(layer.weight)
    >>> torch.equal(layer.weight, before)
    True
    """
    with ExitStack() as stack:
        for take in (_random_states, lambda: _tensors(model, optimizer), lambda: _state(optimizer)):
            stack.callback(take())
        stack.callback(_attributes(model, optimizer))
        yield


def _random_states() -> Callable[[], None]:
    own, python = torch.get_rng_state(), random.getstate()
    numpy = np.random.get_state()  # noqa: NPY002  # the one that data sets use
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def restore() -> None:
        torch.set_rng_state(own)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        for k, state in enumerate(gpus):
            torch.cuda.set_rng_state(state, k)

    return restore


def _tensors(model: nn.Module, optimizer: Optimizer) -> Callable[[], None]:
    """The values of parameters and buffers; the gradients, which are laid aside."""
    groups = optimizer.param_groups
    parameters = list(dict.fromkeys(chain(model.parameters(), *(group["params"] for group in groups))))
    for x in parameters:
        if isinstance(x, nn.UninitializedParameter):
            raise EmaisError("the model has parameters without a shape yet: call it once with a minibatch before")
    rates = [value for group in groups for value in group.values() if isinstance(value, Tensor)]
    values = [(x, x.detach().clone()) for x in chain(parameters, model.buffers(), rates)]
    grads = [x.grad for x in parameters]
    for x in parameters:
        x.grad = None

    def restore() -> None:
        with torch.no_grad():
            for x, value in values:
                x.copy_(value)
        for x, grad in zip(parameters, grads, strict=True):
            x.grad = grad

    return restore


def _attributes(model: nn.Module, optimizer: Optimizer) -> Callable[[], None]:
    """What modules and the optimizer have, the mode and the parameter groups among it, and what is inside of that."""
    parameters = chain(model.parameters(), *(group["params"] for group in optimizer.param_groups))
    kept = Kept(known=[*parameters, *model.buffers(), optimizer.state])
    kept.keep(model)
    for one in (optimizer, innermost(optimizer)):
        kept.keep(vars(one))
    return kept.restore


def _state(optimizer: Optimizer) -> Callable[[], None]:
    """The optimizer's state; what is trained with meanwhile is a copy of it."""
    state: dict[Any, Any] = dict(optimizer.state)
    for key, own in state.items():
        optimizer.state[key] = copy.deepcopy(own)

    def restore() -> None:
        optimizer.state.clear()
        optimizer.state.update(state)

    return restore
