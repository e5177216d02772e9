"""The benchmark of one process among many runs, and sends what the page says."""

import pytest

from benchmarks.distributed import one_rank


@pytest.mark.parametrize(
    ("method", "sharded", "sent"), [("emais", False, 64 + 16 * 32 + 40), ("emais-auto", True, 104)]
)
def test_a_small_case(monkeypatch, method, sharded, sent):
    monkeypatch.setattr(one_rank, "BLOCKS", 1)
    monkeypatch.setattr(one_rank, "STEPS", 5)
    found = one_rank.measure(method, 4000, 2, sharded)
    assert found["bytes_sent"] == sent
    assert found["samples_here"] == (2000 if sharded else 4000)
    assert found["ms"] > 0
