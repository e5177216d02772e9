"""What several processes must not do: an error on each of them, that says which has what and what to do."""

import time

import pytest
import torch
import torch.distributed as dist
from process_pool import run_apart
from replicated_runs import (
    SAMPLES,
    continued,
    engine,
    lone_loader,
    made,
    made_by_another_version,
    made_then,
    made_with_a_tag,
    observe,
    skips_one,
    train,
)
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

import emais

pytestmark = pytest.mark.launched


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("seed", [0, 1]),
        ("num_steps", [None, 7]),
        ("batch_size", [4, 6]),
        ("method", ["emais", "emais-auto"]),
        ("smoothing", [0.0, 0.5]),
        ("num_samples", [SAMPLES, SAMPLES + 1]),
        ("tau", ["linear", 50.0]),
    ],
)
def test_settings_that_differ(pair, name, values):
    for message in pair.errors(made, **{name: values}):
        assert f"disagree about {name}: rank 0 has {values[0]!r}, rank 1 has {values[1]!r}" in message


def test_a_class_that_comes_before_the_method_changes_nothing(pair):
    for message in pair.errors(made_with_a_tag, seed=[0, 1]):
        assert "disagree about seed: rank 0 has 0, rank 1 has 1" in message


def test_versions_that_differ(pair):
    for message in pair.errors(made_by_another_version):
        assert "disagree about version: rank 0 has '0.0', rank 1 has '1.0'" in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tau": ["linear", -1]}, "tau must be"),
        ({"num_samples": [SAMPLES, 2]}, "kappa"),
        ({"smoothing": [0.0, 2.0]}, "smoothing must be"),
        ({"effective_steps": [False, "much"]}, "effective_steps"),
        ({"method": ["emais", "presampling"]}, "presampling takes no process_group yet"),
        ({"method": "emais-auto", "window": [100.0, -1]}, "window must be"),
    ],
    ids=str,
)
def test_settings_that_one_process_refuses(pair, settings, told):
    for rank, message in enumerate(pair.errors(made_then_observed, **settings)):
        assert told in message
        assert ("the engine was refused on rank 1: " in message) == (rank == 0)


def made_then_observed(rank, **settings):
    observe(made(rank, **settings))


def test_a_keyword_that_one_process_does_not_know(pair):
    (_, told), (_, refused) = pair.outcomes(made_with, unknown=[{}, {"tao": 3}])
    assert "the engine was refused on rank 1: UnknownOption: emais takes no 'tao'" in told
    assert refused.startswith("UnknownOption: emais takes no 'tao'")


def made_with(rank, unknown):
    made(rank, **unknown)


def forgets(rank, pipe):
    try:
        made(rank, group=["world", "none"][rank], timeout=1.0)
    except emais.EmaisError as error:
        pipe.send(str(error))
    time.sleep(2)  # whoever ends would be noticed at once


def test_a_group_that_one_process_has_forgotten(tmp_path):
    """The other can only wait for it, and says for whom."""
    (waited, _), (forgot, _) = run_apart(forgets, 2, tmp_path)
    assert "rank 1 is missing: another process has not made its engine" in waited
    assert "process_group=dist.group.WORLD" in forgot


def test_a_loader_on_one_process_alone(pair):
    for message in pair.errors(lone_loader):
        assert "rank 0 waits because another process has not made its loader" in message
        assert "rank 1 waits because another process has not observed its first minibatch" in message


def test_a_group_that_was_forgotten(pair):
    for message in pair.errors(made, group="none"):
        assert "one of 2" in message
        assert "process_group=dist.group.WORLD" in message


