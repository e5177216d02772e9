"""The engine: draws, observes, reports and scales, composed from the rooms. Methods fill in its hooks (hooks.py)."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from . import state as saving
from .draws.source import DeviceSource, DrawSource, HostSource
from .errors import EmaisError, UnknownOption, positive_int, usable_device, whole_number
from .hooks import Hooks
from .loading.draw import Draw, DrawRecord, Score
from .loading.engine_loader import EngineLoader
from .loading.passes import Pass, PassTracker
from .observing.checks import checked_record, per_sample
from .observing.diagnostics import Diagnostics
from .observing.handover import Handover
from .observing.monitor import Monitor
from .observing.observation import Observation
from .observing.refreshing import refresh
from .observing.samples import Losses, Samples, pick_samples
from .observing.summary import RunCounts, Summary
from .processes import processes_of
from .processes.making import Making
from .rates.attached import Attached
from .rates.effective_steps import Progress
from .rates.manual import ManualStep
from .rates.rules import AT_LEAST_1
from .rates.scaling import StepScaler
from .statistics.arrays import Array, arrays_on


class Engine(Hooks, metaclass=Making):
    """What all methods share. A method sets `name` and fills in the hooks it needs; docs/your_own_method.md.

    num_samples: M; batch_size: N; num_steps: T, where the loader ends (None: one epoch a pass, for ever);
    seed: all randomness is a function of (seed, step); device: where the statistics live. On the CPU (default) the
    model may still be on any device; a CUDA device is for `draw()`, with data that lies there too: such an engine is
    `resident`, it never waits for the device and can be captured in a CUDA graph.
    effective_steps: True ends the run when its steps are worth num_steps ordinary ones; a number of steps does so for
    passes of one epoch each. max_scale bounds the learning-rate factor (None: 32, steady 10, steady-sqrt its root);
    smoothing in [0, 1) averages the sums behind the other rules over steps (0: the paper); unbiased corrects the traces
    for the plug-in mean. process_group: processes that train one model together, each with batch_size samples a step;
    they wait for each other at most `timeout` seconds. sharded: each of them has a part of the samples, num_samples of
    its own (docs/distributed.md).
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int = 128,
        num_steps: int | None = None,
        seed: int = 0,
        *,
        device: torch.device | str = "cpu",
        resident: bool | None = None,
        effective_steps: bool | float = False,
        max_scale: float | None = None,
        smoothing: float = 0.0,
        unbiased: bool = False,
        process_group: Any = None,
        sharded: bool = False,
        timeout: float = 1800.0,
        **unknown: Any,
    ) -> None:
        for option in unknown:
            raise UnknownOption(self.name, option, self.settings())
        self.num_samples = num_samples = positive_int("num_samples", num_samples)
        self.batch_size = batch_size = positive_int("batch_size", batch_size)
        self.num_steps = num_steps = None if num_steps is None else positive_int("num_steps", num_steps)
        self.seed, self.device = seed, device = whole_number("seed", seed, 0, 2**63 - 1), usable_device(device)
        self.arrays = arrays_on(self.device, resident)
        self.processes = processes_of(self, process_group, sharded, timeout)
        self.global_batch_size, self.draw_size = batch_size * self.processes.size, self.processes.draw_size
        self.total_samples = self.processes.total_samples
        self.epoch_length = epoch = -(-self.total_samples // self.global_batch_size)  # steps
        self.monitor = Monitor(smoothing, unbiased, max_scale, self.arrays, epoch, self.processes.size > 1)
        drawn = self.candidates or self.draw_size  # samples that the source gives a step
        if self.arrays.resident:
            self.source: DrawSource = DeviceSource(num_samples, drawn, seed, self.epoch_steps, num_steps, self.device)
        else:
            self.source = HostSource(num_samples, drawn, self.processes.draw_seed, self.epoch_steps)
        self._handover = Handover(self.arrays, self._report, self._learn, self.source.prepare, self.processes.exchange)
        self._settled, self.lock = self._handover, self._handover.lock
        self.diagnostics = Diagnostics(self.monitor, self._settled, self.estimator, self.report)
        self.progress = Progress(effective_steps, num_steps, self.arrays, epoch, self.monitor.max_scale)
        self.ends = self.progress.goal is not None  # whether a run may come to its end inside a pass
        self.attached = Attached(self.monitor, self.progress, self._settled, self.scale, 2 * epoch, lambda: self.step)
        self.passes = PassTracker()

    def __repr__(self) -> str:
        sizes = f"num_samples={self.num_samples}, batch_size={self.batch_size}, num_steps={self.num_steps}"
        return f"{type(self).__name__}({sizes}, seed={self.seed})"

    def saved_settings(self) -> dict[str, Any]:
        """Settings that must agree between a saved state and the engine that loads it."""
        report = {name: getattr(self.monitor, name) for name in ("smoothing", "unbiased", "max_scale")}
        report["effective_steps"] = self.progress.goal
        return {"num_samples": self.total_samples, "batch_size": self.global_batch_size, "seed": self.seed, **report}

    # ---- drawing

    def loader(self, dataset: Any, *, score: Score | None = None, **options: Any) -> EngineLoader:
        """A loader over `dataset` that yields (batch, draw); `options`, as num_workers=2, go to torch's DataLoader.

        A DataLoader in place of `dataset` hands over its data set and its options; those given here replace its own.
        score: only for methods that look at more samples than they train on; see `Presampling`.
        """
        with self.processes.making_loader():
            loader = EngineLoader(self, dataset, options, score)
        with self._settled:
            self.processes.loader_made(self, loader)
        return loader

    def draw(self) -> Draw:
        """The next draw, for data that is indexed directly. On a CUDA device: no host sync, can be captured."""
        with self.lock:
            if (left := self.passes.left_over()) is not None:
                return left
            self._handover.settle(self.processes.known_to(self.source.step))
            if not (self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
                self.maintain()
            return self.make_draw(*self.source.take())

    def make_draw(self, step: int | Tensor, index: Array, r: Array) -> Draw:
        """A draw of this engine, of samples and r that belong together."""
        lanes, coefficient = self.processes.lanes, self.processes.coefficient
        record = DrawRecord(self, index[lanes], r[lanes], everyone=(index, r))
        r = record.r if coefficient == 1 else record.r * coefficient
        # copied: whoever writes to the tensors of a draw changes nothing in the record
        return Draw(self.arrays.copy(record.index), self.arrays.copy(r), step, record)

    def pass_length(self) -> int:
        """Steps of a whole pass over the loader: an epoch, or at most all that are left of num_steps."""
        if self.num_steps is None:
            return self.epoch_length
        return max(0, self.progress.at_most(self.num_steps - self.step, self.monitor.rule in AT_LEAST_1))

    def begin_pass(self) -> Pass:
        """Begin a pass over a loader; after a resume, what is left of the epoch that was saved."""
        with self.lock:
            return self.passes.begin(self.pass_length(), self.num_steps is None, self.step)

    @property
    def step(self) -> int:
        """Steps handed out so far."""
        with self.lock:
            return int(self.source.step) - len(self.passes.ahead())  # sync on a device: one integer

    @property
    def effective_steps(self) -> float:
        """How many ordinary steps the steps so far are worth: the sum of their learning-rate factors."""
        with self._settled:
            return self.progress.ask()

    @property
    def finished(self) -> bool:
        """Whether a run with `effective_steps` has come to its end; sync on a device."""
        return self.attached.finished() or (self.ends and self.num_steps is not None and self.step >= self.num_steps)

    def summary(self, steps: int | None = None) -> Summary:
        """What the latest epoch, or so many steps of it, and the run looked like, from sums; waits for a device."""
        steps = None if steps is None else positive_int("steps", steps)
        with self._settled:
            fallback, monitor, progress = int(self.report().get("fallback_steps", 0)), self.monitor, self.progress
            counts = int(monitor.counts[0]), fallback, monitor.added, self.attached.counted(), progress.effective()
            run = RunCounts(*counts, 0 < int(monitor.step) <= (self.epoch_steps or 0), progress.counts())
            return monitor.recent.summary(run, monitor.rule, monitor.bound, steps)

    def samples(self, count: int = 100, *, losses: Losses | None = None) -> Samples:
        """The hardest, the most unstable and the never seen samples, at most `count` of each: O(M), for analysis.

        losses: of all samples (M,), or a function from indices (n,) to losses (n,) that is asked for those listed.
        """
        with self._settled:
            return pick_samples(self.name, self.step, self.sample_statistics(), count, losses)

    # ---- observing

    def loss(
        self,
        losses: Tensor,
        logits: Tensor | None,
        draw: Draw,
        *,
        grads: Tensor | None = None,
        norms: Tensor | None = None,
        mean_norm: Tensor | None = None,
    ) -> Tensor:
        """Observe the minibatch and return its training loss: mean(r * losses), unless the method says otherwise.

        losses (N,): one number per sample (reduction="none"); logits (N, ...): what the losses were computed from.
        grads (N, ...): d loss_i / d z_i, where a closed form gives it cheaper than autograd. norms (N,): |d loss_i / d
        z_i| instead, where the gradients would be too large; logits may then be None. mean_norm: |mean(r g)| beside
        them, if it is known; without it the gradients of different samples count as orthogonal (docs/math.md).

        Paper: alg:train_emais
        """
        with self.lock:
            given = {"grads": grads, "norms": norms, "mean_norm": mean_norm}
            record, g, signal = self._look(losses, logits, draw, given)
            loss = self.attached.watched(self.reduce(losses, draw, signal))
            self._post(draw, record, g, signal)  # last: a thread that it wakes would take Python's lock
            return loss

    def observe(self, losses: Tensor, logits: Tensor | None, draw: Draw, **given: Tensor | None) -> None:
        """Take the per-sample gradients into the statistics and the variance report, and leave the loss alone.

        given: grads, norms and mean_norm, as for `loss`.
        """
        with self.lock:
            self._post(draw, *self._look(losses, logits, draw, given))

    def _look(
        self, losses: Tensor, logits: Tensor | None, draw: Draw, given: dict[str, Tensor | None]
    ) -> tuple[DrawRecord, Tensor, Tensor | None]:
        """The record of a draw that was not used yet, its gradients (N, D) or norms, and the method's signal."""
        record = checked_record(self, losses, draw)
        g = per_sample(losses, logits, **given)
        return record, g, self.own_signal(losses, logits, g, draw.step)

    def own_signal(self, losses: Tensor, logits: Any, g: Tensor, step: int | Tensor) -> Tensor | None:
        """What the method's `signal` gives: of gradients (N, D), or of norms as a column (N, 1)."""
        if g.dim() == 1 and self.needs_gradients:
            raise EmaisError(f"{self.name} looks at the gradients themselves, norms= cannot serve: leave it out")
        return self.signal(losses.detach(), logits, g if g.dim() == 2 else g[: len(losses), None], step)

    def _post(self, draw: Draw, record: DrawRecord, g: Tensor, signal: Tensor | None) -> None:
        record.used = True
        self._handover.post(draw.step, record, g, signal)

    def _report(self, observed: Observation) -> None:
        if self.attached.unclosed:
            self.attached.close_unclosed()
        self.monitor.add(observed)
        if self.attached.scalers:
            self.monitor.lr_scale()
            self.attached.remind()
        else:
            self.monitor.close()
            self.progress.add(1.0)
            if self.rule != "none":
                self.attached.remind_to_attach(self.epoch_steps or 0)

    def _learn(self, observed: Observation) -> None:
        self.processes.before_learning(self, observed.step)
        self.learn(observed)
        self.source.ready = False

    def refresh(self, index: Tensor, losses: Tensor, logits: Tensor | None, **given: Tensor) -> None:
        """Update the statistics of samples that were looked at but not trained on, at the present step.

        index (n,) int64, losses (n,), logits (n, ...), and perhaps grads or norms, as in `loss`. A forward pass without
        gradients serves, if the logits are made to require them: ``z = model(x).detach().requires_grad_()``.

        Paper: fig:additional_state_updates
        """
        with self._settled:
            refresh(self, index, losses, logits, given)

    # ---- the learning rate

    @overload
    def attach(self, optimizer: Optimizer, rule: str | None = None, *, scale_decay: bool = True) -> StepScaler: ...

    @overload
    def attach(self, optimizer: None, rule: str | None = None) -> ManualStep: ...

    def attach(
        self, optimizer: Optimizer | None, rule: str | None = None, *, scale_decay: bool = True
    ) -> StepScaler | ManualStep:
        """Let each `optimizer.step` use its learning rate times the factor of its minibatch; the rate never changes.

        rule: linear, sqrt, gain, rais, steady, steady-sqrt or none. By default EMAIS takes linear for SGD and sqrt for
        the Adam family, EMAIS-auto the steady one of the two, RAIS takes rais, the other methods none. scale_decay:
        whether the factor multiplies weight decay, too, as it does if nothing is done about it; False waits for a GPU.
        Returns a handle whose `remove()` detaches.

        None instead of an optimizer, with a rule, is for an update of your own: see `ManualStep`.
        """
        with self._settled:
            scaler = self.attached.add(optimizer, rule, self.rule, scale_decay)
        # the optimizer's step is where the side stream is joined
        self._handover.overlap = self.arrays.resident and self.device.type == "cuda"
        return scaler

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs; minibatches drawn ahead by workers are delivered again."""
        with self._settled:
            return saving.save(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state_dict`; one of another engine, or a damaged one, is refused by name and changes nothing."""
        with self._settled:
            saving.load_into(self, state)
