"""Draws through a DataLoader: workers, passes, early exits, options and data sets that cannot serve."""

import itertools
import pickle
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from conftest import losses_of
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import emais
from emais import EmaisError
from emais.loading.by_value import COPIED_BYTES, by_value, is_plain


class Squares(Dataset):
    """Gives the index back, with one transform per call."""

    def __init__(self, n=60):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(i), i * i


class ManySquares(Squares):
    """Fetches a minibatch at once."""

    def __getitems__(self, indices):
        return [super(ManySquares, self).__getitem__(i) for i in indices]

    def __getitem__(self, i):
        raise AssertionError("one by one, although all at once was possible")


def double_collate(samples):
    return torch.stack([2 * s[0] for s in samples])


def consume(imp, loader, limit=None):
    out = []
    for k, (batch, draw) in enumerate(loader):
        z = torch.zeros(len(draw), 1, requires_grad=True)
        imp.loss((z * (draw.index[:, None] + 1.0)).sum(1), z, draw)
        out.append((draw.step, draw.index, draw.r, batch))
        if limit and k + 1 == limit:
            break
    return out


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Squares(), ManySquares()])
def test_index_r_and_step_arrive_with_their_batch(workers, dataset):
    imp = emais.EMAIS(60, 8, warmup_epochs=0.2)
    for epoch in range(3):
        rows = consume(imp, imp.loader(dataset, num_workers=workers))
        assert [r[0] for r in rows] == list(range(8 * epoch + 1, 8 * epoch + 9))
        for _, index, _, (i, square) in rows:
            assert torch.equal(i, index)
            assert torch.equal(square, index * index)


class Shifted(TensorDataset):
    """Tensors that are changed on the way out."""

    def __getitem__(self, i):
        return tuple(x + 1 for x in super().__getitem__(i))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [TensorDataset, Shifted])
def test_tensors_come_as_torch_would_collate_them(workers, kind):
    data = kind(torch.randn(60, 2, 3), torch.arange(60), torch.rand(60, dtype=torch.float64))
    imp = emais.EMAIS(60, 8, warmup_epochs=0.2)
    for _, index, _, batch in consume(imp, imp.loader(data, num_workers=workers)):
        expected = torch.utils.data.default_collate([data[i] for i in index.tolist()])
        assert type(batch) is type(expected)
        for ours, theirs in zip(batch, expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("x", "plain"),
    [
        (torch.ones(3), True),
        (torch.ones(3, requires_grad=True), False),
        (torch.nn.Parameter(torch.ones(3)), False),
        (torch.ones(3).to_sparse(), False),
        ([1, 2], False),
    ],
)
def test_only_plain_tensors_are_taken_whole(x, plain):
    assert is_plain(x) is plain


class Pair(NamedTuple):
    i: torch.Tensor
    x: torch.Tensor


def all_kinds(samples):
    """A batch with everything that a worker may send: small, large, strided, special, nested and no tensors."""
    i = torch.stack([s[0] for s in samples])
    return {
        "index": i,
        "flags": (i > 3, [i.to(torch.bfloat16), i.half(), torch.tensor(3.5), torch.empty(0, 2)]),
        "columns": i.repeat(4, 1).t(),
        "image": torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "large": torch.full((COPIED_BYTES + 1,), 7, dtype=torch.uint8),
        "leaf": torch.nn.Parameter(torch.ones(2)),
        "phase": i * 1j,
        "pair": Pair(i, i + 1),
        "names": ["a", None, 3],
    }


def flat(batch):
    """The batch's tensors and other leaves, by the way that leads to them."""
    if isinstance(batch, (dict, list, tuple)):
        pairs = batch.items() if isinstance(batch, dict) else enumerate(batch)
        return {(type(batch), k, *rest): x for k, v in pairs for rest, x in flat(v).items()}
    return {(): batch}


def shifted(samples):
    ids = torch.stack([s[0] for s in samples]) * 10 + torch.arange(5)
    return {"inputs": ids[:, :-1], "labels": ids[:, 1:], "ids": ids}


