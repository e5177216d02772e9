"""Tables against hand-computed numbers, the paper's values, figures, and the page, also in a real browser."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser

from emais.experiments.analysis import paper
from emais.experiments.analysis.quantities import average, first_step, last_moving, middle
from emais.experiments.analysis.settings import Setting, record_key, settings_of, without_seed
from emais.experiments.analysis.verdicts import bold, verdict
from emais.experiments.config import Config
from emais.experiments.report.figures import scatter
from emais.experiments.report.figures.chart import PLOT, draw, svg
from emais.experiments.report.figures.curves import median_range, rows_of
from emais.experiments.report.figures.differences import difference_note, difference_plot, lead_of
from emais.experiments.report.figures.dots import dot_plot
from emais.experiments.report.figures.methods import figures
from emais.experiments.report.findings import findings, glance
from emais.experiments.report.pages import Page, render
from emais.experiments.report.report import html, markdown_page
from emais.experiments.report.tables.cells import Cell, Table, to_markdown
from emais.experiments.report.tables.comparisons import fits
from emais.experiments.report.tables.results import markdown, tables
from emais.experiments.report.tables.step_times import best_case, cost_table, read_timings, time_tables, timings_of
from emais.experiments.report.tables.steps_to_error import steps_table
from emais.experiments.runs.catalogue import HELD_OUT, ITEMS
from emais.experiments.runs.store import LAYOUT

POINTS = 4


def record(config: Config, value: float | None, **changes: Any) -> dict[str, Any]:
    """A made-up run whose curves are simple functions of the step."""
    steps = [config.num_steps * k // POINTS for k in range(1, POINTS + 1)]
    flat = [1.0] * POINTS
    end = 50.0 if value is None else value
    tests = [end + POINTS - k for k in range(1, POINTS + 1)]
    curves = {
        "step": steps, "loss": [2.0 / k for k in range(1, 5)], "lr": [0.4, 0.3, 0.2, 0.1], "lr_scale": [2.0] * 4,
        "tr_is": [0.5] * 4, "tr_unif": flat, "tr_opt": [0.25] * 4, "n_ems": [256.0] * 4,
        "score": [1.0, 0.5, None, 40.0], "test_step": steps, "test_error": tests, "map": tests,
    }  # fmt: skip
    metric = "map" if config.data == "chestxray14" else "test_error"
    if config.model.startswith("resnet"):  # others have no BatchNorm
        changes = {"recalibrated": None if value is None else value + 0.5} | changes
    run = {metric: value, "ms_per_step": 0.5, "hardware": "a machine", "torch": "2", "emais": "0", "python": "3"}
    run |= {"source": "a1", "layout": LAYOUT, "train_loss": 0.25, "steps": config.num_steps}
    return json.loads(json.dumps(asdict(config) | run | {"curves": curves} | changes))


def runs(config: Config, *values: float | None) -> list[dict[str, Any]]:
    return [record(replace(config, seed=k), value) for k, value in enumerate(values)]


def fmnist(method: str, num_steps: int = 6250, **changes: Any) -> Config:
    return Config("fmnist", "lenet5", method, num_steps=num_steps, **changes)


def relu(method: str, num_steps: int = 6250, **changes: Any) -> Config:
    return replace(fmnist(method, num_steps, **changes), model="lenet5-relu")


def cifar10(method: str) -> Config:
    return Config("cifar10", "resnet18", method, lr=0.1, weight_decay=5e-4, num_steps=17500)


def setting(config: Config, *values: float | None) -> Setting:
    return Setting(config, tuple(runs(config, *values)))


SMALL = [
    *runs(fmnist("sgd-scan"), 11.0, 12.0, 13.0),  # 12 ± 1
    *runs(fmnist("rais"), 10.0, 10.4, 10.8),  # 10.4 ± 0.4
    *runs(fmnist("emais"), 10.0, 10.5, 9.5),  # 10 ± 0.5
    *runs(fmnist("confidence"), 10.3),
]
PLACE = {"hardware": {"gpu": "a GPU"}}
TIMINGS = [
    {"case": "ResNet18 gpu", "method": m, "ms": 2.0 * r, "ratio": r, **PLACE}
    for m, r in (("sgd", 1.0), ("sgd again", 1.01), ("rais", 1.25), ("emais", 1.5))
]


def everything() -> list[dict[str, Any]]:
    """Two seeds of every run of the catalogue."""
    configs = {c.key(): c for item in ITEMS.values() for c in item.configs(2)}
    return [record(c, 9.0 + len(c.method) / 10 + c.seed / 5) for c in configs.values()]


@pytest.fixture(scope="module")
def full() -> list[dict[str, Any]]:
    return everything()


# ---- the paper's numbers


def test_paper_numbers() -> None:
    def of(data: str, method: str, steps: int, decay: float, optimizer: str = "sgd") -> tuple[float, float] | None:
        found = paper.find(Config(data, "lenet5", method, optimizer, weight_decay=decay, num_steps=steps))
        return None if found is None else found[:2]

    assert of("fmnist", "emais", 6250, 1e-3) == (10.52, 0.10)
    assert of("fmnist", "self-paced", 6250, 1e-3) == (22.54, 3.34)
    assert of("cinic10", "presampling", 140000, 5e-4) == (16.82, 3.19)
    assert of("cifar10", "sgd-scan", 17500, 1e-4) == (16.69, 0.09)
    assert of("chestxray14", "emais", 4000, 1e-4) == (25.74, 0.07)
    assert of("fmnist", "rais", 12500, 1e-3, "adam") == (9.18, 0.22)
    assert of("cinic10", "emais", 70000, 5e-4, "adam") == (17.23, 0.11)
    assert of("fmnist", "emais", 6251, 1e-3) is None
    assert of("chestxray14", "confidence", 4000, 1e-4) is None
    assert paper.STEP_SECONDS["chestxray14"]["presampling"] == 1.36
    assert paper.STEP_SECONDS["fmnist"]["emais"] == 7.32e-3


def test_paper_tables_are_whole() -> None:
    for block in paper.BLOCKS:
        assert all(len(row) == len(block.methods) for row in block.rows.values())
    counts = {label: sum(len(b.rows) for b in paper.BLOCKS if b.label == label) for label in ITEMS}
    assert [counts[label] for label in ("tab:res_fmnist", "tab:res_cinic10", "tab:res_nih", "tab:adam")] == [
        3,
        8,
        3,
        12,
    ]


def test_paper_times_of_runs() -> None:
    counts = [(block.label, block.printed, len(block.rows)) for block in paper.RUN_SECONDS]
    assert counts == [
        ("tab:res_time_fmnist", "1e-3", 3),
        ("tab:res_time_cinic10", "1e-4", 4),
        ("tab:res_time_cinic10", "1e-5", 4),
        ("tab:res_time_nih", "1e-4", 3),
    ]
    for block in paper.RUN_SECONDS:
        assert all(len(row) == len(block.methods) for row in block.rows.values())
        for steps, row in block.rows.items():  # a step takes about what tab:per_iter_time says
            for method, (mean, _) in zip(block.methods, row, strict=True):
                assert mean / steps == pytest.approx(paper.STEP_SECONDS[block.data][method], rel=0.1)
    first, *_, last = paper.RUN_SECONDS
    assert first.rows[6250][-1] == (48.0, 1.2)
    assert paper.RUN_SECONDS[2].rows[140000][3] == (27772.9, 306.7)
    assert last.rows[70000][2] == (31487.9, 115.0)


def test_weight_decay_is_shown_as_printed_and_as_used() -> None:
    text = markdown("tab:res_cinic10", [])
    assert "| 5e-4 (printed 1e-5) | 17500 |" in text
    assert "| paper, CINIC-10 |" in text
    assert text.count("Weight decay: the paper's setup says 5e-4, its table prints 1e-5.") == 2
    assert "Weight decay: the paper" not in markdown("tab:res_fmnist", [])


def test_a_record_is_found_by_its_configuration() -> None:
    several = fmnist("emais-auto", options={"factors": (1, 0.3), "window": 50})  # a list once it was written down
    single = fmnist("emais", options={"tau": 1000}, refresh_every=5)
    for config in (fmnist("emais", rule="none", seed=3), single, several):
        one = record(config, 9.0)
        assert record_key(one) == without_seed(config)
    assert record_key({"data": "fmnist", "model": "lenet5", "method": "rais"}) == without_seed(fmnist("rais"))


# ---- tables


def test_table_of_results_by_hand() -> None:
    text = markdown("tab:res_fmnist", SMALL)
    row = "| 1e-3 | 6250 | 12.00 ± 1.00 | – | **10.40 ± 0.40** | – | **10.30** | – | – | **10.00 ± 0.50** | – |"
    assert row in text
    assert "| 1e-3 | 12500 |" not in text  # nothing of that row was run
    assert "LeNet5, 1 to 3 seeds each, on a machine. Source a1. Not run yet: 23 of 27 settings." in text
    assert "| 1e-3 | 12500 | – | – | – | – | – | – | – | – | – |" in markdown("tab:res_fmnist", [])


def test_a_method_of_our_own_is_marked_and_takes_no_bold_away() -> None:
    for values, strong in (((9.0, 9.2), True), ((10.4, 10.6), True), ((10.8, 11.0), False)):
        own = f"{sum(values) / 2:.2f} ± 0.14"
        text = markdown("tab:res_fmnist", SMALL + runs(fmnist("emais-auto"), *values))
        assert "| EMAIS | EMAIS-auto* |" in text
        assert f"| **10.00 ± 0.50** | {f'**{own}**' if strong else own} |" in text
        assert f"| EMAIS-auto* | 2 | {own} |  |  |  |" in text  # the paper has no value
        assert "* EMAIS-auto is not in the paper" in text
    assert bold([setting(fmnist("emais-auto"), 9.0, 9.2)]) == [False]


def test_one_of_the_papers_methods_alone_is_not_the_best_of_them() -> None:
    both = [*runs(fmnist("emais"), 9.0, 9.1, 9.2), *runs(fmnist("emais-auto"), 8.9, 9.0, 9.1)]
    text = markdown_page(both, [])
    assert "| 1e-3 | 6250 | – | – | 9.10 ± 0.10 | 9.00 ± 0.10 | – |" in text
    assert "EMAIS is bold" not in text
    third = runs(fmnist("rais"), 9.5, 9.55, 9.6)
    more = markdown_page([*both, *third], [])
    assert "| 1e-3 | 6250 | – | 9.55 ± 0.05 | **9.10 ± 0.10** | **9.00 ± 0.10** | EMAIS 9.10 ± 0.10 |" in more
    counted = "EMAIS is bold in 1 of the 1 rows with another of the paper's methods and three seeds or more."
    assert counted in more
    best = markdown_page([*both, *third, *runs(fmnist("sgd-scan"), 8.0, 8.1)], [])  # counted as in the table
    assert "EMAIS is bold in 0 of the 1 rows" in best
    few = [*runs(fmnist("emais", num_steps=12500), 8.0, 8.1), *runs(fmnist("rais", num_steps=12500), 9.0)]
    assert counted in markdown_page([*both, *third, *few], [])


def test_agreement_by_hand() -> None:
    text = markdown("tab:res_fmnist", SMALL)
    # RAIS: t = 0.50/sqrt(0.16/3 + 0.0676/5) = 1.93 with 3.1 degrees of freedom
    assert "| SGD-Scan | 3 | 12.00 ± 1.00 | 12.02 ± 0.45 | −0.02 | agrees (p = 0.98) |" in text
    assert "| RAIS | 3 | 10.40 ± 0.40 | 10.90 ± 0.26 | −0.50 | agrees (p = 0.15) |" in text
    assert "| Confidence | 1 | 10.30 | 10.78 ± 0.31 | −0.48 | one seed: no spread |" in text
    assert "| SGD-Uni |" not in text.partition("Beside")[2]
    assert "3 of 3 agree with the paper, ours are better in 0 and worse in 0." in text
    assert "With Holm's correction for 3 tests 3 agree." in text


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ((10.5, 10.6), "agrees", "agrees (p = 0.69)"),
        ((10.0, 10.1), "better", "better by 0.47 (p < 0.01)"),
        ((11.0, 11.1), "worse", "worse by 0.53 (p < 0.01)"),
        ((10.0, 10.1, None), "better", "better by 0.47 (p < 0.01)"),  # what diverged has no part in it
        ((10.0,), "none", "one seed: no spread"),
        ((), "none", "–"),
        ((None, None), "none", "–"),
    ],
)
def test_verdict(values: tuple[float, ...], kind: str, words: str) -> None:
    own = setting(fmnist("emais"), *values)
    found = verdict(own, paper.find(own.config))  # 10.52 ± 0.10
    assert (found.kind, found.text) == (kind, words)


def test_other_data_are_not_judged_and_more_map_is_better() -> None:
    cifar = setting(Config("cifar10", "resnet18", "emais", lr=0.1, weight_decay=1e-4, num_steps=17500), 16.0, 16.1)
    assert verdict(cifar, paper.find(cifar.config)).text == "not comparable"
    scan = setting(replace(cifar.config, method="sgd-scan"), 17.0, 17.5)
    text = markdown("tab:res_cinic10", [*scan.records, *cifar.records])
    assert "| 1e-4 | 17500 | EMAIS | 2 | 16.05 ± 0.07 | 16.42 ± 0.15 | −1.20 | −0.27 |" in text
    assert "paper" not in dot_plot("a row", [cifar, scan]).svg
    assert "paper" in dot_plot("a row", [setting(fmnist("emais"), 9.0, 9.1)]).svg
    assert dot_plot("a row", [setting(fmnist("emais"))]) is None
    chest = Config("chestxray14", "resnet50", "emais", weight_decay=1e-4, num_steps=1000)
    own = [setting(replace(chest, method=m), *v) for m, v in (("sgd-scan", (18.0, 20.0)), ("emais", (20.0, 21.0)))]
    assert bold(own) == [False, True]
    assert bold([setting(fmnist("rais"), 9.0), setting(fmnist("emais"), 9.1), setting(fmnist("confvar"))]) == [
        True,
        False,
        False,
    ]


def test_tuned_learning_rates() -> None:
    tuned = [
        record(replace(fmnist(method), lr=lr, seed=seed), error + seed)
        for method, errors in (("sgd-scan", (15, 11, 10, 20, 30)), ("emais", (14, 9, 12, 90, 90)))
        for lr, error in zip((0.003, 0.01, 0.03, 0.1, 0.3), errors, strict=True)
        for seed in (0, 1)
    ]
    text = markdown("tuned_lr", tuned)
    assert "| SGD-Scan | 15.50 ± 0.71 | 11.50 ± 0.71 | **10.50 ± 0.71** | 20.50 ± 0.71 | 30.50 ± 0.71 | 0.03 |" in text
    assert "| EMAIS | 14.50 ± 0.71 | **9.50 ± 0.71** | 12.50 ± 0.71 | 90.50 ± 0.71 | 90.50 ± 0.71 | 0.01 |" in text
    assert "| RAIS |" not in text  # nothing of it was run
    assert "| RAIS | – | – | – | – | – | – |" in markdown("tuned_lr", [])
    said = "EMAIS is 1.00 points ahead of SGD-Scan with these, 2.00 points ahead of SGD-Scan with the paper's."
    assert any(said in s for s in findings(tuned))
    better = [record(replace(fmnist("sgd-scan"), seed=seed), 9.75 + seed) for seed in (0, 1)]
    at_papers = [r for r in tuned if (r["method"], r["lr"]) != ("sgd-scan", 0.01)] + better
    rais = [record(replace(fmnist("rais"), lr=lr), 9.0 + lr) for lr in (0.003, 0.01, 0.03, 0.1, 0.3)]
    [said] = [s for s in findings(at_papers + rais) if "tuned for each" in s]
    assert "RAIS 9.00 % at 0.003 (one seed)" in said
    assert said.endswith("EMAIS is 0.75 points ahead of SGD-Scan, both at the paper's rate.")
    partly = markdown("tuned_lr", tuned + runs(fmnist("emais-auto"), 8.0, 9.0))
    assert "| EMAIS-auto* | – | 8.50 ± 0.71 | – | – | – | – |" in partly  # one rate is not a choice


def test_tuned_weight_decay_and_held_out_seeds() -> None:
    at = {c.weight_decay: c for c in ITEMS["tuned_decay"].configs(1) if (c.num_steps, c.method) == (6250, "emais")}
    tried = [one for decay, error in ((1e-4, 9.0), (1e-3, 8.0), (3e-3, 10.0)) for one in runs(at[decay], error, error)]
    text = markdown("tuned_decay", tried)
    assert "| 6250 | EMAIS | 0.03 | 9.00 ± 0.00 | **8.00 ± 0.00** | 10.00 ± 0.00 |" in text
    errors = {"sgd-scan": 9.0, "emais": 8.0, "rais": 9.01}
    own = [c for c in ITEMS["tuned"].configs(3) if c.num_steps == 6250 and c.method in errors]
    other = [record(c, errors[c.method] + 0.1 * (c.seed - HELD_OUT)) for c in own]
    rows = markdown("tuned", [*tried, *other]).splitlines()
    assert "| 6250 | SGD-Scan | 0.1 | 1e-4 | 3 | 9.10 ± 0.10 |  |  |" in rows
    assert "| 6250 | EMAIS | 0.03 | 1e-4 | 3 | 8.10 ± 0.10 | +1.00 | < 0.001 |" in rows
    assert any(row.startswith("| 6250 | RAIS | 0.1 | 1e-3 | 3 | 9.11 ± 0.10 | −0.01 | 0.9") for row in rows)
    [said] = [s for s in findings(other) if "and other seeds (Fashion-MNIST, 6250 steps)" in s]
    assert said.endswith("Better than SGD-Scan by more than chance: EMAIS.")


def test_momentum_beside_the_paper() -> None:
    values = {"sgd-scan": {0.8: 13.0, 0.85: 12.0, 0.9: 11.0}, "emais": {0.8: 11.5, 0.85: 11.0, 0.9: 10.5}}
    own = [
        one
        for method, means in values.items()
        for momentum, mean in means.items()
        for one in runs(relu(method, momentum=momentum), mean - 0.1, mean, mean + 0.1)
    ]
    text = markdown("relu_momentum", own)
    assert "| 6250 | SGD-Scan | 13.00 ± 0.10 | **12.00 ± 0.10** | 11.00 ± 0.10 | 12.02 ± 0.45 |" in text
    assert "| 6250 | EMAIS | 11.50 ± 0.10 | 11.00 ± 0.10 | **10.50 ± 0.10** | 10.52 ± 0.10 |" in text
    assert "| 6250 | SGD-Scan − EMAIS | +1.50 | +1.00 | +0.50 | +1.50 |" in text
    assert "13.00" not in markdown("relu_res_fmnist", own)  # other momenta have no place there
    assert "11.00 ± 0.10" in markdown("relu_res_fmnist", own)
    assert "11.00 ± 0.10" not in markdown("tab:res_fmnist", own)  # nor has the other network
    assert "None of these momenta fits both methods" in text
    fitting = [setting(fmnist(m, momentum=0.8), *v) for m, v in (("sgd-scan", (12.0, 12.1)), ("emais", (10.5, 10.6)))]
    assert "fits both" not in markdown("relu_momentum", [])
    assert fits([*fitting, setting(fmnist("emais", momentum=0.9), 9.0, 9.1)]).startswith("0.8 fits both")


def test_statistics_of_uniform_minibatches_seed_by_seed() -> None:
    own = runs(cifar10("emais-auto"), 5.0, 5.4)
    own[1]["recalibrated"] = 6.2  # +0.5 and +0.8
    chest = replace(cifar10("rais"), data="chestxray14", model="resnet50", weight_decay=1e-4, num_steps=1000)
    own.append(record(chest, 9.0, recalibrated=8.75))
    older = [{k: v for k, v in r.items() if k != "recalibrated"} for r in runs(cifar10("emais"), 5.0, 5.1, 5.2)]
    older.append({**older[2], "method": "emais-auto"})
    bad = record(cifar10("sgd-uni"), None)
    text = markdown("batchnorm", [*own, *older, bad])
    assert "| CIFAR-10 | 5e-4 | 17500 | EMAIS-auto* | 2 | 5.20 ± 0.28 | 5.85 ± 0.49 | +0.65 ± 0.21 |" in text
    assert "| ChestX-ray14 | 1e-4 | 1000 | RAIS | 1 | 9.00 | 8.75 | −0.25 |" in text
    assert "| SGD-Uni | 1 | – | – | – |" in text
    assert "| EMAIS |" not in text  # none of its runs has it
    told = "ResNet18 and ResNet50, 1 to 2 seeds each, on a machine. Source a1. Not run yet: 58 of 61 settings."
    assert told in text
    page = markdown_page(older, [])
    assert "## batchnorm" not in page
    assert "batchnorm (61 of 61; table left out)" in page


def chest_runs(title: str) -> list[dict[str, Any]]:
    base = Config("chestxray14", "resnet50", "sgd-scan", weight_decay=1e-4, lr=0.1, num_steps=1000)
    configs = [replace(base, method=m, seed=k) for m in ("sgd-scan", "rais", "emais", "emais-auto") for k in (0, 1)]
    return [record(c, 9.0 + c.seed, data_title=title) for c in configs]


def test_a_subset_is_called_one_wherever_it_is_shown() -> None:
    part, whole = chest_runs("ChestX-ray14 (subset of 4,999 images)"), chest_runs("ChestX-ray14")
    for make in (lambda runs: html(runs, []), lambda runs: markdown_page(runs, []), lambda r: markdown("batchnorm", r)):
        text = make(part)
        assert len(re.findall("ChestX-ray14 subset", text)) > 1
        assert set(re.findall(r"(?<!paper, )ChestX-ray14(?! subset)", text)) == set()
        assert "subset" not in make(whole)
        assert "ChestX-ray14" in make(whole)
    for name, runs_ in (("ChestX-ray14 subset", part), ("ChestX-ray14", whole)):
        text = markdown("tab:res_nih", runs_)
        assert f"**Mean average precision on the test set, {name}**" in text
        assert f"Our runs ({name}) are shorter" in text
        assert f"| {name} (mAP) |" in to_markdown(glance(runs_))


def test_draws_over_parts_of_a_run_and_where_its_rate_ends() -> None:
    one = record(fmnist("rais"), 10.0)
    one["curves"] |= {"n_ems": [100.0, 200.0, 300.0, None], "lr": [0.2, 0.1, 0.0, 0.0]}
    own = Setting(fmnist("rais"), (one,))
    assert (middle(own, "n_ems"), middle(own, "n_ems", 0.75)) == (300.0, 250.0)
    skewed = [*runs(fmnist("rais"), 10.0, 10.0), one | {"seed": 2}]
    assert average(Setting(own.config, tuple(skewed)), "n_ems") == pytest.approx((4 * 256 + 300) / 5)  # no median: 256
    assert math.isnan(average(setting(fmnist("rais")), "n_ems"))
    assert "| 6250 | RAIS | 3 | 10.00 ± 0.00 | 265 | 256 | 40.00 | 40.00 |" in markdown("rais_rules", skewed)
    assert last_moving(own) == one["curves"]["step"][2]
    assert math.isnan(last_moving(setting(fmnist("rais"), 10.0)))
    text = markdown("rais_rules", [one, *runs(fmnist("rais", rule="linear"), 9.0, 9.5)])
    assert "| 6250 | RAIS | 1 | 10.00 | 300 | – | 40.00 | 40.00 | 4687 |" in text
    assert "| 6250 | RAIS, rule linear | 2 | 9.25 ± 0.35 | 256 | 256 | 40.00 | 40.00 |  |" in text


def test_a_run_that_was_made_again_counts_once() -> None:
    """By its first record, unless a table needs what only the second one has."""
    first, again = record(fmnist("sgd-scan"), 10.0), record(fmnist("sgd-scan"), 12.0)
    assert settings_of([fmnist("sgd-scan")], [first, again])[0].mean == 10.0


def test_steps_to_an_error() -> None:
    own = [
        setting(fmnist("rais"), 10.0, 10.0),
        setting(fmnist("emais"), 9.0, 11.0),
        setting(fmnist("emais-auto"), 9.0, 9.0),
        setting(fmnist("sgd-scan")),
    ]
    table = steps_table("fmnist", own)
    assert list(table.head) == ["length", "method", "≤ 12 %", "≤ 11 %", "≤ 10 %", "≤ 9.5 %", "≤ 9 %"]
    rows = {row[1].text: [cell.text for cell in row[2:]] for row in table.rows}
    assert rows.keys() == {"RAIS", "EMAIS", "EMAIS-auto*"}
    assert rows["RAIS"] == ["3125 ± 0", "4687 ± 0", "6250 ± 0", "–", "–"]
    assert rows["EMAIS"] == ["3124 ± 2210", "4688 ± 2210", "1/2", "1/2", "1/2"]
    assert rows["EMAIS-auto*"] == ["1562 ± 0", "3125 ± 0", "4687 ± 0", "5468 ± 0", "6250 ± 0"]
    strong = [[cell.bold for cell in row[2:5]] for row in table.rows]
    assert strong == [[False, True, True], [True, False, False], [True, True, True]]


def test_steps_between_two_tests() -> None:
    one = {"curves": {"test_step": [10, 20, 30, 40], "test_error": [30.0, None, 20.0, 10.0]}}
    assert first_step(one, 15.0) == 35.0
    assert first_step(one, 30.0) == 10.0  # nothing before it to draw a line from
    assert first_step(one, 25.0) == 30.0  # nor here
    assert math.isnan(first_step(one, 9.0))


def test_cost(tmp_path: Path) -> None:
    text = to_markdown(cost_table(TIMINGS))
    assert "| ResNet18 gpu | 1.00 (2.00) | – | 1.25 | – | – | – | – | 1.50 | – |" in text
    assert "| paper, CINIC-10 | 1.00 (66.2) | 1.00 | 1.00 | 2.99 | 0.96 | 1.01 | 0.98 | 1.01 |  |" in text
    assert "FMNIST" not in text
    alone = {"case": "resnet18 alone", "ms": 3.0, "ratio": 1.0, "compiled": True, "hardware": {"gpu": "a GPU"}}
    lines = [json.dumps(alone | {"method": method}) for method in ("sgd-scan", "rais", "emais", "emais-auto")]
    (tmp_path / "single_resnet18.jsonl").write_text("\n".join(lines))
    case = best_case([*TIMINGS, *read_timings(tmp_path)], "resnet18")
    assert case is not None
    assert (case.name, case.place, len(case.methods)) == ("ResNet18 alone, compiled", "a GPU", 4)
    more = [{**t, "method": m} for t in TIMINGS[:1] for m in ("sgd", *paper.NAMES)]  # knows every method
    case = best_case([*more, *read_timings(tmp_path)], "resnet18")
    assert case is not None
    assert case.name == "ResNet18 alone, compiled"
    assert best_case(TIMINGS, "lenet5") is None
    assert best_case(TIMINGS[2:], "resnet18") is None  # no SGD to take milliseconds from


def test_seconds_of_a_run(tmp_path: Path) -> None:
    """The milliseconds of a step times the steps, the paper's below."""
    made = time_tables(TIMINGS)  # ResNet18 only: SGD 2 ms, EMAIS 3
    assert list(made) == ["tab:per_iter_time", "tab:res_time_cinic10"]
    text = to_markdown(made["tab:res_time_cinic10"])
    assert "| ours | 17500 | 35.0 | – | 43.8 | – | – | – | – | 52.5 | – |" in text
    assert "| ours | 35000 | 70.0 |" in text
    assert "| paper, CINIC-10, 1e-5 | 140000 | 9124.9 ± 361.5 | 9739.0 ± 712.0 |" in text
    for words in ("one run alone", "a step as timed apart (ResNet18 gpu, on a GPU) times the steps", "Tesla V100"):
        assert words in text
    assert "without tests of the model on the way; runs side by side share the time and are quicker" in text
    chest = [{**one, "case": "resnet50 alone"} for one in TIMINGS]
    text = to_markdown(time_tables(chest)["tab:res_time_nih"])
    assert "Confidence" not in text
    assert "ChestX-ray14 subset" in text
    assert "| ours | 1000 | 2.0 | – | 2.5 | – | – | 3.0 | – |" in text
    assert time_tables([]) == {}
    page = markdown_page(SMALL, TIMINGS)
    assert page.index("## tab:per_iter_time") < page.index("## tab:res_time_cinic10") < page.index("# The paper’s fig")


