"""The log of a bare loop: its rows are of the steps since the row before, and every place gets what it can take."""

import csv
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import emais
from emais.log_files import R_EDGES

M, N = 40, 8


def trained(log_to, steps=12, every=4, path=None, **settings):
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(M, 3)
    y = torch.randint(2, (M,))
    imp = emais.EMAIS(M, N, warmup_epochs=1, **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    with emais.Log(log_to, imp, every=every) as log:
        for _ in range(steps):
            draw = imp.draw()
            logits = model(x[draw.index])
            losses = nn.functional.cross_entropy(logits, y[draw.index], reduction="none")
            optimizer.zero_grad()
            loss = imp.loss(losses, logits, draw)
            loss.backward()
            optimizer.step()
            log.step(loss=loss.item())
    return imp, optimizer


def test_a_file_of_json_lines(tmp_path):
    path = tmp_path / "run.jsonl"
    imp, _ = trained(path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8, 12]
    want = {name: x if math.isfinite(x) else None for name, x in emais.log_numbers(imp, 4).items()}
    assert {name: rows[-1][name] for name in want} == pytest.approx(want)
    counts = rows[-1]["emais/r_histogram"]
    assert (len(counts), sum(counts)) == (len(R_EDGES) + 1, N)
    trained(path, steps=9)
    assert [row["step"] for row in rows_of(path)] == [4, 8]  # another run replaces what was there


def test_numbers_are_ratios_of_averages_over_the_steps_of_the_row():
    imp, optimizer = trained(lambda numbers, step: None, steps=10)
    numbers, rows = emais.log_numbers(imp, 3), imp.monitor.recent.rows[7 % 5 : 7 % 5 + 3]
    n = rows[0, 5]
    pairs = ((rows[:, 3] - rows[:, 0]) / (n * (n - 1))).mean()
    tr_is, tr_unif = (rows[:, 0] / n).mean() - pairs, (rows[:, 1] / n).mean() - pairs
    assert numbers["emais/n_ems"] == pytest.approx(float(n * tr_unif / tr_is))
    assert (numbers["emais/tr_is"], numbers["emais/tr_unif"]) == pytest.approx((float(tr_is), float(tr_unif)))
    assert numbers["emais/lr"] == pytest.approx(0.1 * imp.diagnostics.lr_scale)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert math.isfinite(numbers["emais/tr_opt"])


def test_a_csv_file_keeps_its_columns(tmp_path):
    path = tmp_path / "run.csv"
    imp, _ = trained(path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["step"] for row in rows] == ["4", "8", "12"]
    assert float(rows[2]["emais/n_ems"]) == pytest.approx(emais.log_numbers(imp, 4)["emais/n_ems"])
    with emais.Log(path, imp, every=1) as log:
        with pytest.warns(UserWarning, match=r"accuracy, top5 are no columns of .*run\.csv.* from the first row on"):
            log.step(accuracy=1.0, top5=1.0)
        observe_once(imp)
        log.step(accuracy=1.0)  # told once
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["step"], row["loss"]) for row in rows[2:]] == [("12", ""), ("13", "")]


def test_a_writer_gets_scalars_and_a_histogram():
    class Writer:
        def __init__(self):
            self.scalars, self.histograms = {}, {}

        def add_scalar(self, name, value, step):
            self.scalars.setdefault(step, {})[name] = value

        def add_histogram(self, name, values, step):
            self.histograms[step] = values

    writer = Writer()
    imp, _ = trained(writer)
    assert list(writer.scalars) == [4, 8, 12]
    assert all(map(math.isfinite, writer.scalars[12].values()))
    assert {"loss", "emais/n_ems", "emais/lr"} <= writer.scalars[12].keys()
    assert torch.equal(writer.histograms[12], imp.diagnostics.r)


def test_a_function_gets_what_is_finite():
    calls = []
    trained(lambda numbers, step: calls.append((step, numbers)), steps=5, every=5)
    trained(lambda numbers, step: calls.append((step, numbers)), steps=1, every=1)
    (step, numbers), (_, one) = calls
    assert step == 5
    assert "emais/score" not in one  # one step has no interval
    assert numbers["emais/n_ems"] == pytest.approx(N)  # the warm-up draws uniformly
    assert all(isinstance(value, float) and math.isfinite(value) for value in [*numbers.values(), *one.values()])


