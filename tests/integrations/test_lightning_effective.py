"""Equal progress in Lightning: a fit ends once its steps are worth those of the Trainer; its schedulers follow."""

import csv

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning_task import PER_EPOCH, M, N, Net, brief, data, parameters, quiet, sampling, train_loader, trainer
from torch import nn
from torch.optim import lr_scheduler as S
from torch.utils.data import DataLoader

import emais
from emais import EmaisError
from emais.rates.followed import Followed

pytestmark = quiet
EPOCHS = 8


class Scheduled(Net):
    """With a scheduler of steps or epochs, as Lightning lets one say it; keeps the rate of each step."""

    def __init__(self, make=None, optimizer="SGD", learning_rate=0.1, **config):
        super().__init__(optimizer)
        self.make, self.config, self.rates = make or self.cosine, config, []
        self.learning_rate = learning_rate

    def cosine(self, optimizer):
        ends = self.trainer.estimated_stepping_batches if self.config.get("interval") == "step" else EPOCHS
        return S.CosineAnnealingLR(optimizer, ends)

    def configure_optimizers(self):
        kind = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[self.optimizer]
        optimizer = kind(self.parameters(), lr=self.learning_rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self.make(optimizer), **self.config}}

    def on_before_zero_grad(self, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])


def equal(**settings):
    return sampling(effective_steps=True, **settings)


def fit(module, callback, *others, resume=None, **options):
    runner = trainer(callback, *others, **{"max_epochs": EPOCHS, "enable_checkpointing": bool(others)} | options)
    runner.fit(module, train_loader(), DataLoader(data(), batch_size=20), ckpt_path=resume)
    return runner


def by_hand(interval, accumulate=1):
    """The same run in a plain loop, with an EffectiveSchedule."""
    goal, model = EPOCHS * PER_EPOCH, Net().net
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAIS(M, N, warmup_epochs=1, effective_steps=float(goal))
    imp.attach(optimizer)
    steps = interval == "step"
    scheduler = S.CosineAnnealingLR(optimizer, goal // accumulate if steps else EPOCHS)
    schedule = emais.EffectiveSchedule(scheduler, imp, per_epoch=not steps)
    made = 0
    while not imp.finished:
        for k, ((x, y), draw) in enumerate(imp.loader(data())):
            z = model(x)
            losses = nn.functional.cross_entropy(z, y, reduction="none")
            (imp.loss(losses, z, draw) / accumulate).backward()
            if k % accumulate == accumulate - 1:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                made += 1
    return torch.cat([p.detach().flatten() for p in model.parameters()]), made, imp


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_it_is_a_loop_with_a_schedule_that_follows(interval, accumulate):
    module, callback = Scheduled(interval=interval), equal()
    runner = fit(module, callback, accumulate_grad_batches=accumulate)
    expected, made, imp = by_hand(interval, accumulate)
    assert runner.global_step == made < EPOCHS * PER_EPOCH // accumulate
    assert callback.engine.effective_steps == imp.effective_steps >= EPOCHS * PER_EPOCH
    assert torch.equal(parameters(module), expected)
    assert module.rates[0] == 0.1
    assert module.optimizers().param_groups[0]["lr"] == pytest.approx(0, abs=1e-5)  # the schedule came to its end


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({}, {"interval": "step"}),
        ({"accumulate_grad_batches": 3}, {"interval": "step"}),
        ({"limit_train_batches": 7}, {"interval": "epoch"}),
        ({"max_steps": 40, "max_epochs": -1}, {"interval": "step"}),
        ({"reload_dataloaders_every_n_epochs": 1}, {"interval": "epoch"}),
    ],
    ids=str,
)
def test_it_resumes_from_every_checkpoint(options, config, optimizer, tmp_path):
    def saving():
        return ModelCheckpoint(tmp_path, "step{step}", every_n_train_steps=7, save_top_k=-1)

    module, callback = Scheduled(optimizer=optimizer, **config), equal()
    whole = fit(module, callback, saving(), ModelCheckpoint(tmp_path, "epoch{step}", save_top_k=-1), **options)
    assert callback.engine.finished
    paths = sorted(tmp_path.glob("*.ckpt"))
    assert len(paths) > 4
    for path in paths:
        again, other = Scheduled(optimizer=optimizer, **config), equal()
        resumed = fit(again, other, resume=path, **options)
        assert resumed.global_step == whole.global_step, path.name
        assert torch.equal(parameters(again), parameters(module)), path.name
        assert other.engine.effective_steps == callback.engine.effective_steps


