"""The mixin with trainers of TRL: SFTTrainer takes its loss from us, one with a loss of its own is refused."""

import pytest
import tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from emais import EmaisError
from emais.transformers import ImportanceMixin

# of TRL, about transformers
pytestmark = pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")


class ImportanceSFTTrainer(ImportanceMixin, SFTTrainer):
    pass


def tokenizer():
    words = {f"w{k}": k for k in range(tiny.VOCABULARY - 2)} | {"<pad>": 18, "<eos>": 19}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<eos>")), pad_token="<pad>", eos_token="<eos>"
    )


def make(folder, cls, importance=None, **options):
    given = {"per_device_train_batch_size": 4, "max_steps": 12, "learning_rate": 0.01, "logging_steps": 4}
    given |= {"use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    args = SFTConfig(str(folder), **(given | {"dataloader_pin_memory": False, "max_length": None} | options))
    dataset = tiny.texts().remove_columns("labels")
    rest = {"importance": importance} if issubclass(cls, ImportanceMixin) else {}
    return cls(model=tiny.language_model(), args=args, train_dataset=dataset, processing_class=tokenizer(), **rest)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_supervised_fine_tuning(tmp_path, accumulate):
    """Its own numbers are still logged, and the first epoch, without importance, has the loss that it has alone."""
    importance = {"method": "emais", "warmup_epochs": 1}
    trainer = make(tmp_path, ImportanceSFTTrainer, importance, gradient_accumulation_steps=accumulate)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["step"] for row in logged] == [4, 8, 12]
    assert {"emais/n_ems", "emais/lr_scale", "mean_token_accuracy"} <= logged[-1].keys()
    assert trainer.importance.diagnostics.step > 8  # an epoch, and importance after it
    plain = make(tmp_path, SFTTrainer, gradient_accumulation_steps=accumulate)
    plain.train()
    first = next(row["loss"] for row in plain.state.log_history if "loss" in row)
    assert logged[0]["loss"] == pytest.approx(first, rel=0.05)  # other minibatches of the same epoch


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"packing": True, "max_length": 16}, "Leave packing and padding_free off"),
        ({"loss_type": "dft"}, "loss_type='dft'"),
    ],
)
def test_what_has_no_loss_per_sample_is_refused(tmp_path, options, words):
    with pytest.raises(EmaisError, match=words):
        make(tmp_path, ImportanceSFTTrainer, **options).train()
