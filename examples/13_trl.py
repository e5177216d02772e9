"""Supervised fine-tuning with TRL's SFTTrainer: the answers of a tiny model to questions, a few of which are hard."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from emais.transformers import ImportanceMixin


class ImportanceSFTTrainer(ImportanceMixin, SFTTrainer):  # the mixin first
    pass


def questions(num, seed):
    """Most are "repeat", one in ten is "add": the rare ones keep a large gradient."""
    g = torch.Generator().manual_seed(seed)
    rows = []
    for a, b, k in zip(*torch.randint(0, 5, (2, num), generator=g).tolist(), range(num), strict=True):
        rare = k % 10 == 0
        rows.append({"prompt": f"{'add' if rare else 'repeat'} {a} {b} =", "completion": f" {a + b if rare else a}"})
    return Dataset.from_list(rows)


words = ["<pad>", "<eos>", "add", "repeat", "=", *map(str, range(9))]
backend = Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="<pad>"))
backend.pre_tokenizer = WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")

torch.manual_seed(0)
sizes = {"vocab_size": len(words), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2))
args = SFTConfig(
    output_dir="out/trl",
    num_train_epochs=4,
    per_device_train_batch_size=16,
    learning_rate=5e-3,
    logging_steps=40,
    max_length=None,  # nothing is cut off, and nothing packed: each row is one sample
    packing=False,
    bf16=False,
    save_strategy="no",
    report_to=[],
    dataloader_pin_memory=torch.cuda.is_available(),
)
trainer = ImportanceSFTTrainer(
    model=model,
    args=args,
    train_dataset=questions(800, seed=1),
    eval_dataset=questions(200, seed=2),
    processing_class=tokenizer,
)
trainer.train()
logs = [row for row in trainer.state.log_history if "loss" in row]
print(f"last logged: {logs[-1]}")
print(trainer.importance.summary())
print(f"accuracy of tokens {100 * trainer.evaluate()['eval_mean_token_accuracy']:.1f} %")
