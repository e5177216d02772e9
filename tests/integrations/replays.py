"""Trainers that record the minibatches of a run, and a plain one that trains on them again."""

import tiny
from transformers import Trainer

from emais.transformers import ImportanceMixin, ImportanceTrainer

PLAIN = {"method": "sgd-scan"}  # draws all samples alike: r = 1
IMPORTANCE = {"method": "emais", "warmup_epochs": 1}


def make(model, folder, cls=ImportanceTrainer, dataset=None, importance=None, collate=tiny.pad, rest=None, **options):
    given = {"importance": importance} if issubclass(cls, ImportanceMixin) else {}
    args = tiny.arguments(folder, **options)
    return cls(model=model, args=args, train_dataset=dataset, data_collator=collate, **given, **(rest or {}))


class Recorded(ImportanceTrainer):
    """Remembers its minibatches, their draws and what they were divided by."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fetched, self.items = [], []

    def get_batch_samples(self, *args):
        batches, items = super().get_batch_samples(*args)
        self.fetched.extend(dict(batch) for batch in batches)
        self.items.extend([float(items)] if batches else [])
        return batches, items

    def minibatches(self):
        return [{name: x for name, x in batch.items() if name != "emais_draw"} for batch in self.fetched]


class Replayed(Trainer):
    """A plain Trainer on minibatches that were recorded."""

    minibatches = ()

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.items = []

    def get_train_dataloader(self):
        return list(self.minibatches)

    def get_batch_samples(self, *args):
        batches, items = super().get_batch_samples(*args)
        self.items.append(float(items))
        return batches, items


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]