def test_step_times_beside_the_results_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, method in (("here", "rais"), ("there", "emais")):
        folder = tmp_path / place / "benchmarks" / "results"
        folder.mkdir(parents=True)
        (folder / "step_cpu.jsonl").write_text(json.dumps({"method": method}))
    monkeypatch.chdir(tmp_path / "here")
    assert timings_of(tmp_path / "there" / "results") == [{"method": "emais"}]
    assert timings_of(tmp_path / "elsewhere" / "results") == [{"method": "rais"}]
    assert timings_of(Path("results")) == [{"method": "rais"}]


NOISY = [  # SGD is not quite 1 over the mean of two plain loops; the others' milliseconds are from other processes
    {"case": "ResNet18 gpu", "method": m, "ms": ms, "ratio": r, "ratio_low": 0.97, "ratio_high": 1.52, **PLACE}
    for m, ms, r in (("sgd", 2.0, 0.984), ("sgd again", 2.2, 1.016), ("rais", 2.6, 1.25), ("emais", 1.9, 1.5))
]


def test_times_are_those_of_the_ratios() -> None:
    """In the table, on hover and in seconds: SGD's milliseconds times the ratio, and SGD is 1.00 of itself."""
    (row, _), case = cost_table(NOISY).rows, best_case(NOISY, "resnet18")
    by_name = dict(zip(paper.NAMES, row[1:], strict=True))
    assert (by_name["sgd-scan"].text, by_name["sgd-scan"].sort) == ("1.00 (2.00)", 1.0)
    assert by_name["sgd-scan"].hover.startswith("2.00 ms a step, ratio 1.0000; 0.970 to 1.520 over the mean of two")
    assert (by_name["emais"].text, by_name["emais"].sort) == ("1.50", 1.5)
    assert by_name["emais"].hover == "3.00 ms a step, ratio 1.5000 (0.970 to 1.520)"
    assert case is not None
    assert [case.ms(method) for method in ("sgd-scan", "rais", "emais")] == [2.0, 2.5, 3.0]
    own = [one for m in ("sgd-scan", "rais", "emais") for one in runs(cifar10(m), 6.0, 6.5)]
    figure = next(f for f in figures(own, NOISY) if f.label.endswith("time"))
    assert [series.x[-1] for series in figure.charts[0].series] == [35.0, 43.75, 52.5]  # 17500 steps of 2, 2.5 and 3 ms
    assert "SGD-Scan's, 2.00 ms, times the ratio" in figure.note


