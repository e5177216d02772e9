"""`attach` with the optimizers as Lightning, Fabric, accelerate and transformers hand them out."""

import lightning
import pytest
import torch
from accelerate import Accelerator
from conftest import losses_of
from lightning.pytorch.core.optimizer import LightningOptimizer
from transformers.optimization import Adafactor

import emais
from emais import EmaisError

# of the frameworks, not ours
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .*dataloader.* does not have many workers:UserWarning"),
]


class Watched(torch.optim.SGD):
    """Writes down the rates that its step reads."""

    def step(self, closure=None):
        loss = None if closure is None else closure()  # first, as torch's optimizers do
        self.applied = [*getattr(self, "applied", []), self.param_groups[0]["lr"]]
        super().step()
        return loss


def accelerated(optimizer, model):
    return Accelerator(cpu=True).prepare(optimizer)


def by_fabric(optimizer, model):
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    return fabric.setup(model, optimizer)[1]


def by_lightning(optimizer, model):
    return LightningOptimizer(optimizer)


def step(imp, dataset, model):
    draw = imp.draw()
    model.zero_grad()
    imp.loss(*losses_of(model, tuple(t[draw.index] for t in dataset.tensors)), draw).backward()


@pytest.mark.parametrize("wrap", [accelerated, by_fabric])
def test_a_wrapped_optimizer_is_scaled(task, wrap):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    optimizer = Watched(model.parameters(), lr=0.1)
    wrapper, factors = wrap(optimizer, model), []
    assert imp.attach(wrapper).optimizer is optimizer
    for _ in range(5):
        step(imp, dataset, model)
        wrapper.step()
        factors.append(imp.diagnostics.lr_scale)
    assert max(abs(factor - 1) for factor in factors) > 0.05
    assert optimizer.applied == pytest.approx([0.1 * factor for factor in factors])
    with pytest.raises(EmaisError, match="attached already"):
        imp.attach(optimizer)


def test_an_optimizer_of_a_lightning_module_is_scaled(task):
    """Manual optimisation: `self.optimizers()` gives the wrapper."""
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.factors, self.automatic_optimization = model, [], False

        def configure_optimizers(self):
            return Watched(self.model.parameters(), lr=0.1)

        def on_train_start(self):
            imp.attach(self.optimizers())

        def training_step(self, batch, _):
            self.model.zero_grad()
            inputs, draw = batch
            self.manual_backward(imp.loss(*losses_of(self.model, inputs), draw))
            self.optimizers().step()
            self.factors.append(imp.diagnostics.lr_scale)

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, imp.loader(dataset))
    wrapper = module.optimizers()
    assert isinstance(wrapper, LightningOptimizer)
    assert len(module.factors) == 6
    assert max(abs(factor - 1) for factor in module.factors) > 0.05
    assert wrapper.optimizer.applied == pytest.approx([0.1 * factor for factor in module.factors])
    with pytest.raises(EmaisError, match="attached already"):
        imp.attach(wrapper.optimizer)


def test_adafactor_needs_a_rate(task):
    dataset, model = task
    imp = emais.EMAIS(96, 16, warmup_epochs=0)
    relative = Adafactor(model.parameters())
    with pytest.raises(EmaisError, match="Adafactor has relative_step=True"):
        imp.attach(relative)
    imp.attach(relative, rule="none").remove()
    optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False)  # as the message advises
    assert imp.attach(optimizer).rule == "sqrt"
    for _ in range(3):
        step(imp, dataset, model)
        optimizer.step()
    assert imp.diagnostics.lr_scale != 1
    assert optimizer.param_groups[0]["lr"] == 1e-3
