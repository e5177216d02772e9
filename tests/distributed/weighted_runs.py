"""Loops over a WeightedSampler that one process or several do alike: what they drew, and the weights at the end."""

import itertools
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info

from emais import WeightedSampler

SAMPLES, BATCH = 96, 12  # a minibatch of all processes


class Itself(Dataset):
    """Sample i is i. slow: in the first worker."""

    def __init__(self, slow=False):
        self.slow = slow

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        if self.slow and get_worker_info().id == 0:
            time.sleep(0.02)
        return i


def first_weights():
    return 1 + torch.arange(SAMPLES, dtype=torch.float64) % 7


def make(size=1, batch=BATCH, timeout=20.0, **settings):
    group = dist.group.WORLD if size > 1 else None
    given = {"weights": first_weights(), "seed": 3, **settings}
    return WeightedSampler(given.pop("weights"), batch // size, process_group=group, timeout=timeout, **given)


def new_weights(index, step):
    """A change that depends on sample and step: 0 for some."""
    return ((index * 5 + step) % 4).double() + (index % 2)


def batches_of(sampler, plain, **options):
    """Minibatches with their draws; as a batch sampler without."""
    if plain:
        return ((batch, None) for batch in DataLoader(Itself(), batch_sampler=sampler, **options))
    return sampler.loader(Itself(), **options)


def loop(rank=0, size=1, steps=30, workers=0, state=None, plain=False, every=1, **settings):
    """Minibatches with an update after each, or after some; draws, weights and a state."""
    sampler, draws, states = make(size, **settings), [], {}
    if state is not None:
        sampler.load_state_dict(state)
    passes = (batches_of(sampler, plain, num_workers=workers) for _ in itertools.count())
    for k, (index, draw) in enumerate(itertools.islice(itertools.chain.from_iterable(passes), steps), 1):
        step, r = k, []
        if draw is not None:
            assert torch.equal(draw.index, index)
            step, r = draw.step, draw.r.nan_to_num(0).tolist()
        draws.append((step, index.tolist(), r))
        if k % every == 0:
            sampler.update(index, new_weights(index, step))
        states[k] = sampler.state_dict()
    return {"draws": draws, "weights": sampler.weights, "states": states, "len": len(sampler)}


def alone(size=1, **settings):
    """One process with the minibatch of all."""
    return loop(**settings)


def together(results):
    """The draws of all processes, lane by lane."""
    found = []
    for parts in zip(*(result["draws"] for result in results), strict=True):
        assert len({step for step, *_ in parts}) == 1
        _, indices, all_r = zip(*parts, strict=True)
        found.append((parts[0][0], list(itertools.chain(*indices)), list(itertools.chain(*all_r))))
    return found


def looks(rank):
    """What starts no collective: rank 0 does it alone, in the middle of a pass, and all go on."""
    sampler = make(2)
    batches = iter(sampler.loader(Itself(), num_workers=1))
    next(batches)
    if rank == 0:
        state = sampler.state_dict()
        sampler.probabilities(), sampler.weights, sampler.nbytes(), repr(sampler), len(sampler), sampler.draw()
        sampler.load_state_dict(state)
        sampler.load_state_dict(state)
    return sampler.weights


def own_samples(rank, counts):
    """Updates of different lengths; both ranks change sample 0, and the last rank's weight stays."""
    sampler = make(2)
    sampler.update(list(range(counts[rank])), [10.0 * (rank + 1)] * counts[rank])
    return sampler.weights, sampler.probabilities()


def refused(rank, given):
    """An update that one rank cannot make; the next one can be made by all."""
    sampler = make(2)
    try:
        sampler.update(*given[rank])
    except ValueError as error:
        sampler.update([rank], 5.0)
        return str(error), sampler.weights
    return None


def at_different_steps(rank):
    """Rank 1 leaves out an update."""
    sampler = make(2)
    for _, draw in sampler.loader(Itself()):
        if (rank, draw.step) != (1, 2):
            sampler.update([], [])


def different_states(rank, both):
    """Ranks that load different states, or one that loads none."""
    sampler, other = make(2), make(2)
    other.update([rank], 1.0)
    if both or rank == 0:
        changed = other.state_dict()
        changed["weights"][rank] = 9.0
        sampler.load_state_dict(changed)
    sampler.update([], [])


def made(rank, group="world", **settings):
    group = {"world": dist.group.WORLD, "none": None}.get(group, group)
    WeightedSampler(
        **{"weights": first_weights(), "batch_size": 4, "process_group": group, "timeout": 20.0, **settings}
    )


def beside_each_other(rank):
    """A sampler for each process: a group of one."""
    group = dist.new_group([rank], use_local_synchronization=True)
    sampler = WeightedSampler(first_weights(), 4, seed=rank, process_group=group)
    if rank == 0:
        sampler.update([1], 3.0)  # waits for nobody
    return list(sampler), float(sampler.weights[1])


def any_order(rank):
    """Minibatches in the order in which they arrive, of which one process has another one than the other."""
    sampler, steps = make(2), []
    for _, draw in sampler.loader(Itself(slow=rank == 0), num_workers=2, in_order=False):
        steps.append(draw.step)
        sampler.update(draw.index, new_weights(draw.index, len(steps)))
    return steps, sampler.weights


def leaves_early(rank=0, size=1, workers=0, plain=False, update=True):
    """Three passes, each left after three minibatches."""
    sampler, draws = make(size), []
    for _ in range(3):
        for k, (index, draw) in enumerate(batches_of(sampler, plain, num_workers=workers), 1):
            draws.append((len(draws) if plain else draw.step, index.tolist(), []))
            if update:
                sampler.update(index, new_weights(index, len(draws)))
            if k == 3:
                break
    return {"draws": draws}