@pytest.mark.parametrize("label", ITEMS)
def test_every_label_has_a_table_with_and_without_runs(label: str, full: list[dict[str, Any]]) -> None:
    for records in (full, []):
        for table in tables(label, records):
            assert table.rows
            assert all(len(row) == len(table.head) for row in table.rows)
        assert "nan" not in markdown(label, records)


def test_what_is_said_of_the_rows() -> None:
    table = glance(SMALL + runs(fmnist("emais-auto"), 9.0, 9.1))
    assert table is not None
    assert [cell.text for cell in table.rows[0]][4:] == [
        "12.00 ± 1.00",
        "10.40 ± 0.40",
        "10.00 ± 0.50",
        "9.05 ± 0.07",
        "EMAIS 10.00 ± 0.50",
    ]
    assert glance([]) is None
    said = findings(SMALL + runs(fmnist("emais-auto"), 9.0, 9.1))
    assert "EMAIS has a better mean than SGD-Scan in 1 of 1 rows, by more than chance in none;" in said[0]
    assert "EMAIS-auto has a better mean than EMAIS in 1 of 1 rows" in said[1]
    assert "EMAIS-auto has a better mean than SGD-Scan in 1 of 1 rows" in said[2]
    end = "behind by more than chance in none. (Welch's test at 0.05, with Holm's correction over these rows.)"
    assert all(text.endswith(end) for text in said[:3])
    single = [*runs(fmnist("emais", 12500), 8.0), *runs(fmnist("sgd-scan", 12500), 9.0)]
    wanted = "in 2 of 2 rows (1 with fewer than three seeds, not tested), by more than chance in none;"
    assert wanted in findings(SMALL + single)[0]
    few = [*runs(fmnist("emais", 12500), 8.0, 8.01), *runs(fmnist("sgd-scan", 12500), 9.0, 9.01, 9.02)]
    assert wanted in findings(SMALL + few)[0]
    clear = [*runs(fmnist("emais", 12500), 8.0, 8.01, 8.02), *few[2:]]
    assert "in 2 of 2 rows, by more than chance in 1;" in findings(SMALL + clear)[0]


