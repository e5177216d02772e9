"""Run by the Python of an environment that has only the wheel and what it asks for: the library works there.

python .ci/check_wheel.py
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

import emais

ROOT = Path(__file__).parent.parent
OTHERS = ("sklearn", "scipy", "lightning", "transformers", "accelerate", "pytest")


def main() -> int:
    """Import, train a few steps, and name what should not be there."""
    if Path(emais.__file__).is_relative_to(ROOT / "src"):
        print(f"emais comes from {emais.__file__}, not from the wheel")
        return 1
    if found := [name for name in OTHERS if importlib.util.find_spec(name)]:
        print(f"the environment is not empty: it has {', '.join(found)}")
        return 1
    x, model = torch.randn(60, 4), torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    imp = emais.EMAISAuto(60, batch_size=10, num_steps=20)
    imp.attach(optimizer)
    for (batch,), draw in imp.loader(torch.utils.data.TensorDataset(x)):
        logits = model(batch)
        losses = torch.nn.functional.cross_entropy(logits, (batch[:, 0] > 0).long(), reduction="none")
        optimizer.zero_grad()
        imp.loss(losses, logits, draw).backward()
        optimizer.step()
    print(f"the wheel works beside torch {torch.__version__} and nothing else. {imp.summary()}")
    return int(imp.step != 20)


if __name__ == "__main__":
    sys.exit(main())
