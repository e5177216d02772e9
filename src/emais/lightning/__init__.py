"""Importance sampling in Lightning: a callback for the trainer, and the loss of a training step.

Three lines of a script change, this import included::

    import emais.lightning

    trainer = Trainer(callbacks=[emais.lightning.ImportanceSampling()])

    def training_step(self, batch, batch_idx):
        logits = self(inputs)
        losses = cross_entropy(logits, targets, reduction="none")
        return emais.lightning.loss(self, losses, logits)

`import emais` does not import this room: it needs Lightning (``pip install emais[lightning]``).
"""

try:
    import lightning.pytorch  # noqa: F401
except ImportError as error:
    raise ImportError("emais.lightning needs Lightning: pip install emais[lightning]") from error

from .callback import ImportanceSampling
from .training import loss

__all__ = ["ImportanceSampling", "loss"]