def with_preview(samples):
    images = torch.stack([s[0] for s in samples]).float().repeat(COPIED_BYTES // 8, 1).t().contiguous()
    return {"images": images, "preview": images[:2]}


def both_ways(samples):
    x = torch.stack([s[0] for s in samples]) * 10 + torch.arange(7)
    return x.t(), x


class Rows(Squares):
    def __getitem__(self, i):
        return torch.tensor([i]), i


@pytest.mark.parametrize("collate", [shifted, with_preview, both_ways])
def test_tensors_that_share_memory_leave_a_worker_whole(collate):
    """Sending one as shared memory moves what the other looks at."""
    here, sent = (emais.create("sgd-uni", 60, batch_size=8) for _ in range(2))
    data = Squares() if collate is with_preview else Rows()
    plain = consume(here, here.loader(data, collate_fn=collate))
    through = consume(sent, sent.loader(data, num_workers=2, collate_fn=collate))
    for (*_, a), (*_, b) in zip(plain, through, strict=True):
        for x, y in zip(flat(a).values(), flat(b).values(), strict=True):
            assert torch.equal(x, y)


def test_workers_send_what_the_collate_function_made():
    """By value or as shared memory: types, dtypes, strides and values are those without workers."""
    here, sent = (emais.create("sgd-uni", 60, batch_size=8) for _ in range(2))
    plain = consume(here, here.loader(Squares(), collate_fn=all_kinds), 3)
    through = consume(sent, sent.loader(Squares(), num_workers=2, collate_fn=all_kinds), 3)
    for (*_, a), (*_, b) in zip(plain, through, strict=True):
        a, b = flat(a), flat(b)
        assert a.keys() == b.keys()
        for way, x in a.items():
            y = b[way]
            assert type(x) is type(y)
            if isinstance(x, torch.Tensor):
                for what in (torch.Tensor.stride, lambda t: (t.dtype, t.shape, t.requires_grad)):
                    assert what(x) == what(y)
                assert torch.equal(x, y)
                y.detach().zero_()  # can be written to
            else:
                assert x == y


@pytest.mark.parametrize(
    ("x", "small"),
    [
        (torch.ones(3), True),
        (torch.ones(COPIED_BYTES, dtype=torch.uint8), True),
        (torch.ones(COPIED_BYTES + 1, dtype=torch.uint8), False),
        (torch.ones(3, dtype=torch.bfloat16), False),
        (torch.ones(3, requires_grad=True), False),
        (torch.ones(2, 3).t(), False),
        (torch._neg_view(torch.ones(3)), False),
        ("text", False),
    ],
)
def test_what_is_sent_by_value(x, small):
    packed = by_value({"x": [x]})["x"][0]
    assert (packed is not x) is small
    if small:
        assert torch.equal(pickle.loads(pickle.dumps(packed)), x)


def test_a_minibatch_is_sent_by_value_up_to_a_limit():
    """All of its tensors together; and a list of numbers is not gone through."""
    half = torch.ones(COPIED_BYTES // 2, dtype=torch.uint8)
    names = ["a", torch.ones(1)]
    packed = by_value([half, half.clone(), torch.ones(1), torch.empty(0), Pair(half, half), names])
    assert [type(x).__name__ for x in packed[:4]] == ["PipedTensor", "PipedTensor", "Tensor", "PipedTensor"]
    assert packed[4].i is packed[4].x is half
    assert packed[5] is names
    assert isinstance(by_value(Pair(torch.ones(1), torch.ones(1))).x, type(packed[0]))


class Noise(Squares):
    """Random numbers of all kinds that a data set may use."""

    def __getitem__(self, i):
        return torch.rand(()), np.random.rand(), random.random()  # noqa: NPY002


@pytest.mark.filterwarnings("ignore:a whole pass went by")
def test_random_numbers_in_workers_depend_on_the_step_alone():
    """Whatever the number of workers, and after a resume in the middle of an epoch."""

    def first(imp, workers, count, **options):
        loader = imp.loader(Noise(), num_workers=workers, **options)
        return [torch.cat([x.double() for x in batch]) for batch, _ in itertools.islice(iter(loader), count)]

    def make(seed=0):
        return emais.create("sgd-scan", 60, batch_size=8, seed=seed)

    imp = make()
    one = first(imp, 1, 5)
    assert len({float(x[0]) for x in one}) == 5
    assert all(torch.equal(a, b) for a, b in zip(one, first(make(), 2, 5), strict=True))
    resumed, begun = make(), make()
    first(begun, 2, 2)
    resumed.load_state_dict(begun.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(one[2:], first(resumed, 2, 3), strict=True))
    assert not torch.equal(one[0], first(make(seed=1), 1, 1)[0])
    assert torch.equal(one[0], first(make(), 1, 1, generator=None)[0])
    for own in ({"generator": torch.Generator().manual_seed(3)}, {"worker_init_fn": seed_with_4}):  # the user's
        assert not torch.equal(one[0], first(make(), 1, 1, **own)[0])


def seed_with_4(worker):
    torch.manual_seed(4)


def test_tensors_through_a_collate_function_of_one_s_own():
    imp = emais.EMAIS(60, 8, warmup_epochs=0.2)
    for _, index, _, batch in consume(imp, imp.loader(TensorDataset(torch.arange(60)), collate_fn=double_collate)):
        assert torch.equal(batch, 2 * index)


def test_r_is_fixed_when_drawn_not_when_used():
    """Two workers prefetch: r must belong to the weights of the draw, whatever was learnt since."""
    imp = emais.EMAIS(60, 8, warmup_epochs=0)
    probs, draw_one = {}, imp.draw

    def recording():
        p = imp.sampler.probabilities()
        draw = draw_one()
        probs[draw.step] = p
        return draw

    imp.draw = recording
    stale = 0
    for step, index, r, _ in consume(imp, imp.loader(Squares(), num_workers=2)):
        torch.testing.assert_close(r.double() * probs[step][index] * 60, torch.ones(8).double(), rtol=1e-5, atol=0)
        stale += not torch.equal(imp.sampler.probabilities(), probs[step])
    assert stale


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_left_early_loses_no_draw(workers):
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares(), num_workers=workers)
    steps = [r[0] for r in consume(imp, loader, limit=3)]
    steps += [r[0] for r in consume(imp, loader)]
    assert steps == list(range(1, 12))
    seen = torch.cat([r[1] for r in consume(imp, loader)])
    assert len(seen) == 64


@pytest.mark.parametrize("workers", [0, 2])
def test_num_steps_ends_the_loader(workers):
    imp = emais.EMAIS(60, 8, num_steps=21)
    loader = imp.loader(Squares(), num_workers=workers)
    assert len(loader) == 21
    consume(imp, loader, limit=4)
    assert len(loader) == 17
    assert [r[0] for r in consume(imp, loader)] == list(range(5, 22))
    assert len(loader) == 0
    with pytest.warns(UserWarning, match="this pass is empty: all num_steps=21 steps are done"):
        assert consume(imp, loader) == []


def test_the_length_stands_still_during_a_pass():
    """It is that of a whole pass, before, during and after one; what is left has a name of its own."""
    imp = emais.create("sgd-uni", 60, batch_size=8)
    loader = imp.loader(Squares())
    for _ in range(2):
        assert [len(loader) for _ in consume_each(imp, loader)] == [8] * 8
    consume(imp, loader, limit=3)
    resumed = emais.create("sgd-uni", 60, batch_size=8)
    state = None
    for k, _ in enumerate(consume_each(imp, loader)):
        if k == 4:
            state = imp.state_dict()
    resumed.load_state_dict(state)
    rest = resumed.loader(Squares())
    assert (len(rest), rest.remaining) == (8, 3)
    assert [(len(rest), rest.remaining) for _ in consume_each(resumed, rest)] == [(8, 2), (8, 1), (8, 8)]
    assert (len(rest), rest.remaining, rest.batch_size, rest.num_workers, len(rest.dataset)) == (8, 8, 8, 0, 60)


def consume_each(imp, loader):
    for batch, draw in loader:
        z = torch.zeros(len(draw), 1, requires_grad=True)
        imp.loss(z.sum(1), z, draw)
        yield batch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [6, 7, 8])  # 8: the epoch's last
