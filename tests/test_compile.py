"""torch.compile on the model: no graph break and no recompilation more than in a plain loop."""

import torch
from conftest import losses_of
from torch import nn
from torch.utils.data import DataLoader

import emais


def compilations(model, batches, step):
    """How many graphs the compiler was handed over a loop."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend)
    for batch in batches:
        step(compiled, batch)
    return len(graphs)


def test_no_extra_graphs(task):
    dataset, _ = task
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def plain(compiled, batch):
        losses, _ = losses_of(compiled, batch)
        losses.mean().backward()
        optimizer.step()

    count = compilations(model, DataLoader(dataset, 16, shuffle=True), plain)

    imp = emais.EMAIS(96, 16, num_steps=30)
    imp.attach(optimizer)

    def weighted(compiled, item):
        batch, draw = item
        losses, z = losses_of(compiled, batch)
        optimizer.zero_grad()
        imp.loss(losses, z, draw).backward()
        optimizer.step()

    assert count == 1
    assert compilations(model, imp.loader(dataset), weighted) == count
    assert imp.diagnostics.step == 30
