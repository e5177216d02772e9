"""A Trainer that draws by importance, and the mixin that makes one of another Trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import Trainer

from ..engine import Engine
from ..errors import EmaisError
from ..loading.draw import Draw
from .effective import EarlyEnd, follow_effective_steps, minibatches
from .minibatches import KEY, PlainLooks, draw_of
from .model_loss import check_loss, with_decoder_inputs
from .objective import Objective, norms_of
from .refusals import (
    check_arguments,
    check_order,
    check_sampler,
    checked_samples,
    checked_settings,
    logits_of,
    users_losses,
)
from .session import Session

if TYPE_CHECKING:
    from transformers import Trainer as Host  # what the mixin is combined with
else:
    Host = object


class ImportanceMixin(Host):
    """Importance sampling for a Trainer: ``class MyTrainer(ImportanceMixin, SFTTrainer): ...``.

    importance: settings as of `emais.create`, with the method's name as "method" (default "emais-auto"), and `rule` or
    `scale_decay` of `attach`. All other arguments are the Trainer's. During and after `train()` the engine is
    `trainer.importance`. Evaluation and prediction are the Trainer's own. Several processes of torchrun draw one
    minibatch together.
    """

    compute_loss_func: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_order(cls, ImportanceMixin)

    def __init__(self, *args: Any, importance: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self.importance_settings = checked_settings(importance)
        self._session: Session | None = None
        self._begins = False  # whether the next training DataLoader is that of a run
        self._objective: Objective | None = None
        self._checked = False  # whether the loss is known to be the model's own
        super().__init__(*args, **kwargs)
        self.callback_handler.callbacks.insert(0, PlainLooks(self._begin_run))  # before any callback can look
        if self.importance_settings.get("effective_steps"):
            self.add_callback(EarlyEnd(self))

    @property
    def importance(self) -> Engine | None:
        """The engine of the present or latest run of `train()`; None before the first."""
        return None if self._session is None else self._session.engine

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As of the Trainer."""
        check_arguments(self)
        if self._session is not None:
            self._session.detach()  # another engine scales the optimizer now
        self._session, self._objective, self._begins, self._checked = None, None, True, False
        try:
            return super().train(*args, **kwargs)
        finally:
            self._begins = False
            if self._session is not None:
                self._session.close()

    # ---- minibatches with their draws

    def get_train_dataloader(self) -> Any:
        """In `train()`: minibatches drawn by importance. Elsewhere: the Trainer's own, for a look at the data."""
        plain = super().get_train_dataloader()
        if not self._begins:
            return plain
        check_sampler(plain, getattr(self.args, "train_sampling_strategy", "random"))
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        settings = {"seed": seed, **self.importance_settings}
        if settings.get("effective_steps"):
            settings["effective_steps"] = float(minibatches(self, plain))
        self._begins, self._session = False, Session(plain, self.accelerator.num_processes, settings)
        return self._session.batches

    def _begin_run(self, steps: int) -> None:
        """Show callbacks the Trainer's own DataLoader, and say so if the whole run will be plain training."""
        if self._session is not None:
            self.callback_handler.train_dataloader = self._session.plain
            if self.is_world_process_zero():
                self._session.warn_of_plain_run(steps, self.args.gradient_accumulation_steps)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """As of the Trainer; with effective_steps it follows them."""
        scheduler: Any = super().create_scheduler(num_training_steps, optimizer)
        if self.importance_settings.get("effective_steps") and self.importance is not None:
            scheduler = follow_effective_steps(
                scheduler, self._created_lr_scheduler, self.importance, num_training_steps
            )
            self.lr_scheduler = scheduler
        return scheduler

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> Any:
        """As of the Trainer; the number of items is what a uniform draw would have had."""
        if self.importance is not None and self.importance.finished:
            return [], None  # resumed at its end
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches:
            return batches, None
        draws = [draw_of(batch) for batch in batches]
        return batches, torch.tensor(self._expected_items(batches, draws, device)).to(device)  # a tensor, as Trainer's

    def _expected_items(self, batches: list[Any], draws: list[Draw], device: Any) -> float:
        assert self._session is not None  # the minibatches have come from it
        items, several = self._session.items, self.accelerator.num_processes > 1
        pairs = list(zip(batches, draws, strict=True))
        ours = type(self).count_items is ImportanceMixin.count_items
        if not several and ours and all(self._one_each(*pair) for pair in pairs):
            found = items.of_ones(sum(map(len, draws)))
            if found is not None:
                return found
        counts = [checked_samples("labels", self.count_items(batch), draw) for batch, draw in pairs]
        gather = (lambda rows: self.accelerator.gather(rows.to(device))) if several else None
        return items.of_step(draws, counts, gather, not self.args.average_tokens_across_devices)

    def _one_each(self, batch: Mapping[str, Any], draw: Draw) -> bool:
        return self.compute_loss_func is not None or self._objective_of_model().one_each(batch, len(draw))

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> Any:
        if batch_samples and KEY in batch_samples[0]:
            return None  # get_batch_samples counts them
        return super()._get_num_items_in_batch(batch_samples, device)

    def count_items(self, batch: Mapping[str, Any]) -> Tensor:
        """How many items (N,) the samples of a minibatch have: the loss is the mean over items."""
        if self.compute_loss_func is not None:
            return torch.ones(len(draw_of(batch)))
        return self._objective_of_model().count(batch)

    # ---- one training step

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """As of the Trainer, with the loss of the minibatch's own draw."""
        draw, session = draw_of(inputs), self._session
        assert session is not None  # the minibatch has come from it
        session.attach(self.optimizer)
        inputs = self._model_inputs(inputs)
        with self._weighted(draw, session) as used:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        if not used:
            raise EmaisError(
                f"{type(self).__name__}.compute_loss never called compute_loss_func, so it computes a loss of its own "
                "that is not weighted by r: importance sampling needs the loss of each sample. Use a Trainer that "
                "leaves compute_loss alone, or a plain loop"
            )
        return loss

    def _model_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A minibatch as the model takes it; before the first step, a look whether the loss is the model's own."""
        batch = {name: value for name, value in inputs.items() if name != KEY}
        batch = with_decoder_inputs(self._base_model(), batch)
        if not self._checked and self.compute_loss_func is None:
            model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
            check_loss(model, self._prepare_inputs(batch), self._objective_of_model())
        self._checked = True
        return batch

    @contextmanager
    def _weighted(self, draw: Draw, session: Session) -> Iterator[list[Draw]]:
        """While a training step runs, the loss function is ours: the Trainer hands it outputs and labels."""
        given: Any = self.compute_loss_func
        scaled: Any = getattr(self, "loss_is_scaled_for_ga", None)
        used: list[Draw] = []

        def weigh(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Tensor:
            used.append(draw)
            logits = logits_of(outputs, self.model)
            if given is None:
                losses, norms = self._objective_of_model().losses(logits, labels, draw.r)
            else:
                losses = checked_samples("losses", users_losses(given, outputs, labels), draw)
                norms = norms_of(losses, logits, draw.r)
            loss = session.engine.loss(losses, logits, draw, **norms)
            weighted: Tensor = loss * (len(draw) / num_items_in_batch)  # the sum of r times the losses, over the items
            return weighted

        self.compute_loss_func, self.loss_is_scaled_for_ga = weigh, True
        try:
            yield used
        finally:
            self.compute_loss_func, self.loss_is_scaled_for_ga = given, scaled

    def _base_model(self) -> Any:
        model = self.accelerator.unwrap_model(self.model)
        return model.get_base_model() if hasattr(model, "get_base_model") else model  # of PEFT

    def _objective_of_model(self) -> Objective:
        if self._objective is None:
            smoothing = 0.0 if self.label_smoother is None else self.label_smoother.epsilon
            # the Trainer leaves the first label out only where it knows that the loss does
            self._objective = Objective.of(
                self._base_model(), smoothing, not getattr(self, "_loss_shifts_labels", False)
            )
        return self._objective

    # ---- logs and checkpoints

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As of the Trainer; the training loss comes with emais/n_ems and the other numbers of `emais.log_numbers`."""
        if self._session is not None and "loss" in logs:
            logs = logs | self._session.report(max(1, int(self.state.logging_steps or 1)))
        super().log(logs, *args, **kwargs)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self._session is not None and self.args.should_save:
            self._session.save(output_dir, self.lr_scheduler)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self._session is not None:
            self._session.load(checkpoint, self.lr_scheduler)


class ImportanceTrainer(ImportanceMixin, Trainer):
    """A transformers Trainer that draws by importance: `Trainer` with one more argument, see `ImportanceMixin`."""
