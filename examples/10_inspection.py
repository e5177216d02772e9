"""Which samples are hard? Digits with wrong labels, the hardest samples as data, and a page to look at them."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import emais
from emais.experiments.data import load
from emais.experiments.report.gallery import write_gallery

torch.manual_seed(0)
digits = load("digits")
x, labels = digits.scaled(digits.x_train), digits.y_train.clone()
wrong = torch.randperm(len(labels))[:29]  # 2 % of the labels
labels[wrong] = (labels[wrong] + torch.randint(1, 10, wrong.shape)) % 10

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
imp = emais.EMAIS(len(labels), batch_size=32, num_steps=450)
imp.attach(optimizer)
for (inputs, targets), draw in imp.loader(TensorDataset(x, labels)):
    logits = model(inputs)
    losses = nn.functional.cross_entropy(logits, targets, reduction="none")
    optimizer.zero_grad()
    imp.loss(losses, logits, draw).backward()
    optimizer.step()


def losses_of(index):
    """The losses of some samples, by the network as it is now."""
    return nn.functional.cross_entropy(model(x[index]), labels[index], reduction="none")


samples = imp.samples(29, losses=losses_of)
found = sum(sample.index in wrong for sample in samples.hardest)
top = samples.hardest[0]
print(f"S(W) {imp.summary().score:.2f}; of the 29 hardest samples {found} have a wrong label")
print(f"the hardest is sample {top.index}: mean gradient norm {top.mean:.2f}, loss {top.loss:.2f}")

with tempfile.TemporaryDirectory() as folder:  # a place of your own keeps the page
    page = write_gallery(
        Path(folder) / "samples.html", samples, lambda i: x[i], labels=lambda i: f"labelled {labels[i]}"
    )
    print(f"the page has {page.stat().st_size // 1000} kB; open it in a browser")
