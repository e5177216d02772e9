"""What the command `audit` does: the pilot on a data set that comes along, with the settings of the demo."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import TensorDataset

import emais

from ..errors import positive_float, positive_int, whole_number
from .config import choose
from .data import load
from .demo import DEMOS, one_thread
from .train.loop import initialised
from .train.models import SMALL

FITTING = {"digits": ("perceptron",), "fmnist": ("lenet5", "lenet5-relu")}  # the images of a data set
PILOT_EPOCHS = {"digits": 20, "fmnist": 5}  # N_ems of the small one rises for ten


def print_audit(
    data: str = "digits",
    model: str | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int = 0,
    folder: Path | str | None = None,
) -> emais.Finding:
    """Train from the start and print what importance sampling is worth.

    steps: by default 20 epochs of digits, or 5 of fmnist.
    """
    choose("data set", data, FITTING)
    demo = DEMOS[data]
    model = model or demo.model
    choose(f"model for {data}", model, FITTING[data])
    size = positive_int("batch_size", demo.batch_size if batch_size is None else batch_size)
    rate = positive_float("lr", demo.lr if lr is None else lr)
    whole_number("seed", seed, 0, 2**63 - 1)
    found = load(data, folder)
    dataset = TensorDataset(found.scaled(found.x_train), found.y_train)
    steps = PILOT_EPOCHS[data] * math.ceil(len(dataset) / size) if steps is None else positive_int("steps", steps)
    net = initialised(SMALL[model], seed)
    optimizer = SGD(net.parameters(), lr=rate, momentum=0.9, weight_decay=demo.weight_decay)
    with one_thread():
        finding = emais.audit(net, dataset, per_sample_loss, optimizer, batch_size=size, steps=steps, seed=seed)
    print(f"{model} on {demo.data_title}, N = {size}, SGD at {rate:g} with momentum 0.9, seed {seed}.\n{finding}")
    return finding


def per_sample_loss(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Cross-entropy of images and labels."""
    images, labels = batch
    logits = model(images)
    return cross_entropy(logits, labels, reduction="none"), logits
