"""The five lines in a loop with accelerate: its wrappers, and a resume from every state that it saves."""

import difflib

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import send_to_device
from places import ROOT
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import emais

STEPS = 14


@pytest.fixture(autouse=True)
def _alone():
    """Each test configures accelerate anew; it keeps one configuration for all accelerators of a process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def dataset():
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, (x[:, 0] > 0.3).long())


class Run:
    """A loop as a user would write it, with dropout, a schedule, and all that accelerate wraps."""

    def __init__(self, optimizer, accumulate, workers):
        AcceleratorState._reset_state(reset_partial_state=True)
        torch.manual_seed(0)
        self.accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=accumulate)
        data = dataset()
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
        optimizer = optimizer(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        self.imp = emais.EMAIS(len(data), batch_size=5, warmup_epochs=0.5, seed=3)
        loader = self.imp.loader(DataLoader(data, batch_size=5, shuffle=True, num_workers=workers))
        prepared = self.accelerator.prepare(model, optimizer, loader, schedule)
        self.model, self.optimizer, self.loader, self.schedule = prepared
        assert self.loader is loader  # it is no DataLoader
        self.imp.attach(self.optimizer)
        self.accelerator.register_for_checkpointing(self.imp)
        self.seen = {}

    def train(self, folder=None):
        while self.imp.step < STEPS:
            for batch in self.loader:
                (x, y), draw = send_to_device(batch, self.accelerator.device)
                self.step(x, y, draw)
                if folder is not None:
                    self.accelerator.save_state(str(folder / f"{draw.step:02}"))
                if draw.step == STEPS:
                    return

    def step(self, x, y, draw):
        with self.accelerator.accumulate(self.model):
            logits = self.model(x)
            losses = nn.functional.cross_entropy(logits, y, reduction="none")
            loss = self.imp.loss(losses, logits, draw)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
        self.seen[draw.step] = (draw.index.tolist(), draw.r.tolist(), float(loss.detach()))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_resume_is_exact_from_every_state(tmp_path, optimizer, workers):
    whole = Run(optimizer, 1, workers)
    whole.train(tmp_path)
    assert any(set(r) != {1.0} for _, r, _ in whole.seen.values())
    assert whole.imp.effective_steps != STEPS  # the factor reached the optimizer inside the wrapper
    states = sorted(tmp_path.iterdir())
    assert len(states) == STEPS
    for state in states[:-1]:
        again = Run(optimizer, 1, workers)
        again.accelerator.load_state(str(state))
        again.train()
        assert again.seen == {step: whole.seen[step] for step in range(int(state.name) + 1, STEPS + 1)}
        for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_accumulation(tmp_path):
    """accelerate skips the optimizer's step inside an accumulation: the factor is of all its minibatches."""
    run = Run(torch.optim.SGD, 2, 0)
    run.train()
    assert run.imp.diagnostics.batch_size == 10
    assert (run.imp.summary().steps, run.imp.attached.steps) == (STEPS, STEPS // 2)


def test_a_prepared_dataloader_is_refused():
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(DataLoader(dataset(), batch_size=5, shuffle=True))
    with pytest.raises(emais.EmaisError, match="pass the DataLoader that it was made from"):
        emais.EMAIS(50, batch_size=5).loader(prepared)


def test_skip_first_batches_is_refused_with_the_way_out():
    """It would make a DataLoader of its own, without draws."""
    loader = Run(torch.optim.SGD, 1, 0).loader
    with pytest.raises(emais.EmaisError, match="load the engine's state: it knows which minibatches are left"):
        skip_first_batches(loader, 3)
    assert getattr(loader, "sampler", None) is getattr(loader, "batch_sampler", None) is None


def test_the_examples_differ_in_the_lines_that_the_guide_names():
    """The five, the registration, moving the batch, two imports, and the summary in the end."""
    paths = [ROOT / "examples" / "09_accelerate" / f"{name}.py" for name in ("before", "after")]
    before, after = ([line.split("  # ")[0] for line in path.read_text("utf-8").splitlines()] for path in paths)
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ") and line[2:].strip()]
    assert [line.split()[1] for line in changes if line[0] == "-"] == [
        "loader",
        "for",
        "accelerator.backward(losses.mean())",
    ]
    assert [line[2:].strip() for line in changes if line[0] == "+"] == [
        "from accelerate.utils import send_to_device",
        "import emais",
        "imp = emais.EMAISAuto(num_samples=len(dataset), batch_size=64)",
        "loader = imp.loader(DataLoader(dataset, batch_size=64, shuffle=True))",
        "imp.attach(optimizer)",
        "accelerator.register_for_checkpointing(imp)",
        "for batch in loader:",
        "(inputs, targets), draw = send_to_device(batch, accelerator.device)",
        "accelerator.backward(imp.loss(losses, logits, draw))",
        "print(imp.summary())",
    ]
