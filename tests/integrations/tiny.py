"""Models of a few hundred parameters from configs, and data sets from lists: nothing is downloaded."""

import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    TrainerCallback,
    TrainingArguments,
)

VOCABULARY, LONGEST = 20, 12


def sentences(num, seed=1, shortest=3):
    """`num` lists of tokens of different lengths; repetitive ones among them, which are easy."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, LONGEST + 1, (num,), generator=g).tolist()
    rows = [torch.randint(2, VOCABULARY, (n,), generator=g).tolist() for n in lengths]
    return [[row[0]] * len(row) if k % 2 else row for k, row in enumerate(rows)]


def texts(num=30, seed=1):
    """For a causal language model."""
    return Dataset.from_dict({"input_ids": (rows := sentences(num, seed)), "labels": rows})


def classes(num=30, seed=1):
    """For a classifier: is the first token in the upper half? A column that no model takes is there, too."""
    rows = sentences(num, seed)
    return Dataset.from_dict({"input_ids": rows, "label": [int(row[0] > 10) for row in rows], "note": ["x"] * num})


def pad(rows):
    """A data collator: pads each minibatch to its longest sample."""
    longest = max(len(row["input_ids"]) for row in rows)

    def padded(lists, value):
        return torch.tensor([x + [value] * (longest - len(x)) for x in lists])

    batch = {
        "input_ids": padded([row["input_ids"] for row in rows], 0),
        "attention_mask": padded([[1] * len(row["input_ids"]) for row in rows], 0),
    }
    if "labels" in rows[0]:
        return batch | {"labels": padded([row["labels"] for row in rows], -100)}
    return batch | {"labels": torch.tensor([row["label"] for row in rows])}


def language_model(dropout=0.0):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": LONGEST}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, attention_dropout=dropout))


def classifier(dropout=0.0, **config):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": LONGEST}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_dropout_prob": dropout}
    heads["attention_probs_dropout_prob"] = dropout
    return BertForSequenceClassification(BertConfig(**sizes, **heads, **config))


def arguments(folder, **options):
    """Of a short and silent run on the CPU."""
    given = {"per_device_train_batch_size": 4, "max_steps": 12, "learning_rate": 0.01, "logging_steps": 1}
    given |= {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no", "log_level": "error"}
    return TrainingArguments(str(folder), **(given | {"dataloader_pin_memory": False} | options))


class Watch(TrainerCallback):
    """Counts optimizer steps."""

    def __init__(self):
        self.steps = 0

    def on_optimizer_step(self, *_, **__):
        self.steps += 1
