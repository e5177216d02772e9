"""Makes the tables of docs/auto.md, "what was tried", from the result files (written by `emais train`).

docs/render.py puts them into the page; docs/make_figures.py draws its figure from the same runs. New runs of emais or
emais-auto in these files find their place by themselves.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import emais
from emais.experiments.analysis.paper import NETWORKS
from emais.experiments.numbers import mean_sd, number
from emais.experiments.runs.store import Record, Results

ROOT = Path(__file__).parent.parent
FILES = ("fmnist.jsonl", "cifar10.jsonl", "auto_study.jsonl")
REPLAY = ROOT / "benchmarks" / "results" / "replay.jsonl"
BOUND = 10.0  # of the coefficients, in the table of what was replayed
HEAD = (
    "| setting | seeds | test error, % | minus the default's | N_ems | S(W), last fifth | S(W), second half "
    "| highest |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|"
)
LETTERS = {"factors": "c", "powers": "a"}
LATE = "n_ems second half"
MOMENTUM = 0.9  # of all runs here; the oldest records do not say so
FORMER = {"powers": (1.0, 0.5)}  # all that set the former default apart from today's


class Place(NamedTuple):
    """What all rows of a table share."""

    data_title: str
    num_steps: int
    weight_decay: float
    lr: float
    optimizer: str
    model: str
    batch_size: int


@dataclass
class Variant:
    """A method with its settings as far as they are not the default's, and its runs by seed."""

    place: Place
    method: str
    options: dict[str, tuple[float, ...]]
    runs: dict[int, Record] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    @property
    def is_default(self) -> bool:
        """EMAIS-auto as it comes."""
        return self.method == "emais-auto" and not self.options

    @property
    def fixed(self) -> bool:
        """Whether there is only one candidate."""
        return all(len(self.options.get(name, ())) == 1 for name in LETTERS)

    @property
    def name(self) -> str:
        """As the table calls it."""
        if self.method == "emais":
            return "Linear-τ (emais)"
        changed = [f"{LETTERS.get(k, k)} = {listed(v)}" for k, v in self.options.items()]
        if self.fixed:
            return "fixed: " + ", ".join(changed)
        if self.options == FORMER:
            return f"{changed[0]}: the former default"
        return "; ".join(changed) or "**emais-auto, default**"

    def rank(self) -> tuple[Any, ...]:
        """Its place in a table: Linear-tau, the default, other candidates, fixed ones from long to short memory."""
        options = [(k, [-x for x in v]) for k, v in self.options.items()]
        return self.method != "emais", bool(self.options), self.fixed, len(options), options


def listed(values: Sequence[float]) -> str:
    """Numbers in a row.

    >>> listed((1.0, 0.3)), listed((0.1,))
    ('1, 0.3', '0.1')
    """
    return ", ".join(f"{v:g}" for v in values)


# ---- the runs


def numbers(value: Any) -> tuple[float, ...]:
    """A setting as numbers; in a file it may be a list or a single one."""
    return tuple(map(float, value)) if isinstance(value, (list, tuple)) else (float(value),)


def defaults(method: type[emais.Engine]) -> dict[str, Any]:
    """What each setting of a method is if nobody says otherwise: its own first, then those that it inherits.

    >>> [defaults(emais.METHODS["emais-auto"])[name] for name in ("warmup_epochs", "smoothing")]
    [2, 0.0]
    """
    found: dict[str, Any] = {}
    for kind in (k for k in method.__mro__ if issubclass(k, emais.Engine)):
        for name, parameter in inspect.signature(kind.__init__).parameters.items():
            found.setdefault(name, parameter.default)
    return {name: value for name, value in found.items() if name in method.settings()}


def changed_options(record: Record) -> dict[str, tuple[float, ...]]:
    """The settings of a run's method that are not the default's, in the order of `defaults`."""
    known = defaults(emais.METHODS[record["method"]])
    given = {k: numbers(v) for k, v in record["options"].items()}
    changed = {k for k, v in given.items() if k not in known or known[k] is None or v != numbers(known[k])}
    return {k: given[k] for k in dict.fromkeys([*known, *given]) if k in changed}


def belongs(record: Record) -> bool:
    """EMAIS as in the paper, or EMAIS-auto with any settings of its own; nothing else about the run is special."""
    plain = record["rule"] is None and not record["refresh_every"] and record.get("momentum", MOMENTUM) == MOMENTUM
    return plain and (record["method"] == "emais-auto" or (record["method"] == "emais" and not record["options"]))


def variants() -> list[Variant]:
    """All that ran where other settings than the default's were tried, too, in the order of the tables."""
    found: dict[Any, Variant] = {}
    for file in FILES:
        for record in filter(belongs, Results(ROOT / "results" / file).read()):
            place = Place(*(record[name] for name in Place._fields))
            options = changed_options(record)
            key = place, record["method"], *options.items()
            own = found.setdefault(key, Variant(place, record["method"], options))
            own.runs[record["seed"]] = record
            own.files.add(file)
    every = {place: [v for v in found.values() if v.place == place] for place in (v.place for v in found.values())}
    tried = {p for p, own in every.items() if any(v.options not in ({}, FORMER) for v in own) and base_of(own)}
    order = list(dict.fromkeys(v.place.data_title for v in found.values()))
    chosen = [v for v in found.values() if v.place in tried]
    return sorted(chosen, key=lambda v: (order.index(v.place.data_title), v.place, v.rank()))


