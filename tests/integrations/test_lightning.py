"""Training through Lightning: the draw of every batch, the loss, optimizers and precisions."""

import subprocess
import sys

import lightning.pytorch as pl
import pytest
import torch
from lightning_task import PER_EPOCH, M, N, Net, data, parameters, quiet, sampling, train_loader, trainer

import emais
import emais.lightning
from emais.lightning.training import TrainLoader

pytestmark = quiet


class Watched(Net):
    """Checks in every step that the batch is the one that the draw says, and the loss the draw's."""

    def training_step(self, batch, batch_idx):
        draw, (x, y) = self.trainer.train_dataloader.draw(), data().tensors
        assert torch.equal(batch[0], x[draw.index].to(batch[0]))
        assert torch.equal(batch[1], y[draw.index])
        assert (draw.r.dtype, draw.index.dtype) == (torch.float32, torch.int64)
        losses, logits = self.outputs(batch)
        loss = emais.lightning.loss(self, losses, logits)
        torch.testing.assert_close(loss, (draw.r.to(loss) * losses.to(loss)).mean())
        self.batches.append(batch)
        return loss


class WithHook(Watched):
    def train_dataloader(self):
        return train_loader()


class Data(pl.LightningDataModule):
    def setup(self, stage):
        self.dataset = data()

    def train_dataloader(self):
        return train_loader(self.dataset)


