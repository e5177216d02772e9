"""The page of one run's log: which charts there are, what is escaped, and that long lines are thinned."""

from __future__ import annotations

import json

import pytest

from emais.cli import main
from emais.experiments.analysis.run_log import RunLog
from emais.experiments.report.log_page import FURTHER, OWN_VALUES, SAMPLING, latest_table, log_groups, log_page

HOSTILE = '<script>alert("1")</script>'


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = RunLog(path)
    log.read()
    return log


@pytest.fixture
def log(tmp_path):
    rows = [
        {"step": s, "emais/n_ems": 128 + s, "emais/score": 0.5, "emais/lr_scale": 1.0, "emais/tr_is": 1 / s,
         "emais/tr_unif": 2 / s, "emais/tr_opt": 0.5 / s, "emais/nonfinite": 0, "emais/power": s % 2,
         "loss": 3 / s, HOSTILE: s, "epoch": 1}
        for s in range(1, 30)
    ]  # fmt: skip
    return written(tmp_path / "run <b>.jsonl", rows)


def titles(group):
    return [drawing.title for drawing in group.drawings]


def test_known_values_come_first_and_unknown_ones_are_drawn_too(log):
    groups = log_groups(log)
    assert list(groups) == [SAMPLING, OWN_VALUES, FURTHER]
    assert len(titles(groups[SAMPLING])) == 4
    assert [key.name for key in groups[SAMPLING].drawings[3].legend] == [
        "sampler in use",
        "uniform sampling",
        "best possible sampler",
    ]
    assert titles(groups[OWN_VALUES]) == ["loss", HOSTILE]
    assert titles(groups[FURTHER]) == ["emais/power"]
    table = latest_table(log)
    assert {row[0].text for row in table.rows} == log.series.keys()  # also those that never change
    assert [cell.text for cell in table.rows[0]] == ["emais/n_ems", "157", "29", "129", "157"]


def test_an_interval_is_a_band_around_its_line(tmp_path):
    rows = [
        {"step": s, "emais/score": 0.5, "emais/score_low": 0.4, "emais/score_high": 0.6, "emais/r_p50": 1 / s}
        for s in range(1, 4)
    ]
    score, coefficients = log_groups(written(tmp_path / "run.jsonl", rows))[SAMPLING].drawings
    assert [(key.name, key.value) for key in score.legend] == [("S(W) with its 95 % interval", "0.50 ± 0.10")]
    assert score.svg.count('class="band"') == 1
    assert coefficients.title == "Importance coefficients r"
    assert [key.name for key in coefficients.legend] == ["median"]
    lonely = written(
        tmp_path / "other.jsonl", [{"step": 1, "emais/score_low": 0.4}, {"step": 2, "emais/score_low": 0.5}]
    )
    (low,) = log_groups(lonely)[SAMPLING].drawings
    assert [key.name for key in low.legend] == ["score_low"]


def test_names_from_the_log_are_escaped(log):
    text = log_page(log)
    assert HOSTILE not in text
    assert "&lt;script&gt;alert" in text
    assert "run <b>" not in text
    assert text.count("<script>") == 1  # ours


def test_long_lines_are_thinned_to_medians(tmp_path):
    log = written(tmp_path / "long.jsonl", [{"step": s, "a": s % 3} for s in range(1, 901)])
    (group,) = log_groups(log).values()
    (series,) = json.loads(group.drawings[0].hover)
    assert (len(series["x"]), series["x"][-1], set(series["text"])) == (300, 900, {"1.00"})
    assert "median of up to 3 values" in group.note


def test_report_of_a_log_is_one_file_without_a_refresh(log, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", str(log.path), "--out", str(out)]) == 0
    assert capsys.readouterr() == (f"The report: {out}\n", "")
    text = out.read_text("utf-8")
    assert text == log_page(log)
    assert 'http-equiv="refresh"' not in text
    assert "fetch(" not in text
    assert main(["report", "--results", str(log.path), "--out", str(out)]) == 0


def test_what_report_refuses(tmp_path, capsys):
    assert main(["report", "seed=3", "--out", str(tmp_path / "page.html")]) == 2
    assert "there are no results in seed=3" in capsys.readouterr().err
    assert main(["report", "a.jsonl", "--results", "b"]) == 2
    assert "give a.jsonl or --results b, not both" in capsys.readouterr().err
    assert main(["report", "--watch"]) == 2
    assert "--watch needs the file of a run" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--watch", "--port", "0"]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "a"), "--watch", "--port", "70000"]) == 2
    assert "port must be" in capsys.readouterr().err


def test_values_beyond_a_fixed_end_of_the_axis_are_drawn(tmp_path):
    """N_ems of single minibatches may be negative, and its axis begins at 0."""
    log = written(tmp_path / "low.jsonl", [{"step": 1, "emais/n_ems": -2.0}, {"step": 2, "emais/n_ems": -1.0}])
    (drawing,) = log_groups(log)[SAMPLING].drawings
    (series,) = json.loads(drawing.hover)
    assert series["at"][0][1] > series["at"][1][1]
