"""One run of a ResNet: data, draws, crops, statistics and update on one device.

`step` is the loop to read. On a GPU it is captured as one CUDA graph; on a CPU it runs as it stands.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import emais

from ...draws.uniforms import Uniforms, mix
from ...engine import Engine
from ..config import Config
from ..data import Data
from .augment import Pictures, recipe, train_and_test_pictures
from .batchnorm import fresh_statistics
from .curves import Curves
from .loop import initialised
from .models import make_resnet
from .objectives import MANY_LABELS, ONE_LABEL
from .setup import cudnn_benchmark, make_optimizer, move_to_device
from .sharing import advance_together, train_together
from .stacked_runs import EAGER, failure_counts, rule_of

CROPS, LOOKS = 2, 3  # streams of random numbers besides the engine's own: of a minibatch, and of candidates


class ResNetRun:
    """Trains one configuration; `finish` yields it with its results, as `StackedRuns.finish` does.

    model: makes the network (default: the configuration's); captured: as a CUDA graph, where there is a GPU;
    compiled: the network through torch.compile; length: its steps, where they are not those of the configuration.
    """

    def __init__(
        self,
        config: Config,
        data: Data,
        device: torch.device | str = "cpu",
        *,
        model: Callable[[], nn.Module] | None = None,
        captured: bool = True,
        compiled: bool = False,
        length: int | None = None,
    ) -> None:
        self.config, self.data, self.device = config, data, torch.empty(0, device=device).device
        self.num_steps, self.batch_size = length or config.num_steps, config.batch_size
        self.objective = MANY_LABELS if data.multi_label else ONE_LABEL
        cuda = self.device.type == "cuda"
        self.captured = captured and cuda and self.num_steps > EAGER
        self.mixed_precision = cuda  # bf16 where autocast sees fit
        self.pictures, self.tests = train_and_test_pictures(data, self.device)
        self.labels = data.y_train.to(self.device)
        self.net = move_to_device(initialised(model or self._model, config.seed), self.device)
        self.forward: Callable[..., Tensor] = torch.compile(self.net) if compiled else self.net
        self.imp = self._engine()
        self.lr = torch.tensor(config.lr, device=self.device)
        self.optimizer = make_optimizer(config, self.net, self.lr)
        self.imp.attach(self.optimizer, rule=rule_of(config))
        self.effective: emais.EffectiveSchedule | None = None
        if config.schedule != "steps":  # a step counts by its factor
            self.effective = emais.EffectiveSchedule(self._cosine, self.imp, optimizer=self.optimizer)
        self._look = 0  # before this step a run at equal progress cannot be over
        self.curves = Curves(self.num_steps, 1, self.batch_size, self.device)
        self._t = torch.zeros((), dtype=torch.int64, device=self.device)
        self._crops, self._looks = self._random()
        self._u, self._rate = self._crops(self._t + 1), self.lr.clone()  # of the step to come
        self._graph: torch.cuda.CUDAGraph | None = None
        self.stream, self._side = (torch.cuda.Stream(self.device) if cuda else None for _ in range(2))
        self.done, self.seconds, self.timed = 0, 0.0, 0
        self.heartbeat: Callable[[], None] = lambda: None  # called now and then where there are no steps to count

    def _model(self) -> nn.Module:
        channels, size = self.data.x_train.shape[1:3]
        return make_resnet(self.config.model, recipe(self.data).crop or size, channels, self.data.num_classes)

    def _engine(self) -> Engine:
        c = self.config
        shared = {"batch_size": c.batch_size, "num_steps": self.num_steps, "seed": c.seed, **c.options}
        shared["effective_steps"] = c.schedule == "progress"
        return emais.create(c.method, len(self.pictures), device=self.device, resident=True, **shared)

    def _random(self) -> tuple[Uniforms, Uniforms]:
        """Random numbers for crops, and in the rows below for branches to leave out; and for crops by sample.

        Where candidates are looked at first, a sample must be trained on as it was seen: with another crop its
        gradient can be anything, and 1/q large.
        """
        blocks = len(self.net.blocks) if getattr(self.net, "stochastic_depth", 0) else 0  # type: ignore[arg-type]
        return (
            Uniforms(mix(self.config.seed, CROPS), 1 + blocks, self.batch_size, self.device),
            Uniforms(mix(self.config.seed, LOOKS), 1, len(self.pictures) if self.imp.needs_score else 1, self.device),
        )

    # ---- one step

    def step(self) -> None:
        """Draw, crop, forward, backward, statistics, update, log: no host sync."""
        self._t.add_(1)
        draw = self.imp.draw(self._score) if self.imp.needs_score else self.imp.draw()  # type: ignore[call-arg]
        u = self._u.clone()
        if self.imp.needs_score:
            u[0] = self._seen(draw.index)
        x, y = self.pictures(draw.index, u[0]), self.labels.index_select(0, draw.index)
        with self._autocast():
            z = self.forward(x, u[1:]) if len(u) > 1 else self.forward(x)
        z = z.float()
        losses, grads = self.objective.losses(z, y), self.objective.gradients(z, y)
        loss = self.imp.loss(losses, z, draw, grads=grads)
        self._prepare()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        factor = self.imp.monitor.lr_scale().float()
        self.curves.log(loss.detach().view(1), self.lr.view(1), factor.view(1), [self.imp.monitor.sums()])
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)
        if self.effective is None:
            self.lr.copy_(self._rate)
        else:
            self.effective.step()

    def _prepare(self) -> None:
        """Random numbers and learning rate of the next step: on a GPU beside the backward pass, which is longer."""
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):  # None: no stream, nothing to do
            self._u.copy_(self._crops(self._t + 1))
            self._rate.copy_(self.config.lr * self._cosine(self._t))

    def _score(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and logits of candidates; the engine has the network in evaluation mode, without gradients."""
        with self._autocast():
            z = self.net(self.pictures(index, self._seen(index)))
        z = z.float()
        return self.objective.losses(z, self.labels.index_select(0, index)), z

    def _seen(self, index: Tensor) -> Tensor:
        """Random numbers for the crops of these samples in this step."""
        return self._looks(self._t)[0].index_select(0, index)

    def _cosine(self, t: Any) -> Tensor:
        """What the learning rate is multiplied by after t steps."""
        return torch.cos(torch.as_tensor(math.pi / self.num_steps * t)).mul_(0.5).add_(0.5)

    def _autocast(self) -> AbstractContextManager[Any]:
        # without the cache: a graph must cast the weights again on every replay
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if self.mixed_precision else nullcontext()

    # ---- all steps

    def train(self, points: int = 20, on_steps: Callable[[int], None] | None = None) -> None:
        """Train to the end; test errors, or mAP, at `points` places."""
        train_together([self], points, on_steps)

    def advance(self, steps: int, on_steps: Callable[[int], None] | None = None) -> None:
        """Train so many steps on."""
        advance_together([self], self.done + steps, on_steps)

    def warm_up(self, end: int, on_steps: Callable[[int], None] | None = None) -> None:
        """The steps up to the capture, if there is to be one, but not beyond step `end`."""
        while self.captured and self._graph is None and self.done < end:
            self.tick(on_steps)

    def count(self, steps: int, seconds: float) -> None:
        """Add to what `ms_per_step` is made of."""
        self.timed, self.seconds = self.timed + steps, self.seconds + seconds

    def tick(self, on_steps: Callable[[int], None] | None = None) -> None:
        """Start one step; the first few are eager, the last of these is followed by the capture."""
        self._start_step()
        self.done += 1
        if self.captured and self.done == EAGER:
            self._graph = self._capture()
        self._refresh()
        if on_steps is not None:
            on_steps(1)

    @property
    def over(self) -> bool:
        """Whether the run has come to its end; one at equal progress asks the device only where that can be."""
        if self.config.schedule == "progress" and self._look <= self.done < self.num_steps:
            left = self.num_steps - self.imp.effective_steps  # sync
            if left > 0:
                self._look = self.done + max(1, int(left / self.imp.monitor.bound))
            return left <= 0
        return self.done >= self.num_steps

    def _start_step(self) -> None:
        if self._graph is not None:
            self.imp.maintain()
            self._graph.replay()
        elif self.stream is None:
            self.step()
        else:  # on the stream that the graph will be captured from, as torch asks for
            self.stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(self.stream), cudnn_benchmark():
                self.step()
            torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _capture(self) -> torch.cuda.CUDAGraph:
        gc.collect()  # runs that are over may lie about in cycles, with all their GPU memory
        graph = torch.cuda.CUDAGraph()
        self.wait()
        with cudnn_benchmark(), torch.cuda.graph(graph, stream=self.stream):
            self.step()
        return graph

    def wait(self) -> None:
        """Until the device has done all that was started."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # ---- evaluation

    @torch.no_grad()
    def outputs(self, pictures: Pictures, chunk: int = 1000) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and logits of all images, part by part: the crops in the middle, in evaluation mode."""
        for index in torch.arange(len(pictures), device=self.device).split(chunk):
            self.heartbeat()
            self.net.eval()
            with self._autocast():
                z = self.net(pictures(index))
            self.net.train()
            yield index, z.float()

    def _refresh(self) -> None:
        """Update the statistics of all samples, where the configuration wants it now."""
        if not self.config.refresh_every or self.done % self.config.refresh_every:
            return
        for index, z in self.outputs(self.pictures):
            y = self.labels.index_select(0, index)
            self.imp.refresh(index, self.objective.losses(z, y), z, grads=self.objective.gradients(z, y))

    def evaluate(self) -> float:
        """Percentage of the test set that is classified wrongly, or its mAP."""
        z = torch.cat([z for _, z in self.outputs(self.tests)])
        return self.objective.measure(z, self.data.y_test.to(self.device))

    def _forward_uniform(self, k: int) -> None:
        """Forward pass of the k-th of some minibatches taken evenly from the training set, cropped as in training."""
        self.heartbeat()
        order = torch.randperm(len(self.pictures), generator=torch.Generator().manual_seed(self.config.seed))
        places = torch.arange(k * self.batch_size, (k + 1) * self.batch_size)
        index = order[places % len(order)].to(self.device)
        u = self._crops(self._t.new_tensor(self.num_steps + 1 + k))  # crops that no step has had
        with self._autocast():
            self.net(self.pictures(index, u[0]), *([u[1:]] if len(u) > 1 else []))

    def train_loss(self) -> float:
        """The mean loss over the training set, of the crops in the middle, in evaluation mode."""
        parts = [self.objective.losses(z, self.labels.index_select(0, i)) for i, z in self.outputs(self.pictures)]
        return float(torch.cat(parts).double().mean())

    def finish(self) -> Iterator[tuple[Config, dict[str, Any]]]:
        """(configuration, result), after `train`."""
        curves, name = self.curves.of(0), self.objective.name
        curves[name] = curves.pop("test_error")
        result = {
            name: curves[name][-1],
            **self._recalibrated(),
            "train_loss": self.train_loss(),
            "steps": self.done,
            "ms_per_step": 1e3 * self.seconds / self.timed,
            "side_by_side": 1,
            "effective_steps": float(self.done if self.effective is None else self.effective.t_eff),
            **failure_counts(self.imp),
        }
        yield self.config, result | {"curves": curves}

    def _recalibrated(self) -> dict[str, float]:
        """The metric with BatchNorm's statistics taken again from uniform minibatches; nothing without BatchNorm."""
        if not any(isinstance(module, nn.BatchNorm2d) for module in self.net.modules()):
            return {}
        with fresh_statistics(self.net, self._forward_uniform):
            return {"recalibrated": self.evaluate()}
