"""Lightning on two processes: the draws and parameters of one, checkpoints that go on with either, and refusals."""

import re

import pytest
import torch
from lightning_processes import COUNTED, EPOCHS, SAMPLES, TOGETHER, ending, fit
from lightning_task import Net, brief, data, quiet, sampling, train_loader, trainer
from places import ROOT
from scripts import run_script, torchrun

import emais.lightning

HERE = ROOT / "tests" / "integrations"
pytestmark = quiet

RUNS = {
    "sgd": {},
    "adamw": {"optimizer": "AdamW", "accumulate_grad_batches": 3},
    "given": {"max_epochs": 1},
    "auto": {"make": emais.lightning.ImportanceSampling},
    "ending": {"make": ending},
    "fsdp2": {},
}
REFUSED = {
    "strategy": r"2 processes under Other.*use strategy=\"ddp\"",
    "uneven": r"Uneven divides the data by .*'num_replicas': 1.*pass the group of the processes",
    "seeds": "disagree about seed: rank 0 has 0, rank 1 has 1",
    "sampler": "DistributedSampler.*without a sampler",
    "samples": f"{TOGETHER} samples a step over all processes, this Trainer takes 2 x 5: give .* batch_size=4",
    "group": "process_group must be a group of torch.distributed, got a str",
    "settings": "did you mean 'kappa'",
    "sharded": "takes no sharded=True",
    "alone": "self-paced takes no process_group yet",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def alone(folder):
    """The run on one process, with its checkpoints."""
    return fit(folder, 1, save="one")


@pytest.fixture(scope="module")
def found(folder, alone):
    """What each of the two processes has found."""
    done = run_script(torchrun(2, HERE / "lightning_processes.py", folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"found{rank}.pt") for rank in range(2)]


def together(results):
    """{step: (samples, r)} of the minibatches of all processes, lane by lane."""
    found = {}
    for result in results:
        for step, index, r in result["draws"]:
            indices, all_r = found.setdefault(step, ([], []))
            indices += index
            all_r += r
    return found


def assert_same_draws(some, whole):
    """The same samples in the same steps, at the end of a run; r differs by rounding, as parameters do."""
    assert {step: index for step, (index, _) in some.items()} == {step: whole[step][0] for step in some}
    assert list(some) == list(whole)[-len(some) :]
    for step, (_, r) in some.items():
        assert r == pytest.approx(whole[step][1], rel=1e-4)


def same_state(one, other):
    """Whether two states are equal to the bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_state(one[name], other[name]) for name in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one.nan_to_num(-7.0), other.nan_to_num(-7.0))
    return repr(one) == repr(other)


@brief
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_as_one_does(name, found, folder):
    """The same draws; parameters that differ by rounding, and between the processes not at all."""
    one, both = fit(folder, 1, **RUNS[name]), [results[name] for results in found]
    assert_same_draws(together(both), together([one]))
    whole = one["steps"][1] * RUNS[name].get("max_epochs", EPOCHS)
    assert len(one["draws"]) < whole if name == "ending" else len(one["draws"]) == whole
    assert both[0]["steps"] == both[1]["steps"] == one["steps"]
    for result in both:
        torch.testing.assert_close(result["parameters"], one["parameters"], rtol=0, atol=1e-6)
        torch.testing.assert_close(result["factors"], one["factors"], rtol=1e-4, atol=0)
    assert torch.equal(both[0]["parameters"], both[1]["parameters"])
    assert both[0]["factors"] == both[1]["factors"]
    assert max(both[0]["factors"]) > 1.05 or name == "given"
    assert same_state(both[0]["state"], both[1]["state"])


def test_draws_that_workers_fetch_ahead_are_alike(found):
    both = [results["workers"] for results in found]
    drawn = together(both)
    assert list(drawn) == list(range(1, EPOCHS * -(-SAMPLES // TOGETHER) + 1))
    first = [i for step in range(1, SAMPLES // TOGETHER + 1) for i in drawn[step][0]]
    assert len(set(first)) == len(first) == SAMPLES // TOGETHER * TOGETHER  # the warm-up: no sample twice in an epoch
    assert torch.equal(both[0]["parameters"], both[1]["parameters"])
    assert same_state(both[0]["state"], both[1]["state"])


def test_a_look_at_the_data_shows_the_share_of_a_process_and_changes_nothing(found):
    for results in found:
        assert results["looks"]["draws"] == results["sgd"]["draws"]
        assert torch.equal(results["looks"]["parameters"], results["sgd"]["parameters"])
    seen = torch.cat([batch for results in found for batch in results["looks"]["looked"]])
    assert sorted(seen.tolist()) == sorted(data(SAMPLES).tensors[0].tolist())


def test_the_numbers_of_all_samples_are_logged_without_a_collective(found, alone):
    """Process 1 logged nothing, and the run came to its end."""
    logged = [results["logs"]["logged"] for results in found]
    assert "emais/n_ems" not in logged[1]
    for name in ("emais/n_ems", "emais/score", "emais/lr_scale"):
        assert logged[0][name] == pytest.approx(alone["logged"][name], rel=1e-4)


# ---- checkpoints


@pytest.mark.parametrize(("saved", "run"), [("two", "sgd"), ("workers", "workers"), ("mesh", "fsdp2")])
def test_two_processes_go_on_with_the_bits_they_would_have_had(saved, run, found, folder):
    paths = sorted((folder / saved).glob("*.ckpt"))
    assert len(paths) == 3
    for path in paths:
        for results in found:
            resumed, whole = results[f"{saved}/{path.stem}"], results[run]
            assert torch.equal(resumed["parameters"], whole["parameters"]), path.name
            assert resumed["draws"] == whole["draws"][-len(resumed["draws"]) :]
            assert resumed["steps"] == whole["steps"]
            assert same_state(resumed["state"], whole["state"])


def test_one_process_goes_on_on_two(found, alone, folder):
    for path in sorted((folder / "one").glob("*.ckpt")):
        both = [results[f"one/{path.stem}"] for results in found]
        assert 0 < len(both[0]["draws"]) < len(alone["draws"])
        assert_same_draws(together(both), together([alone]))
        torch.testing.assert_close(both[0]["parameters"], alone["parameters"], rtol=0, atol=1e-6)
        assert torch.equal(both[0]["parameters"], both[1]["parameters"])
        assert both[0]["steps"] == alone["steps"]


def test_two_processes_go_on_on_one(found, alone, folder):
    for path in sorted((folder / "two").glob("*.ckpt")):
        resumed = fit(folder, 1, resume=path)
        assert 0 < len(resumed["draws"]) < len(alone["draws"])
        assert_same_draws(together([resumed]), together([alone]))
        torch.testing.assert_close(resumed["parameters"], alone["parameters"], rtol=0, atol=1e-6)
        assert resumed["steps"] == alone["steps"]


# ---- the trainer


@pytest.mark.parametrize("name", COUNTED)
def test_as_many_steps_on_each_process_as_without_the_callback(name, found):
    for results in found:
        ours, plain = results["counted"][name]
        assert ours == plain


def test_an_epoch_is_all_samples_once_whoever_makes_the_sampler(found):
    """Without `use_distributed_sampler` a plain run would see all samples on every process."""
    assert [results["whole"] for results in found] == [found[0]["counted"]["plain"][0]] * 2


def test_the_rate_finder_leaves_no_steps_behind(found):
    assert [results["tuned"] for results in found] == [True, True]


def test_statistics_of_one_process_go_on_with_two():
    """The fit of one process, then one of two that have its callback."""

    class Checks(Net):
        def on_train_start(self):
            self.before = callback.engine.step

        def on_train_end(self):
            assert self.before == 24
            assert callback.engine.step == 24 + 6
            assert callback.engine.processes.size == 2

    module, callback = Checks(schedule=False), sampling()
    module.on_train_end = lambda: None
    trainer(callback, max_epochs=4).fit(module, train_loader(batch_size=10))
    assert callback.engine.step == 24
    del module.on_train_end
    trainer(callback, max_epochs=1, devices=2, strategy="ddp_fork").fit(module, train_loader(batch_size=5))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_on_two_processes(name, found):
    for results in found:
        assert re.search(REFUSED[name], results["refused"][name]), results["refused"][name]
