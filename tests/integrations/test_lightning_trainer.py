"""What the Trainer does around the steps: how many there are, further fits, logs and the tuner."""

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.tuner import Tuner
from lightning_task import PER_EPOCH, M, N, Net, data, parameters, quiet, sampling, train_loader, trainer
from torch.utils.data import DataLoader

import emais

pytestmark = quiet

# ---- as many steps as without the callback


def counted(*callbacks, fits=1, loader=None, **options):
    """How far a trainer comes; loader: options of its DataLoader."""
    module, found = Net(), []
    runner = trainer(*callbacks, **options)
    train = train_loader(data(M - 2), **loader or {})
    for k in range(1, fits + 1):
        if k > 1:
            runner.fit_loop.max_epochs += 2
        runner.fit(module, train, DataLoader(data(), batch_size=N))
        found.append((runner.global_step, runner.current_epoch, runner.num_training_batches, len(module.batches)))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reload_dataloaders_every_n_epochs": 1},
        {"reload_dataloaders_every_n_epochs": 2, "limit_train_batches": 7},
        {"limit_train_batches": 5},
        {"limit_train_batches": 0.4},
        {"limit_train_batches": 7, "accumulate_grad_batches": 3},
        {"max_steps": 17, "max_epochs": -1},
        {"max_steps": 7, "accumulate_grad_batches": 5},
        {"fits": 2},
        {"fits": 3, "limit_train_batches": 5, "reload_dataloaders_every_n_epochs": 1},
        {"val_check_interval": 4},
        {"fast_dev_run": True},
        {"loader": {"drop_last": True}},
        {"loader": {"num_workers": 2}, "limit_train_batches": 7},
    ],
    ids=str,
)
def test_as_many_steps_as_without_the_callback(options):
    assert counted(sampling(), **options) == counted(**options)


def test_statistics_stay_for_a_second_fit_and_begin_again_with_another_module():
    callback, module = sampling(), Net()
    runner = trainer(callback)
    runner.fit(module, train_loader())
    engine = callback.engine
    runner.fit_loop.max_epochs += 1
    runner.fit(module, train_loader())
    assert callback.engine is engine
    assert engine.step == 4 * PER_EPOCH
    assert [handle.optimizer for handle in engine.attached.scalers] == runner.optimizers
    trainer(callback).fit(Net(), train_loader())
    assert callback.engine is not engine
    assert callback.engine.step == 3 * PER_EPOCH


# ---- logs


@pytest.mark.parametrize("accumulate", [1, 3])
def test_numbers_are_logged_once_an_interval(accumulate, tmp_path, monkeypatch):
    made = []
    summary = emais.Engine.summary
    monkeypatch.setattr(emais.Engine, "summary", lambda self, steps: made.append(summary(self, steps)) or made[-1])
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    runner = trainer(sampling(), logger=logger, log_every_n_steps=4, accumulate_grad_batches=accumulate)
    runner.fit(Net(), train_loader())
    steps = 3 * PER_EPOCH // accumulate
    lines = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    assert {"emais/n_ems", "emais/score", "emais/lr_scale"} <= set(lines[0].split(","))
    assert len(lines) - 1 == len(made) == steps // 4
    assert runner.progress_bar_metrics["emais/n_ems"] == pytest.approx(made[-1].n_ems)
    assert runner.callback_metrics["emais/lr_scale"] == pytest.approx(made[-1].lr_scale)


def test_without_a_logger_the_three_main_numbers_are_logged():
    runner = trainer(sampling(), log_every_n_steps=4)
    runner.fit(Net(), train_loader())
    found = {name for name in runner.callback_metrics if name.startswith("emais/")}
    assert found == {"emais/n_ems", "emais/score", "emais/lr_scale"}
    assert "emais/n_ems" in runner.progress_bar_metrics


# ---- the tuner


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


def test_the_batch_size_finder_ends_with_an_engine_of_its_size(tmp_path):
    class Sized(Net):
        batch_size = 2

        def train_dataloader(self):
            return train_loader(batch_size=self.batch_size)

        def val_dataloader(self):
            return DataLoader(data(), batch_size=N)

    callback, module = sampling(), Sized(schedule=False)
    runner = trainer(callback, default_root_dir=tmp_path)
    Tuner(runner).scale_batch_size(module, max_trials=3, steps_per_trial=2)
    runner.fit(module)
    assert callback.engine.batch_size == module.batch_size > 2
    assert runner.global_step == callback.engine.step == 3 * -(-M // module.batch_size)
