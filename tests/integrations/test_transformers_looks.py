"""A look at the `train_dataloader` of a callback shows minibatches, and changes nothing about the training."""

import pytest
import tiny
import torch
from replays import IMPORTANCE, Recorded, make
from transformers import TrainerCallback

import emais

EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_begin", "on_step_end", "on_epoch_end", "on_train_end")
SIZE, PER_EPOCH = 8, 4  # of 30 samples


class Looks(TrainerCallback):
    """Takes a look at one event; whole: at all minibatches, else at the first."""

    def __init__(self, event, whole):
        self.whole, self.seen = whole, []
        setattr(self, event, self.look)

    def look(self, args, state, control, train_dataloader=None, **_):
        found = list(train_dataloader) if self.whole else [next(iter(train_dataloader))]
        self.seen.append([len(batch["labels"]) for batch in found])
        assert all(set(batch) == {"input_ids", "attention_mask", "labels"} for batch in found)
        assert len(train_dataloader) == PER_EPOCH


def trained(folder, *callbacks, resume=None, **options):
    """What a run comes to: steps, draws and parameters."""
    options = {"max_steps": 3 * PER_EPOCH, "per_device_train_batch_size": SIZE, "save_strategy": "steps"} | options
    rest = {"callbacks": list(callbacks)}
    ours = make(tiny.classifier(), folder, Recorded, tiny.classes(), IMPORTANCE, rest=rest, save_steps=6, **options)
    ours.train(resume_from_checkpoint=resume)
    draws = [(draw.index.tolist(), draw.r.tolist()) for draw in (batch["emais_draw"] for batch in ours.fetched)]
    weights = torch.cat([p.detach().flatten() for p in ours.model.parameters()])
    return ours.state.global_step, draws, weights.tolist()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("event", EVENTS)
def test_a_look_changes_nothing(event, whole, tmp_path):
    looks = Looks(event, whole)
    assert trained(tmp_path / "looks", looks) == trained(tmp_path / "plain")
    assert looks.seen
    assert all(sizes == ([8, 8, 8, 6] if whole else [8]) for sizes in looks.seen)


@pytest.mark.parametrize("options", [{"dataloader_num_workers": 1}, {"gradient_accumulation_steps": 3}], ids=str)
def test_a_look_changes_nothing_with_workers_and_accumulation(options, tmp_path):
    found = trained(tmp_path / "looks", Looks("on_step_end", False), **options)
    assert found == trained(tmp_path / "plain", **options)


def test_a_look_changes_nothing_about_a_resumed_run(tmp_path):
    """It is resumed inside an epoch."""
    whole = trained(tmp_path / "plain")
    trained(tmp_path / "looks", Looks("on_epoch_end", False))
    resumed = trained(tmp_path / "looks", Looks("on_epoch_end", True), resume=str(tmp_path / "looks" / "checkpoint-6"))
    assert resumed == (whole[0], whole[1][6:], whole[2])


class Samples(torch.utils.data.Dataset):
    """A list that can change its length."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


@pytest.mark.parametrize("by", [-3, 5])
def test_a_data_set_that_changes_between_epochs(by, tmp_path):
    class Changes(TrainerCallback):
        def on_epoch_end(self, *_, **__):
            dataset.rows = dataset.rows[:by] if by < 0 else dataset.rows + dataset.rows[:by]

    dataset = Samples([{"input_ids": row["input_ids"], "label": row["label"]} for row in tiny.classes()])
    options = {"importance": IMPORTANCE, "rest": {"callbacks": [Changes()]}, "max_steps": 9}
    ours = make(tiny.classifier(), tmp_path, dataset=dataset, **options)
    with pytest.raises(emais.EmaisError, match=f"has {30 + by} samples now, and the statistics of this run are of 30"):
        ours.train()
