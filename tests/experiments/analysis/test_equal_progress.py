"""Equal progress: runs are paired by seed, and rows that are not complete are left out."""

from dataclasses import asdict, replace

import pytest

from emais.experiments.analysis.equal_progress import progress_rows
from emais.experiments.config import Config
from emais.experiments.report.tables.results import tables
from emais.experiments.runs.item import HELD_OUT

BASE = Config("fmnist", "lenet5", "sgd-scan", lr=0.1, num_steps=12500)
PROGRESS = replace(BASE, method="emais-auto", rule="steady", schedule="progress")
SHORT = replace(BASE, follow="progress")


def record(config, seed, error, steps=12500, loss=0.2):
    measured = {"test_error": error, "train_loss": loss, "steps": steps, "ms_per_step": 1.0, "layout": 2}
    curves = {name: [1.0] for name in ("step", "loss", "n_ems", "score", "test_step", "test_error")}
    return asdict(replace(config, seed=HELD_OUT + seed)) | measured | {"curves": curves}


RECORDS = [
    *(record(BASE, k, 9.0 + k) for k in range(3)),
    *(record(PROGRESS, k, 9.1 + k + 0.01 * k, steps=5000 + 100 * k, loss=0.2 + 0.01 * k) for k in range(3)),
    *(record(SHORT, k, 9.5 + (-1) ** k, steps=5000 + 100 * k, loss=0.3) for k in (0, 2)),
]


def test_differences_are_paired_by_seed():
    (row,) = progress_rows(RECORDS)
    assert row.share == pytest.approx(5100 / 12500)
    error = row.difference(row.progress, "test_error")
    assert (error.mean, error.mark) == (pytest.approx(0.11), "worse")
    assert row.marks(row.progress) == ["worse", ""]
    assert row.difference(row.shortened, "test_error").mean == pytest.approx(10.5 - 10.0)
    assert row.mean(row.shortened, "train_loss") == pytest.approx(0.3)


def test_the_table_has_three_rows_for_each_setting():
    (table,) = tables("equal_progress", RECORDS)
    assert [row[4].text for row in table.rows] == ["SGD-Scan", "EMAIS-auto, equal progress", "SGD-Scan, shortened"]
    assert [row[6].text for row in table.rows] == ["100", "41", "41"]
    assert table.rows[1][8].text == "+0.11 ± 0.01 worse"


def test_a_row_that_is_not_complete_is_left_out():
    assert progress_rows([r for r in RECORDS if not r["follow"]]) == []
    assert progress_rows([r for r in RECORDS if not r["follow"] or r["seed"] == HELD_OUT]) == []
    assert progress_rows([r for r in RECORDS if r["seed"] < HELD_OUT + 1]) == []
