"""What the commands `train`, `reproduce` and `report` do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..errors import EmaisError
from . import scatter
from .catalogue import ITEMS, find
from .config import Config, parse
from .demo import with_spread
from .logit_study import SNAPSHOTS, write_study
from .results import Record, Results, config_of
from .runner import run_all


def train(text: str, path: Path, device: str | None, folder: Path | None, budget: float | None) -> None:
    """Run all that the text describes, and print a line for each setting."""
    configs = parse(text)
    try:
        missing = run_all(configs, path, device=device or default_device(), folder=folder, budget=budget)
    except KeyboardInterrupt:
        print(summary(configs, Results(path).read()))
        raise
    print(summary(configs, Results(path).read()))
    say_missing(missing)
    print(f"All runs: {path}")


def reproduce(
    label: str, given: Path | None, seeds: int, device: str | None, data: Path | None, budget: float | None
) -> None:
    """Run what a table or figure lacks, each data set into its own file, and print the table."""
    from .tables import markdown

    folder = given or Path("results")
    if given is None and not folder.exists():
        raise EmaisError(
            "there is no folder results here, so everything would be run from the start: go to a clone of the "
            "repository, which has results, or say where they shall go with --results DIR"
        )
    if label in scatter.TITLES:
        study = folder / "full_logit.jsonl"
        if not study.exists():
            write_study(study, SNAPSHOTS, 0, device or default_device(), data)
        print(f"{scatter.TITLES[label]}: {study}; `emais report` draws it.")
        return
    configs = find(label).configs(seeds)
    missing: list[Config] = []
    try:
        for name in sorted({config.data for config in configs}):
            own = [config for config in configs if config.data == name]
            path = folder / f"{name}.jsonl"
            missing += run_all(own, path, device=device or default_device(), folder=data, budget=budget)
    finally:  # also after Ctrl-C: what is there is shown
        print(markdown(label, read_all(folder)))
    say_missing(missing)


def report(folder: Path, out: Path) -> None:
    """All tables and figures as one page."""
    from .report import write_report

    records = read_all(folder)
    if not records:
        raise EmaisError(f"there are no results in {folder}: run `emais reproduce LABEL` first, or give --results")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_report(records, out, study=Results(folder / "full_logit.jsonl").read())
    print(f"The report: {out}")


def listing() -> str:
    """All labels and what they stand for."""
    titles = {label: item.title for label, item in ITEMS.items() if not item.beyond} | scatter.TITLES
    beyond = {label: item.title for label, item in ITEMS.items() if item.beyond}
    width = max(map(len, titles | beyond))
    lines = [[f"{label:<{width}}  {title}" for label, title in part.items()] for part in (titles, beyond)]
    return "\n".join([*lines[0], "", "Beyond the paper:", *lines[1]])


def read_all(folder: Path) -> list[Record]:
    """The records of all result files of runs."""
    names = sorted({config.data for item in ITEMS.values() for config in item.configs(1)})
    return [record for name in names for record in Results(folder / f"{name}.jsonl").read()]


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
    found: dict[str, list[Any]] = {}
    for record in records:
        config = config_of(record)
        if config.key() in wanted:
            name = f"{config.method:<12} {config.data} {config.optimizer} lr={config.lr:g} T={config.num_steps}"
            extra = "".join(f" {k}={v}" for k, v in config.options.items())
            found.setdefault(name + extra, []).append(record)
    lines = []
    for name, own in found.items():
        metric = "map" if "map" in own[0] else "test_error"
        words = "mAP" if metric == "map" else "test error"
        lines.append(f"{name}: {words} {with_spread([r[metric] for r in own], 2)} % ({len(own)} seeds)")
    return "\n".join(lines)
