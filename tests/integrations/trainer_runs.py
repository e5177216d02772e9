"""Runs of an ImportanceTrainer, on one process or as one of several: `torchrun trainer_runs.py FOLDER`."""

import json
import os
import sys
import warnings
from pathlib import Path

import tiny
import torch
import torch.distributed as dist

from emais import EmaisError
from emais.transformers import ImportanceTrainer

GLOBAL = 8  # samples of a minibatch, on all processes; 30 samples are 4 of them
TEXTS, CLASSES = (tiny.language_model, tiny.texts), (tiny.classifier, tiny.classes)
LINEAR = {"method": "emais", "warmup_epochs": 1, "rule": "linear"}
# Of sequences only norms are known: the factor of several processes differs, because pairs of samples are those of one
NONE = LINEAR | {"rule": "none"}
CASES = {
    "classes": (CLASSES, {"importance": LINEAR, "optim": "sgd"}),
    "early": (  # after 23 steps, which are worth 24
        CLASSES,
        {"importance": LINEAR | {"effective_steps": True}, "optim": "sgd", "learning_rate": 0.5, "max_steps": 24},
    ),
    "default": (CLASSES, {"importance": None, "max_steps": 12}),
    "sums": (CLASSES, {"importance": LINEAR, "gradient_accumulation_steps": 3, "max_steps": 7}),
    "texts": (TEXTS, {"importance": NONE}),
    "long sums": (TEXTS, {"importance": NONE, "gradient_accumulation_steps": 2, "max_steps": 9, "drop": True}),
    "factors": (TEXTS, {"importance": LINEAR | {"max_scale": 4.0}}),
    "apart": (TEXTS, {"importance": NONE, "average_tokens_across_devices": False}),
    "workers": (
        TEXTS,
        {"importance": NONE | {"warmup_epochs": 0.2}, "dataloader_num_workers": 1, "num": 160, "optim": "sgd"},
    ),
    "split": (CLASSES, {"importance": LINEAR, "accelerator_config": {"split_batches": True}, "size": GLOBAL}),
}
DISPATCHED = (CLASSES, {"importance": None, "accelerator_config": {"dispatch_batches": True}})
RESUMED = ("classes", "early", "long sums", "factors", "workers")


class Recorded(ImportanceTrainer):
    """Remembers draws, losses, what they were divided by and the learning-rate factors."""

    def training_step(self, model, inputs, num_items_in_batch=None):
        draw, seen = inputs["emais_draw"], self.__dict__.setdefault("seen", {})
        loss = super().training_step(model, inputs, num_items_in_batch)
        seen[str(draw.step)] = (draw.index.tolist(), draw.r.tolist(), float(loss), float(num_items_in_batch))
        return loss


def make(folder, case, processes=1):
    """The Trainer of a case; a checkpoint every third step."""
    (model, dataset), options = CASES.get(case, DISPATCHED)
    options = {"max_steps": 10, "ddp_find_unused_parameters": False, **options}
    rest = {"data_collator": tiny.pad, "importance": options.pop("importance")}
    num, size, drop = options.pop("num", 30), options.pop("size", GLOBAL // processes), options.pop("drop", False)
    options |= {"per_device_train_batch_size": size, "dataloader_drop_last": drop}
    args = tiny.arguments(Path(folder) / case, save_strategy="steps", save_steps=3, **options)
    return Recorded(model=model(), args=args, train_dataset=dataset(num), **rest)


def told(trainer):
    """What a run was like."""
    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).tolist()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    found = {"seen": trainer.seen, "weights": weights, "steps": trainer.state.global_step}
    found["logs"] = [[row["loss"], row["emais/n_ems"], row["emais/lr_scale"]] for row in rows]
    return found | {"summary": str(trainer.importance.summary())}


def run(folder, case, processes=1, checkpoint=None):
    trainer = make(folder, case, processes)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return told(trainer)


def message(folder, case, **importance):
    """What a refused run says."""
    trainer = make(folder, case, 2)
    trainer.importance_settings |= importance
    try:
        trainer.train()
    except EmaisError as error:
        return str(error)
    return "nothing"


def main(folder):
    """All cases, and resumed ones: from our own checkpoints, and from those of one process."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    found = {}
    for case in CASES:
        found[case] = run(folder / "two", case, 2)
    for case in RESUMED:
        found[f"{case}, again"] = run(folder / "again", case, 2, folder / "two" / case / "checkpoint-6")
        found[f"{case}, from one"] = run(folder / "more", case, 2, folder / "one" / case / "checkpoint-3")
    found["self-paced"] = message(folder / "no", "classes", method="self-paced", rule=None)
    found["dispatched"] = message(folder / "no", "dispatched")
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(found), "utf-8")
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
