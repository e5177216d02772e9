"""What the commands `train`, `reproduce` and `report` do."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import torch

from ..errors import EmaisError, positive_float
from .analysis.harm_differences import Harm
from .analysis.harm_runs import read_harm
from .analysis.paper import SEEDS
from .analysis.settings import STAR
from .config import Config, as_in_library, choose
from .files import write_whole
from .live import is_log, log_text
from .report.figures import scatter
from .report.report import html
from .report.summary import summary_lines
from .report.tables.cells import to_markdown
from .report.tables.results import markdown
from .report.tables.step_times import LABELS, measured_beside, time_tables, timings_of
from .report.user_runs import known_runs, own_page
from .runs.catalogue import ITEMS
from .runs.logit_study import SNAPSHOTS, read_study, write_study
from .runs.machine import check_device
from .runs.record import RunRecord, typed
from .runs.runner import run_all
from .runs.store import Results
from .runs.sweep import parse

MEASURE = (
    "python benchmarks/step.py --out benchmarks/results, and for a model alone python benchmarks/single.py --model "
    "lenet5|resnet18|resnet50 --out benchmarks/results"
)
SUMMED = (
    "N_ems is the mean and S(W) the median over seeds and the second half of the run, the step time a mean; runs that "
    "are trained side by side on a GPU share it."
)


def train(text: str, path: Path, device: str | None, folder: Path | None, budget: float | None) -> None:
    """Run all that the text describes, and print a line for each setting."""
    configs = list({config.key(): config for config in map(as_in_library, parse(text))}.values())
    device = usable_training_device(device, budget)
    must_be_file("--results", path, "runs.jsonl")
    results = Results(path)
    before = len(results.read())
    say_skipped(path, before)
    nothing = not results.missing(configs)
    try:
        run_all(configs, path, device=device, folder=folder, budget=budget, look=folder is not None)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or len(results.read()) > before:  # finished runs are not lost
            print_summary(configs, results)
        raise
    if nothing:
        print("Nothing was left to run.")
    print_summary(configs, results)


def usable_training_device(device: str | None, budget: float | None) -> str:
    """The device to train on; says first of all what is wrong with what was asked for."""
    if budget is not None:
        positive_float("budget", budget)
    device = device or default_device()
    check_device(device)
    return device


def print_summary(configs: list[Config], results: Results) -> None:
    """What is there, what is still to be done, and how to look at it."""
    records = results.read()
    if found := summary_lines(configs, records):
        print(f"{found}\n{SUMMED}")
    say_missing(results.missing(configs))
    if records:
        print(f"All runs: {results.path}\nA page of them: emais report --results {shlex.quote(str(results.path))}")


def reproduce(
    label: str, given: Path | None, seeds: int | None, device: str | None, data: Path | None, budget: float | None
) -> None:
    """Run what a table or figure lacks, as far as it is made of runs, and print it, or say where it is."""
    choose("table or figure", label, [*ITEMS, *scatter.STUDY_TITLES, *LABELS])
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
    device = usable_training_device(device, budget)
    if label in ITEMS:
        reproduce_runs(label, folder, SEEDS if seeds is None else seeds, device, data, budget)
        return
    study = folder / "full_logit.jsonl"
    if not {record["step"] for record in read_study(study)} >= set(SNAPSHOTS):
        write_study(study, SNAPSHOTS, 0, device, data)
    print(f"{scatter.STUDY_TITLES[label]}: {study}; `emais report` draws it.")


def print_times(label: str, folder: Path) -> None:
    """A table of times, from what the benchmarks have measured."""
    made = time_tables(timings_of(folder))
    if label not in made:
        raise EmaisError(f"nothing was measured for {label} yet: in a clone of the repository, run {MEASURE}")
    print(f"{to_markdown(made[label])}\n\n{STAR}")


def reproduce_runs(label: str, folder: Path, seeds: int, device: str, data: Path | None, budget: float | None) -> None:
    """Run what a table or figure lacks, each data set into its own file, and print the table."""
    configs = ITEMS[label].configs(seeds)
    own = label_records(label, folder)
    wanted = missing_from(own, configs)
    missing: list[Config] = []
    try:
        missing, failed = run_by_data(wanted, folder, device, data, budget)
    except KeyboardInterrupt:
        missing = missing_from([r for name in result_files() for r in Results(folder / name).read()], wanted)
        raise
    finally:  # also after Ctrl-C: what is there is shown
        print(markdown(label, without_repeats([*read_all(folder), *own])))
        say_missing(missing)
    if failed is not None:
        raise failed


def run_by_data(
    configs: list[Config], folder: Path, device: str, data: Path | None, budget: float | None
) -> tuple[list[Config], EmaisError | None]:
    """Run the configurations of each data set into its own file: what is still missing, and the first error."""
    missing: list[Config] = []
    failed: EmaisError | None = None
    end = None if budget is None else time.monotonic() + 60 * budget
    for name in sorted({config.data for config in configs}, reverse=True):  # the quick ones first
        own = [config for config in configs if config.data == name]
        path = folder / f"{name}.jsonl"
        left = None if end is None else max(1e-9, (end - time.monotonic()) / 60)
        try:
            missing += run_all(own, path, device=device, folder=data, budget=left)
        except EmaisError as error:  # a data set that is not there does not stop the others
            failed = failed or error
            missing += Results(path).missing(own)
    return missing, failed


def report(source: Path, out: Path) -> None:
    """All tables and figures as one page, or, where a file is given, all its runs."""
    must_be_file("--out", out, "report.html")
    one_file = source.is_file() or source.suffix in (".jsonl", ".csv")
    text = report_of_file(source) if one_file else report_of_folder(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text)
    print(f"The report: {out}")


def report_of_file(path: Path) -> str:
    """The page of all runs of one file, or of the one whose log it is."""
    if is_log(path):
        return log_text(path)
    records = read_file(path, known=True)
    if not records:
        raise EmaisError(f"there are no results in {path}: give a file that `emais train` has written, or a log")
    return own_page(records, path)


def report_of_folder(folder: Path) -> str:
    """The page of all tables and figures."""
    records = read_all(folder)
    if not records:
        raise EmaisError(no_results(folder))
    study = folder / "full_logit.jsonl"
    say_skipped(study, len(read_study(study, model=None)))
    return html(records, timings_of(folder), read_study(study), Harm(read_harm(measured_beside(folder))))


def no_results(folder: Path) -> str:
    """What is said of a folder that has no results: what is looked for there, and what else can be given."""
    return (
        f"there are no results in {folder}, where {', '.join(result_files())} are looked for: run `emais reproduce "
        "LABEL` first, or give another folder, or the file of `emais train`, e.g. --results out/runs.jsonl"
    )


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
    titles = {label: item.title for label, item in ITEMS.items() if not item.beyond} | LABELS | scatter.STUDY_TITLES
    beyond = {label: item.title for label, item in ITEMS.items() if item.beyond}
    width = max(map(len, titles | beyond))
    lines = [[f"{label:<{width}}  {title}" for label, title in part.items()] for part in (titles, beyond)]
    return "\n".join([*lines[0], "", "Beyond the paper:", *lines[1]])


def missing_from(records: list[RunRecord], configs: list[Config]) -> list[Config]:
    """The configurations that none of the records is of."""
    done = {record.key for record in records}
    return [config for config in configs if config.key() not in done]


def without_repeats(records: list[RunRecord]) -> list[RunRecord]:
    """Of several records of the same run the first."""
    first: dict[tuple[object, ...], RunRecord] = {}
    for record in records:
        first.setdefault(record.key, record)
    return list(first.values())


def label_records(label: str, folder: Path) -> list[RunRecord]:
    """What a file with the label's name holds, e.g. auto_study.jsonl; a label of the paper has none: its colon."""
    return read_file(folder / f"{label}.jsonl") if ITEMS[label].beyond else []