def test_what_is_left_of_an_epoch(workers, at):
    def train(imp, count, save=None):
        loader, seen, state = imp.loader(Squares(), num_workers=workers), [], None
        for epoch in range(count):
            for k, (i, _) in enumerate(consume_each(imp, loader)):
                seen.append(i)
                if epoch == 0 and k + 1 == save:
                    state = imp.state_dict()
        return torch.cat(seen), state

    imp, resumed = (emais.create("sgd-scan", 60, batch_size=8) for _ in range(2))
    whole, state = train(imp, 3, save=at)
    resumed.load_state_dict(state)
    # after an epoch's last minibatch the epoch is over
    assert torch.equal(train(resumed, 2 if at == 8 else 3)[0], whole[8 * at :])


class Broken(Squares):
    """Has one sample that cannot be read."""

    def __getitem__(self, i):
        if i == 7:
            raise OSError("sample 7 is broken")
        return super().__getitem__(i)


def steps_and_failures(passes, **options):
    """The steps that some passes over broken data deliver, and how many of the passes fail."""
    imp = emais.create("sgd-scan", 60, batch_size=8)
    loader, seen, failed = imp.loader(Broken(), **options), [], 0
    for _ in range(passes):
        try:
            for _, draw in loader:
                z = torch.zeros(8, 1, requires_grad=True)
                imp.loss(z.sum(1), z, draw)
                seen.append(draw.step)
        except OSError:
            failed += 1
    return seen, failed


