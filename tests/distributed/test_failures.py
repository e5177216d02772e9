"""A process that dies, raises or stalls: the others stop in time, and say which it was and at which step."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from process_pool import run_apart
from replicated_runs import Run, engine

import emais.distributed

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


@pytest.mark.parametrize(
    ("trouble", "told"), [(dying, "rank 1 has ended"), (raising, "rank 1 has ended"), (stalling, "rank 1 sent nothing")]
)
def test_the_others_say_who_is_missing(tmp_path, trouble, told):
    (message, seconds), _ = run_apart(trouble, 2, tmp_path)[0]
    assert told in message
    assert f"rank 0 observed step {AT}" in message
    assert seconds < TIMEOUT + 10


def features():
    """The instructions that numpy chooses among when it starts, and has chosen."""
    try:
        from numpy._core import _multiarray_umath as umath
    except ImportError:  # numpy 1
        from numpy.core import _multiarray_umath as umath
    return " ".join(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name])


@pytest.mark.skipif(not features(), reason="numpy has no instructions to choose among here")
def test_a_numpy_without_vector_instructions_on_one_process(tmp_path):
    """Sums come out differently there in the last bit; factors do not, so the parameters stay equal."""
    found = run_apart(factors_and_parameters, 2, tmp_path, environments={1: {"NPY_DISABLE_CPU_FEATURES": features()}})
    (first, _), (second, _) = found
    assert first[2] != second[2], "numpy was to be a different one"
    assert first[:2] == second[:2]


def factors_and_parameters(rank, pipe):
    result = Run(rank, 2).train(90).result()
    pipe.send((result["factors"], result["parameters"].tolist(), features()))
