"""A loop with accelerate and importance sampling on several processes: one argument more than on one.

torchrun --nproc-per-node 2 examples/distributed_accelerate.py
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import send_to_device
from distributed_ddp import make_data
from torch import nn
from torch.utils.data import DataLoader

import emais

EPOCHS, PER_PROCESS, ACCUMULATE = 6, 16, 1


def main():
    # it makes the process group; on a machine without GPUs only if it is told so
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=ACCUMULATE)
    torch.manual_seed(accelerator.process_index)  # augmentation differs between processes; DDP makes the models alike
    dataset = make_data()
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    imp = emais.EMAISAuto(len(dataset), batch_size=PER_PROCESS, process_group=dist.group.WORLD)
    loader = imp.loader(DataLoader(dataset, batch_size=PER_PROCESS, shuffle=True, num_workers=1))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)  # it leaves our loader alone
    imp.attach(optimizer)
    accelerator.register_for_checkpointing(imp)

    for _ in range(EPOCHS):
        for batch in loader:
            (x, y), draw = send_to_device(batch, accelerator.device)
            with accelerator.accumulate(model):
                logits = model(x)
                losses = nn.functional.cross_entropy(logits, y, reduction="none")
                accelerator.backward(imp.loss(losses, logits, draw))
                optimizer.step()
                optimizer.zero_grad()
        accelerator.save_state("out/distributed_accelerate")

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    told = [None] * accelerator.num_processes
    dist.all_gather_object(told, (imp.effective_steps, float(weights.double().sum())))
    if accelerator.is_main_process:
        print(f"{len(told)} processes, {imp.global_batch_size} samples a minibatch: {imp.summary()}")
        print(f"sum of weights {imp.sampler.total().hex()}, factor {imp.diagnostics.lr_scale.hex()}")
        print(f"alike on all of them: {len(set(told)) == 1}")
    accelerator.wait_for_everyone()  # before one of them closes its connections
    accelerator.end_training()


if __name__ == "__main__":
    main()
