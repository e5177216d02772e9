"""StreamPool: the results of each item in order, on a GPU also beside each other and inside a graph."""

import gc

import pytest
import torch

from emais.experiments.train.sharing import STREAMS, StreamPool


def test_on_the_cpu_one_comes_after_the_other():
    order = []
    assert StreamPool("cpu").map(lambda k: order.append(k) or k * k, (k for k in range(STREAMS + 5))) == [
        k * k for k in range(STREAMS + 5)
    ]
    assert order == list(range(STREAMS + 5))
    assert StreamPool("cpu").map(abs, []) == []


def busy(x):
    """Many small kernels, each needing the one before."""
    for _ in range(50):
        x = torch.sin(x) + 0.5 * x.flip(0)
    return x


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; CI has none")
@pytest.mark.parametrize("count", [1, 5, STREAMS + 7])
def test_on_the_gpu_the_results_are_those_without_streams(count):
    streams = StreamPool("cuda")
    x = torch.randn(count, 1000, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    want = torch.stack([busy(2 * row) for row in x])
    for _ in range(5):
        twice = 2 * x  # made on the present stream just before
        got = torch.stack(streams.map(lambda k, rows=twice: busy(rows[k]), range(count)))
        assert torch.equal(got, want)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; CI has none")
def test_streams_can_be_captured():
    streams, x = StreamPool("cuda"), torch.zeros(20, 1000, device="cuda")
    out = torch.zeros_like(x)

    def step():
        out.copy_(torch.stack(streams.map(busy, (x + 1).unbind())))

    step()
    torch.cuda.synchronize()
    gc.collect()  # a graph that is freed while this one is captured would spoil it
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for seed in range(3):
        x.copy_(torch.randn(20, 1000, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(out, torch.stack([busy(row + 1) for row in x]))
