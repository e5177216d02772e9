"""A draw in a batch, as Lightning and accelerate move, convert and measure batches."""

import copy

import lightning
import pytest
import torch
from accelerate.utils import convert_to_fp32, send_to_device
from conftest import losses_of
from lightning.fabric.utilities.apply_func import move_data_to_device
from lightning.pytorch.plugins.precision import DoublePrecision, HalfPrecision
from lightning.pytorch.utilities.data import extract_batch_size

import emais
from emais import EmaisError

# of the frameworks, not ours
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .*dataloader.* does not have many workers:UserWarning"),
]

CHANGES = {
    "Lightning moves it": lambda batch: move_data_to_device(batch, torch.device("cpu")),
    "bf16-true": HalfPrecision("bf16-true").convert_input,
    "16-true": HalfPrecision("16-true").convert_input,
    "64-true": DoublePrecision().convert_input,
    "accelerate moves it": lambda batch: send_to_device(batch, torch.device("cpu"), non_blocking=True),
    "accelerate converts it": convert_to_fp32,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_draw_survives(change):
    imp = emais.EMAIS(20, 4, warmup_epochs=0)
    draw = imp.draw()
    x, other = change([torch.ones(4, 3), draw])
    assert x.is_floating_point()
    assert (other.index.dtype, other.r.dtype, other.step) == (torch.int64, torch.float32, 1)
    assert torch.equal(other.r, draw.r)
    z = torch.zeros(4, 1, requires_grad=True)
    imp.loss(z.squeeze(1), z, other)
    with pytest.raises(EmaisError, match="used already"):
        imp.loss(z.squeeze(1), z, draw)


@pytest.mark.parametrize("order", [1, -1])
def test_lightning_tells_the_size_of_a_batch(order):
    """A draw that it cannot look into would make it warn that the size is ambiguous."""
    imp = emais.EMAIS(20, 4)
    batch = ((torch.ones(4, 3), torch.zeros(4)), imp.draw())
    assert extract_batch_size(batch[::order]) == 4
    assert extract_batch_size({"draw": imp.draw(), "x": torch.ones(4)}) == 4


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-true", "16-true", "bf16-mixed"])
def test_a_run_in_every_precision(task, precision):
    """The losses are those of the precision, and r is exact: the loss is mean(r * losses) in float32 or better."""
    dataset, model = task
    model = copy.deepcopy(model)
    imp = emais.EMAIS(96, 16, warmup_epochs=1)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.seen = model, []

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
            imp.attach(optimizer)
            return optimizer

        def training_step(self, batch, _):
            inputs, draw = batch
            losses, logits = losses_of(self.model, inputs)
            loss = imp.loss(losses, logits, draw)
            self.log("loss", loss)
            mean = (draw.r.double() * losses.detach().double()).mean()
            self.seen.append((draw.r.dtype, float(loss.detach() / mean)))
            return loss

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, precision=precision,
    )  # fmt: skip
    trainer.fit(module, imp.loader(dataset))
    assert len(module.seen) == 24
    assert {dtype for dtype, _ in module.seen} == {torch.float32}
    assert [ratio for _, ratio in module.seen] == pytest.approx([1.0] * 24, abs=1e-6)
    assert imp.diagnostics.nonfinite == 0
    assert imp.diagnostics.lr_scale != 1
