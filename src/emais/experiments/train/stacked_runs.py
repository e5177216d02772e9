"""Many runs of a small network at the same time: one forward and backward pass for all, on a GPU as one CUDA graph.

Every run has its own engine, seed, method, learning rate and schedule. A run computes what it would alone, up to
rounding. `step` is the loop to read.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import emais

from ...engine import Engine
from ...errors import EmaisError
from ...functional import cross_entropy_gradients
from ..config import Config
from ..data import Data
from .curves import Curves, evenly_spaced
from .sharing import StreamPool
from .stacked_network import StackedNetwork
from .stacked_updates import Update, make_update

EAGER = 3  # steps before a capture, so that all libraries are loaded


class StackedRuns:
    """Trains runs with the same data, model, optimizer and length; `finish` yields the results of each.

    lengths: steps of each run, where they are not those of its configuration. A run that is over stands still, at rate
    0, until the last one is.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        data: Data,
        model: Callable[[], nn.Module],
        device: torch.device | str = "cpu",
        lengths: Sequence[int] = (),
    ) -> None:
        if len({config.group() for config in configs}) != 1:
            raise EmaisError("runs side by side must share data, model, optimizer, length and minibatch size")
        if data.multi_label:
            raise EmaisError("runs side by side need one label per sample")
        self.configs, self.data = list(configs), data
        self.device = torch.device(device)
        own = list(lengths) or [config.num_steps for config in configs]
        self.num_steps, self.batch_size = max(own), configs[0].batch_size
        self.goal = torch.tensor(own, dtype=torch.float64, device=self.device)  # effective steps, where a run ends
        self.images, self.labels = data.x_train.to(self.device), data.y_train.to(self.device)
        self.net = StackedNetwork(model, [c.seed for c in configs], self.device)
        self.engines = [self._engine(config) for config in configs]
        self.handles = [e.attach(None, rule=rule_of(c)) for e, c in zip(self.engines, configs, strict=True)]
        self.update: Update = make_update(
            configs[0].optimizer, self.net.flat, self._column("weight_decay"), self._column("momentum")
        )
        self.rate = self._column("lr").squeeze(1)
        self.effective = torch.tensor([c.schedule != "steps" for c in configs], device=self.device)
        self.t_eff = torch.zeros(len(configs), dtype=torch.float64, device=self.device)
        self.goes_on = torch.tensor([c.schedule == "effective" for c in configs], device=self.device)  # at rate 0
        self.made = torch.zeros(len(configs), dtype=torch.int64, device=self.device)  # steps before a run's end
        self.curves = Curves(self.num_steps, len(configs), self.batch_size, self.device)
        self.streams = StreamPool(self.device)
        self.seconds = 0.0

    def _engine(self, config: Config) -> Engine:
        shared = {"batch_size": self.batch_size, "num_steps": self.num_steps, "seed": config.seed}
        return emais.create(
            config.method, len(self.images), device=self.device, resident=True, **shared, **config.options
        )

    def _column(self, name: str) -> Tensor:
        return torch.tensor([[getattr(config, name)] for config in self.configs], device=self.device)

    # ---- one step of all runs

    def step(self) -> None:
        """Draw, forward, backward, statistics, update: no host sync."""
        runs = range(len(self.engines))
        draws = self.streams.map(self._draw, runs)
        z, y = self._outputs(self.net.flat, torch.stack([draw.index for draw in draws]))
        losses = cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
        grads = cross_entropy_gradients(z.flatten(0, 1), y.flatten()).view(z.shape)
        parts = [x.unbind() for x in (losses, z, grads)]  # one split for all runs: backward puts them together at once
        own = self.streams.map(
            lambda k: self.engines[k].loss(parts[0][k], parts[1][k], draws[k], grads=parts[2][k]), runs
        )
        total = torch.stack(own)
        (gradient,) = torch.autograd.grad(total.sum(), self.net.flat)
        factors = torch.stack(self.streams.map(lambda handle: handle.lr_scale(), self.handles)).float()
        rates = self._rates()
        self.update(gradient, rates * factors)
        self._move_on(factors)
        self.curves.log(total.detach(), rates, factors, [e.monitor.sums() for e in self.engines])

    def _rates(self) -> Tensor:
        """The schedule's learning rates (K,): a cosine to 0 at the end of each run."""
        return self.rate * (0.5 * (1 + torch.cos(math.pi * self.t_eff / self.goal))).float()

    def _over(self) -> Tensor:
        """Whether each run has come to its end, (K,)."""
        return (self.t_eff >= self.goal) & ~self.goes_on

    def _move_on(self, factors: Tensor) -> None:
        """Count a step of each run that is not over yet, by its factor where the schedule is over effective steps."""
        self.made.add_(~self._over())
        self.t_eff.copy_(torch.minimum(self.t_eff + torch.where(self.effective, factors, 1.0), self.goal))

    def _draw(self, k: int) -> Any:
        engine = self.engines[k]
        if not engine.needs_score:
            return engine.draw()
        row = self.net.flat[k : k + 1].detach()

        def score(index: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                z, y = self._outputs(row, index.unsqueeze(0))
            z = z[0].requires_grad_()
            return cross_entropy(z, y[0], reduction="none"), z

        return engine.draw(score)  # type: ignore[call-arg]

    def _outputs(self, flat: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and labels of the samples index (K, n)."""
        x = self.data.scaled(self.images.index_select(0, index.flatten()))
        y = self.labels.index_select(0, index.flatten()).view(index.shape)
        return self.net(flat, x.unflatten(0, index.shape)), y

    # ---- all steps

    def train(self, points: int = 20, on_steps: Callable[[int], None] | None = None) -> None:
        """Train to the end; test errors at `points` places. `on_steps` hears of steps of all runs together."""
        one, captured = self.step, False
        done = 0
        for place in evenly_spaced(self.num_steps, points):
            start = time.perf_counter()
            while done < place:
                if done == EAGER and self.device.type == "cuda":
                    one, captured = self._captured(), True
                for engine in self.engines if captured else ():  # an eager draw does that itself
                    engine.maintain()
                one()
                done += 1
                self._refresh(done)
                if on_steps is not None:
                    on_steps(len(self.engines))
            self._wait()
            self.seconds += time.perf_counter() - start
            self.curves.evaluated(place, self.test_errors())
            if bool(self._over().all()):
                break
        if on_steps is not None and done < self.num_steps:  # planned and not needed
            on_steps(len(self.engines) * (self.num_steps - done))

    def _refresh(self, done: int, chunk: int = 5000) -> None:
        """Update the statistics of all samples of the runs that want it now."""
        for k, config in enumerate(self.configs):
            if not config.refresh_every or done % config.refresh_every:
                continue
            for index in torch.arange(len(self.images), device=self.device).split(chunk):
                z, y = self._outputs(self.net.flat[k : k + 1].detach(), index.unsqueeze(0))
                z = z[0].detach().requires_grad_()
                self.engines[k].refresh(index, cross_entropy(z, y[0], reduction="none"), z)

    def _captured(self) -> Callable[[], None]:
        gc.collect()  # a graph of an earlier run that is freed while this one is captured would spoil it
        graph = torch.cuda.CUDAGraph()
        self._wait()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.no_grad()
    def test_errors(self, chunk: int = 500) -> list[float]:
        """Percentage of the test set that each run classifies wrongly."""
        wrong = torch.zeros(len(self.engines), device=self.device)
        for x, y in zip(self.data.x_test.split(chunk), self.data.y_test.split(chunk), strict=True):
            x = self.data.scaled(x.to(self.device)).expand(len(self.engines), *x.shape)
            wrong += (self.net(self.net.flat, x).argmax(2) != y.to(self.device)).sum(1)
        return (100 * wrong / len(self.data.y_test)).tolist()

    @torch.no_grad()
    def train_losses(self, chunk: int = 500) -> list[float]:
        """The mean loss of each run over the training set."""
        sums = torch.zeros(len(self.engines), dtype=torch.float64, device=self.device)
        for index in torch.arange(len(self.images), device=self.device).split(chunk):
            z, y = self._outputs(self.net.flat, index.expand(len(self.engines), -1))
            sums += cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).double().sum(1)
        return (sums / len(self.images)).tolist()

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """(configuration, result) of each run, after `train`."""
        steps, losses = self.made.tolist(), self.train_losses()
        for k, (config, engine) in enumerate(zip(self.configs, self.engines, strict=True)):
            curves = self.curves.of(k, steps[k])
            result = {
                "test_error": curves["test_error"][-1],
                "train_loss": losses[k],
                "steps": steps[k],
                "ms_per_step": 1e3 * self.seconds / self.curves.steps / len(self.engines),
                "side_by_side": len(self.engines),
                "effective_steps": float(self.t_eff[k]),
                **failure_counts(engine),
            }
            yield config, result | {"curves": curves}


def failure_counts(engine: Engine) -> dict[str, int]:
    """How often something went wrong in a run, by name; for a method that skips steps, also how many it skipped."""
    names = ("nonfinite", "degenerate", *({"skipped"} & engine.report().keys()))
    return {name: int(getattr(engine.diagnostics, name)) for name in names}


def rule_of(config: Config) -> str:
    """The learning-rate rule of a run: its own, or what `Config` says of a run that names none."""
    usual = emais.METHODS[config.method].rule.replace("steady", "linear")
    return config.rule or {("linear", "adam"): "sqrt"}.get((usual, config.optimizer), usual)
