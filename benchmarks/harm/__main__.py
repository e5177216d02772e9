"""The command: choose problems, run what is not in the file yet, print the table."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import torch

import emais
from emais.experiments.analysis.harm_differences import Harm
from emais.experiments.analysis.harm_runs import BASE, ENTRIES, EQUAL_STEPS, PROGRESS, Tuned
from emais.experiments.report.tables.cells import to_markdown
from emais.experiments.report.tables.harm import harm_tables

from . import __doc__ as about
from .data import Folders, NotInstalled
from .problems import PROBLEMS
from .suite import Store, Suite

RESULTS = Path(__file__).parents[1] / "results" / "harm.jsonl"
RAISED = RESULTS.with_name("harm_decay.jsonl")
UNSCALED = RESULTS.with_name("harm_unscaled.jsonl")
QUICK = Path("out") / "harm_quick.jsonl"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.harm", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PROBLEMS), help="problems, with commas between them")
    parser.add_argument("--seeds", type=int, default=None, help="of the comparison, from 0 on (default 10)")
    parser.add_argument("--quick", action="store_true", help=f"a tenth of the steps, 2 seeds, into {QUICK}")
    parser.add_argument("--table", action="store_true", help="run nothing, print the tables of the file")
    parser.add_argument(
        "--out", type=Path, default=None, help=f"the file of runs (default benchmarks/results/{RESULTS.name})"
    )
    parser.add_argument("--fmnist", type=Path, default=None, help="folder of Fashion-MNIST's four files")
    parser.add_argument("--sst2", type=Path, default=None, help="folder of SST-2's train.tsv")
    parser.add_argument(
        "--decay-times", type=float, default=None, help=f"SGD-Scan and EMAIS-auto with more decay, into {RAISED.name}"
    )
    parser.add_argument(
        "--unscaled-decay", action="store_true", help=f"EMAIS-auto with scale_decay=False, into {UNSCALED.name}"
    )
    args = parser.parse_args(arguments)
    names = [] if args.table else args.only.split(",")
    if unknown := [name for name in names if name not in PROBLEMS]:
        parser.error(f"unknown problem {unknown[0]!r}: there are {', '.join(PROBLEMS)}")
    torch.set_num_threads(1)  # networks so small gain nothing from a second one
    store, folders = Store(args.out or (QUICK if args.quick else RESULTS)), Folders(args.fmnist, args.sst2)
    scale = {"tuning_seeds": 1, "divided_by": 10} if args.quick else {}
    suite = Suite(store, folders, args.seeds or (2 if args.quick else 10), **scale)
    for name in names:
        run(suite, name, args.decay_times, args.unscaled_decay)
    print("\n\n".join(map(to_markdown, harm_tables(Harm(store.runs)))))
    print(f"\nSource of the library: {', '.join(sorted({run.source for run in store.runs}))}")


def run(suite: Suite, name: str, decay_times: float | None = None, unscaled: bool = False) -> None:
    """All runs of one problem, with a line for each; a problem without its data is skipped."""
    problem = PROBLEMS[name]
    try:
        problem.data(suite.folders, 0)
    except (NotInstalled, emais.EmaisError, ImportError) as error:
        print(f"{name} is skipped: {error}", flush=True)
        return
    setting = suite.tuned(problem)
    print(f"{name}: rate {setting.rate:g}, weight decay {setting.decay:g}", flush=True)
    if unscaled:
        own = replace(suite, store=Store(UNSCALED), scale_decay=False)
        runs = own.compared(problem, setting, (EQUAL_STEPS, PROGRESS))
    elif decay_times is None:
        runs = suite.compared(problem, setting)
    else:
        raised = Tuned(setting.rate, float(f"{decay_times * setting.decay:.6g}"))
        runs = replace(suite, store=Store(RAISED)).compared(problem, raised, (BASE, EQUAL_STEPS))
    for found in runs:
        losses = f"train {found.train_loss}, test {found.test_loss}, error {found.test_error}"
        print(f"  seed {found.seed} {ENTRIES[found.entry]:<26} {found.steps:>5} steps: {losses}", flush=True)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The epoch parameter in `scheduler.step", UserWarning)  # torch's own chains
        main()
