"""Training in the sharded form: each process has a part of the samples of replicated_runs."""

import math

import torch
import torch.distributed as dist
from replicated_runs import SAMPLES, Run, engine, flat
from torch import nn
from torch.utils.data import Subset

import emais


class PartRun(Run):
    """A run over the samples from `cuts[rank]` to `cuts[rank + 1]`."""

    def __init__(self, rank, cuts, **options):
        self.cuts = cuts
        options.setdefault("size", len(cuts) - 1)
        super().__init__(rank, sharded=True, **options)

    def make_engine(self, **settings):
        return engine(samples=self.cuts[self.rank + 1] - self.cuts[self.rank], **settings)

    def part(self, whole):
        return Subset(whole, range(self.cuts[self.rank], self.cuts[self.rank + 1]))


EQUAL, UNEQUAL = (0, SAMPLES // 2, SAMPLES), (0, 400, SAMPLES)


def train_part(rank, cuts=UNEQUAL, steps=120, accumulate=1, spoil=None, **options):
    run = PartRun(rank, cuts, **options).train(steps, accumulate, spoil)
    summary = run.imp.summary()
    return run.result() | {
        "length": len(run.loader),
        "numbers": (summary.n_ems, summary.tr_is, summary.tr_unif, summary.effective_steps),
        "total": float(run.imp.sampler.total()) if hasattr(run.imp, "sampler") else math.nan,
        "diagnostics": run.imp.diagnostics.as_dict(),
    }


def large_parts(rank, method, sizes, batch_size):
    """Parts that are long enough for what is done a few times an epoch to depend on their length."""
    imp = emais.create(method, sizes[rank], batch_size, process_group=dist.group.WORLD, sharded=True)
    return imp.period, imp.state_dict()


def group_of_one(rank):
    """sharded=True with all samples in one process."""
    groups = [dist.new_group([k]) for k in range(2)]
    run = PartRun(0, (0, SAMPLES), size=1, group=groups[rank])
    return run.train(90).result()


def draws_alone(rank):
    """Rank 0 draws on while rank 1 is not there: no draw waits for another process."""
    run = PartRun(rank, UNEQUAL).train(60)
    drawn = [run.imp.draw().index.tolist() for _ in range(5)] if rank == 0 else []
    dist.barrier()
    return drawn


def exchanges_in_flight(rank):
    """Without an optimizer's steps."""
    imp = engine(samples=SAMPLES // 2, size=2, group=dist.group.WORLD, sharded=True)
    imp.attach(None, rule="none")
    for _ in range(90):
        draw = imp.draw()
        z = torch.ones(len(draw), 3, requires_grad=True)
        imp.loss(z.sum(1), z, draw)
    found = len(imp.processes._pending)
    imp.summary()
    return found


def continued_part(rank, cuts, parts, parameters, steps, **options):
    """Go on from the parts that a run has saved, and from its parameters."""
    run = PartRun(rank, cuts, **options)
    run.imp.load_state_dict({"parts": {name: part for state in parts for name, part in state["parts"].items()}})
    nn.utils.vector_to_parameters(parameters.to(next(run.net.parameters())), run.net.parameters())
    before = run.imp.state_dict()
    return run.train(steps).result() | {"before": before}


def through_files(rank, folder, cuts, method="emais", **options):
    """Save with torch's distributed checkpoint, on all processes, and say what was saved."""
    import torch.distributed.checkpoint as dcp

    run = PartRun(rank, cuts, method=method, **options).train(70)
    state = run.imp.state_dict()
    dcp.save({"net": run.net.state_dict(), "imp": state}, checkpoint_id=folder)
    return state


def read_back(rank, folder, cuts, method="emais", **options):
    """What an engine with other parts has after it has loaded that."""
    run = PartRun(rank, cuts, method=method, **options)
    run.imp.load_state_dict(emais.read_parts(run.imp, folder, "imp"))
    state = run.imp.state_dict()
    run.train(10)
    return state


def column(states, name):
    """A column of all samples, from the parts of all processes."""
    parts = {key: part for state in states for key, part in state["parts"].items()}
    ordered = sorted(parts.items(), key=lambda item: int(item[0].split(":")[0]))
    return torch.cat([part["state"][name] for _, part in ordered], -1)


def own(state):
    """The part in a state of one."""
    ((_, part),) = state["parts"].items()
    return part


def refused(rank, cuts=UNEQUAL, change=None, **settings):
    """Load a state that something is wrong with."""
    run = PartRun(rank, cuts, **settings).train(45)
    state = run.imp.state_dict()
    key = next(iter(state["parts"]))
    if change == "half":
        state = {"parts": {"0:100": state["parts"][key]}}
    elif change == "name":
        state = {"parts": {"first": state["parts"][key]}}
    elif change == "steps":
        later = {**state["parts"][key], "step": 70}
        middle = run.imp.num_samples // 2 + run.imp.processes.first
        first, stop = key.split(":")
        state = {"parts": {f"{first}:{middle}": state["parts"][key], f"{middle}:{stop}": later}}
    elif change == "no part":
        state = {"parts": {key: 3}}
    before = run.imp.state_dict()
    try:
        run.imp.load_state_dict(state)
    finally:
        after = flat(run.imp.state_dict())
        assert all(
            torch.equal(x, after[k]) for k, x in before.items() if isinstance(x, torch.Tensor) and not x.isnan().any()
        )
