"""Milliseconds a step of one network alone with everything in, for all methods by turns, and ratios to SGD-Scan.

    python benchmarks/single.py [--model lenet5|resnet18|resnet50] [--methods emais,rais] [--compile] [--out FOLDER]

Draw, crop and flip, forward, backward, statistics, update and log, as `ResNetRun` (emais.experiments.train) runs them:
on a GPU in bf16 as one CUDA graph. Images and labels are random: lenet5 on 60,000 grey images of 28 pixels with
ten classes, resnet18 on 50,000 colour ones of 32, resnet50 on 4,000 grey ones of 80 with 14 labels, which Confidence
and ConfVar do not take. What RAIS (refits) and EMAIS-auto (decisions) do only now and then is timed apart and added.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from common import Step, hardware, save, seldom, side_by_side

import emais
from emais.experiments.config import Config
from emais.experiments.data import Data
from emais.experiments.train.models import LeNet5
from emais.experiments.train.resnet_run import ResNetRun

SHAPES = {
    "lenet5": ("fmnist", 60_000, 1, 28, 10),
    "resnet18": ("cifar10", 50_000, 3, 32, 10),
    "resnet50": ("chestxray14", 4_000, 1, 80, 14),
}


def made_up(model: str, share: float) -> Data:
    """Random data of the size that the model is for, or a share of it."""
    name, count, channels, size, classes = SHAPES[model]
    count = max(256, int(share * count))
    x = torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8)
    y = (torch.rand(count, classes) < 0.1).float() if name == "chestxray14" else torch.randint(classes, (count,))
    return Data(name, "random", tuple(map(str, range(classes))), x, y, x[:256], y[:256])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="resnet18", choices=list(SHAPES))
    parser.add_argument("--methods", default=",".join(emais.METHODS))
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40, help="steps of a block")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--share", type=float, default=1.0, help="of the images")
    parser.add_argument("--compile", action="store_true", help="the network through torch.compile")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = made_up(args.model, args.share)
    methods = ["sgd-scan", *(m for m in args.methods.split(",") if m != "sgd-scan")]
    if data.multi_label:
        methods = [m for m in methods if m not in ("confidence", "confvar")]
    total = (args.blocks + 1) * args.steps + 8

    def make(method: str) -> Step:
        run = Config(data.name, args.model, method, lr=0.1, num_steps=total, batch_size=args.batch_size)
        own = LeNet5 if args.model == "lenet5" else None  # the configuration's
        trainer = ResNetRun(run, data, args.device, model=own, compiled=args.compile)
        trainer.advance(4)  # and the step is captured
        extra = seldom(trainer.imp)
        return Step(lambda: trainer.advance(args.steps), lambda: args.steps * extra())

    steps = {"sgd" if method == "sgd-scan" else method: make(method) for method in methods}
    rows = []
    for name, (ms, ratio) in side_by_side(steps, 1, args.blocks).items():
        row = {"case": f"{args.model} alone", "method": name.replace("sgd", "sgd-scan") if name == "sgd" else name}
        row |= {"ms": round(ms / args.steps, 4), "ratio": round(ratio, 4), "compiled": args.compile}
        rows.append(row | {"batch_size": args.batch_size, "hardware": hardware()})
        print(f"{args.model} {row['method']:<14} {row['ms']:9.3f} ms  ratio {ratio:.3f}", flush=True)
    if args.out is not None:
        print("saved", save(f"single_{args.model}.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
