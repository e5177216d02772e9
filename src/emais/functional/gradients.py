"""Per-sample gradients of the loss, with respect to the logits (cheap, any model) or to all parameters (exact)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.func import functional_call, grad, vmap

from ..errors import EmaisError
from .precision import full_precision

_CHAIN = frozenset(
    f"{name}Backward{k}"
    for name, k in (
        ("NllLoss", 0),
        ("LogSoftmax", 0),
        ("BinaryCrossEntropyWithLogits", 0),
        ("MseLoss", 0),
        ("Sum", 1),
        ("Mean", 1),
        ("ToCopy", 0),
    )
)
FREED = "backward through the graph a second time"  # torch's words
TOO_LATE = (
    "the graph of these losses is gone: a backward() came before. Take the loss from imp.loss(losses, logits, draw) "
    "first, and call backward() on what it returns, once"
)
_SMALL = 1 << 16  # numbers: copying them costs less than to find out whether one must
_NEAR = 50  # nodes: most losses have fewer
_BATCH_COUPLED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def logit_gradients(losses: Tensor, logits: Tensor) -> Tensor:
    """Gradient of each sample's loss by its logits, d loss_i / d z_i, for any loss.

    losses (N,), one number per sample, not divided by N; logits (N, ...) that the losses were computed from.
    Returns (N, ...) float32 (float64 for float64 logits), detached. The graph is kept for the backward pass.

    >>> z = torch.zeros(1, 2, requires_grad=True)
    >>> losses = nn.functional.cross_entropy(z, torch.tensor([0]), reduction="none")
    >>> logit_gradients(losses, z)
    tensor([[-0.5000, 0.5000]])

    Paper: sec:approx_by_logit
    """
    g = raw_logit_gradients(losses, logits)
    return g.to(torch.promote_types(g.dtype, torch.float32))


def raw_logit_gradients(losses: Tensor, logits: Tensor) -> Tensor:
    """`logit_gradients` in the dtype of the logits: half precision travels as it is and is widened on arrival."""
    if losses.dim() != 1:
        raise EmaisError(
            f"losses must be one number per sample, shape (N,), got {tuple(losses.shape)}: use reduction='none' "
            "and sum or average over every dimension but the first"
        )
    if logits.dim() == 0 or logits.shape[0] != losses.shape[0]:
        flat = logits.dim() and len(losses) and len(logits) % len(losses) == 0
        hint = ": pass them as they were before they were flattened" if flat else ""
        raise EmaisError(
            f"logits must be (N, ...) with N = {len(losses)} as the losses, got {tuple(logits.shape)}{hint}"
        )
    if not logits.requires_grad or not losses.requires_grad:
        if logits.requires_grad:
            raise EmaisError("losses do not require grad: pass them as they come from the logits, without detach()")
        raise EmaisError(
            "logits do not require grad: pass the model's own output, before any detach(), and outside torch.no_grad()"
        )
    ones = torch.ones_like(losses)
    try:
        g = _walk(losses, logits, ones)
        if g is None:
            g = _ask_autograd(losses, logits, ones)
    except RuntimeError as error:
        if FREED in str(error):
            raise EmaisError(TOO_LATE) from error
        raise
    if g is None:
        raise EmaisError(
            "losses do not depend on logits: pass the very tensor that the loss was computed from (not a copy, "
            "view or cast of it), and compute the loss outside the compiled or checkpointed model"
        )
    return g


def _ask_autograd(losses: Tensor, logits: Tensor, ones: Tensor) -> Tensor | None:
    """The gradient in full precision, unless a function on the way was written for the precision of the loop."""
    # a handful of nodes: waking autograd's own thread, as it does for a GPU, would cost more than they do
    with nullcontext() if losses.is_cpu else torch.autograd.set_multithreading_enabled(False):
        ask = partial(torch.autograd.grad, losses, logits, ones, retain_graph=True, allow_unused=True)
        try:
            with full_precision():
                (g,) = ask()
        except RuntimeError:
            (g,) = ask()
    # a function of the user's own may keep this very tensor, and write to it in the backward pass
    keeps = g is not None and (g.numel() <= _SMALL or _has_custom_node(losses, logits))
    return g.clone() if keeps else g


@torch.no_grad()
def _walk(losses: Tensor, logits: Tensor, g: Tensor) -> Tensor | None:
    """What autograd would compute, where the way from losses to logits is a short chain of known operations.

    Calling these nodes one after the other costs a third of autograd's general machinery. None: take that.
    """
    node, end = losses.grad_fn, (logits.grad_fn, logits.output_nr)
    while node is not None and node.name() in _CHAIN:
        edges = [edge for edge in node.next_functions if edge[0] is not None]
        if len(edges) != 1:
            return None
        out = node(g)  # type: ignore[operator]
        g = out if isinstance(out, Tensor) else out[node.next_functions.index(edges[0])]
        if edges[0] == end:
            return g if g.shape == logits.shape and g.dtype == logits.dtype else None
        node = edges[0][0]
    return None


def _has_custom_node(losses: Tensor, logits: Tensor) -> bool:
    """Whether a `torch.autograd.Function` is on the way from losses to logits, as far as the nearest nodes tell."""
    near, seen = [losses.grad_fn], {logits.grad_fn, None}
    while near and len(seen) < _NEAR:
        node = near.pop(0)
        if node in seen:
            continue
        if isinstance(node, BackwardCFunction):
            return True
        seen.add(node)
        near += [edge[0] for edge in node.next_functions]  # type: ignore[union-attr]
    return False


@torch.no_grad()
def cross_entropy_gradients(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Closed form for cross-entropy: softmax(z) - y. Equal to `logit_gradients`, without autograd.

    logits (N, C) or (N, C, ...), the loss summed over trailing positions; target class indices (N, ...) or
    probabilities of the shape of the logits. No position may be ignored (-100): `logit_gradients` knows these.

    >>> cross_entropy_gradients(torch.zeros(1, 2), torch.tensor([0]))
    tensor([[-0.5000, 0.5000]])

    Paper: sec:approx_by_logit
    """
    p = logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))
    if target.shape != logits.shape and not label_smoothing:
        return p.scatter_(1, target.unsqueeze(1), -1.0, reduce="add")  # two operations: the common case is the fast one
    y = (
        target.to(p.dtype)
        if target.shape == logits.shape
        else torch.zeros_like(p).scatter_(1, target.unsqueeze(1), 1.0)
    )
    y = y * (1 - label_smoothing) + label_smoothing / p.shape[1]
    return p.mul_(y.sum(1, keepdim=True)).sub_(y)


