"""The paper's networks, written out: LeNet5 and ResNet18 with the stem for 32x32 images."""

from __future__ import annotations

from torch import Tensor, nn


class LeNet5(nn.Sequential):
    """Two convolutions and three linear layers for 28x28 grey images: 61,706 parameters with ten classes.

    >>> sum(p.numel() for p in LeNet5().parameters())
    61706

    Paper: tab:setup
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, num_classes),
        )


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, and batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, 3, stride)
        self.second = conv(outputs, outputs, 3)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, h, w) -> (N, outputs, h / stride, w / stride)."""
        return self.relu(self.second(self.relu(self.first(x))) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """ResNet18 for 32x32 images: a 3x3 stem and no max-pooling.

    >>> sum(p.numel() for p in ResNet18().parameters())
    11173962

    Paper: tab:setup
    """

    def __init__(self, num_classes: int = 10) -> None:
        layers: list[nn.Module] = [conv(3, 64, 3), nn.ReLU(inplace=True)]
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
