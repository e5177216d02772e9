"""Checkpoints through Lightning: a run resumed from any of them ends with the very bits of the undisturbed one."""

import itertools

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from lightning_task import PER_EPOCH, M, N, Net, data, parameters, quiet, sampling, train_loader, trainer
from torch.utils.data import DataLoader

import emais
import emais.lightning

pytestmark = quiet


def checkpoints(folder):
    """Every 7 steps, after validation at the end of an epoch, and at the end of a training epoch."""
    return [
        ModelCheckpoint(folder, "step{step}", every_n_train_steps=7, save_top_k=-1),
        ModelCheckpoint(folder, "val{step}", monitor="val", save_top_k=-1, save_on_train_epoch_end=False),
        ModelCheckpoint(folder, "epoch{step}", save_top_k=-1, save_on_train_epoch_end=True),
    ]


def fit(module, callback, *others, resume=None, workers=0, loader=None, **options):
    runner = trainer(callback, *others, enable_checkpointing=bool(others), **options)
    train = loader or train_loader(num_workers=workers)
    runner.fit(module, train, DataLoader(data(), batch_size=20), ckpt_path=resume)
    return runner


def run_and_resume(folder, make, optimizer="SGD", **options):
    """Train, then again from every checkpoint; returns the number of these."""
    module, callback = Net(optimizer), make()
    whole = fit(module, callback, *checkpoints(folder), **options)
    saved = sorted(folder.glob("*.ckpt"))
    for path in saved:
        again, other = Net(optimizer), make()
        resumed = fit(again, other, resume=path, **options)
        done = torch.load(path)["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["ready"]
        assert len(again.batches) == len(module.batches) - done, path.name
        assert resumed.global_step == whole.global_step, path.name
        assert torch.equal(parameters(again), parameters(module)), path.name
        assert other.engine.step == callback.engine.step, path.name
    return len(saved)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_resumes_from_every_checkpoint(workers, accumulate, optimizer, tmp_path):
    """Its scheduler reads `estimated_stepping_batches`, which has the loader made before the loops are restored."""
    found = run_and_resume(tmp_path, sampling, optimizer, workers=workers, accumulate_grad_batches=accumulate)
    assert found == 3 + 3 + 3 * PER_EPOCH // accumulate // 7


@pytest.mark.parametrize(
    "options",
    [
        {"limit_train_batches": 7},
        {"limit_train_batches": 7, "workers": 2},
        {"limit_train_batches": 0.5, "reload_dataloaders_every_n_epochs": 1},
        {"val_check_interval": 5},
        {"max_steps": 30, "max_epochs": -1},
    ],
    ids=str,
)
def test_a_run_resumes_whatever_an_epoch_is(options, tmp_path):
    assert run_and_resume(tmp_path, sampling, **options) > 6


def test_the_default_method_resumes_too(tmp_path):
    make = emais.lightning.ImportanceSampling
    assert run_and_resume(tmp_path, make, max_epochs=5) == 5 + 5 + 5 * PER_EPOCH // 7


def test_a_finished_run_goes_on_from_a_checkpoint_of_its_own(tmp_path):
    """Saved after `fit`, in the same process or another."""
    module, callback = Net(schedule=False), sampling()
    runner = fit(module, callback)
    runner.save_checkpoint(tmp_path / "last.ckpt")
    other, again = Net(schedule=False), sampling()
    fit(other, again, resume=tmp_path / "last.ckpt", max_epochs=5)
    whole = Net(schedule=False)
    fit(whole, sampling(), max_epochs=5)
    assert torch.equal(parameters(other), parameters(whole))


@pytest.mark.filterwarnings("ignore:.*was called without a model")  # of Lightning, after any exception
@pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available")
def test_a_checkpoint_of_an_exception_repeats_the_step_with_another_draw(tmp_path):
    """As many steps as without the exception. The engine has seen the draw of the step that failed, so it is over."""

    class Fails(Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            if len(self.batches) == 17:
                raise KeyError("of the user's own")
            return loss

    with pytest.raises(KeyError):
        fit(Fails(schedule=False), sampling(), OnExceptionCheckpoint(tmp_path, "failed"))
    module, callback = Net(schedule=False), sampling()
    runner = fit(module, callback, resume=tmp_path / "failed.ckpt")
    assert runner.global_step == 3 * PER_EPOCH
    assert len(module.batches) == 3 * PER_EPOCH - 16
    assert callback.engine.step == callback.engine.diagnostics.step == 3 * PER_EPOCH + 1


# ---- states that do not fit


@pytest.fixture
def saved(tmp_path):
    """(a checkpoint with our state, one without), of the middle of the second epoch."""
    paths = []
    for name, callbacks in (("with", [sampling()]), ("without", [])):
        runner = trainer(*callbacks, max_steps=17, max_epochs=2)
        runner.fit(Net(schedule=False), train_loader())
        paths.append(tmp_path / f"{name}.ckpt")
        runner.save_checkpoint(paths[-1])
    return paths


def test_a_checkpoint_without_our_state_starts_the_statistics_and_says_so(saved):
    module, callback = Net(schedule=False), sampling()
    with pytest.warns(UserWarning, match="has no state of ImportanceSampling: its statistics begin now"):
        fit(module, callback, resume=saved[1])
    assert callback.engine.step == callback.engine.diagnostics.step == len(module.batches)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_our_checkpoint_resumes_without_the_callback(saved):
    modules = []
    for path in saved:
        modules.append(Net(schedule=False))
        runner = trainer()
        runner.fit(modules[-1], train_loader(), ckpt_path=path)
        assert runner.global_step == modules[-1].trainer.global_step
    assert len(modules[0].batches) == len(modules[1].batches) > 0


def test_a_data_set_of_another_length_is_refused(saved):
    with pytest.raises(emais.EmaisError, match=rf"has 50 samples, and the statistics in the checkpoint are of {M}"):
        fit(Net(schedule=False), sampling(), resume=saved[0], loader=train_loader(data(50)))


def test_other_settings_are_refused_by_name(saved):
    for callback, named in (
        (sampling(tau=5.0), r"with tau='linear', here it is 5.0: give ImportanceSampling\(..., tau='linear'\), or fit"),
        (
            sampling(seed=1),
            r"with seed=0, here it is 1: give ImportanceSampling\(..., seed=0\), or fit without ckpt_path",
        ),
        (emais.lightning.ImportanceSampling("rais"), r"with the method 'emais'.*ImportanceSampling\('emais'\), or fit"),
    ):
        with pytest.raises(emais.EmaisError, match=named):
            fit(Net(schedule=False), callback, resume=saved[0])


def test_another_seed_is_refused_of_a_callback_that_has_an_engine(saved):
    callback = sampling(seed=1)
    fit(Net(schedule=False), callback)
    with pytest.raises(emais.EmaisError, match=r"with seed=0, here it is 1: give ImportanceSampling"):
        fit(Net(schedule=False), callback, resume=saved[0])


def test_a_changed_batch_size_starts_the_statistics_and_says_so():
    class Grows(Net):
        def __init__(self):
            super().__init__(schedule=False)
            self.sizes = itertools.cycle([N, 2 * N])

        def train_dataloader(self):
            return train_loader(batch_size=next(self.sizes))

    callback = sampling()
    with pytest.warns(UserWarning, match="changed from 5 to 10"):
        trainer(callback, max_epochs=2, reload_dataloaders_every_n_epochs=1).fit(Grows())
    assert (callback.engine.batch_size, callback.engine.step) == (2 * N, M // (2 * N))
