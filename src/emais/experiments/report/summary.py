"""A line for each setting that was run, as `emais train` and `emais reproduce` print it."""

from __future__ import annotations

from dataclasses import fields, replace

from ..analysis.quantities import average, middle
from ..analysis.settings import Setting, present, settings_of
from ..config import Config
from ..numbers import with_sd
from ..runs.record import RunRecord
from .tables.rows import number_cell
from .user_runs import step_time


def summary_lines(configs: list[Config], records: list[RunRecord]) -> str:
    """One line for each setting: its metric, N_ems, S(W) and step time over the seeds that are there."""
    wanted = {config.key() for config in configs}
    lines = []
    for setting in present(settings_of(configs, [r for r in records if r.key in wanted])):
        words = "mAP" if setting.metric == "map" else "test error"
        count = len(setting.values)
        seeds = f"{count} seed{'s' if count > 1 else ''}"
        metric = f"{words} {with_sd(setting.mean, setting.sd)} %"
        lines.append(f"{in_words(setting.config)}: {', '.join([metric, *measured(setting)])} ({seeds})")
    return "\n".join(lines)


def measured(setting: Setting) -> list[str]:
    """N_ems and S(W) over the second half of the run, as in the tables, and the time of a step; where there are any."""
    whole = replace(setting, records=tuple(record for record in setting.records if record.complete))
    if not whole.records:
        return []
    size, score = number_cell(average(whole, "n_ems")).text, number_cell(middle(whole, "score"), 2).text
    return [f"N_ems {size}", f"S(W) {score}", f"step {step_time(whole):.2f} ms"]


def in_words(config: Config) -> str:
    """A setting without its seed, as one would type it: what is always of interest, and what is not the default.

    >>> in_words(Config("digits", "perceptron", "emais-auto", momentum=0.5, options={"factors": (1, 0.3)}))
    'emais-auto   digits perceptron sgd lr=0.01 weight_decay=0.001 T=6250 momentum=0.5 factors=1:0.3'
    """
    always = f"lr={config.lr:g} weight_decay={config.weight_decay:g} T={config.num_steps}"
    rare = ("batch_size", "momentum", "rule", "refresh_every", "follow", "schedule")
    values = {f.name: (getattr(config, f.name), f.default) for f in fields(Config) if f.name in rare}
    shown = {name: value for name, (value, default) in values.items() if value != default} | config.options
    more = [f"{k}={':'.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in shown.items()]
    return " ".join([f"{config.method:<12} {config.data} {config.model} {config.optimizer} {always}", *more])
