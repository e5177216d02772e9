"""Runs of Lightning on two processes, for test_lightning_processes.py: torchrun starts this file with a folder.

Each process writes down what it found in every run, by the name of the run.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.tuner import Tuner
from lightning_refused import refusals
from lightning_task import Net, brief, data, parameters, quiet, sampling, train_loader, trainer
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import emais.lightning

SAMPLES, TOGETHER = 236, 8  # samples a step, of all processes: 30 steps an epoch, the last of a plain one is short
EPOCHS = 5


def ending():
    """Ends when its steps are worth those of all epochs; the scheduler follows."""
    return sampling(effective_steps=True)


class Recorded(Net):
    """Keeps the draw and the learning-rate factor of every batch."""

    def __init__(self, optimizer="SGD", schedule=True):
        super().__init__(optimizer, schedule)
        self.draws, self.factors = [], []

    def training_step(self, batch, batch_idx):
        draw = self.trainer.train_dataloader.draw()
        self.draws.append((int(draw.step), draw.index.tolist(), draw.r.tolist()))
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        found = [c for c in self.trainer.callbacks if isinstance(c, emais.lightning.ImportanceSampling)]
        self.factors += [c.engine.attached.applied for c in found]


class Looks(Recorded):
    """Looks at the data before each epoch, and once process 1 alone in the middle of one."""

    def on_train_epoch_start(self):
        self.looked = [batch[0] for batch in self.trainer.train_dataloader]
        assert len(self.looked) == len(self.trainer.train_dataloader) == self.trainer.num_training_batches

    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx == 7 and self.global_rank == 1:
            next(iter(self.trainer.train_dataloader))


class Sharded(Recorded):
    """FSDP2: every process keeps a part of each parameter."""

    def configure_model(self):
        fully_shard(self.net, mesh=self.device_mesh["data_parallel"])


class LogsAlone(emais.lightning.ImportanceSampling):
    """Process 1 logs nothing: a collective in a log would never end."""

    def _log(self, runner, module, engine):
        if runner.global_rank == 0:
            super()._log(runner, module, engine)


def full(module):
    """The parameters, put together where they are sharded."""
    return torch.cat([getattr(p, "full_tensor", lambda p=p: p)().detach().flatten() for p in module.parameters()])


def found_in(runner, module, callback):
    return {
        "draws": module.draws,
        "factors": module.factors,
        "parameters": full(module),
        "steps": (runner.global_step, runner.num_training_batches, runner.current_epoch),
        "state": callback.engine.state_dict(),
        "looked": getattr(module, "looked", None),
        "logged": {name: float(value) for name, value in runner.callback_metrics.items()},
    }


def fit(
    folder, processes, *, optimizer="SGD", workers=0, resume=None, save=None, make=sampling, net=Recorded, **options
):
    """One run, on one process or as one of several; save: a name for its checkpoints, every 47 steps."""
    saves = ModelCheckpoint(folder / save, "{step}", every_n_train_steps=47, save_top_k=-1) if save else None
    module, callback = net(options.pop("optimizer", "SGD")), make()
    more = {"devices": processes, "strategy": "ddp" if processes > 1 else "auto", "log_every_n_steps": 10}
    runner = trainer(
        callback,
        *([saves] if saves else []),
        **{"max_epochs": EPOCHS, "enable_checkpointing": bool(save), **more, **options},
    )
    train = train_loader(data(SAMPLES), batch_size=TOGETHER // processes, num_workers=workers)
    runner.fit(module, train, DataLoader(data(), batch_size=20), ckpt_path=resume)
    return found_in(runner, module, callback)


def counted(*callbacks, samples=59, loader=None, **options):
    """How far a trainer comes on two processes."""
    module, found = Net(), []
    runner = trainer(*callbacks, devices=2, strategy="ddp", **options)
    for _ in range(2):
        runner.fit(module, train_loader(data(samples), batch_size=5, **loader or {}))
        found.append((runner.global_step, runner.current_epoch, runner.num_training_batches, len(module.batches)))
        runner.fit_loop.max_epochs += 1
    return found


COUNTED = {
    "plain": {},
    "drop_last": {"loader": {"drop_last": True}},
    "reload": {"reload_dataloaders_every_n_epochs": 1},
    "limit": {"limit_train_batches": 4, "accumulate_grad_batches": 3},
    "steps": {"max_steps": 11, "max_epochs": -1},
    "61 samples": {"samples": 61},
}


def tuned(folder):
    """Whether a run after the rate finder is the run without it."""
    found = []
    for tune in (False, True):
        module, callback = Net(schedule=False), sampling()
        runner = trainer(callback, devices=2, strategy="ddp", default_root_dir=folder)
        if tune:
            Tuner(runner).lr_find(module, train_loader(), num_training=9, update_attr=False)
        runner.fit(module, train_loader())
        found.append((parameters(module), callback.engine.step))
    return torch.equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]


def on_a_mesh():
    """Options of a run with FSDP2; a strategy serves one trainer."""
    return {"net": Sharded, "strategy": ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)}


def main(folder):
    rank = int(os.environ["RANK"])
    found = {
        "sgd": fit(folder, 2, save="two"),
        "logs": fit(folder, 2, make=lambda: LogsAlone("emais", warmup_epochs=1)),
        "looks": fit(folder, 2, net=Looks),
        "adamw": fit(folder, 2, optimizer="AdamW", accumulate_grad_batches=3),
        "workers": fit(folder, 2, workers=1, save="workers"),
        "given": fit(folder, 2, max_epochs=1, make=lambda: sampling(process_group=dist.group.WORLD)),
        "auto": fit(folder, 2, make=emais.lightning.ImportanceSampling),
        "ending": fit(folder, 2, make=ending),
    }
    found["fsdp2"] = fit(folder, 2, save="mesh", **on_a_mesh())
    for name, options in {"two": dict, "one": dict, "workers": lambda: {"workers": 1}, "mesh": on_a_mesh}.items():
        for path in sorted((folder / name).glob("*.ckpt")):
            found[f"{name}/{path.stem}"] = fit(folder, 2, resume=path, **options())
    found["counted"] = {name: (counted(sampling(), **o), counted(**o)) for name, o in COUNTED.items()}
    found["tuned"] = tuned(folder)
    found["whole"] = counted(sampling(), use_distributed_sampler=False)
    saved = sorted((folder / "one").glob("*.ckpt"))[0]
    found["refused"] = refusals(rank, saved, train_loader(data(SAMPLES), batch_size=5), EPOCHS)
    torch.save(found, folder / f"found{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    for mark in [*quiet, brief]:
        warnings.filterwarnings("ignore", mark.args[0].split(":")[1])
    main(Path(sys.argv[1]))
