"""A process that dies, raises or stalls: the others stop in time, and say which it was and at which step."""

import logging.handlers
import os
import queue
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from process_pool import run_apart
from replicated_runs import Run, engine
from replicated_runs import observe as observe_one
from scripts import run_script

import emais.distributed

pytestmark = pytest.mark.launched

TIMEOUT, GRACE, AT = 1.0, 0.5, 5


def _die():
    os._exit(9)


def _raise():
    raise KeyError("a bug in a loop")


def _stall():
    time.sleep(TIMEOUT + GRACE + 2)


def observe(rank, pipe, trouble):
    """Steps of an engine alone, of which rank 1 does not get beyond the fifth; rank 0 says how it ended."""
    emais.distributed.GRACE = GRACE
    imp, before = engine(size=2, group=dist.group.WORLD, timeout=TIMEOUT), time.monotonic()
    try:
        for _ in range(10):
            draw, before = imp.draw(), time.monotonic()
            if rank == 1 and draw.step == AT:
                trouble()
            z = torch.ones(len(draw), 3, requires_grad=True)
            imp.loss(z.sum(1), z, draw)
    except emais.EmaisError as error:
        pipe.send((str(error), time.monotonic() - before))


def dying(rank, pipe):
    observe(rank, pipe, _die)


def raising(rank, pipe):
    observe(rank, pipe, _raise)


def stalling(rank, pipe):
    observe(rank, pipe, _stall)


def beside_ddp(rank, pipe, trouble):
    """The same under DistributedDataParallel, whose backward pass waits for rank 1 and knows no limit."""
    emais.distributed.GRACE = GRACE
    logged = logging.handlers.QueueHandler(queue.SimpleQueue())
    logging.getLogger("emais").addHandler(logged)
    run = Run(rank, 2, timeout=TIMEOUT)
    try:
        for batch, draw in run.loader:
            before = time.monotonic()
            if rank == 1 and draw.step == AT:
                trouble()
            run.minibatch(batch, draw, 1, None)
            run.step()
    except (RuntimeError, emais.EmaisError):  # of the backward pass, or of the step after it
        pass
    if rank == 0:
        told = logged.queue.get(timeout=5).getMessage()
        with pytest.raises(emais.EmaisError) as raised:
            run.imp.draw()
        assert str(raised.value) == told
        pipe.send((told, time.monotonic() - before))


@pytest.mark.parametrize(
    ("trouble", "told"), [(_die, "rank 1 has ended"), (_stall, "rank 1 sent nothing")], ids=["dies", "stalls"]
)
def test_a_backward_pass_that_waits_does_not_hide_who_is_missing(tmp_path, trouble, told):
    (message, seconds), _ = run_apart(partial(beside_ddp, trouble=trouble), 2, tmp_path)[0]
    assert told in message
    assert f"rank 0 observed step {AT}" in message
    assert seconds < TIMEOUT + 10


def three(rank, pipe):
    """Rank 1 sleeps, rank 2 is busy when rank 0 gives up: none of them blames rank 2."""
    emais.distributed.GRACE = GRACE
    imp = engine(size=3, batch=24, group=dist.group.WORLD, timeout=TIMEOUT)
    try:
        for step in range(1, 4):
            if (rank, step) == (1, 3):
                time.sleep(TIMEOUT + GRACE + 2)
            observe_one(imp)
            if (rank, step) == (2, 3):
                time.sleep(TIMEOUT + GRACE + 1)
            assert imp.diagnostics.step == step
    except emais.EmaisError as error:
        pipe.send(str(error))


def test_one_that_is_busy_is_not_blamed(tmp_path):
    (first, _), (late, _), (busy, _) = run_apart(three, 3, tmp_path)
    for message in (first, busy):
        assert "in vain: rank 1 sent nothing, and may have left its loop. The limit" in message
    assert "rank 1 observed step 3" in late


def without_a_first_minibatch(rank, pipe):
    """Rank 2 makes its engine, and observes nothing."""
    emais.distributed.GRACE = GRACE
    imp = engine(size=3, batch=24, group=dist.group.WORLD, timeout=TIMEOUT)
    if rank == 2:
        time.sleep(TIMEOUT + GRACE + 2)
        return
    try:
        observe_one(imp)
    except emais.EmaisError as error:
        pipe.send(str(error))


def test_who_observes_no_first_minibatch_is_named(tmp_path):
    for message, _ in run_apart(without_a_first_minibatch, 3, tmp_path)[:2]:
        assert "rank 2 is missing: another process has not observed its first minibatch" in message


def four(rank, pipe):
    """Rank 2 ends. Ranks 1 and 3 are connected with it in gloo's ring, rank 0 is not, and goes on waiting."""
    emais.distributed.GRACE = GRACE
    imp = engine(size=4, batch=16, group=dist.group.WORLD, timeout=6 * TIMEOUT)
    try:
        for step in range(1, 4):
            if (rank, step) == (2, 3):
                _die()
            observe_one(imp)
            assert imp.diagnostics.step == step
    except emais.EmaisError as error:
        pipe.send(str(error))
    time.sleep(1)


def test_who_waits_for_others_is_not_blamed_beside_one_that_has_ended(tmp_path):
    found = run_apart(four, 4, tmp_path)
    for rank in (1, 3):
        assert "in vain: rank 2 has ended or given up. The limit" in found[rank][0]
    assert "rank 2 has ended" in found[0][0] or "gave up first says why" in found[0][0]


@pytest.mark.parametrize(
    ("trouble", "told"), [(dying, "rank 1 has ended"), (raising, "rank 1 has ended"), (stalling, "rank 1 sent nothing")]
)
def test_the_others_say_who_is_missing(tmp_path, trouble, told):
    (message, seconds), _ = run_apart(trouble, 2, tmp_path)[0]
    assert told in message
    assert f"rank 0 observed step {AT}" in message
    assert seconds < TIMEOUT + 10


def test_no_thread_is_left_in_torch_when_python_ends(tmp_path):
    """One that comes back while Python shuts down would abort the process now and then. Rank 0 has raised: 1."""
    script, times = Path(__file__).with_name("leaving.py"), 2

    def command(attempt):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        return [sys.executable, script, folder, str(times)]

    found = run_script(command)
    assert found.stdout.splitlines() == ["[1, 1, 0]"] * times, found.stderr
    assert "rank 0 observed step 3 and waited for the others in vain: rank 1 has ended" in found.stderr