def test_rows_in_which_a_method_is_clearly_behind_are_named() -> None:
    adam = fmnist("sgd-scan", 25000, optimizer="adam", lr=0.001)
    lost = [*runs(adam, 8.8, 8.9, 9.0), *runs(replace(adam, method="emais-auto"), 9.4, 9.5, 9.6)]
    near = [*runs(fmnist("sgd-scan"), 9.0, 9.2, 9.4), *runs(fmnist("emais-auto"), 9.1, 9.3, 9.5)]  # behind, not clearly
    said = next(s for s in findings([*lost, *near]) if s.startswith("EMAIS-auto"))
    assert said == (
        "EMAIS-auto has a better mean than SGD-Scan in 0 of 2 rows, by more than chance in none; it is behind by more "
        "than chance in 1 (Fashion-MNIST, Adam, weight decay 1e-3, 25000 steps: 9.50 ± 0.10 against 8.90 ± 0.10). "
        "(Welch's test at 0.05, with Holm's correction over these rows.)"
    )


def test_findings_are_short_and_end_with_what_is_not_run() -> None:
    chest = Config("chestxray14", "resnet50", "emais", weight_decay=1e-4, lr=0.1, num_steps=1000)
    said = findings([*SMALL, *runs(chest, 9.0, 9.1)], TIMINGS)
    assert len(said) == 3
    assert said[1] == "Time of a step over that of SGD-Scan: EMAIS 1.50 (ResNet18 gpu); on a GPU."
    assert said[2].startswith("Not run yet: SGD-Scan in 1 of 2 rows (ChestX-ray14), where")
    assert "tab:res_nih" in said[2]
    assert "tab:res_fmnist" not in said[2]


