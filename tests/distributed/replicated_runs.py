"""Training that one process or several do alike: what they drew, the factors they used, and where they ended."""

import gc
import random
import threading
import time
import warnings
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import emais

SAMPLES, BATCH = 640, 16  # a minibatch of all processes


def data(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 6, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(SAMPLES, generator=generator) > 0).long() + (x[:, 1] > 1).long()
    return TensorDataset(x.to(dtype), y)


def network(dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def engine(method="emais", size=1, group=None, batch=BATCH, samples=SAMPLES, **settings):
    settings.setdefault("timeout", 20.0)
    if method not in ("sgd-scan", "sgd-uni"):
        settings.setdefault("warmup_epochs", 1)
    return emais.create(method, samples, batch_size=batch // size, process_group=group, **settings)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=2e-3),
}


class Run:
    """A training run that can be stopped, saved and gone on with."""

    def __init__(
        self,
        rank=0,
        size=1,
        *,
        dtype=torch.float32,
        optimizer="sgd",
        workers=0,
        group=None,
        scaled=False,
        explode=None,
        norms=False,
        attach=None,
        **settings,
    ):
        if size > 1:
            group = dist.group.WORLD
        self.rank = rank
        self.imp = self.make_engine(size=size, group=group, **settings)
        self.net = network(dtype)
        self.model = DistributedDataParallel(self.net) if size > 1 else self.net
        self.optimizer = OPTIMIZERS[optimizer](self.net.parameters())
        if attach is not False:
            self.imp.attach(self.optimizer, **(attach or {}))
        self.norms = norms  # whether the engine gets norms instead of gradients
        self.loader = self.imp.loader(self.part(data(dtype)), num_workers=workers)
        self.draws, self.factors, self.skipped = [], [], 0
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        self.explode = explode  # (rank, step): a gradient there is not finite

    def make_engine(self, **settings):
        return engine(**settings)

    def part(self, whole):
        """The samples that this process draws from."""
        return whole

    def train(self, steps, accumulate=1, spoil=None):
        """So many minibatches; spoil=(rank, step): a loss there is not finite."""
        left = steps
        while left:
            for batch, draw in self.loader:
                left -= 1
                joins = accumulate > 1 and left % accumulate
                with self.model.no_sync() if joins and self.model is not self.net else nullcontext():
                    self.minibatch(batch, draw, accumulate, spoil)
                if not joins:
                    self.step()
                if not left:
                    break
        return self

    def step(self):
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.skipped += self.scaler.get_scale() < before
        self.optimizer.zero_grad()
        self.factors.append(self.imp.attached.applied)

    def minibatch(self, batch, draw, accumulate, spoil):
        x, y = batch
        self.draws.append((int(draw.step), draw.index.tolist(), draw.r.tolist()))
        logits = self.model(x)
        losses = nn.functional.cross_entropy(logits, y, reduction="none")
        grads = torch.autograd.grad(losses.sum(), logits, retain_graph=True)[0]
        if spoil == (self.rank, int(draw.step)):
            grads[0, 0] = torch.nan
        given = {"norms": grads.norm(dim=1)} if self.norms else {"grads": grads}
        loss = self.imp.loss(losses, logits, draw, **given) / accumulate
        if self.explode == (self.rank, int(draw.step)):
            loss = loss * torch.inf
        self.scaler.scale(loss).backward()

    def parameters(self):
        return torch.cat([p.detach().double().flatten() for p in self.net.parameters()])

    def result(self):
        state = self.imp.state_dict()
        return {
            "draws": self.draws,
            "factors": self.factors,
            "parameters": self.parameters(),
            "skipped": self.skipped,
            "state": state,
            "lag": self.imp.processes.lag,
        }


def train(rank=0, size=2, steps=120, accumulate=1, spoil=None, **options):
    return Run(rank, size, **options).train(steps, accumulate, spoil).result()


def train_to_the_end(rank, **options):
    """One pass, which ends where the loader does."""
    run = Run(rank, 2, optimizer="sgd", **options)
    for batch, draw in run.loader:
        run.minibatch(batch, draw, 1, None)
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.factors.append(run.imp.attached.applied)
    return run.result()


def whole(results):
    """The draws of all processes, lane by lane: {step: (indices, r)}."""
    found = {}
    for result in results:
        for step, index, r in result["draws"]:
            indices, all_r = found.setdefault(step, ([], []))
            indices += index
            all_r += r
    return found


def flat(state, path=""):
    """A state as {path: value}."""
    if isinstance(state, dict):
        return {k: v for name, part in state.items() for k, v in flat(part, f"{path}.{name}").items()}
    return {path: state}


def differences(one, other):
    """Paths at which two states differ by a bit; NaN is equal to itself."""
    a, b = flat(one), flat(other)

    def same(x, y):
        if isinstance(x, torch.Tensor):
            return x.shape == y.shape and torch.equal(x.nan_to_num(-7.0), y.nan_to_num(-7.0))
        return repr(x) == repr(y)

    return sorted(path for path in a.keys() | b.keys() if path not in a or path not in b or not same(a[path], b[path]))


def drew_something_else(rank, size=2, steps=80):
    """Rank 1 draws its own minibatches, as with another build of numpy; index and r that belong together travel."""
    run = Run(rank, size)
    if rank == 1:
        take, run.imp.source.take = run.imp.source.take, None

        def other():
            step, index, r = take()
            return step, (index + step) % SAMPLES, r * 1.25

        run.imp.source.take = other
    return run.train(steps).result()


def counted(rank, steps=20, make=None, **settings):
    """(calls, bytes of each) of the collectives that Python starts while training, and while looking at numbers."""
    run = make(rank, **settings) if make else Run(rank, 2, **settings)
    run.train(1)
    calls, gather = [], vars(dist.ProcessGroup)["allgather"]  # what all_gather and all_gather_object come to
    dist.ProcessGroup.allgather = lambda group, rows, own, *options: (
        calls.append(own[0].numel()) or gather(group, rows, own, *options)
    )
    try:
        run.train(steps)
        trained = len(calls)
        if rank == 0:  # alone: a collective here would never end
            run.imp.state_dict(), run.imp.summary(), run.imp.diagnostics.as_dict(), repr(run.imp.diagnostics)
            _ = run.imp.diagnostics.score, run.imp.effective_steps, run.imp.step, run.imp.finished, run.loader.remaining
    finally:
        dist.ProcessGroup.allgather = gather
    return calls[:trained], calls[trained:]


class Noise:
    """A data set whose samples are random numbers of the process that fetches them."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        own = torch.rand((), dtype=torch.float64), np.random.rand(), random.random()  # noqa: NPY002
        return torch.tensor(own, dtype=torch.float64), torch.tensor(i)


def noise(rank, workers=1):
    """The random numbers of three minibatches, and those that the process itself has next."""
    imp = engine(size=2, group=dist.group.WORLD, num_steps=3)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002  # the one that data sets use
    random.seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is trained
        fetched = [x.tolist() for (x, _), _ in imp.loader(Noise(), num_workers=workers)]
    return fetched, (float(torch.rand(())), np.random.rand(), random.random())  # noqa: NPY002


def continued(rank, size, state, parameters, steps, **options):
    """Go on from a state and parameters that another run has saved."""
    run = Run(rank, size, **options)
    run.imp.load_state_dict(state)
    nn.utils.vector_to_parameters(parameters.to(torch.float64), run.net.parameters())
    return run.train(steps).result()


def two_loaders(rank):
    """A loader that draws ahead on rank 0, which is gone on with after another was made: (lag, draws of all)."""
    imp = engine(size=2, group=dist.group.WORLD, num_steps=40, warmup_epochs=0)
    first, second = imp.loader(data(), num_workers=[1, 0][rank]), imp.loader(data())
    drawn = []
    for (x, _), draw in first:
        z = ((1 + rank) * x + 0.01 * draw.index[:, None]).requires_grad_()
        imp.loss((z**2).sum(1), z, draw)
        drawn.append(draw._record.everyone[0].tolist())
    assert second.ahead == 0
    return imp.processes.lag, drawn


def lone_loader(rank):
    """Rank 0 makes a loader more than rank 1."""
    imp = engine(size=2, group=dist.group.WORLD)
    imp.loader(data())
    if rank == 0:
        imp.loader(data())
    observe(imp)


class Tagged:
    """A class that is put before a method."""

    def __init__(self, *args, tag="x", **settings):
        self.tag = tag
        super().__init__(*args, **settings)


class TaggedEMAIS(Tagged, emais.EMAIS):
    """A method whose own class has no constructor."""


def made_with_a_tag(rank, seed):
    TaggedEMAIS(SAMPLES, batch_size=4, process_group=dist.group.WORLD, timeout=20.0, seed=seed)


def made_by_another_version(rank):
    version, emais.__version__ = emais.__version__, f"{rank}.0"
    try:
        made(rank)
    finally:
        emais.__version__ = version


def watching_threads(rank):
    """Threads that still watch exchanges after some engines are gone."""
    for _ in range(3):
        observe(engine(size=2, group=dist.group.WORLD))
    gc.collect()
    deadline = time.monotonic() + 5
    while (left := sum(t.name == "emais watch" for t in threading.enumerate())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def skips_one(rank):
    """Rank 1 looks at a minibatch and does not train on it."""
    imp = engine(size=2, group=dist.group.WORLD)
    for k in range(3):
        draw = imp.draw()
        if (rank, k) == (1, 1):
            draw = imp.draw()
        z = torch.ones(len(draw), 3, requires_grad=True)
        imp.loss(z.sum(1), z, draw)


def made(rank, method="emais", group="world", **settings):
    group = {"world": dist.group.WORLD, "none": None}.get(group, group)
    given = {"num_samples": SAMPLES, "batch_size": 4, "process_group": group, "timeout": 20.0, **settings}
    return emais.create(method, **given)


def observe(imp):
    """Train on one minibatch, without a model."""
    draw = imp.draw()
    z = torch.ones(len(draw), 3, requires_grad=True)
    imp.loss(z.sum(1), z, draw)


def made_then(rank, what, **settings):
    imp = engine(size=2, group=dist.group.WORLD, **settings)
    z = torch.ones(4, 3, requires_grad=True)
    if what == "refresh":
        imp.refresh(torch.arange(4), z.sum(1), z)
    elif what == "loader":
        imp.loader(data())
    elif what == "observe":
        observe(imp)


def draws_within_the_lag(rank):
    """Rank 0 observes a minibatch and draws on, while rank 1 has observed nothing: no draw waits for it."""
    imp = engine(size=2, group=dist.group.WORLD, timeout=5.0)
    imp.loader(data(), num_workers=1)  # draws two minibatches ahead
    observe(imp)
    if rank == 0:
        observe(imp)
        drawn = [imp.draw().step for _ in range(2)]  # 3 knows nothing yet, and 4 knows step 1, which both have observed
        dist.barrier()
        return drawn
    dist.barrier()
    observe(imp)
    return imp.diagnostics.step


def beside_other_groups(rank):
    """Processes that belong to different numbers of groups."""
    dist.new_group([0])
    return Run(rank, 2).train(3).result()["parameters"]


def made_alone(rank):
    """An engine for this process alone, beside others: a group of one."""
    groups = [dist.new_group([k]) for k in range(2)]
    run = Run(group=groups[rank], seed=rank).train(60)
    return run.result(), Run.result(run)["lag"]
