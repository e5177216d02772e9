"""The paper's mathematics as pure functions: no state, no randomness, no input or output.

Letters follow the paper (docs/math.md has the table): ``r`` is the importance coefficient
(1/M)/p_i of a drawn sample, ``grads`` its gradient in any space (logits or parameters), one row per sample,
not divided by the minibatch size.
"""

from __future__ import annotations

from .gradients import binary_cross_entropy_gradients, cross_entropy_gradients, logit_gradients, parameter_gradients
from .probabilities import adjusted_probabilities, importance_coefficients
from .probabilities import check_flattening as check_flattening
from .rates import (
    LR_RULES,
    effective_batch_size,
    efficiency_score,
    guard_scale,
    lr_scale,
    moment_gain,
)
from .rates import MAX_SCALE as MAX_SCALE
from .rates import scale_ratio as scale_ratio
from .tokens import TokenLosses, token_cross_entropy
from .traces import GradientSums, VarianceTraces, gradient_sums, trace_under, variance_traces

__all__ = [
    "LR_RULES",
    "GradientSums",
    "TokenLosses",
    "VarianceTraces",
    "adjusted_probabilities",
    "binary_cross_entropy_gradients",
    "cross_entropy_gradients",
    "effective_batch_size",
    "efficiency_score",
    "gradient_sums",
    "guard_scale",
    "importance_coefficients",
    "logit_gradients",
    "lr_scale",
    "moment_gain",
    "parameter_gradients",
    "token_cross_entropy",
    "trace_under",
    "variance_traces",
]