@pytest.mark.parametrize("workers", [0, 1])
def test_a_minibatch_that_cannot_be_fetched_does_not_come_again(workers):
    seen, failed = steps_and_failures(4, num_workers=workers)
    assert 1 < failed < 4
    assert len(seen) > 8
    assert seen == sorted(set(seen))
    assert seen[-1] - len(seen) <= failed  # nothing else is left out


def test_a_broken_sample_out_of_order_does_not_fail_every_pass():
    """With in_order=False another minibatch may be the next: the broken one is known by its step."""
    seen, failed = steps_and_failures(6, num_workers=2, in_order=False)
    assert 1 <= failed < 6
    assert len(seen) > 16
    assert len(set(seen)) == len(seen)


class Local(Squares):
    """Raises exceptions that cannot be made again, or found, in another process."""

    def __getitem__(self, i):
        class Hidden(Exception):
            pass

        if i == 7:
            raise Hidden("hidden")
        if i == 9:
            raise UnicodeDecodeError("utf-8", b"x", 0, 1, "made of several parts")
        return super().__getitem__(i)


@pytest.mark.parametrize("index", [7, 9])
def test_exceptions_of_any_kind_leave_a_worker(index):
    minibatches = emais.EMAIS(60, 8).loader(torch.utils.data.Subset(Local(), [index] * 60), num_workers=1)
    with pytest.raises(RuntimeError, match="hidden" if index == 7 else "made of several parts"):
        next(iter(minibatches))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_is_over_with_its_last_minibatch(workers):
    """Also if nobody asks for another one after it, as some frameworks do not."""
    imp, resumed = (emais.create("sgd-uni", 60, batch_size=8) for _ in range(2))
    loader = imp.loader(Squares(), num_workers=workers)
    held = iter(loader)
    for _ in range(len(loader)):
        _, draw = next(held)
        z = torch.zeros(8, 1, requires_grad=True)
        imp.loss(z.sum(1), z, draw)
    state = imp.state_dict()
    assert loader.remaining == len(imp.loader(Squares())) == 8
    assert [row[0] for row in consume(imp, imp.loader(Squares()))] == list(range(9, 17))
    resumed.load_state_dict(state)
    assert [row[0] for row in consume(resumed, resumed.loader(Squares()))] == list(range(9, 17))
    held.close()
    assert loader.remaining == 8


