"""Images that lie on a device: random crops and flips of a whole minibatch, normalised, with no host sync.

Randomness is handed in as uniform numbers, which `emais.draws.uniforms` makes from (seed, step): a captured step crops
afresh on every replay.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import EmaisError
from ..data import Data

CROP_SHARE = 0.9  # share of a larger image that a crop covers


class Recipe(NamedTuple):
    """crop: pixels a side (None: all); pad: black pixels added on every side before; flip: left to right, or not."""

    crop: int | None = None
    pad: int = 0
    flip: bool = False


WHOLE_IMAGE = Recipe()


def recipe(data: Data) -> Recipe:
    """The paper's augmentation of a data set: crops of the padded image, or, where images leave room, of the image.

    Paper: tab:setup
    """
    size = data.x_train.shape[-1]
    if data.name in ("cifar10", "cinic10"):
        return Recipe(size, 4, True)
    if data.name == "chestxray14":
        return Recipe(round(CROP_SHARE * size), 0, True)
    return WHOLE_IMAGE


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of uint8 images (n, C, H, W), exact, from a histogram of the bytes.

    A channel of one colour has the deviation 1.

    >>> channel_statistics(torch.tensor([[[[0, 4]]]], dtype=torch.uint8))
    (tensor([2.], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([torch.bincount(x.flatten(), minlength=256) for x in images.unbind(1)]).cpu().double()
    shares = counts / counts.sum(1, keepdim=True)
    mean = shares @ values
    deviation = (shares * (values - mean.unsqueeze(1)).square()).sum(1).sqrt()
    return mean, torch.where(deviation > 0, deviation, 1.0)


class Pictures:
    """uint8 images (M, C, H, W) on a device; a call crops, flips and normalises those of a minibatch.

    statistics: mean and deviation of each channel, by default of these images; the test set takes the training set's.

    >>> pictures = Pictures(torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8), Recipe(8, pad=2, flip=True))
    >>> pictures(torch.tensor([3, 3]), torch.rand(2)).shape, pictures.positions
    (torch.Size([2, 3, 8, 8]), 50)
    """

    def __init__(
        self,
        images: Tensor,
        recipe: Recipe = WHOLE_IMAGE,
        *,
        statistics: tuple[Tensor, Tensor] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        images = images.to(device)
        self.statistics = statistics or channel_statistics(images)
        mean, deviation = self.statistics
        self._scale = (1 / deviation).float().to(device)
        self._shift = (-mean / deviation).float().to(device)
        count, channels, *sides = images.shape
        pad, high, wide = recipe.pad, recipe.crop or sides[0], recipe.crop or sides[1]
        spans = [side + 2 * pad - crop + 1 for side, crop in zip(sides, (high, wide), strict=True)]
        if min(spans) < 1:
            raise EmaisError(f"a crop of {high} x {wide} does not fit into {sides[0]} x {sides[1]} padded by {pad}")
        # padded once for all, with the channels last: then a crop is one gather, in the layout that GPUs like best
        self._images = torch.zeros(
            count, sides[0] + 2 * pad, sides[1] + 2 * pad, channels, dtype=torch.uint8, device=device
        )
        self._images[:, pad : pad + sides[0], pad : pad + sides[1]] = images.permute(0, 2, 3, 1)
        self._rows, self._columns = (x.to(device) for x in positions(spans, (high, wide), recipe.flip))
        middle = spans[0] // 2 * spans[1] + spans[1] // 2
        self._middle = torch.tensor([middle], device=device)

    def __len__(self) -> int:
        return len(self._images)

    @property
    def positions(self) -> int:
        """In how many ways an image may come out."""
        return len(self._rows)

    def __call__(self, index: Tensor, u: Tensor | None = None) -> Tensor:
        """Images index (n,), (n, C, h, w) float32 with the channels last in memory.

        u (n,): uniform numbers that choose crop and flip, each image's its own. None: the crop in the middle.
        """
        at = self._middle if u is None else (u * self.positions).long()
        rows, columns = self._rows.index_select(0, at).unsqueeze(2), self._columns.index_select(0, at).unsqueeze(1)
        chosen = self._images[index.view(-1, 1, 1), rows, columns]
        return torch.addcmul(self._shift, chosen, self._scale).permute(0, 3, 1, 2)


def train_and_test_pictures(data: Data, device: torch.device | str = "cpu") -> tuple[Pictures, Pictures]:
    """The images to train on, cropped as the paper does, and those to test on, of which the middle is taken."""
    how = recipe(data)
    train = Pictures(data.x_train, how, device=device)
    middle = WHOLE_IMAGE._replace(crop=how.crop)
    return train, Pictures(data.x_test, middle, statistics=train.statistics, device=device)


def positions(spans: list[int], crop: tuple[int, int], flip: bool) -> tuple[Tensor, Tensor]:
    """Rows (P, h) and columns (P, w) of every crop: offsets spans[0] x spans[1], all plain, then all flipped."""
    offsets = torch.cartesian_prod(*(torch.arange(span) for span in spans)).view(-1, 2)
    rows = offsets[:, :1] + torch.arange(crop[0])
    columns = offsets[:, 1:] + torch.arange(crop[1])
    if flip:
        rows, columns = rows.repeat(2, 1), torch.cat((columns, columns.flip(1)))
    return rows, columns
