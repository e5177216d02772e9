"""A classifier of sequences, trained by a Trainer: one of two tokens is more frequent, but for noisy sequences."""

import torch
from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, default_data_collator
from emais.transformers import ImportanceTrainer

LENGTH, NOISY = 12, 0.1


def sequences(num, seed):
    """Tokens 1 and 2, the class by which of them is more frequent; every tenth class is drawn at random."""
    g = torch.Generator().manual_seed(seed)
    share = torch.rand(num, 1, generator=g)
    tokens = 1 + (torch.rand(num, LENGTH, generator=g) < share).long()
    classes = (tokens.sum(1) > 1.5 * LENGTH).long()
    noisy = torch.rand(num, generator=g) < NOISY
    classes[noisy] = torch.randint(0, 2, (int(noisy.sum()),), generator=g)
    return Dataset.from_dict({"input_ids": tokens.tolist(), "labels": classes.tolist()})


torch.manual_seed(0)
sizes = {"vocab_size": 3, "hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": LENGTH}
model = BertForSequenceClassification(BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2))
args = TrainingArguments(
    output_dir="out/transformers",
    num_train_epochs=4,
    per_device_train_batch_size=16,
    learning_rate=5e-3,
    logging_steps=20,
    save_strategy="no",
    report_to=[],
    dataloader_pin_memory=torch.cuda.is_available(),
)
trainer = ImportanceTrainer(
    model=model,
    args=args,
    train_dataset=sequences(600, seed=1),
    eval_dataset=sequences(400, seed=2),
    data_collator=default_data_collator,
    compute_metrics=lambda found: {"error": float((found.predictions.argmax(1) != found.label_ids).mean())},
)
trainer.train()
logs = [row for row in trainer.state.log_history if "loss" in row]
print(f"last logged: {logs[-1]}")
print(f"error {100 * trainer.evaluate()['eval_error']:.1f} %, of which the noise makes {100 * NOISY / 2:.1f} %")