@pytest.mark.parametrize("loaded", [True, False])
def test_writing_to_a_draw_changes_nothing_in_the_engine(loaded):
    """What a loop does to its own copies is its own business."""

    def statistics(spoil):
        imp = emais.EMAIS(60, 8, warmup_epochs=0)
        loader = iter(imp.loader(Squares()))
        for _ in range(6):
            draw = next(loader)[1] if loaded else imp.draw()
            z = torch.zeros(8, 1, requires_grad=True)
            losses = (z.squeeze(1) + draw.index) ** 2
            if spoil:
                draw.index.zero_()
                draw.r.fill_(7.0)
            imp.loss(losses, z, draw)
        return imp.scores.weights(), imp.diagnostics.tr_is

    for one, other in zip(statistics(True), statistics(False), strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


@pytest.mark.filterwarnings("ignore:logits of another shape")
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_engine_loses_no_draw(workers):
    """With workers it comes up where the next minibatch is taken, because the next draw is made there."""

    class Picky(emais.EMAIS):
        def learn(self, observed):
            if len(observed.grad) == 5:
                raise EmaisError("five is too many")
            super().learn(observed)

    imp = Picky(60, 8)
    loader, seen = imp.loader(Squares(), num_workers=workers), []

    def train(width_of):
        for _, draw in loader:
            seen.append(draw.step)
            z = torch.zeros(8, width_of(draw.step), requires_grad=True)
            imp.loss((z + torch.arange(8.0)[:, None]).square().sum(1), z, draw)

    with pytest.raises(EmaisError, match="five is too many"):
        train(lambda step: 5 if step == 3 else 2)
    train(lambda step: 2)
    assert seen == list(range(1, len(seen) + 1))


def test_a_state_saved_with_num_steps_goes_on_without():
    """Its pass may have come further than an epoch has steps."""
    long, short = emais.create("sgd-uni", 30, batch_size=8, num_steps=20), emais.create("sgd-uni", 30, batch_size=8)
    for k, _ in enumerate(consume_each(long, long.loader(Squares(30)))):
        if k == 9:
            short.load_state_dict(long.state_dict())
    loader = short.loader(Squares(30))
    assert [len(list(consume_each(short, loader))) for _ in range(2)] == [2, 4]


def test_an_older_pass_does_not_end_a_newer_one():
    imp = emais.create("sgd-uni", 32, batch_size=8)
    loader = imp.loader(Squares(32))
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(new)
    del old
    assert imp.passes.delivered == 1


def test_without_num_steps_a_pass_is_an_epoch():
    assert len(emais.EMAIS(60, 8).loader(Squares())) == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_options_reach_the_dataloader(workers):
    extra = {"prefetch_factor": 3, "persistent_workers": True} if workers else {}
    imp = emais.EMAIS(60, 8, num_steps=10)
    loader = imp.loader(Squares(), num_workers=workers, collate_fn=double_collate, **extra)
    for _, index, _, batch in consume(imp, loader):
        assert torch.equal(batch, 2 * index)


def test_workers_do_not_change_the_warm_up(task):
    dataset, model = task
    runs = []
    for workers in (0, 2):
        imp = emais.EMAIS(96, 16, num_steps=12)
        for batch, draw in imp.loader(dataset, num_workers=workers):
            losses, z = losses_of(model, batch)
            imp.loss(losses, z, draw)
        runs.append(imp)
    a, b = (imp.state_dict()["state"] for imp in runs)
    assert all(torch.equal(a[k], b[k]) for k in a)


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(60)


class NoLength(Dataset):
    def __getitem__(self, i):
        return i


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "Stream is an IterableDataset.*__getitem__"),
        (NoLength(), "needs __getitem__ and __len__, NoLength"),
        (Squares(61), "has 61 samples, .*num_samples=60.*num_samples=len"),
        (TensorDataset(torch.empty(0)), "has 0 samples"),
    ],
)
def test_unfit_data_sets(dataset, message):
    with pytest.raises(EmaisError, match=message):
        emais.EMAIS(60, 8).loader(dataset)


