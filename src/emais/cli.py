"""The `emais` command: reads the arguments, calls the experiments, shows errors as one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .errors import EmaisError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0 done, 2 an error the message explains, 130 stopped."""
    args = parser().parse_args(argv)
    try:
        args.run(args)
    except EmaisError as error:
        print(f"emais: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("emais: stopped", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="emais", description="Importance sampling for PyTorch training, with numbers that say whether it helps."
    )
    top.add_argument("--version", action="version", version=f"emais {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_demo(commands)
    return top


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`emais demo`."""
    text = "train SGD-Scan and EMAIS side by side, print a table and a verdict, write a page with the curves"
    demo = commands.add_parser("demo", help=text, description=f"{text[0].upper()}{text[1:]}.")
    demo.add_argument("--data", choices=("digits", "fmnist"), default="digits", help="data set (default: digits)")
    demo.add_argument("--seeds", type=int, metavar="K", help="number of seeds (default: 5 for digits, 3 for fmnist)")
    demo.add_argument(
        "--steps", type=int, metavar="T", help="steps of each run (default: 4000 for digits, 6250 for fmnist)"
    )
    demo.add_argument(
        "--out", type=Path, metavar="FILE", default=Path("out/demo.html"), help="the page (default: out/demo.html)"
    )
    demo.add_argument("--folder", type=Path, metavar="DIR", help="where Fashion-MNIST's files are")
    demo.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> None:
    """Hand the options of `emais demo` on; the experiments are imported only here, where they are needed."""
    from .experiments.demo import run_demo

    run_demo(args.data, args.seeds, args.steps, args.out, args.folder)
