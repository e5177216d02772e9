"""The log of a bare loop: its rows are of the steps since the row before, and every place gets what it can take."""

import csv
import json
import math

import pytest
import torch
from torch import nn

import emais
from emais.log import R_EDGES

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
    trained(path, steps=4)
    assert len(path.read_text().splitlines()) == 4  # appended


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
    trained(path, steps=4)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["step"] for row in rows] == ["4", "8", "12", "4"]
    assert float(rows[2]["emais/n_ems"]) == pytest.approx(emais.log_numbers(imp, 4)["emais/n_ems"])
    with emais.Log(path, imp, every=1) as log, pytest.raises(emais.EmaisError, match="accuracy is not among them"):
        log.step(accuracy=1.0)


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
    with pytest.raises(emais.EmaisError, match="give step= another name"):
        log.step(step=5)
    log.step(loss=torch.ones((), requires_grad=True))
