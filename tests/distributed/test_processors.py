"""Processes on processors of different types: factors and parameters are equal to the bit."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from process_pool import run_apart
from replicated_runs import SAMPLES, Run, engine

pytestmark = pytest.mark.launched

RULES = ("linear", "steady", "steady-sqrt", "gain")
WIDE = 1000  # numbers of a gradient: enough for libraries to add them up in another order


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


def blas_types():
    """Processors that the OpenBLAS of numpy can be told to have, or none where numpy has another library."""
    return ["Nehalem", "SkylakeX"] if list(Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*")) else []


def wide_gradients(rule, sharded):
    """The factors of steps with gradients of many numbers, and the parameters."""
    group, samples = dist.group.WORLD, SAMPLES // 2 if sharded else SAMPLES
    imp = engine(samples=samples, size=2, group=group, sharded=sharded)
    generator = torch.Generator().manual_seed(0)
    grads = torch.randn(samples, WIDE, generator=generator) * (
        0.1 + 3 * torch.rand(samples, 1, generator=generator) ** 3
    )
    weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    imp.attach(optimizer, rule)
    factors = []
    for _ in range(110):
        draw = imp.draw()
        z = grads[draw.index]
        imp.loss(z[:, 0], z, draw, grads=z)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        factors.append(imp.attached.applied)
    return factors, weight.tolist()


def both_forms(rank, pipe):
    """What each rule and form gives, and a product that shows which library it was."""
    runs = {(rule, form): wide_gradients(rule, form) for rule in RULES for form in (False, True)}
    rows = np.random.default_rng(0).standard_normal((20, WIDE))
    pipe.send((runs, [float(x @ rows[0]) for x in rows]))


@pytest.mark.skipif(not blas_types(), reason="numpy has another library here")
def test_products_of_another_processor_on_one_process(tmp_path):
    """At least one of these types is not that of this machine, and its products have other bits."""
    products = set()
    for other in blas_types():
        found = run_apart(both_forms, 2, tmp_path, environments={1: {"OPENBLAS_CORETYPE": other}})
        ((first, mine), _), ((second, theirs), _) = found
        for key, (factors, _) in first.items():
            assert first[key] == second[key], (key, other)
            assert len(set(factors)) > 20, key
        products.add(mine == theirs)
    assert False in products, "products were to come out differently on one of the processes"