def test_max_steps_are_counted_in_batches():
    callback = equal()
    runner = fit(Scheduled(interval="step"), callback, max_steps=30, max_epochs=-1, accumulate_grad_batches=5)
    assert callback.engine.progress.goal == 3 * 30 * 12 // 9  # steps of 5, 5 and 2 of the 12 batches of an epoch
    assert callback.engine.finished
    assert runner.global_step < 30


def test_a_checkpoint_goes_on_without_the_callback(tmp_path):
    saving = ModelCheckpoint(tmp_path, "epoch{epoch}", save_top_k=-1)
    fit(Scheduled(interval="epoch"), equal(), saving)
    path = sorted(tmp_path.glob("*.ckpt"))[2]
    saved = torch.load(path, weights_only=False)["lr_schedulers"][0]
    assert saved["last_epoch"] >= 2
    plain = Scheduled(interval="epoch")
    runner = trainer(max_epochs=EPOCHS)
    runner.fit(plain, train_loader(), ckpt_path=path)
    assert runner.current_epoch == EPOCHS
    assert plain.lr_schedulers().last_epoch > saved["last_epoch"]


def test_the_rates_are_logged_step_by_step(tmp_path):
    logger, module = CSVLogger(tmp_path), Scheduled(interval="epoch")
    fit(module, equal(), LearningRateMonitor(), logger=logger, log_every_n_steps=1)
    with open(f"{logger.log_dir}/metrics.csv") as file:
        rates = [float(row["lr-SGD"]) for row in csv.DictReader(file) if row.get("lr-SGD")]
    assert len(set(rates)) > 2 * EPOCHS
    assert module.lr_schedulers().get_last_lr() == [module.optimizers().param_groups[0]["lr"]]


def test_a_scheduler_that_follows_a_metric_is_left_alone():
    def plateau(optimizer):
        return S.ReduceLROnPlateau(optimizer, factor=0.1, patience=2, threshold=1.0)

    module, callback = Scheduled(plateau, monitor="val"), equal()
    fit(module, callback)
    assert not isinstance(module.lr_schedulers(), Followed)
    assert module.rates[-1] < 0.1
    assert callback.engine.finished


def test_a_second_fit_begins_anew():
    module, callback = Scheduled(interval="step"), equal()
    first = fit(module, callback)
    imp = callback.engine
    second = fit(module, callback)
    assert callback.engine is not imp
    assert callback.engine.finished
    assert second.global_step > PER_EPOCH < first.global_step


def test_a_search_for_a_rate_changes_neither_end_nor_schedule(tmp_path):
    finder = LearningRateFinder(min_lr=0.01, max_lr=0.2, num_training_steps=20)
    module, callback = Scheduled(interval="step"), equal()
    runner = trainer(callback, finder, max_epochs=EPOCHS, enable_checkpointing=True, default_root_dir=tmp_path)
    runner.fit(module, train_loader())
    assert callback.engine.progress.goal == EPOCHS * PER_EPOCH
    assert callback.engine.finished
    assert runner.global_step == callback.engine.step < EPOCHS * PER_EPOCH


class Manual(Scheduled):
    def __init__(self):
        super().__init__(lambda optimizer: S.CosineAnnealingLR(optimizer, EPOCHS * PER_EPOCH))
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(emais.lightning.loss(self, *self.outputs(batch)))
        optimizer.step()
        self.lr_schedulers().step()