def test_writing_to_the_r_that_is_reported_changes_nothing():
    imp, _ = trained(lambda numbers, step: None)
    first = imp.diagnostics.r
    first.zero_()
    assert imp.diagnostics.r.sum() > 0
    assert emais.EMAIS(M, N).diagnostics.r.shape == (0,)


@pytest.mark.parametrize(
    ("to", "says"), [("run.txt", "'run.txt': choose one of these endings"), (5, "a function of .* got int")]
)
def test_places_that_cannot_be_written_to_are_refused(to, says):
    with pytest.raises(emais.EmaisError, match=says):
        emais.Log(to, emais.EMAIS(M, N))


def test_the_rate_is_the_one_of_the_step_also_after_the_scheduler(tmp_path):
    imp, optimizer = trained(lambda numbers, step: None)
    optimizer.param_groups[0]["lr"] = 0.05  # a scheduler has moved on
    assert emais.log_numbers(imp)["emais/lr"] == pytest.approx(0.1 * imp.diagnostics.lr_scale)


def test_misuse_is_told(tmp_path):
    with pytest.raises(emais.EmaisError, match="a log needs the engine, got Linear"):
        emais.Log(tmp_path / "run.jsonl", nn.Linear(1, 1))
    log = emais.Log(lambda numbers, step: None, emais.EMAIS(M, N), every=1)
    for name in ("step", "emais/lr"):
        with pytest.raises(emais.EmaisError, match=f"the log writes {name} itself"):
            log.step(**{name: 5})
    log.step(loss=torch.ones((), requires_grad=True))
    log.close()
    with pytest.raises(emais.EmaisError, match="this log is closed"):
        log.step()


def test_an_audit_logs_what_it_projects(tmp_path):
    torch.manual_seed(0)
    x, path = torch.randn(M, 3), tmp_path / "run.jsonl"
    imp, model = emais.create("audit", M, N), nn.Linear(3, 2)
    with emais.Log(path, imp, every=5) as log:
        for _ in range(30):
            draw = imp.draw()
            logits = model(x[draw.index])
            imp.observe(
                nn.functional.cross_entropy(logits, (x[draw.index, 0] > 0).long(), reduction="none"), logits, draw
            )
            log.step()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    names = [f"emais/projected_{name}" for name in ("n_ems", "n_ems_low", "n_ems_high")]
    found = imp.finding()
    assert [rows[-1][name] for name in names] == pytest.approx([found.n_ems, found.n_ems_low, found.n_ems_high])
    assert [rows[0][name] for name in names] == [None, None, None]  # too early
    assert not any("projected" in name for name in emais.log_numbers(emais.EMAIS(M, N)))


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps_of(path):
    lines = path.read_text().splitlines()
    rows = csv.DictReader(lines) if path.suffix == ".csv" else map(json.loads, lines)
    return [int(row["step"]) for row in rows]