def test_tables_with_too_many_gaps_are_only_named() -> None:
    third = [s for m in ("sgd-scan", "emais", "rais") for s in runs(fmnist(m), 9.0, 9.1)]  # 3 of the row's 9 methods
    more = [*third, *runs(fmnist("confvar"), 9.0, 9.1)]
    for records, there in ((third, False), (more, True)):
        text, page = markdown_page(records, []), html(records, [])
        assert ("## tab:res_fmnist" in text) is there
        assert ("<code>tab:res_fmnist</code>" in page) is there
        gaps = 27 - len(records) // 2
        assert f"tab:res_fmnist ({gaps} of 27{'' if there else '; table left out'})" in text
    assert "| 1e-3 | 6250 | **9.05 ± 0.07** |" in markdown("tab:res_fmnist", third)  # `emais reproduce` shows it


def test_the_star_and_terms_are_explained_once_before_they_are_used(full: list[dict[str, Any]]) -> None:
    page, text = html(full, TIMINGS), markdown_page(full, TIMINGS)
    for own in (page, text, markdown("tab:res_fmnist", full)):
        assert own.count("* EMAIS-auto is not in the paper") == 1
        assert own.count("chooses its memory and the power of its weights during training") == 1
    assert "is not in the paper" not in markdown("relu_momentum", full)
    for own in (page, text):
        assert own.count("the size of a uniform minibatch whose gradient") == 1
    main = page.partition("<main>")[2]
    assert main.index("the size of a uniform minibatch") < main.index('id="findings"')


