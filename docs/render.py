"""Makes the pages and pictures that show results, from the committed result files.

    python docs/render.py            # or make docs
    python docs/render.py --check    # says which of them are not up to date

README.md and the other pages in `PAGES` are made from docs/templates: a number there is a call of a fact
(src/emais/experiments/analysis/facts.py, docs/make_harm.py), and a claim that no longer holds stops the rendering.
docs/tables.md and the pictures under docs/img have no template.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import make_audit
import make_auto
import make_figures
import make_harm
import make_inspection
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import emais
from emais.experiments.analysis import paper
from emais.experiments.analysis.facts import Facts, claim
from emais.experiments.analysis.paper import NAMES, OURS
from emais.experiments.analysis.settings import by_row, of_item
from emais.experiments.analysis.verdicts import bold
from emais.experiments.commands import read_all, read_file
from emais.experiments.numbers import decimal, with_sd
from emais.experiments.report.report import markdown_page
from emais.experiments.report.tables.cells import to_markdown
from emais.experiments.report.tables.results import tables
from emais.experiments.report.tables.step_times import read_timings
from emais.experiments.runs.catalogue import ITEMS
from emais.experiments.runs.logit_study import read_study

ROOT = Path(__file__).parent.parent
TEMPLATES = ROOT / "docs" / "templates"
GUIDES = (
    "guides/advice.md",
    "guides/inspection.md",
    "guides/weighted_sampling.md",
    "guides/audit.md",
    "guides/language_models.md",
)
PAGES = {"README.md": ROOT / "README.md"} | {
    Path(name).name: ROOT / "docs" / name
    for name in ("results.md", "auto.md", "costs.md", "harm.md", "distributed.md", *GUIDES)
}


def points(value: float, places: int = 2) -> str:
    """A number with its decimals, and a minus sign that is one.

    >>> points(-0.456), points(128.4, 0)
    ('−0.46', '128')
    """
    return f"{value:.{places}f}".replace("-", "−")


def beside_paper(facts: Facts, label: str) -> str:
    """A table of results: a row for each length, a column for each method, the paper's mean in brackets."""
    rows = by_row(of_item(ITEMS[label], facts.records))
    names = [NAMES[s.config.method] for s in rows[0]]
    lines = [["steps", *names], ["---"] * (1 + len(names))]
    for row in rows:
        cells = []
        for setting, strong in zip(row, bold(row), strict=True):
            text = with_sd(setting.mean, setting.sd)
            text = f"**{text}**" if strong else text
            theirs = None if setting.config.method in OURS else paper.find(setting.config)
            cells.append(f"{text} ({theirs.mean:.2f})" if theirs else text)
        lines.append([str(row[0].config.num_steps), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def norms_agree(step: int) -> float:
    """The correlation of full and logit gradient norms after so many steps."""
    found = next(r for r in read_study(ROOT / "results" / "full_logit.jsonl") if r["step"] == step)
    return statistics.correlation(found["norms"]["full"], found["norms"]["logit"])


def benchmark(file: str, **wanted: Any) -> dict[str, Any]:
    """The first row of a benchmark's results that has these values."""
    return next(row for row in benchmark_rows(file) if all(row[k] == v for k, v in wanted.items()))


def benchmark_rows(file: str) -> list[dict[str, Any]]:
    """All rows of a benchmark's results."""
    return [json.loads(line) for line in (ROOT / "benchmarks/results" / file).read_text("utf-8").splitlines()]


def sampler_ms(samples: int, way: str = "emais", num: int = 128) -> float:
    """Milliseconds of an update and a draw of `num` from so many samples."""
    return float(benchmark("sampler.jsonl", M=samples, N=num, way=way)["ms"])


def weighted_sampler(what: str, samples: int, way: str = "emais") -> dict[str, Any]:
    """What was measured of `WeightedSampler`, or beside it of torch's sampler, with so many samples."""
    return benchmark("weighted_sampler.jsonl", what=what, M=samples, way=way)


def arrival_ms(way: str) -> float:
    """Milliseconds of CPU time that 128 images of 3x32x32 bytes from a worker cost the training process."""
    return float(benchmark("worker_transfer.jsonl", case="393216 bytes and labels", method=way)["cpu_ms"])


def overheads() -> list[dict[str, Any]]:
    """What the integrations add to a step, case by case."""
    return [row for file in ("lightning_overhead.jsonl", "transformers_overhead.jsonl") for row in benchmark_rows(file)]


def power_of_ten(value: int) -> str:
    """A power of ten as it is written by hand.

    >>> power_of_ten(10**6), power_of_ten(10**10)
    ('10⁶', '10¹⁰')
    """
    return "10" + str(len(str(value)) - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def ring_ms(processes: int, sent: int, latency: float = 0.05, bandwidth: float = 1e6) -> float:
    """Milliseconds of an exchange in a ring: K - 1 rounds, each with a latency and the bytes of one process.

    >>> round(ring_ms(3, 1000), 3)
    0.102
    """
    return (processes - 1) * (latency + sent / bandwidth)


def refit_ms() -> float:
    """Milliseconds of a refit of RAIS at 50,000 observations."""
    return float(benchmark("refit.jsonl", num_samples=50_000)["ms"])


def bytes_a_sample(method: str, samples: int = 60_000) -> str:
    """What a method keeps for each sample.

    >>> bytes_a_sample("emais"), bytes_a_sample("sgd-uni")
    ('16.75', '0')
    """
    used = emais.create(method, samples).nbytes()
    return f"{used / samples:.2f}" if used else "0"


def timing(case: str, method: str) -> Mapping[str, Any]:
    """What the benchmarks measured of a method's step."""
    return next(t for t in read_timings(ROOT / "benchmarks/results") if (t["case"], t["method"]) == (case, method))


def step_times(case: str, method: str, which: str = "ratio") -> float:
    """The time of a step over plain SGD's; `which` may be "ratio_low" or "ratio_high", over processes."""
    return float(timing(case, method)[which])


def step_ratio(case: str, method: str, spread: bool = True) -> str:
    """The same as text, with its range over processes."""
    row = timing(case, method)
    low_high = f" ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})" if spread and "ratio_low" in row else ""
    return f"{row['ratio']:.3f}{low_high}"


def progress_table(facts: Facts) -> str:
    """The table of equal progress, without its title."""
    (table,) = tables("equal_progress", facts.records)
    return to_markdown(replace(table, title=""))


def steady_runs(facts: Facts, data: str, model: str, steps: int) -> dict[str, Any]:
    """EMAIS-auto with the steady rule and the paper's beside SGD-Scan; share: of the lead, what the former keeps."""
    former = "emais-auto-two" if model == "lenet5-relu" else "emais-auto"
    plain, linear = (facts.of(data, steps, method, model=model) for method in ("sgd-scan", former))
    steady = facts.of(data, steps, "emais-auto", model=model, rule="steady")
    share = (plain.mean - steady.mean) / (plain.mean - linear.mean)
    return {"plain": plain, "linear": linear, "steady": steady, "share": share}


def step_ms(case: str, method: str) -> float:
    """Milliseconds of a step."""
    return float(timing(case, method)["ms"])


def environment(facts: Facts) -> Environment:
    """What templates may call: all facts by their names, tables, and `claim`."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    made.filters |= {
        "points": points,
        "decimal": decimal,
        "with_sd": lambda s: with_sd(s.mean, s.sd),
        "step_times": step_times,
    }
    named: dict[str, Any] = {name: getattr(facts, name) for name in dir(facts) if not name.startswith("_")}
    made.globals |= named | {"claim": claim, "beside_paper": lambda label: beside_paper(facts, label)}
    made.globals |= make_harm.names() | make_audit.names()
    made.globals |= {
        "progress_table": lambda: progress_table(facts),
        "steady_runs": partial(steady_runs, facts),
        "study_tables": make_auto.tables,
        "replayed": make_auto.replayed,
        "replay_best": make_auto.replay_best,
        "norms_agree": norms_agree,
        "step_ratio": step_ratio,
        "step_ms": step_ms,
        "step_times": step_times,
        "sampler_ms": sampler_ms,
        "weighted_sampler": weighted_sampler,
        "arrival_ms": arrival_ms,
        "refit_ms": refit_ms,
        "ring_ms": ring_ms,
        "power_of_ten": power_of_ten,
        "overheads": overheads,
        "benchmark": benchmark,
        "benchmark_rows": benchmark_rows,
        "bytes_a_sample": bytes_a_sample,
        "label_table": make_inspection.label_table,
        "label_errors": make_inspection.label_errors,
        "label_run": make_inspection.label_run,
    }
    return made


def rendered() -> dict[Path, str]:
    """The text of every page and picture by its place."""
    records = read_all(ROOT / "results")
    pages = environment(Facts([*records, *read_file(ROOT / "results" / "auto_study.jsonl")]))
    found = {path: pages.get_template(name).render() for name, path in PAGES.items()}
    found[ROOT / "docs/tables.md"] = markdown_page(records, read_timings(ROOT / "benchmarks/results"))
    return found | {ROOT / "docs/img" / name: text for name, text in make_figures.pictures().items()}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if something would change")
    check = parser.parse_args().check
    made = rendered()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if not check:
            path.write_text(made[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {'not up to date: make docs' if check else 'written'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
