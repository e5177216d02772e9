"""What ImportanceTrainer adds to a training step: runs of both trainers take turns, in process time.

    python benchmarks/transformers_overhead.py [--pairs 9] [--out FOLDER]     (needs emais[transformers])

One model, one thread, the default method with a warm-up of five steps, so that all timed steps draw by importance.
A round trains with Trainer, with ImportanceTrainer, and with Trainer again, in an order that rotates; the
first steps of a run are not timed. The ratio is the median over rounds of the ratio within a round. "again" is the
second run with Trainer over the first: what it differs from 1 by, the measurement cannot tell.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from common import hardware, save
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from emais.transformers import ImportanceTrainer

STEPS, UNTIMED = 30, 8
IMPORTANCE = {"warmup_epochs": 0.16}  # five of thirty steps


class Sequences(torch.utils.data.Dataset[dict[str, Any]]):
    """Random tokens; labels for a classifier, or the tokens themselves."""

    def __init__(self, num: int, length: int, vocabulary: int, classify: bool) -> None:
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(vocabulary, (num, length), generator=g)
        self.labels = self.ids[:, 0] % 2 if classify else self.ids

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, k: int) -> dict[str, Any]:
        return {"input_ids": self.ids[k], "labels": self.labels[k]}


def classifier() -> tuple[Any, Sequences, int]:
    """BERT, N = 32, 32 tokens each."""
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    return BertForSequenceClassification(BertConfig(vocab_size=500, **sizes)), Sequences(32 * STEPS, 32, 500, True), 32


def language_model() -> tuple[Any, Sequences, int]:
    """Llama, N = 16, 64 tokens each, 1,000 words."""
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=1000, **sizes)), Sequences(16 * STEPS, 64, 1000, False), 16


class Timer(TrainerCallback):
    """Process time of a step, from the start of one to the start of a later one."""

    def __init__(self) -> None:
        self.started = self.ms = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == UNTIMED:
            self.started = time.process_time()
        elif state.global_step == STEPS - 1:
            self.ms = 1e3 * (time.process_time() - self.started) / (STEPS - 1 - UNTIMED)


class Runs:
    """Trains for one epoch whenever it is called, and returns the milliseconds of a step."""

    def __init__(self, cls: Any, model: Any, dataset: Sequences, size: int, folder: str, **options: Any) -> None:
        args = TrainingArguments(
            folder,
            max_steps=STEPS,
            per_device_train_batch_size=size,
            use_cpu=True,
            report_to=[],
            logging_steps=STEPS,
            save_strategy="no",
            disable_tqdm=True,
            log_level="error",
            dataloader_pin_memory=False,
        )
        self.timer = Timer()
        self.trainer = cls(model=model, args=args, train_dataset=dataset, callbacks=[self.timer], **options)
        self.trainer.remove_callback(transformers.PrinterCallback)

    def __call__(self) -> float:
        self.trainer.train()
        return self.timer.ms


def measure(make: Any, pairs: int, folder: str) -> dict[str, Any]:
    torch.manual_seed(0)
    task = make()
    runs = {"plain": Runs(Trainer, *task, folder), "again": Runs(Trainer, *task, folder)}
    runs["emais"] = ours = Runs(ImportanceTrainer, *task, folder, importance=IMPORTANCE)
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for run in runs.values():
        run()
    for k in range(pairs):
        for name in names[k % 3 :] + names[: k % 3]:
            times[name].append(runs[name]())
    plain, again, with_us = times.values()
    ratios = sorted(b / a for a, b in zip(plain, with_us, strict=True))
    return {
        "case": f"{make.__doc__.rstrip('.')}, transformers {transformers.__version__}, {ours.trainer.importance.name}",
        "pairs": pairs,
        "plain_ms": round(statistics.median(plain), 3),
        "added_ms": round(statistics.median(b - a for a, b in zip(plain, with_us, strict=True)), 3),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_low": round(ratios[0], 4),
        "ratio_high": round(ratios[-1], 4),
        "again": round(statistics.median(b / a for a, b in zip(plain, again, strict=True)), 4),
        "hardware": hardware(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for make in (classifier, language_model):
            row = measure(make, args.pairs, folder)
            rows.append(row)
            print("{case}: {plain_ms:.1f} ms a step; with us {ratio:.3f} times that, {added_ms:+.2f} ms".format(**row))
            print("  {ratio_low:.3f} to {ratio_high:.3f}; two runs of Trainer: {again:.3f}".format(**row))
    print("saved", save("transformers_overhead.jsonl", rows, args.out))


if __name__ == "__main__":
    main()
