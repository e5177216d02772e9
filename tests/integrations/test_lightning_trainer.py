"""What the Trainer does around the steps: how many there are, further fits, and what is left after them."""

import copy
import gc
from contextlib import nullcontext
from multiprocessing import active_children

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning_task import PER_EPOCH, M, N, Net, brief, data, parameters, quiet, sampling, train_loader, trainer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader, default_collate

import emais
import emais.lightning

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
@brief
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


@pytest.mark.parametrize("logged", [False, True])
def test_an_audit_shows_what_it_projects(logged, tmp_path):
    """Also without a logger, and on the progress bar, where n_ems would be N all the time."""
    callback = emais.lightning.ImportanceSampling("audit")
    logger = CSVLogger(tmp_path) if logged else False
    runner = trainer(callback, logger=logger, log_every_n_steps=PER_EPOCH)
    runner.fit(Net(), train_loader())
    found = callback.engine.finding()
    assert found.n_ems > 0
    assert runner.callback_metrics["emais/projected_n_ems"] == pytest.approx(found.n_ems)
    assert ("emais/projected_n_ems_low" in runner.callback_metrics) == logged
    assert [name for name in runner.progress_bar_metrics if "emais" in name] == ["emais/projected_n_ems"]


def test_without_a_logger_the_three_main_numbers_are_logged():
    runner = trainer(sampling(), log_every_n_steps=4)
    runner.fit(Net(), train_loader())
    found = {name for name in runner.callback_metrics if name.startswith("emais/")}
    assert found == {"emais/n_ems", "emais/score", "emais/lr_scale"}
    assert "emais/n_ems" in runner.progress_bar_metrics


def test_tensorboard_shows_a_histogram_of_r(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    trainer(sampling(), logger=logger, log_every_n_steps=4).fit(Net(), train_loader())
    logger.experiment.flush()
    found = EventAccumulator(logger.log_dir, size_guidance={"histograms": 0, "scalars": 0}).Reload()
    events = found.Histograms("emais/r")
    assert [event.step for event in events] == [event.step for event in found.Scalars("emais/n_ems")]
    assert len(events) == 3 * PER_EPOCH // 4
    assert all(event.histogram_value.num == N for event in events)


# ---- what is left after a fit


@pytest.mark.parametrize("fails", [False, True])
def test_no_worker_survives_the_fit(fails):
    class Fails(Net):
        def training_step(self, batch, batch_idx):
            if fails and self.current_epoch:
                raise KeyError("of the user's own")
            return super().training_step(batch, batch_idx)

    before, callback, module = set(active_children()), sampling(), Fails(schedule=False)
    runner = trainer(callback, max_epochs=2)
    loader = train_loader(num_workers=2, persistent_workers=True)
    with pytest.raises(KeyError) if fails else nullcontext():
        runner.fit(module, loader)
    gc.collect()  # of the traceback's frames
    assert set(active_children()) <= before
    assert torch.equal(emais.lightning.loss(module, torch.ones(N), None), torch.ones(()))
    if not fails:
        runner.fit_loop.max_epochs += 1
        runner.fit(module, loader)
        assert callback.engine.step == 3 * PER_EPOCH


def test_a_copy_of_a_module_that_trains_has_no_batch():
    class Copies(Net):
        def training_step(self, batch, batch_idx):
            self.copied = [None]  # not a submodule
            other = copy.deepcopy(self)
            self.copied = [other]
            return super().training_step(batch, batch_idx)

    module, callback = Copies(schedule=False), sampling(warmup_epochs=0)
    trainer(callback, limit_train_batches=2, max_epochs=1).fit(module, train_loader())
    assert callback.engine.diagnostics.step == 2
    losses, logits = module.outputs(data()[:N])
    assert torch.equal(emais.lightning.loss(module.copied[0], losses, logits), losses.mean())


def test_the_train_loader_shows_what_the_dataloader_had():
    given, runner = train_loader(drop_last=True, collate_fn=lambda batch: default_collate(batch)), trainer(sampling())
    runner.fit(Net(schedule=False), given)
    found = runner.train_dataloader
    for name in ("dataset", "batch_size", "num_workers", "collate_fn", "drop_last", "pin_memory"):
        assert getattr(found, name) == getattr(given, name), name
    assert not hasattr(found, "sampler")
    assert not hasattr(found, "batch_sampler")


# ---- a fit within the warm-up


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        ({"max_epochs": 1}, 12),
        ({"max_steps": 4, "accumulate_grad_batches": 3}, 12),
        ({"max_epochs": 2, "limit_train_batches": 5}, 10),
    ],
)
def test_a_fit_within_the_warm_up_is_told_once(options, planned):
    with pytest.warns(UserWarning, match=r"set ImportanceSampling\(warmup_epochs=...\) lower") as warned:
        trainer(sampling(), **options).fit(Net(), train_loader())
    told = [str(each.message) for each in warned if "warm-up" in str(each.message)]
    assert len(told) == 1
    assert f"has {planned} minibatches, all within the warm-up of 1 epoch, so it is plain training" in told[0]


