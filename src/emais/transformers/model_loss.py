"""Models that use labels for more than the loss: decoder inputs, and a look whether the loss is the model's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.loss.loss_utils import ForCausalLMLoss

from ..errors import EmaisError
from .objective import Objective, loss_function
from .refusals import AUXILIARY, WAY_OUT, logits_of

_DECODER = "decoder_input_ids"
NO_DECODER_INPUTS = (
    "{} makes no decoder inputs from labels, and the labels are not given to it: have the data collator add "
    "decoder_input_ids"
)
ANOTHER_LOSS = (
    "{} computes the loss {:.6g} of the first minibatch from its labels, and the mean of the losses of its samples is "
    "{:.6g}: its loss is another one than that of its kind, so {}"
)


def with_decoder_inputs(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """The minibatch as an encoder-decoder needs it where it does not get labels: it would make these from them."""
    config, labels = getattr(model, "config", None), batch.get("labels")
    given = _DECODER in batch or "decoder_inputs_embeds" in batch
    if given or labels is None or not getattr(config, "is_encoder_decoder", False):
        return batch
    if loss_function(model) is not ForCausalLMLoss:  # as of a classifier
        return batch
    make = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if make is None:
        raise EmaisError(NO_DECODER_INPUTS.format(type(model).__name__))
    return batch | {_DECODER: make(labels)}


@torch.no_grad()
def check_loss(model: Any, batch: Mapping[str, Any], objective: Objective) -> None:
    """Refuse a model whose own loss of a minibatch is not what the losses of its samples make.

    Two forward passes in evaluation, which use up no random numbers; the next training step turns training on again.
    """
    labels, device = batch["labels"], batch["labels"].device
    plain = replace(objective, smoothing=0.0, first_counts=False)
    model.eval()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            told = model(**batch)
        except TypeError:  # a name that the model does not know, and that compute_loss of a subclass takes out
            return
        outputs = model(**{name: x for name, x in batch.items() if name != "labels"})
    names = told if isinstance(told, Mapping) else {}
    for name in names:
        if name.endswith(("aux_loss", "z_loss")) and told[name] is not None:
            raise EmaisError(AUXILIARY.format(name))
    own = names.get("loss")
    if not isinstance(own, Tensor) or own.numel() != 1:
        return  # it has none
    losses, _ = plain.losses(logits := logits_of(outputs, model), labels, torch.ones(len(labels)))
    ours, rounding = float(losses.sum() / plain.count(batch).sum()), 1e-3 if logits.dtype.itemsize > 2 else 2e-2
    own = float(own)
    if math.isfinite(own) and not math.isclose(ours, own, rel_tol=rounding, abs_tol=rounding):
        raise EmaisError(ANOTHER_LOSS.format(type(model).__name__, own, ours, WAY_OUT))
