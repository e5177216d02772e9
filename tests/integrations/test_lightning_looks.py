"""A look at `trainer.train_dataloader` shows batches, and changes nothing about the training."""

from contextlib import suppress

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.tuner import Tuner
from lightning_task import N, Net, data, parameters, quiet, sampling, train_loader, trainer
from torch.utils.data import TensorDataset

import emais
import emais.lightning

pytestmark = quiet

SAMPLES, PER_EPOCH = 53, 11
FULL = [N] * (PER_EPOCH - 1) + [3]  # of a plain pass: the last batch has what is left
HOOKS = (
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_validation_epoch_end",
    "on_train_epoch_end",
    "on_train_end",
)


class Looks(Net):
    """Takes a look in one hook; whole: at all batches, else at the first."""

    def __init__(self, hook=None, whole=False):
        super().__init__()
        self.whole, self.draws, self.seen = whole, [], []
        if hook is not None:
            setattr(self, hook, lambda *_: self.look(self.trainer.train_dataloader))

    def look(self, loader):
        if self.whole:
            self.seen.append([len(batch[0]) for batch in loader])
        else:
            self.seen.append([len(next(iter(loader))[0])])

    def training_step(self, batch, batch_idx):
        draw = self.trainer.train_dataloader.draw()
        self.draws.append((int(draw.step), draw.index.tolist(), draw.r.tolist()))
        return super().training_step(batch, batch_idx)


def trained(module, *callbacks, loader=None, resume=None, fits=1, **options):
    """What a run comes to: steps, draws and parameters."""
    callback = sampling()
    runner = trainer(callback, *callbacks, **options)
    for k in range(fits):
        runner.fit_loop.max_epochs += 2 * (k > 0)
        given = train_loader(data(SAMPLES), **loader or {})
        runner.fit(module, given, torch.utils.data.DataLoader(data(), batch_size=N), ckpt_path=resume)
    return runner.global_step, module.draws, parameters(module).tolist(), str(callback.engine.state_dict())


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_look_changes_nothing(hook, whole):
    module = Looks(hook, whole)
    found = trained(module)
    assert found[0] == 3 * PER_EPOCH
    assert found == trained(Looks())
    assert module.seen
    assert all(sizes == (FULL if whole else [N]) for sizes in module.seen)


@pytest.mark.parametrize(
    "options",
    [
        {"reload_dataloaders_every_n_epochs": 1},
        {"limit_train_batches": 7, "accumulate_grad_batches": 3},
        {"fits": 2},
        {"loader": {"num_workers": 1}},
        {"loader": {"num_workers": 1, "persistent_workers": True}},
        {"loader": {"drop_last": True}},
        {"max_steps": 17, "max_epochs": -1},
    ],
    ids=str,
)
@pytest.mark.parametrize("hook", ["on_train_epoch_start", "on_train_epoch_end"])
def test_a_look_changes_nothing_whatever_the_trainer_does(hook, options):
    assert trained(Looks(hook), **options) == trained(Looks(), **options)


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_train_epoch_end"])
def test_a_look_changes_nothing_about_a_resumed_run(hook, tmp_path):
    """It is resumed inside an epoch."""
    whole = trained(Looks())
    saving = ModelCheckpoint(tmp_path, "middle", every_n_train_steps=17, save_top_k=-1)
    trained(Looks(hook), saving, enable_checkpointing=True)
    steps, draws, *rest = trained(Looks(hook), resume=tmp_path / "middle.ckpt")
    assert (steps, draws, *rest) == (whole[0], whole[1][17:], *whole[2:])


def test_a_look_changes_nothing_about_a_tuner(tmp_path):
    found = []
    for hook in (None, "on_train_batch_start"):
        module, callback = Looks(hook), sampling()
        runner = trainer(callback, default_root_dir=tmp_path)
        Tuner(runner).lr_find(module, train_loader(), num_training=20, update_attr=False)
        runner.fit(module, train_loader())
        found.append((runner.global_step, parameters(module).tolist()))
    assert found[0] == found[1]


def test_a_look_while_another_goes_on_and_after_the_fit():
    class Twice(Looks):
        def on_train_epoch_start(self):
            self.under_way = iter(self.trainer.train_dataloader)
            next(self.under_way)

        def on_train_batch_end(self, *_):
            with suppress(StopIteration):
                next(self.under_way)

    module, runner = Twice(), trainer(sampling())
    runner.fit(module, train_loader(data(SAMPLES)))
    assert runner.global_step == 3 * PER_EPOCH
    assert [len(batch[0]) for batch in runner.train_dataloader] == FULL


def test_a_look_gives_samples_as_the_dataloader_does():
    """Each once, drawn alike."""

    class Collects(Net):
        def on_train_epoch_end(self):
            self.found = torch.cat([batch[0] for batch in self.trainer.train_dataloader]).squeeze(1)

        def outputs(self, batch):
            return super().outputs((batch[0].expand(-1, 6), batch[1]))

    numbered = TensorDataset(torch.arange(float(SAMPLES))[:, None], torch.zeros(SAMPLES).long())
    module = Collects(schedule=False)
    trainer(sampling(), max_epochs=2).fit(module, train_loader(numbered))
    assert sorted(module.found.tolist()) == list(range(SAMPLES))
    assert module.found.tolist() != list(range(SAMPLES))


@pytest.mark.parametrize("by", [-3, 5])
def test_a_data_set_that_changes_between_epochs_without_a_reload(by):
    class Growing(list):
        pass

    class Grows(pl.Callback):
        def on_train_epoch_end(self, runner, module):
            samples = runner.train_dataloader.dataset
            samples[:] = samples[:by] if by < 0 else samples + samples[:by]

    given = train_loader(Growing(data(SAMPLES)))
    words = f"has {SAMPLES + by} samples, and the statistics so far are of {SAMPLES}.*make a new ImportanceSampling"
    with pytest.raises(emais.EmaisError, match=words):
        trainer(sampling(), Grows()).fit(Net(), given)
