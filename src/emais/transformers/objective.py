"""The loss of each sample from a model's logits and labels: what the model's own loss is the mean of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as nnf
from transformers.loss.loss_utils import (
    LOSS_MAPPING,
    ForCausalLMLoss,
    ForMaskedLMLoss,
    ForQuestionAnsweringLoss,
    ForSequenceClassificationLoss,
    ForTokenClassification,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ..errors import EmaisError
from ..functional import logit_gradients, token_cross_entropy
from .refusals import WAY_OUT

IGNORED = -100  # the label of what has no part in the loss
_TOKENS = (ForCausalLMLoss, ForMaskedLMLoss, ForTokenClassification)


@dataclass(frozen=True)
class Objective:
    """How the labels of a model meet its logits.

    tokens: whether each label is one of many in a sample; shifted: whether the label of a position is the next token;
    first_counts: whether a shifted sample's first label, which nothing predicts, is counted as an item all the same;
    smoothing: of the labels; config: the model's, which has num_labels and problem_type.
    """

    tokens: bool
    shifted: bool
    first_counts: bool
    smoothing: float
    config: Any

    @classmethod
    def of(cls, model: Any, smoothing: float, first_counts: bool = False) -> Objective:
        """That of a model from transformers, by its loss function."""
        loss = loss_function(model)
        if loss is ForQuestionAnsweringLoss:
            raise EmaisError(
                f"{type(model).__name__} returns start_logits and end_logits, not logits: question answering is not "
                "supported: use Trainer, or a plain loop (examples/01_five_lines/after.py)"
            )
        if loss not in (*_TOKENS, ForSequenceClassificationLoss):
            raise EmaisError(
                f"{type(model).__name__} has no loss that is known per sample (known are those of sequence "
                f"classification, causal and masked language models and token classification): {WAY_OUT}"
            )
        shifted = loss is ForCausalLMLoss and not getattr(model.config, "is_encoder_decoder", False)
        return cls(loss in _TOKENS, shifted, first_counts, smoothing, model.config)

    def count(self, batch: Mapping[str, Any]) -> Tensor:
        """How many items each sample of a minibatch has, (N,): its labels that are not ignored."""
        labels: Tensor | None = batch.get("shift_labels", batch.get("labels"))
        if labels is None:
            raise EmaisError(f"the minibatch has no labels, only {', '.join(map(str, batch))}: {WAY_OUT}")
        if not self.tokens:
            ignores = self._problem(labels) == "single"
            return labels.reshape(-1).ne(IGNORED) if ignores else torch.ones(len(labels))
        if self.shifted and not self.first_counts and "shift_labels" not in batch:
            labels = labels[..., 1:]
        return labels.ne(IGNORED).reshape(len(labels), -1).sum(1)

    def one_each(self, batch: Mapping[str, Any], samples: int) -> bool:
        """Whether each of so many samples surely has one item: a quick look, before they are counted."""
        labels = batch.get("labels")
        if self.tokens or labels is None or labels.shape[:1] != (samples,):
            return False
        return self._problem(labels) != "single" or (labels.numel() == samples and int(labels.min()) != IGNORED)

    def losses(self, logits: Tensor, labels: Tensor, r: Tensor) -> tuple[Tensor, dict[str, Tensor | None]]:
        """The loss of each sample, (N,): summed over its tokens, averaged over the outputs of a classifier.

        With it come the norms of the gradients where there are tokens, whose gradients are too large to be kept.
        """
        if self.tokens:
            found = token_cross_entropy(
                logits,
                labels,
                r.to(logits.device, non_blocking=True),
                ignore_index=IGNORED,
                label_smoothing=self.smoothing,
                reduction="sum",
                shift=self.shifted,
            )
            return found.losses, {"norms": found.norms, "mean_norm": found.mean_norm}
        outputs = logits if logits.dim() == 2 else logits.reshape(len(logits), -1)  # a view hides a short way back
        return self._of_outputs(outputs, labels), {}

    def _of_outputs(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of a classifier's outputs (N, K)."""
        kind = self._problem(labels)
        if kind == "single":
            return nnf.cross_entropy(
                outputs,
                labels.reshape(-1),
                ignore_index=IGNORED,
                reduction="none",
                label_smoothing=self.smoothing,
            )
        loss = nnf.mse_loss if kind == "regression" else nnf.binary_cross_entropy_with_logits
        return loss(outputs, labels.reshape(outputs.shape).to(outputs.dtype), reduction="none").mean(1)

    def _problem(self, labels: Tensor) -> str:
        """single, multi or regression: as the model's config says, or as transformers would guess."""
        said = {"single_label_classification": "single", "multi_label_classification": "multi"}
        kind = getattr(self.config, "problem_type", None)
        if kind is not None:
            return said.get(kind, "regression")
        if self.config.num_labels == 1:
            return "regression"
        return "multi" if labels.is_floating_point() else "single"


def loss_function(model: Any) -> Any:
    """The function that a model of transformers computes its loss with, or None. Its name alone may tell."""
    known = LOSS_MAPPING.get(getattr(model, "loss_type", None))
    if known is None and type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        known = ForCausalLMLoss
    return getattr(model, "_loss_function", known)  # one that the user has set


def norms_of(losses: Tensor, logits: Tensor, r: Tensor) -> dict[str, Tensor | None]:
    """The norms of gradients that are sequences, whose lengths may differ from minibatch to minibatch; else nothing."""
    if logits.dim() < 3:
        return {}
    g = logit_gradients(losses, logits).reshape(len(losses), -1)
    mean_norm = torch.linalg.vector_norm(r.to(g) @ g) / len(g)
    return {"norms": torch.linalg.vector_norm(g, dim=1), "mean_norm": mean_norm}
