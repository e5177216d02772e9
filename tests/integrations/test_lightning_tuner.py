"""Lightning's tuner: it tries rates and batch sizes, and leaves nothing of that in the statistics."""

import pytest
import torch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.tuner import Tuner
from lightning_task import PER_EPOCH, M, N, Net, data, parameters, quiet, sampling, train_loader, trainer
from torch.utils.data import DataLoader

import emais

pytestmark = quiet


class Sized(Net):
    """A module whose batch size a tuner may change."""

    def __init__(self, batch_size=2):
        super().__init__(schedule=False)
        self.batch_size = batch_size

    def train_dataloader(self):
        return train_loader(batch_size=self.batch_size)

    def val_dataloader(self):
        return DataLoader(data(), batch_size=N)


@pytest.mark.parametrize("as_callback", [False, True])
def test_the_rate_finder_leaves_no_steps_behind(as_callback, tmp_path):
    finder = LearningRateFinder(num_training_steps=20, update_attr=False)
    callback, module = sampling(), Net(schedule=False)
    runner = trainer(*([finder] if as_callback else []), callback, default_root_dir=tmp_path)
    if not as_callback:
        Tuner(runner).lr_find(module, train_loader(), num_training=20, update_attr=False)
        assert callback.engine is None or callback.engine.step == 0
    runner.fit(module, train_loader())
    other, again = Net(schedule=False), sampling()
    trainer(again).fit(other, train_loader())
    assert torch.equal(parameters(module), parameters(other))
    assert callback.engine.step == callback.engine.diagnostics.step == 3 * PER_EPOCH


def test_the_rate_finder_inside_a_run_leaves_the_state_as_it_was(tmp_path):
    callback, module = sampling(), Net(schedule=False)
    runner = trainer(callback, default_root_dir=tmp_path)
    runner.fit(module, train_loader())
    before = callback.engine.state_dict()
    Tuner(runner).lr_find(module, train_loader(), num_training=20, update_attr=False)
    after = callback.engine.state_dict()
    assert str(before) == str(after)


def test_the_size_scaler_ends_with_an_engine_of_its_size(tmp_path):
    callback, module = sampling(), Sized()
    runner = trainer(callback, default_root_dir=tmp_path)
    Tuner(runner).scale_batch_size(module, max_trials=3, steps_per_trial=2)
    runner.fit(module)
    assert callback.engine.batch_size == module.batch_size > 2
    assert runner.global_step == callback.engine.step == 3 * -(-M // module.batch_size)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("mode", ["power", "binsearch"])
def test_the_size_finder_leaves_no_steps_behind(first, mode, tmp_path):
    """It restores what was before the first batch while the fit has its loader already."""
    finder, callback, module = BatchSizeFinder(mode, 2, max_trials=3, margin=0.25), sampling(), Sized()
    runner = trainer(*([finder, callback] if first else [callback, finder]), default_root_dir=tmp_path)
    runner.fit(module)
    size = {"power": 8, "binsearch": 6}[mode]
    assert (module.batch_size, callback.engine.batch_size) == (size, size)
    assert runner.global_step == callback.engine.step == callback.engine.diagnostics.step == 3 * -(-M // size)
    other = Sized(size)
    trainer(sampling()).fit(other)
    assert torch.equal(parameters(module), parameters(other))


def test_another_size_after_a_fit_starts_the_statistics_and_says_so(tmp_path):
    callback, module = sampling(), Sized(N)
    runner = trainer(callback, default_root_dir=tmp_path)
    runner.fit(module)
    Tuner(runner).scale_batch_size(module, max_trials=3, steps_per_trial=2)
    assert (callback.engine.step, callback.engine.batch_size) == (0, 8)
    runner.fit_loop.max_epochs += 1
    with pytest.warns(UserWarning, match="changed from 5 to 8: the statistics of importance sampling start again"):
        runner.fit(module)
    assert callback.engine.step == -(-M // 8)


@pytest.mark.parametrize("as_callback", [False, True])
def test_a_size_above_the_data_set_is_refused_with_the_way_out(as_callback, tmp_path):
    callback, module = sampling(), Sized()
    runner = trainer(
        callback, *([BatchSizeFinder(steps_per_trial=2)] if as_callback else []), default_root_dir=tmp_path
    )
    with pytest.raises(emais.EmaisError, match=r"batch_size=64 is above.*with max_trials=, or max_val="):
        runner.fit(module) if as_callback else Tuner(runner).scale_batch_size(module, steps_per_trial=2)
    for options, size in (({"max_trials": 5}, 32), ({"mode": "binsearch", "max_val": M, "margin": 0.0}, M)):
        runner = trainer(sampling(), default_root_dir=tmp_path)
        assert Tuner(runner).scale_batch_size(Sized(), steps_per_trial=2, **options) == size
