"""What the commands `train`, `reproduce` and `report` do."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path

import torch

from ..errors import EmaisError, positive_float
from . import scatter
from .catalogue import ITEMS
from .cells import to_markdown
from .config import Config, choose, parse
from .demo import with_spread
from .logit_study import SNAPSHOTS, read_study, write_study
from .paper import SEEDS
from .results import Record, Results, key_of
from .runner import run_all
from .selection import STAR, present, settings_of
from .steptimes import LABELS, time_tables, timings_of

MEASURE = (
    "python benchmarks/step.py --out benchmarks/results, and for a model alone python benchmarks/single.py --model "
    "lenet5|resnet18|resnet50 --out benchmarks/results"
)


def train(text: str, path: Path, device: str | None, folder: Path | None, budget: float | None) -> None:
    """Run all that the text describes, and print a line for each setting."""
    configs = parse(text)
    must_be_file("--results", path, "runs.jsonl")
    if not Results(path).missing(configs):
        print("Nothing was left to run.")
    try:
        missing = run_all(configs, path, device=device or default_device(), folder=folder, budget=budget)
    except KeyboardInterrupt:
        print(summary(configs, Results(path).read()))
        raise
    print(summary(configs, Results(path).read()))
    say_missing(missing)
    print(f"All runs: {path}")


def reproduce(
    label: str, given: Path | None, seeds: int | None, device: str | None, data: Path | None, budget: float | None
) -> None:
    """Run what a table or figure lacks, as far as it is made of runs, and print it, or say where it is."""
    choose("table or figure", label, [*ITEMS, *scatter.TITLES, *LABELS])
    folder = given or Path("results")
    must_be_folder("--results", folder)
    if label not in ITEMS and (seeds is not None or budget is not None):
        print(f"{label} is not made of runs over seeds: --seeds and --budget do not apply to it.")
    if label in LABELS:
        print_times(label, folder)
        return
    if given is None and not folder.exists():
        raise EmaisError(
            "there is no folder results here, so everything would be run from the start: go to a clone of the "
            "repository, which has results, or say where they shall go with --results DIR"
        )
    if label in ITEMS:
        reproduce_runs(label, folder, SEEDS if seeds is None else seeds, device, data, budget)
        return
    study = folder / "full_logit.jsonl"
    if not {record["step"] for record in read_study(study)} >= set(SNAPSHOTS):
        write_study(study, SNAPSHOTS, 0, device or default_device(), data)
    print(f"{scatter.TITLES[label]}: {study}; `emais report` draws it.")


def print_times(label: str, folder: Path) -> None:
    """A table of times, from what the benchmarks have measured."""
    made = time_tables(timings_of(folder))
    if label not in made:
        raise EmaisError(f"nothing was measured for {label} yet: in a clone of the repository, run {MEASURE}")
    print(f"{to_markdown(made[label])}\n\n{STAR}")


def reproduce_runs(
    label: str, folder: Path, seeds: int, device: str | None, data: Path | None, budget: float | None
) -> None:
    """Run what a table or figure lacks, each data set into its own file, and print the table."""
    from .tables import markdown

    configs = ITEMS[label].configs(seeds)
    missing: list[Config] = []
    failed: EmaisError | None = None
    end = None if budget is None else time.monotonic() + 60 * positive_float("budget", budget)
    try:
        for name in sorted({config.data for config in configs}, reverse=True):  # the quick ones first
            own = [config for config in configs if config.data == name]
            path = folder / f"{name}.jsonl"
            left = None if end is None else max(1e-9, (end - time.monotonic()) / 60)
            try:
                missing += run_all(own, path, device=device or default_device(), folder=data, budget=left)
            except EmaisError as error:  # a data set that is not there keeps nobody from the others
                failed = failed or error
    finally:  # also after Ctrl-C: what is there is shown
        print(markdown(label, read_all(folder)))
    say_missing(missing)
    if failed is not None:
        raise failed


def report(folder: Path, out: Path) -> None:
    """All tables and figures as one page."""
    from .report import write_report

    must_be_folder("--results", folder)
    must_be_file("--out", out, "report.html")
    records = read_all(folder)
    if not records:
        raise EmaisError(
            f"there are no results in {folder}, where {', '.join(result_files())} are looked for: run `emais reproduce "
            "LABEL` first, or give --results"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_report(records, out, timings_of(folder), read_study(folder / "full_logit.jsonl"))
    print(f"The report: {out}")


def must_be_file(option: str, path: Path, name: str) -> None:
    """Refuse a folder, and name a file in it."""
    if path.is_dir():
        raise EmaisError(f"{path} is a folder: give a file, e.g. {option} {path / name}")


def must_be_folder(option: str, path: Path) -> None:
    """Refuse a file, and name its folder."""
    if path.is_file():
        raise EmaisError(f"{path} is a file: give the folder, e.g. {option} {path.parent}")


def listing() -> str:
    """All labels and what they stand for."""
    titles = {label: item.title for label, item in ITEMS.items() if not item.beyond} | LABELS | scatter.TITLES
    beyond = {label: item.title for label, item in ITEMS.items() if item.beyond}
    width = max(map(len, titles | beyond))
    lines = [[f"{label:<{width}}  {title}" for label, title in part.items()] for part in (titles, beyond)]
    return "\n".join([*lines[0], "", "Beyond the paper:", *lines[1]])


def read_all(folder: Path) -> list[Record]:
    """The records of all result files of runs, as far as they have what tables and figures are made of."""
    found = [record for name in result_files() for record in Results(folder / name).read()]
    return [record for record in found if record.keys() >= {"data", "ms_per_step", "curves"}]


def result_files() -> list[str]:
    """Their names: each data set has its own."""
    return sorted({f"{config.data}.jsonl" for item in ITEMS.values() for config in item.configs(1)})


def default_device() -> str:
    """A GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def say_missing(missing: list[Config]) -> None:
    """One line about runs that the budget left undone."""
    if missing:
        print(f"{len(missing)} runs are still to be done: the same command goes on with them.")


def summary(configs: list[Config], records: list[Record]) -> str:
    """One line for each setting: its metric over the seeds that are there."""
    wanted = {config.key() for config in configs}
    lines = []
    for setting in present(settings_of(configs, [r for r in records if key_of(r) in wanted])):
        words = "mAP" if setting.metric == "map" else "test error"
        count = len(setting.values)
        seeds = f"{count} seed{'s' if count > 1 else ''}"
        lines.append(f"{in_words(setting.config)}: {words} {with_spread(list(setting.values), 2)} % ({seeds})")
    return "\n".join(lines)


def in_words(config: Config) -> str:
    """A setting without its seed, as one would type it: what is always of interest, and what is not the default.

    >>> in_words(Config("digits", "perceptron", "emais-auto", momentum=0.5, options={"factors": (1, 0.3)}))
    'emais-auto   digits perceptron sgd lr=0.01 weight_decay=0.001 T=6250 momentum=0.5 factors=1:0.3'
    """
    always = f"lr={config.lr:g} weight_decay={config.weight_decay:g} T={config.num_steps}"
    rare = ("batch_size", "momentum", "rule", "refresh_every", "follow")
    values = {f.name: (getattr(config, f.name), f.default) for f in fields(Config) if f.name in rare}
    shown = {name: value for name, (value, default) in values.items() if value != default} | config.options
    more = [f"{k}={':'.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in shown.items()]
    return " ".join([f"{config.method:<12} {config.data} {config.model} {config.optimizer} {always}", *more])
