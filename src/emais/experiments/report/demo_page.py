"""What the demo shows: a table of its methods, sentences that say who wins, and a page with the curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ..analysis.paper import NAMES
from ..analysis.quantities import average
from ..analysis.settings import Setting
from ..analysis.steps_to_loss import SMOOTHED, final_loss, steps_to_loss
from ..numbers import mean_sd
from .figures.curves import CLIPPED, HIGH, Figure, Line, line_chart, metric_chart, score_chart, size_chart
from .pages import HOW_TO_READ, Answer, Page, Section, render
from .sections import RUNS_NOTE, runs_table
from .tables.cells import Cell, Table
from .tables.rows import spread_cell, value_cell

STEPS_TO_LOSS = (
    "Steps to the loss of SGD-Scan: the first step at which the training loss, importance-weighted and averaged over "
    f"seeds and over the last {SMOOTHED} of about 60 points a run, is at most the one that SGD-Scan ends with."
)
WHY_NOT_AS_LOW = (
    "One large step comes close to the progress of several small ones and does not equal it, so a run that ends early "
    "can stop a little short."
)
DEMO_CAPTION = (
    f"Means over seeds, with the standard deviation over seeds. {STEPS_TO_LOSS} EMAIS multiplies the learning rate by "
    "N_ems/N, EMAIS-auto by what a step is worth, so a gain in steps is not one of the sampling alone. EMAIS-auto ends "
    "when its steps are worth as many as SGD-Scan makes. N_ems and S(W) are means over the second half of "
    "each run. The time of a step is relative to SGD-Scan, the median over pairs of runs with the same seed. SGD-Scan "
    "is observed too: its steps carry the cost of observing, but not of choosing samples."
)
IN_THE_TERMINAL = (
    "SGD-Scan is plain SGD. N_ems: how many uniform samples a minibatch is worth. S(W): 0 is the best sampler, 1 "
    "uniform sampling."
)
LEGENDS = (
    "A legend shows the last point of each line. The table has other averages, so its figures differ a little: the "
    f"training loss is a mean over the last {SMOOTHED} points, N_ems and S(W) are means over the second half."
)


# ---- the table


def demo_table(settings: Sequence[Setting]) -> Table:
    """A row for each method; the first is the one that the others are compared with."""
    base = settings[0]
    loss = final_loss(base)
    rows = [
        [
            Cell(name_of(s)),
            value_cell(s),
            spread_cell([float(r.steps) for r in s.records], 0),
            loss_cell(final_loss(s)),
            steps_to_loss_cell(steps_to_loss(s, loss)),
            spread_cell(seed_averages(s, "n_ems"), 1),
            spread_cell(seed_averages(s, "score")),
            time_cell(s, base),
        ]
        for s in settings
    ]
    return Table(
        ["method", "test error (%)", "steps", "train loss", f"steps to loss {loss:.3g}", "N_ems", "S(W)", "step time"],
        rows,
        DEMO_CAPTION,
    )


def name_of(setting: Setting) -> str:
    """Of a method; plain training that another's length was given is a row of its own."""
    return f"{NAMES[setting.config.method]}{', cut short' if setting.config.follow else ''}"


def seed_averages(setting: Setting, quantity: str) -> list[float]:
    """The mean over the second half of the run, seed by seed."""
    return [average(replace(setting, records=(record,)), quantity) for record in setting.records]


def loss_cell(loss: float) -> Cell:
    """The training loss at the end."""
    return Cell(f"{loss:.3g}", sort=loss)


def steps_to_loss_cell(steps: float) -> Cell:
    """A number of steps, if the loss is reached."""
    return Cell(f"{steps:.0f}", sort=steps) if math.isfinite(steps) else Cell("not reached", mark="none")


def time_cell(setting: Setting, base: Setting) -> Cell:
    """The time of a step over that of the first method."""
    own, theirs = ({r["seed"]: r["ms_per_step"] for r in s.records} for s in (setting, base))
    ratio = statistics.median(own[seed] / theirs[seed] for seed in own)
    return Cell(f"{ratio:.2f} x", sort=ratio, hover=f"{statistics.fmean(own.values()):.2f} ms a step")


# ---- sentences


def verdicts(settings: Sequence[Setting]) -> list[str]:
    """The outcome in short, then sentences on each method but the first, which they are compared with.

    A run that was cut short is compared with the one that it was cut to the length of.
    """
    base, *others = settings
    cut = [s for s in others if s.config.follow]
    ended = [s for s in others if s.config.schedule == "progress"]
    own = [s for s in others if not s.config.follow]
    found = [in_short(base, own), *(sentence for s in own for sentence in method_verdict(base, s))]
    return found + [control_verdict(control, s) for control in cut for s in ended]


def in_short(base: Setting, own: Sequence[Setting]) -> str:
    """Whether any method differs in test error by more than the seeds do, and how soon each has the training loss."""
    seeds = len(base.values)
    apart = [NAMES[s.config.method] for s in own if abs(s.mean - base.mean) > max(s.sd, base.sd)]
    differ = f"{' and '.join(apart) or 'no method'} differ{'s' * (len(apart) < 2)}"
    errors = f"{differ} from SGD-Scan by more than the spread over {seeds} seeds"
    if seeds == 1:
        errors = "one seed shows no spread, so nothing can be said"
    soon = [(s, steps_to_loss(s, final_loss(base)) / own_steps(base)) for s in own]
    reached = [f"{NAMES[s.config.method]} after {100 * part:.0f} %" for s, part in soon if math.isfinite(part)]
    losses = f"{' and '.join(reached)} of the steps" if reached else "no method"
    return f"In short: on test error {errors}; the training loss that SGD-Scan ends with is reached by {losses}."


