"""The tables of the harm suite, in the report and alone."""

import json
from dataclasses import asdict, replace

import pytest

from emais.cli import main
from emais.experiments.analysis.harm_differences import Harm
from emais.experiments.analysis.harm_runs import BASE, ENTRIES, EQUAL_STEPS, PAPER, PROGRESS, HarmRun
from emais.experiments.report.report import html
from emais.experiments.report.tables.harm import harm_complete, harm_counts, harm_glance, harm_tables

RUN = HarmRun(
    "sst2", "sgd-scan", "steps", 0, 0.1, 1e-4, 100, steps=100, effective_steps=100.0, mean_factor=1.0, max_factor=1.0,
    max_r=1.0, start_loss=1.0, train_loss=0.5, train_error=0.5, valid_loss=0.5, valid_error=0.5, test_loss=0.5,
    test_error=0.5, seconds=0.1, source="x",
)  # fmt: skip


@pytest.fixture
def runs():
    """EMAIS-auto is worse in test loss at half the steps; EMAIS diverges once."""
    made = [replace(RUN, seed=seed, method=e.method, form=e.form) for e in (BASE, PAPER, PROGRESS) for seed in range(3)]
    worse = {"test_loss": 0.6, "steps": 50}
    made = [replace(r, **worse, test_error=0.5 + 0.1 * r.seed) if r.entry == PROGRESS else r for r in made]
    return [replace(r, train_loss=None) if r.entry == PAPER and r.seed == 1 else r for r in made]


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_the_glance_has_the_promise_with_its_marks(runs):
    table = harm_glance(Harm(runs))
    assert texts(table) == [["SST-2 (8,000 sentences)", "0.500", "+0.1000 worse", "0.50", "+0.100", "50"]]
    assert [cell.mark for cell in table.rows[0]][2] == "worse"


def test_counts_are_of_problems_and_methods_that_were_run(runs):
    found = {row[0]: row[1:] for row in texts(harm_counts(Harm(runs)))}
    assert found == {
        ENTRIES[PAPER]: ["1", "1", "0", "1", "0", "1", "100"],
        ENTRIES[PROGRESS]: ["1", "1", "0", "0", "0", "0", "50"],
    }


def test_the_complete_table_has_a_line_for_each_method_with_errors(runs):
    rows = texts(harm_complete(Harm(runs)))
    assert rows[0][1:] == ["SGD-Scan (rate 0.1, weight decay 1e-4)", "0.5000", "0.500", "0.5", "100.0", "3"]
    assert rows[1][2:4] == ["1 diverged", "1 diverged"]
    assert rows[2][2:4] == ["+0.1000 ± 0.0000 worse", "+0.100 ± 0.058"]
    assert ENTRIES[EQUAL_STEPS] not in [row[1] for row in rows]


def test_without_runs_there_is_no_section(runs):
    assert harm_tables(Harm([])) == []
    assert "harm suite" not in html([], [])
    assert "harm suite" not in html([], [], harm=Harm([]))
    assert html([], [], harm=Harm(runs)).count("<h2>The harm suite</h2>") == 1


def test_the_report_reads_the_runs_beside_its_results(runs, tmp_path, monkeypatch):
    """As it does with step times."""
    from emais.experiments import commands

    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    lines = "".join(json.dumps(asdict(run)) + "\n" for run in runs)
    (tmp_path / "benchmarks" / "results" / "harm.jsonl").write_text(lines)
    seen = []
    monkeypatch.setattr(commands, "read_all", lambda folder: ["a record"])
    monkeypatch.setattr(commands, "html", lambda records, timings, study, harm: seen.append(harm.problems) or "page")
    (tmp_path / "results").mkdir()
    main(["report", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "page.html")])
    assert seen == [["sst2"]]
