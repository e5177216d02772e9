"""emais.Log with TensorBoard itself: what was written can be read again."""

import runpy

import tiny
import torch
from places import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import emais
from emais.transformers import ImportanceTrainer


def test_scalars_and_the_histogram_of_r(tmp_path):
    torch.manual_seed(0)
    x, model = torch.randn(40, 3), nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAIS(40, 8, warmup_epochs=1)
    imp.attach(optimizer)
    with SummaryWriter(tmp_path) as writer, emais.Log(writer, imp, every=4) as log:
        for _ in range(12):
            draw = imp.draw()
            logits = model(x[draw.index])
            losses = nn.functional.cross_entropy(logits, (x[draw.index, 0] > 0).long(), reduction="none")
            optimizer.zero_grad()
            imp.loss(losses, logits, draw).backward()
            optimizer.step()
            log.step(loss=losses.mean().item())
    found = EventAccumulator(str(tmp_path), {"histograms": 0}).Reload()  # 0: all of them
    assert {"loss", "emais/n_ems", "emais/lr", "emais/steps_saved"} <= set(found.Tags()["scalars"])
    assert [event.step for event in found.Scalars("emais/n_ems")] == [4, 8, 12]
    assert [event.step for event in found.Histograms("emais/r")] == [4, 8, 12]
    assert found.Histograms("emais/r")[-1].histogram_value.num == 8


def test_the_example_writes_what_tensorboard_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "11_tensorboard.py"), run_name="__main__")
    assert "S(W)" in capsys.readouterr().out
    found = EventAccumulator(str(tmp_path / "out" / "tensorboard"), {"histograms": 0}).Reload()
    assert [event.step for event in found.Scalars("loss")] == list(range(20, 401, 20))
    assert found.Scalars("emais/n_ems")[-1].value > 64


def test_names_through_a_trainer(tmp_path, monkeypatch):
    """transformers puts train/ in front; the guide says so."""
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    args = tiny.arguments(tmp_path, report_to=["tensorboard"], max_steps=4, logging_steps=2)
    given = {"train_dataset": tiny.classes(), "data_collator": tiny.pad}
    ImportanceTrainer(model=tiny.classifier(), args=args, importance={"warmup_epochs": 0}, **given).train()
    found = EventAccumulator(str(next(tmp_path.rglob("events.*")).parent)).Reload()
    assert {"train/loss", "train/emais/n_ems", "train/emais/lr_scale"} <= set(found.Tags()["scalars"])
    assert [event.step for event in found.Scalars("train/emais/n_ems")] == [2, 4]