def read_all(folder: Path) -> list[RunRecord]:
    """The records of all result files of runs, as far as they have what tables and figures are made of."""
    return [record for name in result_files() for record in read_file(folder / name)]


def read_file(path: Path, known: bool = False) -> list[RunRecord]:
    """The same of one file, or only runs that this version knows; says how many lines are something else."""
    found = [record for record in Results(path).read() if record.complete]
    used = typed(known_runs(found)) if known else found
    say_skipped(path, len(used))
    return used


def say_skipped(path: Path, used: int) -> None:
    """One line about what a file has besides the records that are used."""
    skipped = Results(path).count() - used
    if skipped:
        lines = "1 line" if skipped == 1 else f"{skipped} lines"
        print(f"emais: warning: skipped {lines} of {path}: not whole, or of another kind", file=sys.stderr)


def result_files() -> list[str]:
    """Their names: each data set has its own."""
    return sorted({f"{config.data}.jsonl" for item in ITEMS.values() for config in item.configs(1)})


def default_device() -> str:
    """A GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def say_missing(missing: list[Config]) -> None:
    """One line about runs that the budget or Ctrl-C left undone."""
    if missing:
        runs = "1 run is" if len(missing) == 1 else f"{len(missing)} runs are"
        print(f"{runs} still to be done: finished runs are kept, the same command goes on with the others.")
