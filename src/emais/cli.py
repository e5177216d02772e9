"""The `emais` command: reads the arguments, calls the experiments, shows errors as one line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from . import __version__
from .errors import EmaisError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0: done, 1: output pipe closed, 2: an error that the message explains, 130: stopped.
    """
    top = parser()
    args, rest = top.parse_known_args(argv)
    if rest and (not hasattr(args, "config") or any(word.startswith("-") for word in rest)):
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    elif rest:
        args.config += rest  # words after an option
    try:
        args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # output pipe closed, as by emais reproduce ... | head
        silence(sys.stdout)
        silence(sys.stderr)
        return 1
    except (EmaisError, OSError) as error:
        print(f"emais: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("emais: stopped", file=sys.stderr)
        return 130
    return 0


def silence(stream: TextIO | None) -> None:
    """Discard further output once the pipe is closed: Python would complain at exit."""
    try:
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="emais", description="Importance sampling for PyTorch training, with numbers that say whether it helps."
    )
    top.add_argument("--version", action="version", version=f"emais {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_demo(commands)
    add_train(commands)
    add_reproduce(commands)
    add_report(commands)
    add_audit(commands)
    return top


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`emais demo`."""
    text = (
        "train SGD-Scan, EMAIS and EMAIS-auto side by side, print a table and a verdict, write a page with the curves"
    )
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
    demo.set_defaults(run=demo_command)


def demo_command(args: argparse.Namespace) -> None:
    """Hand the options of `emais demo` on; the experiments are imported only here, where they are needed."""
    from .experiments.demo import run_demo

    run_demo(args.data, args.seeds, args.steps, args.out, args.folder)


KEYS = (
    "Keys: data, model and method, which must be given (one that is not known is answered with those that are); "
    "optimizer (sgd), lr (0.01), weight_decay (0.001), num_steps (6250), seed (0), batch_size (128), momentum (0.9), "
    "rule (the method's), refresh_every (0: never), follow (no other run), schedule (steps), and the settings of the "
    "method."
)


def add_train(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`emais train`."""
    text = "run what a short text describes, e.g. data=fmnist model=lenet5 method=emais num_steps=6250 seed=0-4"
    train = commands.add_parser("train", help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=KEYS)
    train.add_argument("config", nargs="+", metavar="KEY=VALUE", help="a,b for several values, 0-4 for seeds")
    train.add_argument(
        "--results", type=Path, metavar="FILE", default=Path("out/runs.jsonl"), help="(default: out/runs.jsonl)"
    )
    running_options(train)
    train.set_defaults(run=run_train)


def add_reproduce(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`emais reproduce`."""
    text = "run what a table or figure of the paper needs, as far as it is not there yet, and print it"
    reproduce = commands.add_parser("reproduce", help=text, description=f"{text[0].upper()}{text[1:]}.")
    reproduce.add_argument("label", nargs="?", help="its label in the paper, e.g. tab:res_fmnist")
    reproduce.add_argument("--list", action="store_true", help="list all labels")
    reproduce.add_argument("--seeds", type=int, metavar="K", help="number of seeds (default: 5)")
    reproduce.add_argument(
        "--results", type=Path, metavar="DIR", help="folder of result files (default: results, which must be there)"
    )
    running_options(reproduce)
    reproduce.set_defaults(run=run_reproduce)


def running_options(command: argparse.ArgumentParser) -> None:
    """What all commands that train share."""
    command.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    command.add_argument(
        "--budget", type=float, metavar="MINUTES", help="start no run after so long; what is running is finished"
    )
    command.add_argument("--folder", type=Path, metavar="DIR", help="where the data are")


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`emais report`."""
    text = "write all tables and figures that there are results for as one page, or all runs of one file"
    report = commands.add_parser("report", help=text, description=f"{text[0].upper()}{text[1:]}.")
    report.add_argument(
        "source", nargs="?", type=Path, metavar="RUN", help="file of `emais train`, or the log of a run (.jsonl, .csv)"
    )
    report.add_argument(
        "--results",
        type=Path,
        metavar="DIR|FILE",
        help="folder of `emais reproduce` or file of `emais train` (default: results)",
    )
    report.add_argument("--out", type=Path, metavar="FILE", help="(default: out/report.html)")
    report.add_argument(
        "--watch",
        action="store_true",
        help="serve RUN's page to this computer until Ctrl-C, then write it to --out",
    )
    report.add_argument("--port", type=int, default=8717, help="of --watch; 0: any that is free (default: 8717)")
    report.set_defaults(run=run_report)


def add_audit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`emais audit`."""
    text = "train a few epochs on a small data set and say what importance sampling is worth there"
    audit = commands.add_parser("audit", help=text, description=f"{text[0].upper()}{text[1:]}.")
    audit.add_argument("--data", choices=("digits", "fmnist"), default="digits", help="data set (default: digits)")
    audit.add_argument("--model", help="perceptron for digits, lenet5 (default) or lenet5-relu for fmnist")
    audit.add_argument("--steps", type=int, metavar="T", help="steps (default: 20 epochs of digits, 5 of fmnist)")
    audit.add_argument("--batch-size", type=int, metavar="N", help="(default: 32 for digits, 128 for fmnist)")
    audit.add_argument("--lr", type=float, help="learning rate of SGD (default: 0.1 for digits, 0.01 for fmnist)")
    audit.add_argument("--seed", type=int, default=0, help="(default: 0)")
    audit.add_argument("--folder", type=Path, metavar="DIR", help="where Fashion-MNIST's files are")
    audit.set_defaults(run=run_audit)


def run_audit(args: argparse.Namespace) -> None:
    """Hand the options of `emais audit` on."""
    from .experiments.audit import print_audit

    print_audit(args.data, args.model, args.steps, args.batch_size, args.lr, args.seed, args.folder)


def run_train(args: argparse.Namespace) -> None:
    """Hand the options of `emais train` on."""
    from .experiments.commands import train

    train(" ".join(args.config), args.results, args.device, args.folder, args.budget)


def run_reproduce(args: argparse.Namespace) -> None:
    """Hand the options of `emais reproduce` on."""
    from .experiments.commands import listing, reproduce

    if args.list or args.label is None:
        print(listing())
    else:
        reproduce(args.label, args.results, args.seeds, args.device, args.folder, args.budget)


def run_report(args: argparse.Namespace) -> None:
    """Hand the options of `emais report` on."""
    from .experiments.commands import report
    from .experiments.live import watch

    if args.source is not None and args.results is not None:
        raise EmaisError(f"give {args.source} or --results {args.results}, not both")
    source = args.source or args.results
    if args.watch and source is None:
        raise EmaisError("--watch needs the file of a run: emais report run.jsonl --watch")
    if args.watch:
        watch(source, args.port)
    if args.out is not None or not args.watch:
        report(source or Path("results"), args.out or Path("out/report.html"))
