"""What importance sampling in Lightning cannot do is refused at once, and the message says what to do instead."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities import CombinedLoader
from lightning_task import Net, data, parameters, quiet, sampling, train_loader, trainer
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler, WeightedRandomSampler

import emais
import emais.lightning

pytestmark = quiet


def refused(match, module=None, loader=None, callback=None, **options):
    """The trainer refuses to train, and has not touched the parameters."""
    module = module or Net(schedule=False)
    with pytest.raises(emais.EmaisError, match=match):
        trainer(callback or sampling(), **options).fit(module, train_loader() if loader is None else loader)
    assert torch.equal(parameters(module), parameters(Net()))


class Stream(IterableDataset):
    def __iter__(self):
        yield from data()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: [train_loader(), train_loader()], "a list of 2 train loaders.*give the Trainer a single DataLoader"),
        (lambda: {"a": train_loader(), "b": train_loader()}, "a dict of 2 train loaders"),
        (lambda: CombinedLoader({"a": train_loader()}), "a CombinedLoader"),
        (
            lambda: train_loader(shuffle=None, sampler=WeightedRandomSampler(torch.ones(60), 60)),
            "WeightedRandomSampler",
        ),
        (lambda: train_loader(shuffle=None, sampler=RandomSampler(data(), num_samples=30)), "RandomSampler"),
        (lambda: train_loader(Stream(), shuffle=None), "Stream is an IterableDataset.*needs a data set with"),
        (lambda: emais.EMAIS(60, batch_size=5).loader(data()), "belongs to an engine already"),
    ],
)
def test_train_loaders_that_cannot_be_taken_over(make, named):
    refused(named, loader=make())


def test_a_batch_sampler_of_ones_own():
    class Own(BatchSampler):
        pass

    loader = train_loader(batch_size=1, shuffle=None, batch_sampler=Own(SequentialSampler(data()), 5, False))
    refused("batch_sampler=Own", loader=loader)


def test_overfit_batches():
    refused("overfit_batches=2", overfit_batches=2)


@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor")
def test_a_training_step_that_fetches_its_own_batches():
    class Fetches(Net):
        def training_step(self, dataloader_iter):
            batch, *_ = next(dataloader_iter)
            return emais.lightning.loss(self, *self.outputs(batch))

    refused(r"write training_step\(self, batch, batch_idx\)", Fetches(schedule=False))


@pytest.mark.parametrize("automatic", [True, False])
def test_a_forgotten_loss_is_found_in_the_first_step(automatic):
    class Forgets(Net):
        def training_step(self, batch, batch_idx):
            assert batch_idx == 0
            loss = self.outputs(batch)[0].mean()
            if self.automatic_optimization:
                return loss
            self.manual_backward(loss)
            return None

    module = Forgets(schedule=False)
    module.automatic_optimization = automatic
    with pytest.raises(emais.EmaisError, match=r"return emais.lightning.loss\(self, losses, logits\)"):
        trainer(sampling()).fit(module, train_loader())


def test_a_reduced_loss():
    class Reduced(Net):
        def training_step(self, batch, batch_idx):
            losses, logits = self.outputs(batch)
            return emais.lightning.loss(self, losses.mean(), logits)

    refused('reduction="none"', Reduced(schedule=False))


def test_a_second_loss_in_one_step():
    class Twice(Net):
        def training_step(self, batch, batch_idx):
            return sum(emais.lightning.loss(self, *self.outputs(batch)) for _ in range(2))

    refused("used already", Twice(schedule=False))


def test_two_callbacks():
    """By Lightning itself, because the two would share one place in a checkpoint."""
    with pytest.raises(RuntimeError, match="more than one stateful callback of type `ImportanceSampling`"):
        trainer(sampling(), sampling(seed=1))


def test_a_data_set_that_grows_between_epochs():
    class Grows(Net):
        def train_dataloader(self):
            return train_loader(data(60 + self.current_epoch))

    with pytest.raises(emais.EmaisError, match="has 61 samples, and the statistics so far are of 60"):
        trainer(sampling(), reload_dataloaders_every_n_epochs=1).fit(Grows(schedule=False))


def test_a_loader_that_somebody_has_replaced():
    class Replaces(pl.Callback):
        def on_train_start(self, runner, module):
            runner.fit_loop._combined_loader = CombinedLoader(train_loader())

    with pytest.raises(emais.EmaisError, match="trains on DataLoader, not on the loader that ImportanceSampling gave"):
        trainer(Replaces(), sampling()).fit(Net(schedule=False), train_loader())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": "emias"}, "did you mean 'emais'"),
        ({"kapa": 1}, "did you mean 'kappa'"),
        ({"num_steps": 100}, "the Trainer says how long it trains"),
        ({"batch_size": 5}, "the train DataLoader has it"),
        ({"num_samples": 60}, "data set has it"),
        ({"device": "cuda"}, "live on the CPU"),
        ({"method": "presampling"}, "choose another method"),
    ],
)
def test_settings_are_checked_when_the_callback_is_made(settings, named):
    with pytest.raises(emais.EmaisError, match=named):
        emais.lightning.ImportanceSampling(**{"method": "emais"} | settings)
