"""The benchmark of two processes: the ratio and the added time compare with the same plain step."""

import pytest

from benchmarks.distributed import overhead

PLAIN, AGAIN, OURS = (1.0, 3.0, 2.0), (3.0, 1.0, 2.0), (2.2, 2.4, 2.1)  # seconds of a block, round by round


def test_ratio_and_added_time_agree(monkeypatch):
    monkeypatch.setattr(overhead, "STEPS", 10)
    loops = {"ddp": PLAIN, "emais, replicated": OURS, "ddp again": AGAIN}
    rows = [
        {"name": name, "cpu": seconds, "wall": 2 * seconds, "waited": 0.0}
        for name, blocks in loops.items()
        for seconds in blocks
    ]
    found = overhead.summary(rows, "emais, replicated", rounds=3)
    assert found["added_ms"] == pytest.approx(20)  # both plain loops together take 2 s in each round
    assert found["ratio"] == pytest.approx(1.1)
