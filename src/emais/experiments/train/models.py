"""The paper's networks, written out: LeNet5, ResNet18 and ResNet50, the latter with stochastic depth; and variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import EmaisError

SMALL_IMAGES = 40  # up to so many pixels a side the stem keeps the resolution


class Standardise(nn.Module):
    """(x - mean)/deviation, with the two numbers fixed: those of a training set whose images lie between 0 and 1."""

    def __init__(self, mean: float, deviation: float) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        return (x - self.mean) / self.deviation


class LeNet5(nn.Sequential):
    """The classic LeNet5 for 28x28 grey images from 0 to 1: tanh, average pooling, standardised inputs.

    Two convolutions and three linear layers, 61,706 parameters with ten classes. The inputs are standardised with
    Fashion-MNIST's mean and deviation. The paper does not say which LeNet5 it trains; with this one its errors appear.

    >>> sum(p.numel() for p in LeNet5().parameters())
    61706

    Paper: tab:setup
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(Standardise(0.2860, 0.3530), *lenet5_layers(nn.Tanh, nn.AvgPool2d, num_classes))


class LeNet5ReLU(nn.Sequential):
    """The same layers in today's taste: ReLU, max-pooling, inputs from 0 to 1 as they are.

    >>> sum(p.numel() for p in LeNet5ReLU().parameters())
    61706
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(*lenet5_layers(nn.ReLU, nn.MaxPool2d, num_classes))


def lenet5_layers(activation: type[nn.Module], pool: type[nn.Module], num_classes: int) -> list[nn.Module]:
    """Two convolutions, each with a pool after it, and three linear layers; an activation between each two."""
    return [
        nn.Conv2d(1, 6, 5, padding=2),
        activation(),
        pool(2),
        nn.Conv2d(6, 16, 5),
        activation(),
        pool(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        activation(),
        nn.Linear(120, 84),
        activation(),
        nn.Linear(84, num_classes),
    ]


Norm = Callable[[int], nn.Module]  # makes the normalisation of so many channels


def group_norm(channels: int) -> nn.Module:
    """GroupNorm over 32 groups: each image is normalised by itself, whatever else is in the minibatch."""
    return nn.GroupNorm(32, channels)


def conv(inputs: int, outputs: int, size: int, stride: int = 1, norm: Norm = nn.BatchNorm2d) -> nn.Sequential:
    """Convolution without bias, and normalisation."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), norm(outputs))


