"""Imbalanced digits: classes with few images, drawn as they are, by class, and by weights that follow the loss."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import emais

digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
test, train = order[:600], order[600:]
rare = torch.tensor([1, 8, 9])
few = torch.cat([train[y[train] == label][:4] for label in rare])  # four images each, of about 120
train = torch.cat([train[~torch.isin(y[train], rare)], few])
dataset = TensorDataset(x[train], y[train])
as_they_are = torch.ones(len(train))
by_class = 1 / y[train].bincount()[y[train]]  # every class is drawn equally often


def run(weights, follow=False):
    """Train 30 epochs. Of the test images of rare and of other classes, return the percentages that are recognised."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = emais.WeightedSampler(weights, batch_size=32)
    loader = sampler.loader(dataset)
    for _ in range(30):
        for (inputs, targets), draw in loader:  # draw: index, r and step of this minibatch
            losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            if follow:  # what the model gets wrong comes more often; it holds for the next minibatch
                sampler.update(draw.index, 0.05 + losses.detach())
    right = 100.0 * (model(x[test]).argmax(1) == y[test])
    is_rare = torch.isin(y[test], rare)
    return right[is_rare].mean().item(), right[~is_rare].mean().item()


recall = {
    "as they are": run(as_they_are),
    "by class": run(by_class),
    "by loss": run(as_they_are, follow=True),
}
for way, (of_rare, of_others) in recall.items():
    print(f"drawn {way}: {of_rare:.0f} % of the rare classes and {of_others:.0f} % of the others are recognised")