@pytest.mark.parametrize(
    ("callback", "options"),
    [
        (lambda: sampling(), {"max_epochs": 2}),
        (lambda: sampling(), {"max_steps": 13}),
        (lambda: sampling(), {"fast_dev_run": True}),
        (lambda: sampling(warmup_epochs=0.5), {"max_epochs": 1}),
        (lambda: emais.lightning.ImportanceSampling("audit"), {"max_epochs": 1}),
        (lambda: emais.lightning.ImportanceSampling("sgd-scan"), {"max_epochs": 1}),
        (lambda: emais.lightning.ImportanceSampling("self-paced"), {"max_epochs": 1}),
    ],
)
def test_of_other_fits_nothing_is_told(callback, options):
    trainer(callback(), **options).fit(Net(schedule=False), train_loader())  # a warning would be an error here


def test_batches_of_earlier_fits_count(tmp_path):
    """Of another fit of the module, and of one that is resumed."""
    callback, module = sampling(), Net(schedule=False)
    first = trainer(callback, max_epochs=1)
    with pytest.warns(UserWarning, match="within the warm-up"):
        first.fit(module, train_loader())
    first.save_checkpoint(tmp_path / "epoch.ckpt")
    trainer(callback, max_epochs=1).fit(module, train_loader())
    again = trainer(sampling(), max_epochs=2)
    again.fit(Net(schedule=False), train_loader(), ckpt_path=tmp_path / "epoch.ckpt")  # a warning would be an error


# ---- the seed


def test_the_seed_is_that_of_seed_everything(monkeypatch):
    seeds = []
    for given, own in ((None, {}), ("7", {}), ("7", {"seed": 3})):
        monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
        if given is not None:
            monkeypatch.setenv("PL_GLOBAL_SEED", given)  # all that seed_everything leaves behind for others
        callback = sampling(warmup_epochs=0, **own)
        trainer(callback, max_epochs=1).fit(Net(schedule=False), train_loader())
        seeds.append(callback.engine.seed)
    assert seeds == [0, 7, 3]


@pytest.mark.parametrize("again", [False, True])
def test_a_resumed_run_keeps_the_seed_of_its_checkpoint(again, monkeypatch, tmp_path):
    """With a callback of its own, or with one that has an engine of another seed already."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    whole = Net(schedule=False)
    saving = ModelCheckpoint(tmp_path, "middle", every_n_train_steps=17, save_top_k=-1)
    trainer(sampling(), saving, enable_checkpointing=True, limit_train_batches=10).fit(whole, train_loader())
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    callback, module = sampling(), Net(schedule=False)
    if again:
        trainer(callback, max_epochs=2).fit(module, train_loader())
        assert callback.engine.seed == 8
    trainer(callback, limit_train_batches=10).fit(module, train_loader(), ckpt_path=tmp_path / "middle.ckpt")
    assert callback.engine.seed == 7
    assert torch.equal(parameters(module), parameters(whole))