def test_differences_from_sgd_scan_by_hand() -> None:
    base, own = setting(fmnist("sgd-scan"), 11.0, 12.0, 13.0), setting(fmnist("emais"), 10.0, 10.5, 9.5)
    assert lead_of(own, base) == pytest.approx((2.0, math.sqrt(1 / 3 + 0.25 / 3)))
    chest = Config("chestxray14", "resnet50", "emais", weight_decay=1e-4, num_steps=1000)
    worse, one = setting(chest, 8.0), setting(replace(chest, method="sgd-scan"), 9.0)
    assert lead_of(worse, one)[0] == -1.0  # less mAP is worse
    rows = [[base, own], [worse, one], [setting(fmnist("rais"), 9.0, 9.1)]]
    picture = difference_plot(rows).svg
    assert picture.count("<circle") == 2
    assert picture.count("H") == 1  # one seed has no bar
    assert "EMAIS: 2.00 ± 0.65 points" in picture
    assert "Rows without SGD-Scan are left out." in difference_note(rows)
    assert "left out" not in difference_note(rows[:2])
    zero = re.search(r'class="zero" d="M([\d.]+)', picture)
    dots = [float(x) for x in re.findall(r'cx="([\d.]+)"', picture)]
    assert zero is not None
    assert dots[1] < float(zero[1]) < dots[0]
    assert difference_plot(rows[2:]) is None


def test_cells_are_escaped() -> None:
    table = Table(["<a>"], [[Cell("x & y", sort=1.0, hover='"z"')]], "c < d")
    text = render(Page("<t>", "short", "about", {}, table, "command"))
    assert "&lt;a&gt;" in text
    assert "<title>&lt;t&gt;</title>" in text
    found = re.search(r'<td class="number" data-sort="1" title="(.*?)">(.*?)</td>', text)
    assert found is not None
    assert [unescape(part) for part in found.groups()] == ['"z"', "x & y"]
    assert "x & y" not in text


# ---- figures


