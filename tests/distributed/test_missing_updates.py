"""A process that makes no sampler, or does not come to update(): the others say so in time, and which it was."""

import os
import time

import pytest
from process_pool import run_apart
from weighted_runs import Itself, make

import emais.distributed

pytestmark = pytest.mark.launched

TIMEOUT, GRACE, AT = 1.0, 0.5, 4


def updating(rank, pipe, trouble):
    """Minibatches and updates, of which rank 1 does not get beyond the fourth; rank 0 says how it ended."""
    emais.distributed.GRACE = GRACE
    sampler, before = make(2, timeout=TIMEOUT), 0.0
    try:
        for _, draw in sampler.loader(Itself()):
            before = time.monotonic()
            if (rank, draw.step) == (1, AT):
                trouble()
                return
            sampler.update([], [])
    except emais.EmaisError as error:
        pipe.send((str(error), time.monotonic() - before))


def dying(rank, pipe):
    updating(rank, pipe, lambda: os._exit(9))


def leaving(rank, pipe):
    updating(rank, pipe, lambda: time.sleep(TIMEOUT + GRACE + 2))


def alone_at_the_start(rank, pipe):
    """Rank 1 makes no sampler."""
    before = time.monotonic()
    try:
        if rank == 0:
            make(2, timeout=TIMEOUT)
    except emais.EmaisError as error:
        pipe.send((str(error), time.monotonic() - before))
    time.sleep(0.0 if rank == 0 else TIMEOUT + 2)


def test_a_process_that_makes_no_sampler(tmp_path):
    (message, seconds), _ = run_apart(alone_at_the_start, 2, tmp_path)[0]
    assert "rank 0 waited for the others in vain" in message
    assert "another process has not made its sampler" in message
    assert seconds < TIMEOUT + 10


@pytest.mark.parametrize(("trouble", "told"), [(dying, "rank 1 has ended"), (leaving, "rank 1 sent nothing")])
def test_the_others_say_who_is_missing(tmp_path, trouble, told):
    (message, seconds), _ = run_apart(trouble, 2, tmp_path)[0]
    assert told in message
    assert f"rank 0 called update() at step {AT}" in message
    assert seconds < TIMEOUT + 10