def resumed(path, until, state=None, every=10, accumulated=1, save_at=None):
    """Train until a step, from a state or from the start; returns the state at `save_at`."""
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 2), torch.randn(M, 3), torch.randint(2, (M,))
    imp = emais.EMAIS(M, N, warmup_epochs=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp.attach(optimizer)
    saved = None
    with emais.Log(path, imp, every=every) as log:
        if state is not None:
            imp.load_state_dict(state)  # after the log was opened: a script may do it in either order
        while imp.step < until:
            for _ in range(accumulated):
                draw = imp.draw()
                logits = model(x[draw.index])
                losses = nn.functional.cross_entropy(logits, y[draw.index], reduction="none")
                (imp.loss(losses, logits, draw) / accumulated).backward()
            optimizer.step()
            optimizer.zero_grad()
            log.step(loss=0.5)
            if imp.step == save_at:
                saved = imp.state_dict()
    return saved


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_resumed_run_goes_on_in_its_file_as_if_it_had_never_stopped(tmp_path, ending):
    path, whole = tmp_path / f"run.{ending}", tmp_path / f"whole.{ending}"
    state = resumed(path, 63, save_at=47)
    assert steps_of(path) == [10, 20, 30, 40, 50, 60]
    resumed(path, 87, state)
    assert steps_of(path) == [10, 20, 30, 40, 50, 60, 70, 80]
    resumed(whole, 87)
    assert [line.split(",")[0] for line in whole.read_text().splitlines()] == [
        line.split(",")[0] for line in path.read_text().splitlines()
    ]


def test_a_state_that_is_loaded_between_two_rows_of_one_log(tmp_path):
    path = tmp_path / "run.jsonl"
    imp, _ = trained(lambda numbers, step: None, steps=4)
    state = imp.state_dict()
    with emais.Log(path, imp, every=1) as log:
        log.step(loss=1.0)
        observe_once(imp)
        log.step(loss=2.0)
        imp.load_state_dict(state)
        log.step(loss=3.0)
    assert [(row["step"], row["loss"]) for row in rows_of(path)] == [(4, 3.0)]


def observe_once(imp):
    draw, logits = imp.draw(), torch.zeros(N, 2, requires_grad=True)
    losses = nn.functional.cross_entropy(logits, torch.zeros(N, dtype=torch.int64), reduction="none")
    imp.loss(losses, logits, draw)
    [scaler.optimizer.step() for scaler in imp.attached.scalers]


def test_accumulated_minibatches_count_one_by_one(tmp_path):
    path = tmp_path / "run.jsonl"
    resumed(path, 30, every=10, accumulated=4)
    assert steps_of(path) == [12, 20, 32]  # the first step at or after 10, 20 and 30


@pytest.mark.parametrize(
    ("ending", "whole", "torn"),
    [
        ("jsonl", '{"step": 10, "loss": 1.0}\n', '{"step": 20, "lo'),
        ("jsonl", '{"step": 10, "loss": 1.0}', ""),
        ("csv", "step,loss\n10,1.0\n", "20,1."),
        ("csv", "", "step,lo"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*are no columns of")
def test_a_line_that_was_torn_is_not_glued_to_the_next_row(tmp_path, ending, whole, torn):
    path = tmp_path / f"run.{ending}"
    path.write_text(whole + torn)
    state = resumed(tmp_path / "other.jsonl", 45, save_at=45)
    resumed(path, 52, state)
    assert steps_of(path) == ([10] if whole else []) + [50]


def test_lines_that_the_log_did_not_write_stay(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('no json\n[1]\n{"note": "mine"}\n\n{"step": "x"}\n{"step": 90}\n')
    resumed(path, 10)
    assert path.read_text().startswith('no json\n[1]\n{"note": "mine"}\n\n{"step": "x"}\n{"step": 10, ')


def test_numbers_that_are_none_are_told_in_the_first_step():
    log = emais.Log(lambda numbers, step: None, emais.EMAIS(M, N), every=50)
    for wrong in ("a", None, [1.0], torch.zeros(2), np.zeros(3)):
        with pytest.raises(emais.EmaisError, match=r"loss= must be a number, got .*: .*loss\.item\(\)"):
            log.step(loss=wrong)
    log.step(loss=torch.zeros(1), accuracy=np.float32(1), count=np.array(3), flag=True)


def test_quantiles_of_r_for_all_loggers(tmp_path):
    calls = []
    imp, _ = trained(lambda numbers, step: calls.append(numbers))
    want = {f"emais/r_p{p}": imp.diagnostics.r.quantile(p / 100).item() for p in (10, 50, 90, 99)}
    assert {name: calls[-1][name] for name in want} == pytest.approx(want)
    path = tmp_path / "run.csv"
    trained(path)
    row = list(csv.DictReader(path.read_text().splitlines()))[-1]
    assert {name: float(row[name]) for name in want} == pytest.approx(want)
    assert math.isnan(emais.log_numbers(emais.EMAIS(M, N))["emais/r_p50"])
