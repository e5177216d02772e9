"""The page of runs of one's own: a row for each setting, and the curves of those that differ in the method only."""

from __future__ import annotations

from html import unescape

import pytest

from emais.experiments.report.user_runs import (
    compared_settings,
    config_of,
    known_runs,
    own_figure,
    own_page,
    own_sections,
)
from emais.experiments.runs.runner import run_all
from emais.experiments.runs.store import Results
from emais.experiments.runs.sweep import parse

TEXT = "data=digits model=perceptron batch_size=32 num_steps=100"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "my runs.jsonl"
    ours = parse(f"{TEXT} method=emais lr=0.1,0.2 warmup_epochs=0.5 tau=10,50 seed=0-1")
    run_all([*ours, *parse(f"{TEXT} method=sgd-scan lr=0.2")], path)
    return path


def test_sections(source):
    records = Results(source).read()
    sections = own_sections(records)
    (table,) = sections[0].tables()
    assert len(table.rows) == 5
    at = {name: k for k, name in enumerate(table.head)}
    row = [cell.text for cell in table.rows[0]]
    told = ("data", "method", "model", "lr", "num steps", "batch size", "seeds")
    assert [row[at[name]] for name in told] == [
        "digits",
        "EMAIS, warmup_epochs = 0.5, τ = 10",
        "perceptron",
        "0.1",
        "100",
        "32",
        "2",
    ]
    own = [r for r in records if (r["lr"], r["options"].get("tau")) == (0.1, 10)]
    halves = [v for r in own for v in r["curves"]["n_ems"][len(r["curves"]["n_ems"]) // 2 :]]
    assert row[at["N_ems"]] == f"{sum(halves) / len(halves):.0f}"
    assert row[at["step (ms)"]] == f"{sum(r['ms_per_step'] for r in own) / 2:.2f}"
    assert 0 < float(row[at["S(W)"]]) < 1
    figures = [own_figure(row, k) for k, row in enumerate(compared_settings(records), 1)]
    assert [len(figure.charts[0].series) for figure in figures] == [2, 3]
    assert [chart.colours() for chart in figures[1].charts] == [[0, 1, 2]] * 3
    assert [section.title for section in sections[1:]] == [figure.title for figure in figures]
    assert [len(part.drawings) for section in sections[1:] for part in section.parts] == [3, 3]
    assert len({section.anchor for section in sections}) == 3


def test_page(source):
    page = own_page(Results(source).read(), source)
    assert f"emais report --results '{source}'" in unescape(page)
    assert "reproduce" not in page
    assert 'href="#findings"' not in page
    assert "not run yet" not in page.lower()


def test_runs_that_are_not_known(source):
    records = Results(source).read()
    odd = [records[0] | change for change in ({"method": "of_tomorrow"}, {"options": {"of_tomorrow": 1}}, {"lr": None})]
    assert known_runs([*odd, records[0]]) == [records[0]]
    assert config_of(records[0]).key() == parse(f"{TEXT} method=emais lr=0.1 warmup_epochs=0.5 tau=10")[0].key()
