"""The pilot: what it finds, what it takes, and what it refuses. test_restoring.py has what it puts back."""

import itertools

import pytest
import torch
from conftest import losses_of
from torch.utils.data import TensorDataset

import emais
from emais import EmaisError


@pytest.fixture
def images():
    """Samples of which every tenth has a wrong label, and noise that comes from torch's generator."""
    x = torch.randn(300, 8)
    return TensorDataset(x, (x[:, 0] > 0).long() ^ (torch.arange(300) % 10 == 0).long())


def test_the_pilot_finds_what_a_real_run_has(images):
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=300)
    imp = emais.EMAISAuto(300, batch_size=10, num_steps=300)
    imp.attach(optimizer)
    for batch, draw in imp.loader(images):
        losses, z = losses_of(model, batch)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()
    summary = imp.summary()
    assert found.measured
    assert "acts like" in str(found)
    assert (found.steps, found.epochs) == (300, 10)
    assert found.n_ems_low < summary.n_ems < found.n_ems_high  # of 30 steps, found of 50
    assert found.n_ems > 12


def test_a_few_epochs_are_not_enough_to_say_that_there_is_nothing_to_gain():
    """A small network on clean labels: after 20 epochs a minibatch of 32 acts like one of 68."""
    x = torch.randn(600, 64)
    data = TensorDataset(x, (x[:, 0] > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for steps in (60, 120):
        found = emais.audit(model, data, losses_of, optimizer, batch_size=32, steps=steps)
        assert found.n_ems < 1.1 * 32
        assert "nothing to gain so far" in str(found)
        assert "train as you do" not in str(found)
    found = emais.audit(model, data, losses_of, optimizer, batch_size=32, steps=400)
    assert found.n_ems_low > 1.5 * 32
    assert "nothing to gain" not in str(found)


class Lion(torch.optim.Optimizer):
    """An optimizer that no rule is known for."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad.sign())


def test_an_optimizer_that_no_rule_is_known_for_is_given_one(images):
    model = torch.nn.Linear(8, 2)
    optimizer = Lion(model.parameters(), 0.01)
    with pytest.raises(EmaisError, match="no learning-rate rule is known for Lion: pass rule="):
        emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=90)
    found = [
        emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=300, rule=rule).n_ems
        for rule in ("none", "none", "steady")
    ]
    assert found[0] == found[1] != found[2]  # the factor changes what comes after


def test_scale_decay_is_that_of_attach(images):
    model = torch.nn.Linear(8, 2)
    adam = torch.optim.Adam(model.parameters(), 0.01)
    with pytest.raises(EmaisError, match="scale_decay=False needs SGD, AdamW"):
        emais.audit(model, images, losses_of, adam, batch_size=10, steps=90, scale_decay=False)
    sgd = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.01)
    settings = {"batch_size": 10, "steps": 300}
    found = [
        emais.audit(model, images, losses_of, sgd, scale_decay=scaled, **settings).n_ems for scaled in (True, False)
    ]
    assert found[0] != found[1]


def test_the_pilot_judges_only_minibatches_that_were_drawn_by_importance(images):
    """The first two of its epochs are plain training."""
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for steps, early in ((60, True), (89, True), (90, False)):
        found = emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=steps)
        assert found.early == early == ("it takes 90" in str(found)) == torch.tensor(found.n_ems).isnan().item()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda losses, z: (losses.mean(), z), r'got \(\): .*reduction="none"'),
        (lambda losses, z: losses, r"must return \(losses, logits\).* got Tensor"),
        (lambda losses, z: (losses, None, losses.mean()), r"norms must be \(N,\) with N = 10"),
        (lambda losses, z: (losses, z.detach()), "logits do not require grad"),
        (lambda losses, z: (losses, None), "logits must be a tensor"),
    ],
)
def test_a_loss_that_cannot_be_audited_is_refused_in_the_first_step(images, result, message):
    model, calls = torch.nn.Linear(8, 2), []

    def loss(net, batch):
        calls.append(batch)
        return result(*losses_of(net, batch))

    with pytest.raises(EmaisError, match=message):
        emais.audit(model, images, loss, torch.optim.SGD(model.parameters(), 0.1), batch_size=10, steps=30)
    assert len(calls) == 1


def test_what_cannot_be_drawn_from_is_refused(images):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from range(3)

    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(EmaisError, match="Stream is an IterableDataset"):
        emais.audit(model, Stream(), losses_of, optimizer, batch_size=10, steps=30)
    for bad in (0, 2.5, "30"):
        with pytest.raises(EmaisError, match="steps must be a whole number"):
            emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=bad)


@pytest.mark.parametrize("option", ["process_group", "sharded"])
def test_options_of_several_processes_are_refused(images, option):
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(EmaisError, match=f"emais.audit trains in one process and takes no {option}=: .*torchrun"):
        emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=30, **{option: None})


def test_an_optimizer_of_another_model_is_refused():
    data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))
    other = torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), 0.1)
    with pytest.raises(emais.EmaisError, match="no parameter of this model"):
        emais.audit(torch.nn.Linear(3, 2), data, lambda m, b: None, other, batch_size=10, steps=4)


def test_a_rate_that_is_far_too_high_is_told_without_a_warning(images):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def squares(net, batch):
        z = net(batch[0])
        return (z[:, 0] - batch[1]).square(), z

    optimizer = torch.optim.SGD(model.parameters(), 1e3, momentum=0.9)
    found = emais.audit(model, images, squares, optimizer, batch_size=20, steps=60)
    assert "not finite" in str(found)


def test_a_minibatch_larger_than_the_data_set_is_refused(images):
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(EmaisError, match="batch_size is 301, and the data set has 300 samples"):
        emais.audit(model, images, losses_of, optimizer, batch_size=301, steps=30)


def test_a_large_part_of_the_data_is_compared_with_draws_with_replacement(images):
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    large, small = (emais.audit(model, images, losses_of, optimizer, batch_size=n, steps=60) for n in (60, 10))
    assert "beside uniform draws with replacement" in str(large)
    assert "with 20 % of the data" in str(large)
    assert "replacement" not in str(small)


@pytest.mark.parametrize("remove", [False, True])
def test_an_optimizer_that_an_engine_counts_the_steps_of_is_refused(images, remove):
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    imp = emais.EMAISAuto(300, batch_size=10)
    handle = imp.attach(optimizer)
    for batch, draw in itertools.islice(imp.loader(images), 3):
        imp.loss(*losses_of(model, batch), draw).backward()
        optimizer.step()
    imp.attached.applied = 1.5
    if remove:
        handle.remove()
        assert emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=3).early
        return
    with pytest.raises(EmaisError, match=r"attached to an engine.* remove\(\)"):
        emais.audit(model, images, losses_of, optimizer, batch_size=10, steps=3)
    assert imp.attached.applied == 1.5


def test_norms_may_be_given_instead_of_gradients(images):
    """As a third value, or as what token_cross_entropy gives: orthogonal gradients, so that nothing is subtracted."""
    model, found = torch.nn.Linear(8, 2), []
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def norms_of(net, batch):
        losses, z = losses_of(net, batch)
        return losses, None, emais.functional.logit_gradients(losses, z).norm(dim=1)

    def tokens_of(net, batch):
        return emais.functional.token_cross_entropy(net(batch[0])[:, None], batch[1][:, None])

    for loss in (norms_of, tokens_of, losses_of):
        found.append(emais.audit(model, images, loss, optimizer, batch_size=10, steps=120))
    assert found[0].n_ems == pytest.approx(found[1].n_ems, rel=1e-4)
    assert 10 < found[0].n_ems <= found[2].n_ems


def test_a_run_that_diverges_is_said_to_do_so():
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.full((40, 3), torch.nan), torch.randint(2, (40,)))
    model = torch.nn.Linear(3, 2)

    def losses(model, batch):
        z = model(batch[0])
        return torch.nn.functional.cross_entropy(z, batch[1], reduction="none"), z

    found = emais.audit(model, data, losses, torch.optim.SGD(model.parameters(), 0.1), batch_size=10, steps=20)
    assert not found.finite
    assert "not finite" in str(found)