@pytest.mark.parametrize("method", ["presampling", "self-paced"])
def test_methods_that_take_no_group_yet(pair, method):
    for message in pair.errors(made, method=method):
        assert f"{method} takes no process_group yet" in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sharded": [True, False]}, "disagree about sharded: rank 0 has sharded=True, rank 1 has sharded=False"),
        ({"sharded": "yes"}, "sharded must be True or False"),
        ({"resident": True}, "takes no process_group yet"),
        ({"group": 3}, "group of torch.distributed, got a int"),
        ({"timeout": 0}, "timeout must be a finite number above 0"),
        ({"batch_size": 400}, "800"),
    ],
    ids=str,
)
def test_settings_that_are_refused(pair, settings, told):
    for message in pair.errors(made, **settings):
        assert told in message


def pilot(rank, options):
    model, data = nn.Linear(2, 2), TensorDataset(torch.randn(40, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    emais.audit(model, data, lambda model, batch: None, optimizer, batch_size=4, steps=3, **options)


@pytest.mark.parametrize("options", [{}, {"process_group": None, "sharded": True}], ids=["plain", "with a group"])
def test_a_pilot_is_refused(pair, options):
    for message in pair.errors(pilot, options=options):
        assert "emais.audit trains in one process, and this is one of 2" in message
        assert "without torchrun" in message
        assert "emais.create('audit', ..., process_group=dist.group.WORLD)" in message


def test_refresh_is_refused(pair):
    for message in pair.errors(made_then, what="refresh"):
        assert "refresh takes no process_group yet" in message


def test_sharded_is_refused_on_one_process():
    with pytest.raises(emais.EmaisError, match="sharded=True needs process_group="):
        emais.EMAIS(100, batch_size=10, sharded=True)


@pytest.mark.parametrize(
    ("attach", "told"),
    [
        ([{"rule": "linear"}, {"rule": "none"}], ["1 attached, rule='linear'", "1 attached, rule='none'"]),
        ([{}, False], ["1 attached, rule='linear'", "0 attached"]),
        ([{"scale_decay": False}, {}], ["scale_decay=False", "scale_decay=True"]),
    ],
    ids=["rules", "forgotten", "decay"],
)
def test_optimizers_that_are_attached_differently(pair, attach, told):
    for rank, message in enumerate(pair.errors(train, attach=attach, steps=3)):
        assert f"rank {rank} has " in message
        assert told[rank] in message
        assert f"not so rank {1 - rank}" in message


def test_processes_at_different_steps(pair):
    for message in pair.errors(skips_one):
        assert "rank 0 observed step 2, rank 1 observed step 3" in message


def test_a_state_of_another_minibatch_size(pair):
    alone = train(size=1, steps=3, batch=10)
    for message in pair.errors(continued, size=2, state=alone["state"], parameters=alone["parameters"], steps=1):
        assert "10 samples a step over all processes, this engine 2 x 8 = 16: go on with batch_size=5" in message


def test_draws_far_ahead_are_warned_about(pair):
    for _, error in pair.outcomes(train, workers=[0, 2], steps=1, batch=24):  # warnings are errors there
        assert "4 minibatches ahead, which is 15% of an epoch" in error


def test_one_process_alone_needs_no_group():
    assert engine().processes.size == 1


class Streaming(IterableDataset):
    """A data set by index that is as long as the part of one process."""

    def __len__(self):
        return SAMPLES // 2

    def __iter__(self):
        return iter(range(len(self)))

    def __getitem__(self, i):
        return i


def streamed(rank, wrapped):
    dataset = emais.ByIndex(Streaming(), SAMPLES) if wrapped else Streaming()
    samples = SAMPLES if wrapped else len(dataset)  # which would leave half of them out
    imp = emais.EMAIS(samples, batch_size=4, process_group=dist.group.WORLD, timeout=20.0)
    return len(imp.loader(dataset))


def test_the_length_of_a_streamed_data_set_must_be_given(pair):
    for message in pair.errors(streamed, wrapped=False):
        assert "its len() may be that of one process: give the number of all samples, emais.ByIndex(" in message
    assert pair(streamed, wrapped=True) == [SAMPLES // 8] * 2