def bare_loop(optimizer, accumulate=1, epochs=3):
    """The same training in five lines of a plain loop."""
    model = Net(optimizer)
    kind, lr = {"SGD": (torch.optim.SGD, 0.1), "AdamW": (torch.optim.AdamW, 0.01)}[optimizer]
    steps = kind(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, epochs * PER_EPOCH // accumulate)
    imp = emais.EMAIS(M, batch_size=N, warmup_epochs=1)
    imp.attach(steps)
    loader = imp.loader(data())
    for _ in range(epochs):
        for k, (batch, draw) in enumerate(loader, 1):
            (imp.loss(*model.outputs(batch), draw) / accumulate).backward()
            if k % accumulate == 0:
                steps.step()
                schedule.step()
                steps.zero_grad()
    return model


# ---- the loader and the loss


@pytest.mark.parametrize("reload", [0, 1])
def test_the_loader_is_taken_over_wherever_it_comes_from(reload):
    found = []
    for module, given in ((Watched(), train_loader()), (WithHook(), None), (Watched(), Data())):
        callback = sampling()
        trainer(callback, reload_dataloaders_every_n_epochs=reload).fit(module, given)
        assert callback.engine.diagnostics.step == 3 * PER_EPOCH
        found.append(parameters(module))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ahead", [False, True])
def test_every_batch_trains_with_its_own_draw(workers, ahead, monkeypatch):
    """Also when Lightning fetches a batch ahead, which it does of a loader without a length."""
    if ahead:
        monkeypatch.delattr(TrainLoader, "__len__")
    module = Watched(schedule=False)
    trainer(sampling()).fit(module, train_loader(num_workers=workers))
    assert len(module.batches) == 3 * PER_EPOCH


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_is_that_of_a_plain_loop_with_an_engine(optimizer, accumulate):
    module = Net(optimizer)
    trainer(sampling(), accumulate_grad_batches=accumulate).fit(module, train_loader())
    assert torch.equal(parameters(module), parameters(bare_loop(optimizer, accumulate)))


def test_without_the_callback_the_loss_is_the_plain_mean():
    module = Net()
    losses, logits = module.outputs(data()[:N])
    assert torch.equal(emais.lightning.loss(module, losses, logits), losses.mean())  # no trainer either

    class Plain(Net):
        def training_step(self, batch, batch_idx):
            return self.outputs(batch)[0].mean()

    plain = Plain()
    for one in (module, plain):
        torch.manual_seed(1)
        trainer().fit(one, train_loader())
    assert torch.equal(parameters(module), parameters(plain))


def test_gradients_may_be_given():
    class Given(Net):
        def training_step(self, batch, batch_idx):
            losses, logits = self.outputs(batch)
            grads = emais.functional.cross_entropy_gradients(logits, batch[1])
            return emais.lightning.loss(self, losses, logits, grads=grads)

    module = Given()
    trainer(sampling()).fit(module, train_loader())
    torch.testing.assert_close(parameters(module), parameters(bare_loop("SGD")))


def test_a_further_loss_on_the_same_batch():
    """observe=False gives mean(r * losses) and tells the engine nothing; without the callback it is the plain mean."""

    class Twice(Watched):
        def training_step(self, batch, batch_idx):
            loss, (losses, logits) = super().training_step(batch, batch_idx), self.outputs(batch)
            again = emais.lightning.loss(self, losses, logits, observe=False)
            assert torch.equal(again.detach(), loss.detach())
            return (loss + again) / 2

    module, callback, one = Twice(), sampling(), Net()
    trainer(callback).fit(module, train_loader())
    trainer(sampling()).fit(one, train_loader())
    assert callback.engine.diagnostics.step == 3 * PER_EPOCH
    torch.testing.assert_close(parameters(module), parameters(one))
    losses, logits = module.outputs(data()[:N])
    assert torch.equal(emais.lightning.loss(module, losses, logits, observe=False), losses.mean())


@pytest.mark.parametrize("method", ["confidence", "self-paced"])
def test_a_further_loss_of_a_method_without_coefficients(method):
    class Twice(Net):
        def training_step(self, batch, batch_idx):
            losses, logits = self.outputs(batch)
            torch.testing.assert_close(emais.lightning.loss(self, losses, logits, observe=False), losses.mean())
            return emais.lightning.loss(self, losses, logits)

    trainer(emais.lightning.ImportanceSampling(method)).fit(Twice(), train_loader())


def test_importing_emais_imports_no_lightning():
    code = "import sys, emais; sys.exit(any(name.split('.')[0] == 'lightning' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- optimizers and precisions


def test_manual_optimisation():
    class Manual(Watched):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer, scheduler = self.optimizers(), self.lr_schedulers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()
            scheduler.step()

    module = Manual()
    trainer(sampling()).fit(module, train_loader())
    assert torch.equal(parameters(module), parameters(bare_loop("SGD")))


def test_several_optimizers():
    """One for the weights and one for the biases: both are scaled, and together they are the one of the loop."""

    class Two(Watched):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD([p], lr=0.1) for p in self.parameters()]

    module, one = Two(), Net(schedule=False)
    trainer(sampling()).fit(module, train_loader())
    trainer(sampling()).fit(one, train_loader())
    assert torch.equal(parameters(module), parameters(one))


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_clipping_and_a_batch_that_is_skipped():
    class Skips(Watched):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 4 else super().training_step(batch, batch_idx)

    module, callback = Skips(), sampling()
    runner = trainer(callback, gradient_clip_val=1e-6)
    runner.fit(module, train_loader())
    assert 0 < (parameters(module) - parameters(Net())).norm() < 1e-4
    assert callback.engine.diagnostics.step == callback.engine.step == 3 * PER_EPOCH
    assert len(module.batches) == 3 * (PER_EPOCH - 1)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "16-true", "64-true"])
def test_precisions(precision):
    module, callback = Watched(), sampling()
    trainer(callback, precision=precision).fit(module, train_loader())
    report = callback.engine.diagnostics.as_dict()
    assert report["step"] == 3 * PER_EPOCH
    assert report["nonfinite"] == report["degenerate"] == 0
    expected = parameters(bare_loop("SGD"))
    torch.testing.assert_close(parameters(module).float(), expected, rtol=0.05, atol=0.05)


def test_the_run_ends_when_it_has_made_its_progress():
    callback, module = sampling(effective_steps=30.0), Net(schedule=False)
    runner = trainer(callback, max_epochs=50)
    runner.fit(module, train_loader())
    assert callback.engine.finished
    assert callback.engine.effective_steps - 10 < 30 <= callback.engine.effective_steps
    assert runner.global_step == callback.engine.step