def test_a_default_device_that_was_taken_back(task):
    """torch 2.6 has none to ask for then."""
    torch.set_default_device("cpu")
    torch.set_default_device(None)
    batch, draw = next(iter(emais.EMAIS(96, 16).loader(task[0])))
    assert len(batch[0]) == len(draw) == 16


@pytest.mark.parametrize("name", ["batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"])
def test_options_that_are_the_engines(name):
    with pytest.raises(EmaisError, match=f"{name} is the engine's to decide"):
        emais.EMAIS(60, 8).loader(Squares(), **{name: 1})


def test_two_passes_at_the_same_time():
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares(), num_workers=2)
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    with pytest.raises(EmaisError, match=r"a newer pass .* has begun.* end a pass before the next begins"):
        next(first)


def test_an_old_pass_takes_nothing_from_a_newer_one():
    """With persistent workers both have one iterator."""
    loader = emais.EMAIS(60, 8).loader(Squares(), num_workers=2, persistent_workers=True)
    first, second = iter(loader), iter(loader)
    next(first)
    steps = [next(second)[1].step]
    with pytest.raises(EmaisError, match="a newer pass"):
        next(first)
    first.close()
    length = len(loader)
    steps += [next(second)[1].step for _ in range(4)]
    assert steps == list(range(steps[0], steps[0] + 5))
    assert length == 8


def test_a_pass_that_nobody_observes():
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares())
    consume(imp, loader)
    with pytest.warns(UserWarning, match=r"a whole pass went by.* train on imp.loss"):
        for _ in loader:
            pass
    for _ in loader:  # a look is not a pass
        break


def test_a_data_set_that_grew():
    dataset = Squares()
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(dataset)
    consume(imp, loader)
    dataset.n = 61
    with pytest.raises(EmaisError, match="the data set has 61 samples, the engine was made for num_samples=60"):
        next(iter(loader))


def test_a_pass_left_early_is_followed_by_a_whole_one():
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares())
    consume(imp, loader, limit=3)
    assert len(loader) == 8
    assert [row[0] for row in consume(imp, loader)] == list(range(4, 12))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_begins_where_a_trainer_says(workers):
    """After what somebody else counts as so many minibatches; no draw is lost that was on its way."""
    imp = emais.EMAIS(60, 8)
    loader = imp.loader(Squares(), num_workers=workers)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    imp.passes.go_on_at(6)
    assert [row[0] for row in consume(imp, loader)] == [6, 7]
    assert [row[0] for row in consume(imp, loader)] == list(range(8, 16))


def test_unknown_option():
    with pytest.raises(EmaisError, match=r"loader\(\) takes no 'num_worker': .*did you mean 'num_workers'"):
        emais.EMAIS(60, 8).loader(Squares(), num_worker=2)


class Dice(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.rand(())


@pytest.mark.filterwarnings("ignore:a whole pass went by")
def test_randomness_of_workers_goes_on_after_a_resume():
    def epochs(imp, count):
        loader = imp.loader(Dice(), num_workers=1)
        for _ in range(count):
            yield torch.cat([batch for batch, _ in loader])

    imp = emais.create("sgd-scan", 40, batch_size=10)
    first, second, third = epochs(imp, 3)
    assert not torch.equal(first, second)
    again = emais.create("sgd-scan", 40, batch_size=10)
    (one,) = epochs(again, 1)
    assert torch.equal(one, first)
    resumed = emais.create("sgd-scan", 40, batch_size=10)
    resumed.load_state_dict(again.state_dict())
    two, three = epochs(resumed, 2)
    assert torch.equal(two, second)
    assert torch.equal(three, third)
