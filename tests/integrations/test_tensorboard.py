"""emais.Log with TensorBoard itself: what was written can be read again."""

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import emais


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
