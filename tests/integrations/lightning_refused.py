"""What is refused on two processes, for lightning_processes.py: the messages, by name."""

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy
from lightning_task import Net, data, sampling, train_loader, trainer

import emais
import emais.lightning


class Other(ParallelStrategy):
    """A strategy that nobody knows."""

    root_device = torch.device("cpu")

    def _configure_launcher(self):
        pass

    def barrier(self, *args, **options):
        dist.barrier()

    def reduce(self, tensor, *args, **options):
        return tensor

    def broadcast(self, obj, src=0):
        return obj

    def model_to_device(self):
        pass


class Uneven(DDPStrategy):
    """Divides the data by something else than the processes."""

    @property
    def distributed_sampler_kwargs(self):
        return {"num_replicas": 1, "rank": 0}


def error_of(callback, loader=None, resume=None, **options):
    try:
        runner = trainer(callback(), **{"devices": 2, "strategy": "ddp", **options})
        runner.fit(Net(schedule=False), loader or train_loader(), ckpt_path=resume)
    except emais.EmaisError as error:
        return str(error)
    return "nothing"


def refusals(rank, saved, other_loader, epochs):
    """saved: a checkpoint of epochs with another number of samples a step than other_loader has."""
    sampler = torch.utils.data.DistributedSampler(data(), 2, rank)
    return {
        "strategy": error_of(sampling, strategy=Other()),
        "uneven": error_of(sampling, strategy=Uneven()),
        "seeds": error_of(lambda: sampling(seed=rank)),
        "sampler": error_of(sampling, train_loader(shuffle=None, sampler=sampler), use_distributed_sampler=False),
        "samples": error_of(sampling, other_loader, resume=saved, max_epochs=epochs),
        "group": error_of(lambda: sampling(process_group="world")),
        "settings": error_of(lambda: sampling(kapa=1)),
        "sharded": error_of(lambda: sampling(sharded=True)),
        "alone": error_of(lambda: emais.lightning.ImportanceSampling("self-paced")),
    }
