"""scikit-learn's handwritten digits, which come inside its package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...errors import EmaisError
from .base import Data

SPLIT_SEED = 0  # of the permutation that splits the digits into training and test


def load_digits(folder: Path | str | None = None) -> Data:
    """1797 images of 8x8, from 0 to 16; a fixed 80 % of them train, the other 20 % test. No folder is needed."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise EmaisError(
            "the digits data come with scikit-learn, which is not installed: pip install 'emais[demo]'"
        ) from error
    bunch = datasets.load_digits()
    x, y = bunch.images.astype(np.uint8)[:, None], bunch.target.astype(np.uint8)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(SPLIT_SEED)).numpy()
    train, test = order[: len(x) * 4 // 5], order[len(x) * 4 // 5 :]
    arrays = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return Data.of("digits", "scikit-learn’s digits", tuple("0123456789"), arrays, white=16)