@torch.no_grad()
def binary_cross_entropy_gradients(logits: Tensor, target: Tensor) -> Tensor:
    """Closed form for binary cross-entropy summed over a sample's outputs: sigmoid(z) - y.

    For a mean over K outputs divide by K; a common factor changes neither p, N_ems nor S(W).

    >>> binary_cross_entropy_gradients(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
    tensor([[-0.5000, 0.5000]])

    Paper: sec:approx_by_logit
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(dtype).sigmoid().sub_(target.to(dtype))


def parameter_gradients(
    model: nn.Module, loss_fn: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor
) -> Tensor:
    """Full gradient of each sample's loss by all trainable parameters, flattened: (N, P).

    `loss_fn(output, target)` gets a batch of one and returns a scalar. Costs N times the memory of the parameters:
    for analysis and tests. A model whose samples influence each other (BatchNorm, unless it uses running
    statistics) is refused.

    >>> m = nn.Linear(1, 1, bias=False)
    >>> parameter_gradients(m, lambda z, y: (z - y).sum(), torch.tensor([[2.0], [3.0]]), torch.zeros(2, 1))
    tensor([[2.], [3.]])

    Paper: sec:assess_logit_grad_est
    """
    for name, module in model.named_modules():
        if isinstance(module, _BATCH_COUPLED) and (module.training or module.running_mean is None):
            why = "in training mode" if module.training else "without running statistics"
            other = "call model.eval(), " if module.training and module.track_running_stats else ""
            raise EmaisError(
                f"{name or 'the model'} is a BatchNorm layer {why}: a sample has no gradient of its own there; "
                f"{other}replace it by GroupNorm, or use logit gradients"
            )
    params = {k: p.detach() for k, p in model.named_parameters() if p.requires_grad}
    fixed = {k: p.detach() for k, p in model.named_parameters() if not p.requires_grad}
    fixed |= dict(model.named_buffers())

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss_fn(functional_call(model, (p, fixed), (x.unsqueeze(0),)), y.unsqueeze(0)).squeeze()

    grads = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(params, inputs, targets)
    return torch.cat([g.reshape(len(inputs), -1) for g in grads.values()], dim=1)
