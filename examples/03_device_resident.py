"""Data that fits on the GPU: draw, step and statistics without a host sync, captured as one CUDA graph.

Without a GPU the same step runs on the CPU, uncaptured.
"""

import torch
from torch import nn

import emais

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(5000, 20, device=device)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
# a graph needs the learning rate in a tensor, and an optimizer that reads it there
rate = torch.tensor(0.05, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=True)

imp = emais.EMAISAuto(len(x), batch_size=64, device=device, resident=True)
imp.attach(optimizer)


def step():
    draw = imp.draw()
    logits = model(x.index_select(0, draw.index))
    losses = nn.functional.cross_entropy(logits, y.index_select(0, draw.index), reduction="none")
    optimizer.zero_grad()
    imp.loss(losses, logits, draw).backward()
    optimizer.step()


if device == "cuda":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):  # eager steps before a capture, as torch asks for; they count as training
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    step = graph.replay

total, done = 400, imp.step
for t in range(done, total):
    rate.fill_(0.05 * (1 - t / total))  # any schedule
    step()

report = imp.diagnostics  # the first thing that waits for the GPU
print(f"{device}: {imp.step} steps, N_ems {report.n_ems:.0f} of {imp.batch_size}, S(W) {report.score:.2f}")
assert imp.step == total
