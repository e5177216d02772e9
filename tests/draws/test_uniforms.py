"""Counter-based uniforms: reproducible, the same for int and tensor steps, and uniform."""

import numpy as np
import pytest
import torch
from scipy import stats

from emais.draws.uniforms import Uniforms, mix


def test_int_and_tensor_steps_agree_over_block_ends():
    u = Uniforms(7, 2, 5)
    for step in [1, 2, 63, 64, 65, 127, 128, 10**6, 1]:
        assert torch.equal(u(step), u(torch.tensor(step)))
        assert torch.equal(u(step), Uniforms(7, 2, 5)(step))


def test_streams_differ_by_seed_and_step():
    values = [tuple(Uniforms(seed, 1, 3)(step).flatten().tolist()) for seed in range(5) for step in range(5)]
    assert len(set(values)) == 25
    assert len({mix(a, b) for a in range(30) for b in range(30)}) == 900


def test_splitmix64_is_the_published_one():
    """First outputs of SplitMix64 seeded with 1234567, from its authors' reference program."""
    x, out = 1234567, []
    from emais.draws import uniforms as rng

    for _ in range(3):
        x = (x + rng._GOLDEN) % 2**64
        t = rng._mix_tensor(torch.tensor([rng.as_int64(x)]))
        out.append(int(t) % 2**64)
    assert out == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.statistical
def test_uniform_and_uncorrelated():
    u = Uniforms(0, 2, 128)
    x = torch.stack([u(step) for step in range(1, 2001)]).numpy()
    assert x.min() >= 0
    assert x.max() < 1
    assert stats.kstest(x.ravel(), "uniform").pvalue > 1e-3
    for a, b in [(x[:, 0], x[:, 1]), (x[:-1], x[1:]), (x[..., :-1], x[..., 1:])]:
        rho = np.corrcoef(a.ravel(), b.ravel())[0, 1]
        assert abs(rho) * np.sqrt(a.size) < 4


def test_global_generator_is_left_alone():
    before = torch.get_rng_state()
    Uniforms(0, 2, 8)(3)
    assert torch.equal(before, torch.get_rng_state())
