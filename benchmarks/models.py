"""Our ResNets against torchvision's: the same weights, the same images, the largest difference of the logits.

    python benchmarks/models.py [--device cpu|cuda]

torchvision's stem is replaced where ours differs (3x3 without max-pooling for small images, one channel for grey
ones). Weights go over in the order in which both list them. In float64, so that what differs is the network.
Exits with 1 if a difference is above 1e-9.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import nn

from emais.experiments.train.models import ResNet, ResNet18, ResNet50

CASES: dict[str, tuple[str, Callable[[], ResNet], int]] = {
    "ResNet18, 3x3 stem, 32 px": ("resnet18", lambda: ResNet18(10), 32),
    "ResNet18, usual stem, 96 px": ("resnet18", lambda: ResNet18(10, stem="large"), 96),
    "ResNet50, 3x3 stem, 32 px": ("resnet50", lambda: ResNet50(10, stem="small", stochastic_depth=0.0), 32),
    "ResNet50, usual stem, grey, 72 px": ("resnet50", lambda: ResNet50(14, channels=1, stochastic_depth=0.0), 72),
}


def reference(name: str, like: ResNet) -> nn.Module:
    """torchvision's network with a stem as ours."""
    import torchvision

    net = getattr(torchvision.models, name)(num_classes=like.head[-1].out_features)
    ours = like.stem[0][0]
    size, stride, pad = ours.kernel_size, ours.stride, ours.padding
    net.conv1 = nn.Conv2d(ours.in_channels, ours.out_channels, size, stride, pad, bias=False)
    if len(like.stem) == 2:
        net.maxpool = nn.Identity()
    return net


def copy_in_order(source: nn.Module, target: nn.Module) -> None:
    """The weights and running statistics of one network into another that lists the same in the same order."""
    theirs, ours = list(source.state_dict().items()), list(target.state_dict().items())
    if len(theirs) != len(ours):
        raise SystemExit(f"{len(theirs)} tensors against {len(ours)}")
    for (name, x), (place, y) in zip(theirs, ours, strict=True):
        if x.shape != y.shape:
            raise SystemExit(f"{name} is {tuple(x.shape)}, {place} is {tuple(y.shape)}")
        y.copy_(x)


@torch.no_grad()
def differences(ours: ResNet, theirs: nn.Module, size: int, device: str) -> dict[str, float]:
    """Largest difference of the logits, in training and, with the running statistics that this left, in evaluation."""
    for p in theirs.parameters():  # no two alike, also where initial weights are all 0 or 1
        p.add_(0.1 * torch.rand_like(p) * p.abs().mean().clamp(min=0.1))
    copy_in_order(theirs, ours)
    ours.to(device).double()
    theirs.to(device).double()
    x = torch.randn(16, ours.stem[0][0].in_channels, size, size, device=device, dtype=torch.float64)
    found = {}
    for mode in (True, False):
        a, b = ours.train(mode)(x), theirs.train(mode)(x)
        found["training" if mode else "evaluation"] = float((a - b).abs().max() / b.abs().max())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    device = parser.parse_args().device
    try:
        import torchvision
    except ImportError:
        raise SystemExit("this comparison needs torchvision, which is not installed: pip install torchvision") from None
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, {device}")
    worst = 0.0
    for title, (name, make, size) in CASES.items():
        ours = make()
        found = differences(ours, reference(name, ours), size, device)
        worst = max(worst, *found.values())
        print(f"{title:<36}" + "".join(f"  {mode} {x:.2e}" for mode, x in found.items()))
    print(f"largest relative difference {worst:.2e}")
    sys.exit(worst > 1e-9)


if __name__ == "__main__":
    main()
