"""Importance sampling in a transformers Trainer. Imported by name only: `import emais` does not load transformers.

    from emais.transformers import ImportanceTrainer

    trainer = ImportanceTrainer(model=model, args=args, train_dataset=dataset)  # instead of Trainer(...)
    trainer.train()
    print(trainer.importance.summary())

docs/guides/transformers.md says what is supported and how the loss of sequences is normalised.
"""

from __future__ import annotations

try:
    import accelerate  # noqa: F401
    import transformers  # noqa: F401
except ImportError as error:
    raise ImportError("emais.transformers needs transformers: pip install emais[transformers]") from error

from .trainer import ImportanceMixin, ImportanceTrainer

__all__ = ["ImportanceMixin", "ImportanceTrainer"]
