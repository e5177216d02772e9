"""The engine of a run: made when the train DataLoader is known, kept for further fits, saved and put back."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from ..distributed import group_size
from ..engine import Engine
from ..errors import EmaisError
from ..methods import create
from .checks import BY_HAND, check_alike, check_end, check_length, check_optimizers, check_samples

TUNED = "{}. A tuner has tried this size: end its search before, with max_trials=, or max_val= where mode is binsearch"


class RunEngine:
    """Makes an engine of one method and settings, and attaches it to the optimizers of a Trainer.

    seed, where it is asked for: of an engine that is made now, if neither the settings nor a checkpoint has one.
    """

    def __init__(self, method: str, settings: dict[str, Any], rule: str | None, scale_decay: bool) -> None:
        self.engine: Engine | None = None
        self.resized: tuple[int, int] | None = None  # samples a step before and now, where that cost the statistics
        self._method, self._settings = method, settings
        self._rule, self._scale_decay = rule, scale_decay
        self._saved: dict[str, Any] | None = None  # a loaded state, until there is an engine
        self._group: Any = None  # of the processes that the engine was made with
        self._handles: list[Any] = []
        self._tuned = False  # whether a tuner has chosen the size that an engine is to be made for

    def take(self, dataloader: DataLoader[Any], group: Any, seed: int, end: bool | float | None) -> Engine:
        """The engine for this DataLoader on each process of the group.

        end: effective_steps of the engine; None while a tuner searches, which nothing should end.
        """
        assert dataloader.batch_size is not None  # it was checked
        if self.engine is not None and self._was_tried(self.engine, end):
            self.forget()
        if self.engine is not None:
            self._keep(dataloader.batch_size * group_size(group), group)
        if self.engine is None:
            self._tuned = end is None or self._tuned
            try:
                self.engine, self._tuned = self._made_for(dataloader, group, seed, end), False
            except EmaisError as error:
                if self._tuned:
                    raise EmaisError(TUNED.format(error)) from None
                raise
        check_length(dataloader, self.engine.num_samples, "so far")
        if end is not None:
            check_end(self.engine.progress.goal, end or None)
        return self.engine

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to go on from: no engine that was used, and no saved state."""
        return self.engine is None and self._saved is None

    def _was_tried(self, engine: Engine, end: bool | float | None) -> bool:
        """Whether a tuner has used it, without an end, and taken its steps back."""
        return end is not None and not engine.step and engine.progress.goal != (end or None)

    def _keep(self, samples: int, group: Any) -> None:
        """Keep the statistics that there are, unless a step has another number of samples from now on."""
        assert self.engine is not None
        if self.engine.global_batch_size != samples:
            self.resized = self.engine.global_batch_size, samples
            self.forget()
        elif self._group is not group:  # other processes go on with them
            saved = self.engine.state_dict()
            self.forget()
            self._saved = saved

    def _made_for(self, dataloader: Any, group: Any, seed: int, end: bool | float | None) -> Engine:
        saved = None if self._saved is None else self._saved["settings"]
        if saved is not None:
            check_samples(saved["batch_size"], dataloader.batch_size, group_size(group))
            check_length(dataloader, saved["num_samples"], "in the checkpoint")
            if end is not None:
                check_end(saved["effective_steps"], end or None)
            seed, end = saved["seed"], saved["effective_steps"] or False
        engine = self._make(len(dataloader.dataset), dataloader.batch_size, group, seed, end or False)
        if self._saved is not None:
            check_alike(self._saved, engine)
            engine.load_state_dict(self._saved)
        self._saved, self._group = None, group
        return engine

    def _make(self, num_samples: int, batch_size: int, group: Any, seed: int, end: bool | float) -> Engine:
        settings = {"seed": seed} | self._settings | {"process_group": group, "effective_steps": end}
        engine = create(self._method, num_samples, batch_size, **settings)
        if self._settings.get("effective_steps") is True:
            engine.progress.fewest = 0  # the Trainer has counted them
        return engine

    def forget(self) -> None:
        """Drop the engine and leave the optimizers as they were."""
        self.attach([])
        self.engine = self._saved = self._group = None

    def attach(self, optimizers: list[Any]) -> None:
        """Let the engine scale the steps of these optimizers, and of no others."""
        if [id(handle.optimizer) for handle in self._handles] == [id(optimizer) for optimizer in optimizers]:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if not optimizers:
            return
        assert self.engine is not None
        self.engine.attached.watch.way_out = BY_HAND
        self.engine.attached.told_to_observe = True  # the callback refuses a forgotten loss
        if self._rule is None:
            check_optimizers(optimizers, self.engine.rule)
        for optimizer in optimizers:
            self._handles.append(self._attached(self.engine, optimizer))

    def _attached(self, engine: Engine, optimizer: Any) -> Any:
        try:
            return engine.attach(optimizer, self._rule, scale_decay=self._scale_decay)
        except EmaisError as error:
            ours = str(error).replace('attach it with rule="none"', 'ImportanceSampling(rule="none")')
            raise EmaisError(ours) from error

    # ---- saving

    def state(self) -> dict[str, Any] | None:
        """The state of the engine; None before the first batch, so that a tuner can take its steps back."""
        return self._saved if self.engine is None else self.engine.state_dict()

    def load(self, saved: dict[str, Any] | None, under_way: bool) -> None:
        """Take over what `state` gave, at once or when the train DataLoader is known.

        under_way: a fit has its loader already, and goes on with the engine of it. Only a tuner loads states then.
        """
        if self.engine is not None and saved is not None and self._fits(self.engine, saved["settings"]):
            check_alike(saved, self.engine)
            self.engine.load_state_dict(saved)
        elif self.engine is not None and under_way:
            engine = self.engine
            end = engine.progress.goal or False
            fresh = self._make(engine.num_samples, engine.batch_size, self._group, engine.seed, end)
            engine.load_state_dict(fresh.state_dict())
            self.resized = None if saved is None else (saved["settings"]["batch_size"], engine.global_batch_size)
        else:
            self.forget()
            self._saved = saved

    def _fits(self, engine: Engine, saved: dict[str, Any]) -> bool:
        """Whether the state is of as many samples a step, of this end, and of this seed if nobody has asked for one."""
        same_seed = "seed" in self._settings or saved["seed"] == engine.seed
        same_end = saved["effective_steps"] == engine.progress.goal
        return bool(same_seed and same_end and saved["batch_size"] == engine.global_batch_size)
