"""A run that ends once its steps are worth those of the Trainer: its end, its schedule, its checkpoints."""

import pytest
import tiny
import torch
from datasets import Dataset
from replays import IMPORTANCE, Recorded, make
from transformers import Trainer

from emais import EmaisError
from emais.rates.followed import Followed

EARLY = IMPORTANCE | {"effective_steps": True, "rule": "linear", "max_scale": 3.0}
EPOCHS = {"max_steps": -1, "num_train_epochs": 5}


def uneven(num=30):
    """Every sixth text is long: its gradient is much larger than those of the others."""
    rows = [row if k % 6 == 0 else row[:2] for k, row in enumerate(tiny.sentences(num, shortest=tiny.LONGEST))]
    return Dataset.from_dict({"input_ids": rows, "labels": rows})


def early(folder, cls=Recorded, importance=EARLY, **options):
    """30 samples, 8 minibatches of 4 an epoch, 40 in all."""
    options = {"max_steps": 40, "learning_rate": 0.05, "optim": "sgd", **options}
    rest = options.pop("rest", None)
    return make(tiny.language_model(), folder, cls, uneven(), importance, rest=rest, **options)


def rates(trainer):
    return [row["learning_rate"] for row in trainer.state.log_history if "loss" in row]


@pytest.mark.parametrize("options", [{}, EPOCHS, {"gradient_accumulation_steps": 2, "max_steps": 20}])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_it_ends_when_its_steps_are_worth_those_of_the_trainer(tmp_path, options, schedule):
    ours = early(tmp_path, lr_scheduler_type=schedule, **options)
    ours.train()
    imp, steps = ours.importance, ours.state.global_step
    minibatches = 2 if "gradient_accumulation_steps" in options else 1
    assert imp.finished
    assert 40 <= imp.effective_steps < 40 + 3 * minibatches
    assert steps < 0.95 * 40 / minibatches
    assert len(ours.fetched) == steps * minibatches
    assert isinstance(ours.lr_scheduler, Followed)
    if schedule != "constant":
        assert ours.lr_scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-12)
        assert rates(ours)[-1] > 0
    last = [row for row in ours.state.log_history if "loss" in row][-1]
    assert last["emais/effective_steps"] == pytest.approx(imp.effective_steps)
    assert last["emais/steps_saved"] == pytest.approx(imp.effective_steps - steps * minibatches)


def test_before_importance_the_schedule_is_the_trainers(tmp_path):
    """And then it is ahead of it."""
    ours, theirs = early(tmp_path), early(tmp_path, Trainer, None)
    ours.train()
    theirs.train()
    assert rates(ours)[:8] == pytest.approx(rates(theirs)[:8])
    assert all(a < b for a, b in zip(rates(ours)[12:], rates(theirs)[12:], strict=False))


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_resume_is_exact(tmp_path, accumulate, schedule):
    """With epochs of 3, 3 and 2 minibatches, too; at the end as well, where nothing is left to do."""
    options = {"gradient_accumulation_steps": accumulate, "max_steps": 40 // accumulate, "warmup_steps": 3}
    options |= {"save_strategy": "steps", "save_steps": 4, "lr_scheduler_type": schedule, "optim": "adamw_torch"}
    whole = early(tmp_path, **options)
    whole.train()
    steps = whole.state.global_step
    checkpoints = sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("checkpoint-*"))
    assert checkpoints[-1] == steps < 40 // accumulate  # the end is saved, as that of a Trainer
    for step in checkpoints:
        again = early(tmp_path / "again", **options)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert again.state.global_step == steps
        assert again.importance.effective_steps == whole.importance.effective_steps
        assert again.lr_scheduler.get_last_lr() == whole.lr_scheduler.get_last_lr()
        for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(one, other), step


def test_it_is_evaluated_at_its_end(tmp_path):
    rest = {"eval_dataset": tiny.texts(8, seed=3)}
    ours = early(tmp_path, rest=rest, eval_strategy="steps", eval_steps=1000)
    ours.train()
    assert [row["step"] for row in ours.state.log_history if "eval_loss" in row] == [ours.state.global_step]


def test_a_second_run(tmp_path):
    ours = early(tmp_path)
    ours.train()
    first, imp = rates(ours), ours.importance
    ours.train()
    assert ours.importance is not imp
    assert ours.importance.finished
    assert rates(ours)[:8] == pytest.approx(first[:8])
    assert ours.state.global_step == len(ours.fetched) - len(first) < 40


def test_without_factors_it_is_as_long_as_before(tmp_path):
    ours = early(tmp_path, importance=EARLY | {"rule": "none"}, gradient_accumulation_steps=3, max_steps=13)
    with pytest.warns(UserWarning, match="effective_steps has no effect"):
        ours.train()
    assert ours.state.global_step == 13
    assert ours.importance.finished
    assert ours.lr_scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-12)


def test_what_cannot_follow_effective_steps(tmp_path):
    plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}
    ours = early(tmp_path, rest={"eval_dataset": tiny.texts(8)}, **plateau)
    with pytest.raises(EmaisError, match="ReduceLROnPlateau follows a metric"):
        ours.train()
    model = tiny.classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rest = {"optimizers": (optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0))}
    ours = make(model, tmp_path, Recorded, tiny.classes(), EARLY, rest=rest)
    with pytest.raises(EmaisError, match="leave the scheduler out of optimizers="):
        ours.train()


def test_a_resume_with_another_end_is_refused(tmp_path):
    early(tmp_path, save_strategy="steps", save_steps=4).train()
    ours = early(tmp_path, max_steps=50)
    with pytest.raises(EmaisError, match=r"ends after 40 effective .*here after 50.*max_steps"):
        ours.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_a_resume_without_an_end_of_its_own_is_refused_and_the_other_way_round(tmp_path):
    plain = {name: value for name, value in EARLY.items() if name != "effective_steps"}
    for saved, other, message in (
        (EARLY, plain, "ends after 40 effective minibatches, here by the Trainer alone: set the same importance="),
        (plain, EARLY, "ends by the Trainer alone, here after 40 effective minibatches"),
    ):
        early(tmp_path, importance=saved, save_strategy="steps", save_steps=4).train()
        with pytest.raises(EmaisError, match=message):
            early(tmp_path, importance=other).train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_a_plain_trainer_goes_on_from_a_checkpoint(tmp_path):
    """It has the state of the Trainer's own scheduler."""
    early(tmp_path, save_strategy="steps", save_steps=4, lr_scheduler_type="cosine").train()
    plain = early(tmp_path, Trainer, None, lr_scheduler_type="cosine")
    plain.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert plain.state.global_step == 40
    assert plain.lr_scheduler.last_epoch >= 40


@pytest.mark.filterwarnings("ignore:.*all within the warm-up")
def test_a_run_shorter_than_an_epoch_is_no_mistake(tmp_path):
    ours = early(tmp_path, max_steps=5)  # a warning would be an error here
    ours.train()
    assert ours.importance.finished
