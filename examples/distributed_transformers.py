"""A Trainer with importance sampling on several processes: the script of one process, as it is.

torchrun --nproc-per-node 2 examples/distributed_transformers.py
"""

import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments, default_data_collator

from emais.transformers import ImportanceTrainer

LENGTH, WORDS = 16, 30


def texts(num, seed):
    """Sequences that count upwards; a fifth of them are random, and no model predicts those."""
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(WORDS, (num, 1), generator=g)
    tokens = (start + torch.arange(LENGTH)) % WORDS
    random = torch.rand(num, generator=g) < 0.2
    tokens[random] = torch.randint(WORDS, (int(random.sum()), LENGTH), generator=g)
    return Dataset.from_dict({"input_ids": tokens.tolist(), "labels": tokens.tolist()})


def main():
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": LENGTH}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    args = TrainingArguments(
        output_dir="out/distributed_transformers",
        max_steps=80,
        per_device_train_batch_size=16,  # of one process, as everywhere
        learning_rate=5e-3,
        logging_steps=20,
        save_strategy="steps",  # rank 0 saves; any number of processes with as many samples a step can go on
        save_steps=40,
        report_to=[],
        use_cpu=not torch.cuda.is_available(),  # without it accelerate makes no group on a machine without GPUs
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = ImportanceTrainer(
        model=LlamaForCausalLM(LlamaConfig(**sizes, **heads)),
        args=args,
        train_dataset=texts(640, seed=1),
        data_collator=default_data_collator,
        importance={"method": "emais", "warmup_epochs": 1},
    )
    trainer.train()

    imp, told = trainer.importance, [None] * args.world_size
    weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    dist.all_gather_object(told, (imp.effective_steps, float(weights.double().sum())))
    if args.process_index == 0:
        print(f"{len(told)} processes, {imp.global_batch_size} samples a step: {imp.summary()}")
        print(f"alike on all of them: {len(set(told)) == 1}")
    dist.barrier()  # before one of them closes its connections
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
