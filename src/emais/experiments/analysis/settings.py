"""Which records belong to a table or figure, and what they amount to over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..config import Config
from ..numbers import mean_sd
from ..runs.catalogue import Item
from ..runs.record import Key, Record, RunRecord, typed
from .paper import NAMES, NETWORKS, OURS, TITLES

HEADS = {method: name + ("*" if method in OURS else "") for method, name in NAMES.items()}
FOLLOWING = {"emais": "minibatches of EMAIS's N_ems", "progress": "shortened to the steps of equal progress"}
STAR = (
    "* EMAIS-auto is not in the paper: it is this library's own, EMAIS that chooses its memory and the power of its "
    "weights during training. Where no rule is named it has EMAIS's learning-rate rule, so that only the draws differ. "
    "In the library its rule is steady, unless you choose another."
)


@dataclass(frozen=True)
class Setting:
    """A configuration (its seed means nothing) and the records of its seeds that are there."""

    config: Config
    records: tuple[RunRecord, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(typed(self.records)))  # mappings are taken, too

    @property
    def metric(self) -> str:
        """`map`, of which more is better, or `test_error`, both in percent."""
        return "map" if self.config.data == "chestxray14" else "test_error"

    @property
    def title(self) -> str:
        """The name of the data set, or of a subset of it."""
        return title_of(self.config.data, self.records)

    @property
    def values(self) -> list[float]:
        """The metric of each seed; NaN where a run has none."""
        return [record.value(self.metric) for record in self.records]

    @property
    def mean(self) -> float:
        """Over the seeds; NaN if there are none."""
        return mean_sd(self.values)[0]

    @property
    def sd(self) -> float:
        """Sample standard deviation; NaN for fewer than two seeds."""
        return mean_sd(self.values)[1]


def title_of(data: str, records: Sequence[Record]) -> str:
    """The name of a data set; it is called a subset where the records say so.

    >>> title_of("chestxray14", [{"data_title": "ChestX-ray14 (subset of 4,999 images)"}]), title_of("fmnist", [])
    ('ChestX-ray14 subset', 'Fashion-MNIST')
    """
    subset = any("(subset" in str(record.data_title) for record in typed(records))
    return f"{TITLES.get(data, data)}{' subset' if subset else ''}"


def item_title(item: Item, records: Sequence[Record]) -> str:
    """What a table or figure shows, with the name of the chest data as the records have it."""
    own = [record for record in typed(records) if record.data == "chestxray14"]
    return item.title.replace(TITLES["chestxray14"], title_of("chestxray14", own))


def without_seed(config: Config) -> Key:
    """What all seeds of a setting share."""
    return replace(config, seed=0).key()


def record_key(record: Record) -> Key:
    """`without_seed` of the record's configuration, without the time it takes to check one."""
    return RunRecord.of(record).setting_key


def settings_of(configs: Sequence[Config], records: Sequence[Record]) -> list[Setting]:
    """The settings among the configurations, in their order, each with all its records by seed.

    A run that was made again, for something that its first record does not have, counts once: by its first record.
    """
    found: dict[Key, list[RunRecord]] = {without_seed(config): [] for config in configs}
    for record in sorted(typed(records), key=lambda record: record.seed):
        own = found.get(record_key(record))
        if own is not None and (not own or own[-1].seed != record.seed):
            own.append(record)
    first = {without_seed(config): config for config in configs}
    return [Setting(first[key], tuple(own)) for key, own in found.items()]


def of_item(item: Item, records: Sequence[Record]) -> list[Setting]:
    """The settings of a table or figure, with the records that have what it needs."""
    return settings_of(item.configs(1), [r for r in records if item.holds(r)])


def is_default(config: Config) -> bool:
    """Whether a run is of its method as it comes: no options, rule, schedule or refresh of its own, and no follower."""
    return not (config.options or config.rule or config.refresh_every or config.follow) and config.schedule == "steps"


def present(settings: Sequence[Setting]) -> list[Setting]:
    """Those that have a record."""
    return [setting for setting in settings if setting.records]


def by_row(settings: Sequence[Setting]) -> list[list[Setting]]:
    """Settings of one data set, network, optimizer, weight decay and length together: a row of the paper's tables."""
    rows: dict[tuple[Any, ...], list[Setting]] = {}
    for s in settings:
        c = s.config
        rows.setdefault((c.data, c.model, c.optimizer, c.weight_decay, c.num_steps), []).append(s)
    return list(rows.values())


