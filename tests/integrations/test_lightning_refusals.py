"""What importance sampling in Lightning cannot do is refused at once, and the message says what to do instead."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities import CombinedLoader
from lightning_task import QUIET, Net, data, parameters, quiet, sampling, train_loader, trainer
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
        (lambda: train_loader(Stream(), shuffle=None), "Stream is an IterableDataset.*__getitem__ and __len__$"),
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


@pytest.mark.parametrize("own", [False, True])
def test_a_loss_forgotten_in_a_later_step_of_manual_optimisation(own):
    """A batch may be skipped, but not trained on."""

    class Forgets(Net):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            losses, logits = self.outputs(batch)
            if batch_idx == 3:
                return
            late = batch_idx == 7
            loss = losses.mean() if late and not own else emais.lightning.loss(self, losses, logits, observe=not late)
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()

    module, runner = Forgets(schedule=False), trainer(sampling(warmup_epochs=0), max_epochs=1)
    if own:  # with its coefficients, if without a word to the engine
        runner.fit(module, train_loader())
        assert runner.global_step == 11
        return
    with pytest.raises(emais.EmaisError, match=r"training_step did not call emais.lightning.loss"):
        runner.fit(module, train_loader())
    assert runner.global_step == 7


def test_a_second_loss_in_one_step():
    class Twice(Net):
        def training_step(self, batch, batch_idx):
            return sum(emais.lightning.loss(self, *self.outputs(batch)) for _ in range(2))

    refused(r"called twice for this batch.*loss\(self, losses, logits, observe=False\)", Twice(schedule=False))


@pytest.mark.parametrize(
    ("change", "options", "named"),
    [
        (lambda losses: losses.mean(), {}, r"shape \(5,\), got \(\).*reduction=\"none\""),
        (lambda losses: losses, {"grads": None}, "with observe=False nothing looks at grads"),
    ],
)
def test_what_a_loss_that_is_not_observed_cannot_use(change, options, named):
    class Unobserved(Net):
        def training_step(self, batch, batch_idx):
            losses, logits = self.outputs(batch)
            return emais.lightning.loss(self, change(losses), logits, observe=False, **options)

    refused(named, Unobserved(schedule=False))


@pytest.mark.parametrize("kinds", [("SGD", "Adam"), ("Other", "SGD")])
def test_optimizers_without_a_common_rule(kinds):
    class Other(torch.optim.Optimizer):
        def __init__(self, parameters, lr):
            super().__init__(parameters, {"lr": lr})

    class Two(Net):
        automatic_optimization = False

        def configure_optimizers(self):
            found = [{"Other": Other}.get(name) or getattr(torch.optim, name) for name in kinds]
            return [kind([p], lr=0.1) for kind, p in zip(found, self.parameters(), strict=True)]

        def training_step(self, batch, batch_idx):
            self.manual_backward(emais.lightning.loss(self, *self.outputs(batch)))
            for optimizer in self.optimizers():
                optimizer.step()

    named = "linear suits SGD and sqrt suits Adam" if "Adam" in kinds else "no learning-rate rule is known for Other"
    refused(rf"{named}.*ImportanceSampling\(rule=", Two())
    if "Adam" in kinds:
        runner = trainer(sampling(rule="sqrt", warmup_epochs=0), max_epochs=1)
        runner.fit(Two(), train_loader())
        assert runner.global_step == 24


def test_an_optimizer_that_chooses_its_rate():
    class Relative(Net):
        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters())
            optimizer.param_groups[0]["relative_step"] = True
            return optimizer

    refused(r'it chooses its rate itself.* or ImportanceSampling\(rule="none"\)', Relative())


def test_an_optimizer_with_several_looks_at_a_batch():
    class Looks(Net):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters())

    refused("LBFGS cannot be used: it evaluates its closure several times", Looks())


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_no_optimizer():
    class Without(Net):
        def configure_optimizers(self):
            return None

    refused("configure_optimizers gave no optimizer", Without())


def test_a_module_that_is_compiled_as_a_whole():
    module = torch.compile(Net(schedule=False), backend="eager")
    with pytest.raises(emais.EmaisError, match=r"self.net = torch.compile\(self.net\)"):
        trainer(sampling()).fit(module, train_loader())


def test_a_trainer_of_the_other_package():
    other = pytest.importorskip("pytorch_lightning")

    class Module(other.LightningModule):
        def training_step(self, batch, batch_idx):
            raise AssertionError("it was to be refused before")

        def configure_optimizers(self):
            return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)

    with pytest.raises(emais.EmaisError, match=r"Trainer is pytorch_lightning's.*import lightning.pytorch as pl"):
        other.Trainer(**QUIET, callbacks=[sampling()]).fit(Module(), train_loader())


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
