"""Monte-Carlo: the whole loop, drawing and learning at once, estimates the plain mean without bias."""

import math

import pytest
import torch
from torch.utils.data import TensorDataset

import emais

pytestmark = pytest.mark.filterwarnings("ignore:.* no optimizer is attached")  # these loops train nothing


def weighted_means(workers, steps, seed, M=64, N=8):
    """mean(r * value) of each step, while weights that follow the values keep changing under the draws."""
    g = torch.Generator().manual_seed(0)
    value = torch.rand(M, generator=g) ** 3
    imp = emais.EMAIS(M, N, num_steps=steps, tau=5.0, warmup_epochs=0.25, seed=seed)
    out = []
    for (index,), draw in imp.loader(TensorDataset(torch.arange(M)), num_workers=workers):
        noise = torch.rand(N, generator=g) + 0.5
        z = torch.zeros(N, 1, requires_grad=True)
        losses = (z.squeeze(1) + 1) * value[index] * noise
        out.append(imp.loss(losses, z, draw).item())
    return torch.tensor(out, dtype=torch.float64), value.mean().item()


@pytest.mark.statistical
@pytest.mark.parametrize("workers", [0, 2])
def test_unbiased_with_and_without_workers(workers):
    x, want = weighted_means(workers, 6_000, seed=1)
    z = (x.mean().item() - want) / (x.std().item() / math.sqrt(len(x)))
    assert abs(z) < 4
    assert x.std() < 0.6 * want  # and it is importance sampling: uniform draws would spread by 0.35 / sqrt(8) more


@pytest.mark.statistical
def test_estimated_traces_are_right_on_average():
    """Over many minibatches the corrected traces come out as the variances of the population."""
    g = torch.Generator().manual_seed(0)
    grads = torch.randn(40, 3, generator=g) * torch.rand(40, 1, generator=g)
    imp = emais.EMAIS(40, 8, warmup_epochs=0, unbiased=True)
    norms = grads.norm(dim=1)
    imp.scores.mean.copy_(norms + 0.1)
    imp.scores.last_step.fill_(1)
    imp.sampler.fill(norms + 0.1)
    imp._learn = lambda *_: None  # weights stay
    rows = []
    for _ in range(4000):
        draw = imp.draw()
        z = torch.zeros(8, 3, requires_grad=True)
        imp.observe((z * grads[draw.index]).sum(1), z, draw)
        rows.append([imp.diagnostics.tr_is, imp.diagnostics.tr_unif, imp.diagnostics.tr_opt])
    rows = torch.tensor(rows, dtype=torch.float64)
    p, mu = imp.sampler.probabilities(), grads.double().mean(0)
    n = norms.double()
    want = torch.stack([(n**2 / (1600 * p)).sum(), (n**2).mean(), n.mean() ** 2]) - mu @ mu
    z = (rows.mean(0) - want) / (rows.std(0) / math.sqrt(len(rows)))
    assert (z.abs() < 4).all()