def test_a_module_that_optimises_manually_is_told():
    callback = equal()
    with pytest.warns(UserWarning, match="of a module that optimises manually do not follow"):
        fit(Manual(), callback)
    assert callback.engine.finished
    with pytest.raises(EmaisError, match="how many batches max_steps=30 are"):
        fit(Manual(), equal(), max_steps=30)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"interval": "step", "frequency": 2}, {}, 'is to move after every 2 batches: give it "frequency": 1'),
        ({"interval": "step"}, {"max_epochs": -1, "max_time": {"seconds": 5}}, "needs an end to count to"),
        (
            {"make": lambda o: S.CosineAnnealingLR(o, EPOCHS), "interval": "step"},
            {},
            'it counts epochs. Pass "interval": "epoch"',
        ),
        ({"make": lambda o: S.CyclicLR(o, 0.01, 0.1), "interval": "step"}, {}, "make it with cycle_momentum=False"),
    ],
)
def test_what_cannot_follow_is_refused(config, options, message):
    config = {"make": lambda o: S.CosineAnnealingLR(o, EPOCHS), **config}
    with pytest.raises(EmaisError, match=message):
        fit(Scheduled(**config), equal(), **options)


def test_a_checkpoint_of_a_run_that_ends_elsewhere_is_refused(tmp_path):
    fit(Scheduled(interval="epoch"), equal(), ModelCheckpoint(tmp_path, "last", every_n_train_steps=20))
    with pytest.raises(EmaisError, match="ends after 96 effective steps, this fit ends after 120 effective steps"):
        fit(Scheduled(interval="epoch"), equal(), resume=tmp_path / "last.ckpt", max_epochs=10)
    with pytest.raises(EmaisError, match="this fit ends where the Trainer says"):
        fit(Scheduled(interval="epoch"), sampling(), resume=tmp_path / "last.ckpt")


@pytest.mark.filterwarnings("ignore:this checkpoint has no state of")
def test_a_checkpoint_without_our_state_has_an_end_of_its_own(tmp_path):
    saving = ModelCheckpoint(tmp_path, "plain", every_n_epochs=5)
    trainer(saving, max_epochs=EPOCHS, enable_checkpointing=True).fit(Scheduled(interval="epoch"), train_loader())
    left = (EPOCHS * PER_EPOCH) - (trained := torch.load(tmp_path / "plain.ckpt", weights_only=False)["global_step"])
    with pytest.raises(EmaisError, match=f"give effective_steps={left}, the batches that are left"):
        fit(Scheduled(interval="epoch"), equal(), resume=tmp_path / "plain.ckpt")
    callback = sampling(effective_steps=left)
    runner = fit(Scheduled(interval="epoch"), callback, resume=tmp_path / "plain.ckpt")
    assert callback.engine.finished
    assert runner.global_step < trained + left


@brief
def test_a_fit_shorter_than_an_epoch_is_no_mistake():
    callback = equal()
    module = Scheduled(lambda optimizer: S.CosineAnnealingLR(optimizer, 1), interval="epoch")
    fit(module, callback, max_epochs=1, limit_train_batches=7)  # a warning would be an error here
    assert callback.engine.finished


def two_schedulers(optimizer):
    return [S.ExponentialLR(optimizer, 0.98), S.StepLR(optimizer, 30, 0.1)]


def with_plateau(optimizer):
    plateau = S.ReduceLROnPlateau(optimizer, factor=0.1, patience=1, threshold=1.0)
    plateau = {"scheduler": plateau, "monitor": "val", "interval": "epoch"}
    return [{"scheduler": S.ExponentialLR(optimizer, 0.98), "interval": "step"}, plateau]


@pytest.mark.parametrize("make", [two_schedulers, with_plateau])
def test_schedulers_of_one_optimizer_multiply(make):
    """With steps that are worth one the rates are those of a fit without the callback."""

    class Several(Scheduled):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            given = make(optimizer)
            return [optimizer], [g if isinstance(g, dict) else {"scheduler": g, "interval": "step"} for g in given]

    rates = []
    for options in ({}, {"effective_steps": True}):
        module = Several()
        fit(module, emais.lightning.ImportanceSampling("sgd-scan", **options))
        rates.append(module.rates)
    assert rates[1] == pytest.approx(rates[0], rel=1e-9)
    assert rates[0][-1] < 0.3 * rates[0][0]