def test_figures_hold_all_series(full: list[dict[str, Any]]) -> None:
    found = {figure.label: figure.charts for figure in figures(full, TIMINGS)}
    names = {label: [[s.name for s in chart.series] for chart in charts] for label, charts in found.items()}
    taus = [[f"τ = {t}" for t in own] for own in ((1000, 5000, 10000, 25000), (1250, 2500, 7500, 17500))]
    assert names["fig:is_scores"] == [[*own, "Linear-τ"] for own in taus]
    three = ["EMAIS", "EMAIS without adjustment", "SGD-Uni"]
    assert names["fig:fmnist_lr_adjust_ablation"] == [three, three, three[:2], three[:2], three[:2]]
    refreshed = [["EMAIS", f"refreshed every {steps} steps"] for steps in (500, 250)]
    assert names["fig:additional_state_updates"] == [refreshed[0]] * 3 + [refreshed[1]] * 3
    assert names["fig:score_and_trvars"] == [["EMAIS"], ["EMAIS", "uniform", "optimal"]] * 2
    lengths = [(6250, 12500, 25000), (8750, 17500, 26250, 35000)]
    assert names["fig:cinic10_35000-140000_IS_score"] == [[f"{n} steps" for n in own] for own in lengths]
    alone = [f"τ = {c} t alone" for c in ("1", "0.3", "0.1", "0.03")]
    assert names["emais_auto over steps"] == [["EMAIS", "EMAIS-auto*", *alone]] * 6
    assert names["tab:res_fmnist over steps"] == [[*map(paper.NAMES.get, paper.ALL), "EMAIS-auto*"]] * 3
    assert names["tab:res_fmnist S(W)"] == names["tab:res_fmnist N_ems"] == names["tab:res_fmnist over steps"]
    assert names["tab:res_cinic10 over time"] == [["SGD-Scan", "RAIS", "EMAIS"]] * 4
    assert names["tab:adam over steps"] == [["Adam-Scan", "Adam-Uni", "RAIS", "EMAIS", "EMAIS-auto*"]] * 3
    assert not {"tab:res_fmnist over time", "tab:adam over time", "tab:res_nih over time"} & names.keys()  # not timed
    assert {"tab:res_cinic10 over steps", "tab:res_nih over steps"} <= names.keys()


def test_every_method_has_a_colour_of_its_own(full: list[dict[str, Any]]) -> None:
    chart = next(figure for figure in figures(full) if figure.label == "tab:res_fmnist over steps").charts[0]
    assert chart.colours() == list(range(9))
    text = html(full, [])
    for k in chart.colours():
        assert text.count(f"--c{k}: #") >= 2  # in light and in dark
        assert f".s{k} {{ --c: var(--c{k}); }}" in text
        assert f".off-{k} .s{k}" in text


def test_curves_by_hand() -> None:
    one = record(fmnist("emais"), 10.0)
    assert rows_of(one, "applied") == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert rows_of(one, "scaled") == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert median_range([1.0, math.nan])[0] == 1.0
    figure = next(f for f in figures(runs(cifar10("emais"), 6.0, 6.5), TIMINGS) if f.label.endswith("time"))
    assert list(figure.charts[0].series[0].x) == [13.12, 26.25, 39.38, 52.5]  # 3 ms a step
    assert "ResNet18 gpu, on a GPU." in figure.note


def notes(records: list[dict[str, Any]], kind: str) -> tuple[str, str]:
    """Title and note of one of the figures of CIFAR-10 or Fashion-MNIST, whichever there is."""
    figure = next(f for f in figures(records) if f.label.startswith("tab:res") and f.label.endswith(kind))
    return figure.title, figure.note


def test_captions_speak_of_what_is_drawn() -> None:
    both = [*runs(cifar10("emais"), 6.0, 6.1), *runs(cifar10("emais-auto"), 6.0, 6.1)]
    stopping = record(cifar10("rais"), 7.0)
    stopping["curves"]["lr"] = [0.2, 0.1, 0.0, 0.0]
    for kind in ("steps", "N_ems", "S(W)"):
        title, note = notes(both, kind)
        assert title.endswith("the methods run so far, CIFAR-10")
        assert not re.search("RAIS|Presampling|Confidence|ConfVar|draw evenly", note)
    assert "RAIS" not in notes([*both, record(cifar10("rais"), 7.0)], "S(W)")[1]  # its rate does not end early
    for kind in ("steps", "S(W)"):
        assert "by step 13125 of 17500 (means over seeds)" in notes([*both, stopping], kind)[1]
    more = [*both, *runs(cifar10("presampling"), 7.0, 7.1), *runs(cifar10("confvar"), 7.0, 7.1)]
    assert "norms of the present model in evaluation mode" in notes(more, "S(W)")[1]
    assert "ConfVar: plain means" in notes(more, "N_ems")[1]
    assert "draw evenly stay there" in notes([*more, *runs(cifar10("sgd-uni"), 7.0)], "N_ems")[1]


def test_all_methods_are_called_so(full: list[dict[str, Any]]) -> None:
    title, note = notes(full, "S(W)")
    assert title == "S(W) over steps: all methods, Fashion-MNIST"
    assert "Presampling-IS draws by the norms of the present model, so it is at 0 by construction." in note


def test_captions_of_the_papers_figures(full: list[dict[str, Any]]) -> None:
    own = [r for r in full if r["data"] == "fmnist"]
    with_cifar, without = ({f.label: f for f in figures(records)} for records in (full, own))
    for label in ("fig:is_scores", "fig:score_and_trvars"):
        assert "CIFAR-10 stands in" in with_cifar[label].note
        assert "CIFAR-10" not in without[label].note
    assert "median over seeds" in without["fig:is_scores"].lines
    assert "mean over seeds" in without["fig:score_and_trvars"].lines


def test_figures_say_what_they_cut_off(full: list[dict[str, Any]]) -> None:
    for figure in figures(full, TIMINGS):
        cut = any(chart.log_y and chart.y_to is not None for chart in figure.charts)
        assert ("what lies above is cut off" in figure.note) is cut, figure.label
        assert ("bands beyond it are cut off" in figure.note) is any("S(W)" in c.y_label for c in figure.charts)


def test_one_wild_seed_does_not_move_a_line_of_fixed_tau() -> None:
    own = runs(fmnist("emais", 25000, options={"tau": 1000}), 9.0, 9.1, 9.2)
    own[2]["curves"]["score"] = [1000.0] * POINTS
    drawn = next(f for f in figures(own) if f.label == "fig:is_scores").charts[0].series[0]
    assert list(drawn.mean)[:2] == [1.0, 0.5]