def base_of(own: Sequence[Variant]) -> Variant | None:
    """What the others of a place are compared with: the default, or the former one where only that was run."""
    former = next((v for v in own if v.method == "emais-auto" and v.options == FORMER), None)
    return next((v for v in own if v.is_default), former)


# ---- the tables


def tail(record: Record, quantity: str, share: float) -> float:
    """Mean of a curve over this last share of the run."""
    values = [number(v) for v in record["curves"][quantity]]
    return mean_sd(values[-round(share * len(values)) :])[0]


def highest(own: Variant) -> float:
    """The largest S(W) at any point of any run, past the first fifth."""
    curves = [[number(v) for v in r["curves"]["score"]] for r in own.runs.values()]
    return max(v for curve in curves for v in curve[len(curve) // 5 :] if math.isfinite(v))


Figure = Callable[[Record], float]
FIGURES: list[tuple[Figure, int]] = [  # what the columns show, and to how many places
    (lambda r: number(r["test_error"]), 2),
    (lambda r: tail(r, "n_ems", 0.2), 0),
    (lambda r: tail(r, "score", 0.2), 3),
    (lambda r: tail(r, "score", 0.5), 3),
]


def written(mean: float, spread: float, form: str) -> str:
    """Mean ± spread, as far as there are any.

    >>> written(0.5, 0.25, "+.2f"), written(-1.0, math.nan, ".0f"), written(math.nan, math.nan, ".0f")
    ('+0.50 ± 0.25', '−1', '')
    """
    text = f"{mean:{form}} ± {spread:{form.lstrip('+')}}" if math.isfinite(spread) else f"{mean:{form}}"
    return text.replace("-", "−") if math.isfinite(mean) else ""


def less_default(own: Variant, default: Variant) -> tuple[float, float]:
    """Difference of the test errors on the seeds that both have: its mean, and the standard error of that mean."""
    pairs = [(run, default.runs[seed]) for seed, run in own.runs.items() if seed in default.runs]
    mean, sd = mean_sd([number(a["test_error"]) - number(b["test_error"]) for a, b in pairs])
    return mean, sd / math.sqrt(max(1, len(pairs)))


def row(own: Variant, default: Variant) -> str:
    """One line of a table."""
    cells = [written(*mean_sd([figure(r) for r in own.runs.values()]), f".{places}f") for figure, places in FIGURES]
    against = "" if own is default else written(*less_default(own, default), "+.2f")
    return f"| {' | '.join([own.name, str(len(own.runs)), cells[0], against, *cells[1:]])} | {highest(own):.2f} |"


def table(place: Place, own: Sequence[Variant]) -> str:
    """Title, rows, and where the numbers come from."""
    default = base_of(own)
    assert default is not None
    hardware = sorted({str(r["hardware"]) for v in own for r in v.runs.values()})
    files = [f"results/{name}" for name in sorted({name for v in own for name in v.files})]
    rows = "\n".join(row(v, default) for v in own)
    return (
        f"**{place.data_title}, {place.num_steps} steps** ({NETWORKS[place.model]}, N = "
        f"{place.batch_size}, {place.optimizer.upper()}, rate {place.lr:g}, weight decay {place.weight_decay:g}; "
        f"{', '.join(hardware)}; {', '.join(files)})\n\n{HEAD}\n{rows}"
    )


def replayed() -> str:
    """N_ems over the second half of each recording: as drawn, and with other weights from the best factor."""
    rows = [json.loads(line) for line in REPLAY.read_text("utf-8").splitlines()]
    runs = list(dict.fromkeys(row["run"] for row in rows))

    def cells(chosen: Callable[[Record], bool]) -> list[str]:
        found = [max((r for r in rows if r["run"] == run and chosen(r)), key=lambda r: r[LATE]) for run in runs]
        return [f"{r[LATE]:.0f}" + (f" (c = {r['factor']:g})" if "factor" in r else "") for r in found]

    table = {"as drawn: mean + deviation, c = 1": cells(lambda r: r["sampler"] == "as drawn")}
    for form, power in dict.fromkeys((r["sampler"], r["power"]) for r in rows if "power" in r):

        def chosen(r: Record, own: tuple[str, float] = (form, power)) -> bool:
            return (r["sampler"], r.get("power")) == own and r["bound"] == BOUND

        table[form if power == 1 else f"({form})^{power:g}"] = cells(chosen)
    table["best combination in hindsight"] = cells(lambda r: "shares" in r)
    head = ["weights", *(run.replace(" emais", "") for run in runs)]
    lines = [head, ["---"] + ["---:"] * len(runs), *([name, *found] for name, found in table.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replay_best(run: str) -> tuple[str, float]:
    """The weights and the power that would have had the largest N_ems over the second half of a recording."""
    rows = [json.loads(line) for line in REPLAY.read_text("utf-8").splitlines()]
    own = [r for r in rows if r["run"] == run and r.get("bound") == BOUND]
    found = max(own, key=lambda r: r[LATE])
    return found["sampler"], found["power"]


def tables(model: str = "") -> str:
    """All tables, or those of one network."""
    found = [v for v in variants() if not model or v.place.model == model]
    return "\n\n".join(table(p, [v for v in found if v.place == p]) for p in dict.fromkeys(v.place for v in found))
