"""The data of the experiments, each as one `Data`: uint8 images and labels, for training and for testing.

`load` finds the files as their publisher lays them out, checks them, and decodes them once: what took long is kept
in a cache folder (`places.py` says where files are looked for and kept).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from ...errors import EmaisError, UnknownOption
from .base import Data
from .chestxray14 import load_chestxray14
from .cifar10 import load_cifar10
from .cinic10 import load_cinic10
from .digits import load_digits
from .fmnist import load_fmnist
from .places import OPTION

__all__ = ["DATA_NAMES", "Data", "load"]

LOADERS: dict[str, Callable[..., Data]] = {
    "digits": load_digits,
    "fmnist": load_fmnist,
    "cifar10": load_cifar10,
    "cinic10": load_cinic10,
    "chestxray14": load_chestxray14,
}
DATA_NAMES = tuple(LOADERS)


def load(name: str, folder: Path | str | None = None, **options: int) -> Data:
    """Load `digits`, `fmnist`, `cifar10`, `cinic10` or `chestxray14`.

    folder: where the files are, or the archive that holds them, and nothing else is looked at; by default they are
    looked for in $EMAIS_DATA and in ./data. options: `size` of ChestX-ray14's images in pixels, `per_class` of
    CINIC-10.

    >>> data = load("digits")
    >>> data.x_train.shape, data.x_train.dtype, data.num_classes
    (torch.Size([1437, 1, 8, 8]), torch.uint8, 10)
    """
    if name not in LOADERS:
        raise EmaisError(f"unknown data set {name!r}: there are {', '.join(LOADERS)}")
    known = [key for key in inspect.signature(LOADERS[name]).parameters if key != "folder"]
    for option in options:
        if option not in known:
            raise UnknownOption(name, option, known)
    if folder is not None and not Path(folder).expanduser().exists():
        raise EmaisError(f"the folder {folder} does not exist: say where the data are ({OPTION})")
    return LOADERS[name](folder, **options)