def better(setting: Setting, a: float, b: float) -> bool:
    """Whether the metric a is better than b."""
    return a > b if setting.metric == "map" else a < b


def method_name(config: Config) -> str:
    """The method as the paper calls it, and with Adam as tab:adam does."""
    name = NAMES.get(config.method, config.method)
    return name.replace("SGD-", "Adam-") if config.optimizer == "adam" else name


def starred(config: Config) -> str:
    """The same with a star where the method is not in the paper; `STAR` says so."""
    return method_name(config) + ("*" if config.method in OURS else "")


def shown(settings: Sequence[Setting]) -> list[Setting]:
    """Those that have a record; all of them where none has."""
    return present(settings) or list(settings)


def provenance(settings: Sequence[Setting]) -> str:
    """Network, seeds, hardware, versions of the source, and how much is not run yet."""
    runs = [record for setting in settings for record in setting.records]
    if not runs:
        return "Not run yet."
    networks = " and ".join(dict.fromkeys(NETWORKS.get(s.config.model, s.config.model) for s in present(settings)))
    counts = sorted({len(s.records) for s in settings if s.records})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    places = ", ".join(sorted({r.hardware or "unknown" for r in runs}))
    empty = len(settings) - len(present(settings))
    lacking = f" Not run yet: {empty} of {len(settings)} settings." if empty else ""
    return f"{networks}, {many} seed{'s' if many != '1' else ''} each, on {places}. {versions(runs)}{lacking}"


def versions(runs: Sequence[Record]) -> str:
    """Which versions of the source these records come from, and how many are of an older layout.

    >>> versions([{"source": "a1", "layout": 2}] * 2), versions([{"source": "a1", "layout": 2}, {}, {"source": "b2"}])
    ('Source a1.', 'Mixed sources: a1 (1 run), b2 (1 run), not recorded (1 run); older layout: 2 runs.')
    """
    counts = Counter(record.source or "not recorded" for record in typed(runs))
    old = sum(record.layout is None for record in typed(runs))
    if len(counts) == 1 and not old:
        return f"Source {next(iter(counts))}."
    each = ", ".join(f"{name} ({count_of(n)})" for name, n in sorted(counts.items()))
    layout = f"; older layout: {count_of(old)}" if old else ""
    return f"{'Mixed sources' if len(counts) > 1 else 'Source'}: {each}{layout}."


def count_of(runs: int) -> str:
    """A number of runs in words."""
    return "1 run" if runs == 1 else f"{runs} runs"


def listed(value: Any) -> str:
    """A setting of a method, which may be made of several numbers."""
    return " and ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def variant(config: Config) -> str:
    """The method and what sets a run apart from the plain one.

    >>> variant(Config("fmnist", "lenet5", "emais", rule="none", options={"tau": 1000}))
    'EMAIS, τ = 1000, without learning-rate adjustment'
    >>> variant(Config("fmnist", "lenet5", "emais-auto", options={"factors": 0.3, "powers": 1}))
    'EMAIS-auto* with τ = 0.3 t alone'
    >>> variant(Config("fmnist", "lenet5", "self-paced", schedule="effective", options={"warmup_epochs": 0}))
    'Self-paced, no plain epochs first, schedule over effective steps'
    """
    options = dict(config.options)
    parts = [starred(config)]
    if options.get("warmup_epochs") == 0:
        options.pop("warmup_epochs")
        parts.append("no plain epochs first")
    if isinstance(options.get("factors"), int | float):
        parts = [f"{parts[0]} with τ = {options.pop('factors'):g} t alone"]
        options.pop("powers", None)
    parts += [f"{'τ' if name == 'tau' else name} = {listed(value)}" for name, value in options.items()]
    if config.schedule != "steps":
        parts.append("equal progress" if config.schedule == "progress" else "schedule over effective steps")
    if config.rule is not None:
        parts.append("without learning-rate adjustment" if config.rule == "none" else f"rule {config.rule}")
    if config.refresh_every:
        parts.append(f"all statistics refreshed every {config.refresh_every} steps")
    if config.follow:
        parts.append(FOLLOWING[config.follow])
    return ", ".join(parts)
