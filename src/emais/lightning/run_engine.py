"""The engine of a run: made when the train DataLoader is known, kept for further fits, saved and put back."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from ..distributed import group_size
from ..engine import Engine
from ..errors import EmaisError
from ..methods import create
from .checks import check_length, check_optimizers, check_samples

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

    def take(self, dataloader: DataLoader[Any], group: Any, seed: int, tuning: bool) -> Engine:
        """The engine for this DataLoader on each process of the group; tuning: a tuner tries batch sizes."""
        assert dataloader.batch_size is not None  # it was checked
        if self.engine is not None:
            self._keep(dataloader.batch_size * group_size(group), group)
        if self.engine is None:
            self._tuned = tuning or self._tuned
            try:
                self.engine, self._tuned = self._made_for(dataloader, group, seed), False
            except EmaisError as error:
                if self._tuned:
                    raise EmaisError(TUNED.format(error)) from None
                raise
        check_length(dataloader, self.engine.num_samples, "so far")
        return self.engine

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

    def _made_for(self, dataloader: Any, group: Any, seed: int) -> Engine:
        saved = None if self._saved is None else self._saved["settings"]
        if saved is not None:
            check_samples(saved["batch_size"], dataloader.batch_size, group_size(group))
            seed = saved["seed"]
        engine = self._make(len(dataloader.dataset), dataloader.batch_size, group, seed)
        if saved is not None:
            check_length(dataloader, saved["num_samples"], "in the checkpoint")
            engine.load_state_dict(self._saved)  # type: ignore[arg-type]
        self._saved, self._group = None, group
        return engine

    def _make(self, num_samples: int, batch_size: int, group: Any, seed: int) -> Engine:
        settings = {"seed": seed} | self._settings | {"process_group": group}
        return create(self._method, num_samples, batch_size, **settings)

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
        if self._rule is None:
            check_optimizers(optimizers, self.engine.rule)
        for optimizer in optimizers:
            self._handles.append(self.engine.attach(optimizer, self._rule, scale_decay=self._scale_decay))

    # ---- saving

    def state(self) -> dict[str, Any] | None:
        """The state of the engine; None before the first batch, so that a tuner can take its steps back."""
        return self._saved if self.engine is None else self.engine.state_dict()

    def load(self, saved: dict[str, Any] | None, under_way: bool) -> None:
        """Take over what `state` gave, at once or when the train DataLoader is known.

        under_way: a fit has its loader already, and goes on with the engine of it. Only a tuner loads states then.
        """
        if self.engine is not None and saved is not None and self._fits(self.engine, saved["settings"]):
            self.engine.load_state_dict(saved)
        elif self.engine is not None and under_way:
            engine = self.engine
            fresh = self._make(engine.num_samples, engine.batch_size, self._group, engine.seed)
            engine.load_state_dict(fresh.state_dict())
            self.resized = None if saved is None else (saved["settings"]["batch_size"], engine.global_batch_size)
        else:
            self.forget()
            self._saved = saved

    def _fits(self, engine: Engine, saved: dict[str, Any]) -> bool:
        """Whether the state is of as many samples a step, and of this seed if nobody has asked for one."""
        same_seed = "seed" in self._settings or saved["seed"] == engine.seed
        return bool(same_seed and saved["batch_size"] == engine.global_batch_size)