def test_legends_have_the_digits_of_the_tables() -> None:
    charts = {f.label: f.charts[0] for f in figures(runs(fmnist("emais"), 10.0, 10.3))}
    legends = {label: [key.value for key in draw(one).legend] for label, one in charts.items()}
    assert legends["tab:res_fmnist over steps"] == ["10.15 ± 0.21"]
    assert "| 10.15 ± 0.21 |" in markdown("tab:res_fmnist", runs(fmnist("emais"), 10.0, 10.3))
    assert legends["tab:res_fmnist N_ems"] == ["256 ± 0"]
    assert legends["tab:res_fmnist S(W)"] == ["40.00 ± 0.00"]


def test_names_of_the_limits_stand_where_no_line_runs() -> None:
    one = next(f for f in figures(runs(fmnist("emais"), 10.0)) if f.label.endswith("S(W)")).charts[0]
    for name in ("optimal", "uniform"):
        x, anchor = re.search(
            rf'<text class="note" x="(\d+)" y="[\d.]+" text-anchor="(\w+)">{name}<', svg(one)
        ).groups()
        assert anchor == "end"
        assert int(x) < PLOT.left


# ---- the page


class Reader(HTMLParser):
    """Remembers ids, addresses, and whether every element is closed where it should be."""

    VOID = ("meta", "circle", "path")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [v for k, v in attrs if k == "id" and v]
        self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset", "action") and v]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_page_stands_alone(full: list[dict[str, Any]]) -> None:
    text = html(full, TIMINGS)
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert reader.addresses
    assert all(a.startswith("#") and a[1:] in reader.ids for a in reader.addresses)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)|<script [^>]*src", text)
    assert ">nan" not in text.lower()
    for label in ITEMS:
        assert f"<code>{label}</code>" in text


def test_page_and_markdown_with_few_or_no_runs() -> None:
    for name, records in (("none", []), ("few", SMALL), ("bad", runs(fmnist("emais"), None, None))):
        assert ">nan" not in html(records, []).lower(), name
        assert "nan" not in markdown_page(records, []).split()
    assert "Settings not run yet: tab:res_fmnist (27 of 27; table left out)" in markdown_page([], [])


CHECKS = """(() => {
  const sizes = [...document.querySelectorAll('figure svg, figure')].map(f => f.getBoundingClientRect());
  return { figures: document.querySelectorAll('figure').length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    empty: sizes.filter(b => b.width < 50 || b.height < 50).length };
})()"""
SORT = """(() => {
  const table = document.querySelector('#tab-res-fmnist table.sortable');
  const heads = [...table.tHead.rows[0].cells], k = heads.findIndex(h => h.textContent === 'steps');
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[k].textContent);
  heads[k].querySelector('button').click(); const up = column();
  heads[k].querySelector('button').click(); return [up, column(), heads[k].getAttribute('aria-sort')];
})()"""
HOVER = """(() => {
  const chart = document.querySelector('#fig-is-scores .chart'), svg = chart.querySelector('svg');
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 0.4 * box.width }));
  const item = chart.querySelector('.legend li'); item.click();
  return [chart.querySelector('.hover').getAttribute('visibility'), chart.closest('.charts').className];
})()"""

TEXTS = """[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const all = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
  const boxes = texts.map(t => t.getBoundingClientRect());
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return texts.filter((t, i) => boxes[i].left < all.left - 1 || boxes[i].right > all.right + 1
    || boxes.some((b, j) => j < i && over(b, boxes[i]))).map(t => t.textContent);
})"""

NARROW = """(() => {
  const box = document.querySelector('#findings .scroll'), cell = box.querySelector('tbody td');
  const before = cell.getBoundingClientRect().left;
  box.scrollLeft = 120;
  return { shift: Math.round(cell.getBoundingClientRect().left - before), scrolled: box.scrollLeft > 100,
    open: document.querySelector('nav details').open };
})()"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")
def test_page_in_a_browser(tmp_path: Path, full: list[dict[str, Any]]) -> None:
    page = tmp_path / "report.html"
    page.write_text(html(full, TIMINGS, studied()), "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page)
        seen = browser.run(CHECKS)
        assert seen["figures"] > 30
        assert browser.run("document.querySelector('nav details').open") is True
        assert (seen["empty"], seen["wide"]) == (0, 0)
        screen = {"width": 1200, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", **screen)
        first = (
            "(() => { const t = document.querySelector('#findings .scroll'); return t.scrollWidth - t.clientWidth; })()"
        )
        assert browser.run(first) == 0
        assert browser.run(SORT) == [["6250", "12500", "25000"], ["25000", "12500", "6250"], "descending"]
        assert browser.run(HOVER) == ["visible", "charts off-1"]
        assert browser.run(TEXTS) == []
        size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        browser.call("Emulation.setDeviceMetricsOverride", **size)
        assert (browser.run(CHECKS)["empty"], browser.run(CHECKS)["wide"]) == (0, 0)
        assert browser.run(TEXTS) == []  # letters are larger there
        assert browser.run(NARROW) == {"shift": 0, "open": False, "scrolled": True}
        assert browser.problems == []


def studied() -> list[dict[str, Any]]:
    """A made-up study of both gradients."""
    names = ("tr_is", "tr_unif", "tr_opt", "n_ems", "score")
    rows = [
        {"noise": n, "logit": dict.fromkeys(names, 1 + n), "full": dict.fromkeys(names, 3 + 2 * n)}
        for n in (0.0, 0.5, 1.0, 2.0)
    ]
    rows[1]["full"]["score"] = None  # no number: no dot
    return [{"step": 7, "norms": {"logit": [1.0, 2.0, 4.0], "full": [2.0, 4.0, 8.0]}, "minibatches": rows}]


def test_scatter_plots_of_both_gradients() -> None:
    study = studied()
    (norms,) = scatter.panels("fig:full_logit_grad", study)
    assert "after 7 steps" in norms.title
    assert "slope 2, " in norms.note
    assert norms.svg.count("<circle") == 3
    first, *_ = scatter.panels("fig:full_logit_trvar", study)
    assert "slope 2, intercept 1, correlation 1.000" in first.note
    assert first.svg.count("<circle") == 3  # more noise than is shown
    _, score = scatter.panels("fig:full_logit_nems_score", study)
    assert score.svg.count("<circle") == 2