class ResidualBlock(nn.Module):
    """A branch beside a shortcut. Kinds of block set `widening` and say what the branch is made of."""

    widening = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm = nn.BatchNorm2d) -> None:
        super().__init__()
        self.outputs, self.norm = width * self.widening, norm
        self.branch = nn.ModuleList(self.parts(inputs, width, stride))
        same = stride == 1 and inputs == self.outputs
        self.shortcut = nn.Identity() if same else self.conv(inputs, self.outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def conv(self, inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
        """`conv` with the block's normalisation."""
        return conv(inputs, outputs, size, stride, self.norm)

    def parts(self, inputs: int, width: int, stride: int) -> list[nn.Sequential]:
        """The convolutions of the branch; a ReLU comes between each two."""
        raise NotImplementedError

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """(N, inputs, h, w) -> (N, outputs, h / stride, w / stride); keep (N, 1, 1, 1) multiplies the branch."""
        z = x
        for part in self.branch[:-1]:
            z = self.relu(part(z))
        z, short = self.branch[-1](z), self.shortcut(x)
        out: Tensor = self.relu(z + short if keep is None else torch.addcmul(short, z, keep))
        return out


class BasicBlock(ResidualBlock):
    """Two 3x3 convolutions beside a shortcut."""

    def parts(self, inputs: int, width: int, stride: int) -> list[nn.Sequential]:
        """3x3 twice."""
        return [self.conv(inputs, width, 3, stride), self.conv(width, width, 3)]


class Bottleneck(ResidualBlock):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the stride is the middle one's, as in torchvision."""

    widening = 4

    def parts(self, inputs: int, width: int, stride: int) -> list[nn.Sequential]:
        """Narrow, work, widen."""
        wide = width * self.widening
        return [self.conv(inputs, width, 1), self.conv(width, width, 3, stride), self.conv(width, wide, 1)]


def make_stem(kind: str, channels: int, width: int, norm: Norm = nn.BatchNorm2d) -> nn.Sequential:
    """`small`: 3x3, which keeps the resolution. `large`: 7x7 and max-pooling, which leave a quarter of it a side."""
    if kind not in ("small", "large"):
        raise EmaisError(f"stem must be small or large, got {kind!r}")
    if kind == "small":
        return nn.Sequential(conv(channels, width, 3, norm=norm), nn.ReLU(inplace=True))
    return nn.Sequential(conv(channels, width, 7, 2, norm), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))


class ResNet(nn.Module):
    """Four groups of blocks between a stem and a linear layer.

    stochastic_depth: in training a sample skips the branch of block l of L with probability l/L times this, and a
    branch that stays is divided by the probability to stay (Huang et al. 2016). norm: makes the normalisation after
    each convolution, BatchNorm by default.
    """

    survival: Tensor  # (blocks, 1): the probability of each branch to stay

    def __init__(
        self,
        block: type[ResidualBlock],
        counts: Sequence[int],
        num_classes: int = 10,
        *,
        channels: int = 3,
        width: int = 64,
        stem: str = "small",
        stochastic_depth: float = 0.0,
        norm: Norm = nn.BatchNorm2d,
    ) -> None:
        if not 0 <= stochastic_depth < 1:
            raise EmaisError(f"stochastic_depth must be at least 0 and below 1, got {stochastic_depth!r}")
        super().__init__()
        self.stem = make_stem(stem, channels, width, norm)
        blocks: list[ResidualBlock] = []
        inputs = width
        for group, count in enumerate(counts):
            for k in range(count):
                blocks.append(block(inputs, width * 2**group, 2 if group and not k else 1, norm))
                inputs = blocks[-1].outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, num_classes))
        self.stochastic_depth = stochastic_depth
        places = torch.arange(1, len(blocks) + 1).unsqueeze(1) / len(blocks)
        self.register_buffer("survival", 1 - stochastic_depth * places, persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Images (N, channels, h, w) -> (N, num_classes).

        u (blocks, N): uniform numbers that decide on the branches; without them torch's generator gives some.
        """
        x = self.stem(x)
        for block, keep in zip(self.blocks, self.keeps(x, u), strict=True):
            x = block(x, keep)
        logits: Tensor = self.head(x)
        return logits

    def keeps(self, x: Tensor, u: Tensor | None) -> Sequence[Tensor | None]:
        """What each block's branch is multiplied by, (N, 1, 1, 1): 0, or 1/survival. None: by 1."""
        if not self.training or not self.stochastic_depth:
            return [None] * len(self.blocks)
        if u is None:
            u = torch.rand(len(self.blocks), len(x), device=x.device)
        keep = ((u < self.survival) / self.survival).to(x.dtype)
        return keep.view(*keep.shape, 1, 1, 1).unbind()


class ResNet18(ResNet):
    """ResNet18, by default for 32x32 images: a 3x3 stem and no max-pooling. Settings: see `ResNet`.

    >>> sum(p.numel() for p in ResNet18().parameters())
    11173962

    Paper: tab:setup
    """

    def __init__(self, num_classes: int = 10, **options: Any) -> None:
        super().__init__(BasicBlock, (2, 2, 2, 2), num_classes, **options)


class ResNet50(ResNet):
    """ResNet50, by default with stochastic depth up to 0.5 and the stem for larger images. Settings: see `ResNet`.

    >>> sum(p.numel() for p in ResNet50(1000).parameters())
    25557032

    Paper: tab:setup
    """

    def __init__(
        self, num_classes: int = 14, *, stem: str = "large", stochastic_depth: float = 0.5, **options: Any
    ) -> None:
        super().__init__(Bottleneck, (3, 4, 6, 3), num_classes, stem=stem, stochastic_depth=stochastic_depth, **options)


class ResNet18GN(ResNet18):
    """ResNet18 with GroupNorm: without BatchNorm a sample's loss does not depend on who else was drawn.

    >>> sum(p.numel() for p in ResNet18GN().parameters())
    11173962
    """

    def __init__(self, num_classes: int = 10, **options: Any) -> None:
        super().__init__(num_classes, norm=group_norm, **options)


RESNETS: dict[str, Callable[..., ResNet]] = {"resnet18": ResNet18, "resnet18-gn": ResNet18GN, "resnet50": ResNet50}


def make_resnet(name: str, size: int, channels: int, num_classes: int) -> ResNet:
    """A network of `RESNETS` as the experiments run it on images of `size` pixels a side.

    The 3x3 stem is for images of 32 pixels. X-rays of 72 get the usual one: it leaves 18x18 for the first group and
    3x3 for the last, where the 3x3 stem would make the network 16 times as costly and look at detail that the
    shrunken images no longer have.

    >>> [type(layer).__name__ for layer in make_resnet("resnet50", 72, 1, 14).stem]
    ['Sequential', 'ReLU', 'MaxPool2d']
    """
    if name not in RESNETS:
        raise EmaisError(f"unknown network {name!r}: there are {', '.join(RESNETS)}")
    return RESNETS[name](num_classes, channels=channels, stem="small" if size <= SMALL_IMAGES else "large")


def perceptron() -> nn.Module:
    """One hidden layer of 64 units for 8x8 images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


SMALL: dict[str, Callable[[], nn.Module]] = {"lenet5": LeNet5, "lenet5-relu": LeNet5ReLU, "perceptron": perceptron}
