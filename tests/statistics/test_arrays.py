"""Arrays on the host and on a device: both kinds give the same, and only one of them asks."""

import numpy as np
import pytest
import torch

from emais.statistics import rows as rows_module
from emais.statistics.arrays import DeviceArrays, HostArrays, arrays_on
from emais.statistics.rows import DeviceRows, HostRows, by_pairs, by_sorting
from emais.statistics.table import SampleTable

KINDS = [arrays_on("cpu", resident=False), arrays_on("cpu", resident=True)]
X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def both(compute):
    """What a function of arrays gives with either kind, as tensors."""
    return [torch.as_tensor(compute(arrays, arrays.array(X.clone()))) for arrays in KINDS]


@pytest.mark.parametrize(
    "compute",
    [
        lambda a, x: a.where(x > 0, x, 0.0),
        lambda a, x: a.exp(x),
        lambda a, x: a.expm1(x),
        lambda a, x: a.sqrt(x * x),
        lambda a, x: a.stack((x[0], x[1])),
        lambda a, x: a.concatenate((x[0], x[1])),
        lambda a, x: a.at_least(x, 0.75),
        lambda a, x: a.at_most(x, 0.75),
        lambda a, x: a.single(a.double(x)),
        lambda a, x: a.double(x),
        lambda a, x: a.norms(x),
        lambda a, x: a.moments(x[0], abs(x[1])),
        lambda a, x: a.number(x[0, 1] * 2),
        lambda a, x: a.count(x > 0),
        lambda a, x: a.one(2.5),
        lambda a, x: a.one(a.number(x[0, 1])),
        lambda a, x: a.largest((x[0], x[1] * 2)),
        lambda a, x: a.finite(x / 0.5),
        lambda a, x: a.finite(a.where(x > 0, x, float("nan"))),
        lambda a, x: a.finite(a.where(x > 0, x, -float("inf"))),
        lambda a, x: a.finite(x[0, :0]),
        lambda a, x: a.row(x, torch.tensor([1])),
        lambda a, x: a.take((x, x[0]), a.array(torch.tensor([2, 0, 2])))[0],
        lambda a, x: a.copy(x),
        lambda a, x: a.tensor(x),
    ],
)
def test_both_kinds_give_the_same(compute):
    host, device = both(compute)
    assert host.dtype == device.dtype or host.dim() == 0
    torch.testing.assert_close(host, device, check_dtype=False)


@pytest.mark.parametrize("arrays", KINDS)
@pytest.mark.parametrize("known", [True, False])
def test_blend_moves_a_share_of_the_way_where_it_is_known(arrays, known):
    old, new = torch.tensor([1.0, 2.0]), torch.tensor([3.0, float("inf") if not known else 2.0])
    arrays.blend(arrays.array(old), arrays.array(new), 0.25, arrays.finite(arrays.array(new)))
    assert old.tolist() == ([1.5, 2.0] if known else [1.0, 2.0])


@pytest.mark.parametrize("arrays", KINDS)
def test_a_tensor_and_its_array_share_memory_and_a_copy_does_not(arrays):
    t = X.clone()
    array = arrays.array(t)
    copied = arrays.copy(array)
    array[0, 0] = 9.0
    assert t[0, 0] == 9
    assert arrays.tensor(array)[0, 0] == 9
    assert copied[0, 0] == 1


@pytest.mark.parametrize("arrays", KINDS)
def test_put_writes_rows_of_the_last_dimension(arrays):
    wide, flat = arrays.array(torch.zeros(2, 4)), arrays.array(torch.zeros(4))
    index = arrays.array(torch.tensor([3, 1]))
    arrays.put((wide, flat), index, (arrays.array(torch.tensor([[1.0, 2.0], [3.0, 4.0]])), arrays.array(X[0, :2])))
    assert wide.tolist() == [[0, 2, 0, 1], [0, 4, 0, 3]]
    assert flat.tolist() == [0, -2, 0, 1]


def test_only_the_host_is_asked():
    host, device = KINDS
    assert host.known(lambda: np.bool_(True), otherwise=False) is True
    assert device.known(lambda: pytest.fail("nobody may look"), otherwise=True) is True


def test_the_kind_is_chosen_by_the_device():
    assert isinstance(arrays_on("cpu"), HostArrays)
    assert isinstance(arrays_on("cpu", resident=True), DeviceArrays)
    assert isinstance(arrays_on("meta"), DeviceArrays)


# ---- repeated samples


def by_hand(index, usable, value):
    """(sample, value) of all samples with a usable value: the first one."""
    found = {}
    for i, good, x in zip(index.tolist(), usable.tolist(), value.tolist(), strict=True):
        if good:
            found.setdefault(i, x)
    return found


def written(rows, value):
    """What a table holds after all rows were written in order, and the samples that are counted once."""
    values, once, index = (torch.as_tensor(x).tolist() for x in (rows.values(value), rows.once(), rows.index))
    kept = rows.keep((rows.values(value),), (rows.old(value) * float("nan"),))[0].tolist()
    table = {i: x for i, x in zip(index, kept, strict=True) if x == x}
    counted = sorted(i for i, one in zip(index, once, strict=True) if one)
    total = sum(x for x, one in zip(values, once, strict=True) if one)
    return table, counted, total


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("samples", [1, 6, 1000])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_a_sample_takes_its_first_usable_value(n, samples, share, monkeypatch):
    for seed in range(5):
        torch.manual_seed(seed)
        index, usable, value = torch.randint(samples, (n,)), torch.rand(n) < share, torch.rand(n) + 1
        want = by_hand(index, usable, value)
        for pairs in (n, 0):  # comparing each with each, and sorting
            monkeypatch.setattr(rows_module, "FEW_PLACES", pairs)
            for rows, x in (
                (HostRows(index.numpy(), usable.numpy()), value.numpy()),
                (DeviceRows(index, usable), value),
            ):
                table, counted, total = written(rows, x)
                assert table == want
                assert counted == sorted(want)
                assert total == pytest.approx(sum(want.values()))


def test_sorting_and_comparing_agree():
    for seed in range(20):
        torch.manual_seed(seed)
        index, usable = torch.randint(30, (100,)), torch.rand(100) < 0.6
        (first, known), (other, also) = by_pairs(index, usable), by_sorting(index, usable)
        assert torch.equal(known, also)
        assert torch.equal(first[known], other[known])


# ---- tables


@pytest.mark.parametrize("arrays", KINDS)
def test_a_table_changes_for_the_first_usable_value_alone(arrays):
    table = SampleTable(5, {"total": torch.float32, "times": torch.int64}, arrays)
    index = arrays.array(torch.tensor([1, 3, 1, 4]))
    value = arrays.array(torch.tensor([float("nan"), 2.0, 5.0, 1e30]))
    change = table.update(index, value, lambda x, total, times: (total + x, times + 1))
    assert table["total"].tolist() == [0, 5, 0, 2, 0]
    assert table["times"].tolist() == [0, 1, 0, 1, 0]
    assert table["times"].dtype == torch.int64
    gained = (change.new[0] - change.old[0]) @ arrays.single(change.once())
    assert float(gained) == 7
    assert [x.tolist() for x in table.rows(arrays.array(torch.tensor([3, 1])))] == [[2, 5], [1, 1]]
    copied = SampleTable(5, {"total": torch.float32, "times": torch.int64}, arrays)
    copied.load_state_dict(table.state_dict() | {"other": torch.ones(1)})
    assert [x.tolist() for x in copied.all()] == [x.tolist() for x in table.all()]
