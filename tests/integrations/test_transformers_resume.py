"""A run that was resumed from any of its checkpoints is the run that was not interrupted, to the bit."""

import pytest
import tiny
import torch

from emais.transformers import ImportanceTrainer

IMPORTANCE = {"method": "emais", "warmup_epochs": 1}


class Recorded(ImportanceTrainer):
    """Remembers what it trained on."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        draw, seen = inputs["emais_draw"], self.__dict__.setdefault("seen", {})
        loss = super().training_step(model, inputs, num_items_in_batch)
        seen[draw.step] = (draw.index.tolist(), draw.r.tolist(), float(loss))
        return loss


def make(folder, task, **options):
    """30 samples, 8 minibatches of 4 an epoch."""
    args = tiny.arguments(folder, bf16=True, save_strategy="steps", **options)
    model, dataset = task
    rest = {"data_collator": tiny.pad, "importance": IMPORTANCE}
    return Recorded(model=model(dropout=0.3), args=args, train_dataset=dataset(), **rest)


TASKS = {"sgd": (tiny.language_model, tiny.texts), "adamw_torch": (tiny.classifier, tiny.classes)}


@pytest.mark.parametrize("optim", TASKS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_resume_is_exact_from_every_checkpoint(tmp_path, accumulate, workers, optim):
    steps, every = (15, 4) if accumulate == 1 else (7, 2)  # the last of an epoch is among them: 8, and 6
    options = {"max_steps": steps, "save_steps": every, "optim": optim}
    options |= {"gradient_accumulation_steps": accumulate, "dataloader_num_workers": workers}
    whole = make(tmp_path, TASKS[optim], **options)
    whole.train()
    assert whole.state.global_step == steps
    assert any(set(r) != {1.0} for _, r, _ in whole.seen.values())  # it did draw by importance
    checkpoints = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    assert len(checkpoints) == 4  # and the last
    for checkpoint in checkpoints[:-1]:
        again = make(tmp_path / "again", TASKS[optim], **options)
        again.train(resume_from_checkpoint=str(checkpoint))
        assert again.seen == {step: what for step, what in whole.seen.items() if step in again.seen}, checkpoint
        assert max(again.seen) == max(whole.seen)
        assert again.state.global_step == steps
        for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(one, other), checkpoint
        assert str(again.importance.summary()) == str(whole.importance.summary())