def method_verdict(base: Setting, own: Setting) -> list[str]:
    """What became of one method: it may have ended early, so its training loss needs a word of its own."""
    name = NAMES[own.config.method]
    found = [
        length_verdict(base, own, name),
        error_verdict(base.values, own.values, name),
        loss_verdict(base, own, name),
    ]
    return [sentence for sentence in found if sentence]


def control_verdict(control: Setting, own: Setting) -> str:
    """What plain training with as few steps comes to, beside the method that has shown that they may be enough."""
    name, loss, theirs = NAMES[own.config.method], final_loss(own), final_loss(control)
    error = error_verdict(control.values, own.values, name, "the shortened run")
    if not (math.isfinite(loss) and math.isfinite(theirs)):
        return f"SGD-Scan cut to as few steps: {error}"
    return f"SGD-Scan cut to as few steps ends with a training loss of {theirs:.3g}, {name} with {loss:.3g}. {error}"


def length_verdict(base: Setting, own: Setting, name: str) -> str:
    """How many steps a method took, if it ended early."""
    steps, all_steps = own_steps(own), own_steps(base)
    if steps >= all_steps:
        return ""
    share, time = 100 * steps / all_steps, 100 * seconds(own) / seconds(base)
    return (
        f"{name} stopped after {steps:.0f} steps, {share:.0f} % of SGD-Scan’s and {time:.0f} % of its time: larger "
        f"steps on better chosen samples, which it counted as {all_steps:.0f} ordinary ones."
    )


def error_verdict(scan: Sequence[float], ours: Sequence[float], name: str = "EMAIS", theirs: str = "SGD-Scan") -> str:
    """Who ended at the lower test error, by how much, and whether the seeds differ by more than that."""
    (base, base_sd), (mean, own_sd) = mean_sd(scan), mean_sd(ours)
    gap, spread = abs(mean - base), max(base_sd, own_sd)
    seeds = f"{len(ours)} seeds" if len(ours) > 1 else "one seed"
    if gap < 0.005:
        return f"{name} and {theirs} end at the same test error, {mean:.2f} %, over {seeds}."
    side = "lower" if mean < base else "higher"
    numbers = f"{gap:.2f} points {side} than {theirs}’s ({mean:.2f} % against {base:.2f} %)"
    if len(ours) == 1:
        return f"{name}’s test error is {numbers}, but one seed shows no spread: run more before believing it."
    if gap <= spread:
        return f"{name}’s test error is {numbers}, within the spread over {seeds} ({spread:.2f} points): a tie."
    outcome = "wins" if mean < base else "loses"
    return f"{name} {outcome}: its test error is {numbers}, more than the spread over {seeds} ({spread:.2f} points)."


def loss_verdict(base: Setting, own: Setting, name: str) -> str:
    """When a method has the training loss that the first ends with, or where it ends instead."""
    wanted, end = final_loss(base), final_loss(own)
    if not (math.isfinite(wanted) and math.isfinite(end)):
        return f"{name} and SGD-Scan cannot be compared by their training loss: a run diverged."
    steps = steps_to_loss(own, wanted)
    if math.isfinite(steps):
        return f"{name} has the training loss that SGD-Scan ends with, {wanted:.3g}, after {steps:.0f} steps."
    same = steps_to_loss(base, end)
    caught_up = f": SGD-Scan needs {same:.0f} steps for that" if math.isfinite(same) else ""
    why = f" {WHY_NOT_AS_LOW}" if own_steps(own) < own_steps(base) else ""
    above = 100 * (end / wanted - 1)
    return f"{name}’s training loss ends at {end:.3g}, {above:.0f} % above SGD-Scan’s {wanted:.3g}{caught_up}.{why}"


def own_steps(setting: Setting) -> float:
    """The steps of a method, as a mean over seeds."""
    return statistics.fmean(r.steps for r in setting.records)


def seconds(setting: Setting) -> float:
    """The training time of a method, as a mean over seeds."""
    return statistics.fmean(r.steps * r["ms_per_step"] / 1e3 for r in setting.records)


# ---- the page


def demo_figure(settings: Sequence[Setting]) -> Figure:
    """Test error, training loss, N_ems and S(W) over the training steps; not of a run that was cut short."""
    lines: list[Line] = [(s, name_of(s), None) for s in settings if not s.config.follow]
    end = ((final_loss(settings[0]), ""),)
    charts = [
        metric_chart("Test error", lines, "error"),
        line_chart("Training loss", "loss (log scale)", "loss", lines, log_y=True, name="loss", references=end),
        size_chart("Effective minibatch size Nₑₘₛ", lines, "size"),
        score_chart("Efficiency score S(W)", lines, "score"),
    ]
    note = f"The dashed line in the training loss is where SGD-Scan ends. {LEGENDS} {HIGH} {CLIPPED}"
    return Figure("curves", "Test error, training loss, N_ems and S(W) over the steps", charts, note)


def demo_page(title: str, about: str, settings: Sequence[Setting], command: str) -> str:
    """The page; about: what was run, command: what makes this page again."""
    figure = demo_figure(settings)
    page = Page(
        title=title,
        short="Demo",
        about=f"{about} {HOW_TO_READ}",
        groups={"Over the run": [Section(figure.label, figure.title, [figure.pictures()])]},
        runs=replace(runs_table([r for s in settings for r in s.records]), caption=RUNS_NOTE),
        command=command,
        answer=Answer("Does EMAIS help here?", verdicts(settings), [demo_table(settings)]),
    )
    return render(page)
