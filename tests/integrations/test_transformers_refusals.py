"""What cannot work is refused before or in the first step, with what to do instead."""

import pytest
import tiny
import torch
from datasets import Dataset
from torch.utils.data import WeightedRandomSampler
from transformers import Adafactor, BertConfig, BertForQuestionAnswering, Trainer

from emais import EmaisError
from emais.transformers import ImportanceMixin, ImportanceTrainer


def make(folder, cls=ImportanceTrainer, model=None, dataset=None, importance=None, rest=None, **options):
    dataset, model = dataset or tiny.classes(), model or tiny.classifier()
    importance = importance or {"warmup_epochs": 0}  # of two steps, a warm-up would be all
    args = tiny.arguments(folder, **({"max_steps": 2} | options))
    rest = {"data_collator": tiny.pad, **(rest or {})}
    return cls(model=model, args=args, train_dataset=dataset, importance=importance, **rest)


def refused(trainer, words, **options):
    with pytest.raises(EmaisError, match=words):
        trainer.train(**options)
    assert trainer.state.global_step == 0


@pytest.mark.parametrize(
    ("importance", "words"),
    [
        ("emais", 'must be a dict such as {"method": "emais"}, got \'emais\''),
        ({"batch_size": 4}, "'batch_size', which the Trainer decides by args.per_device_train_batch_size"),
        ({"num_samples": 4}, "the Trainer decides by len"),
        ({"num_steps": 9}, "the Trainer decides by args.max_steps"),
        ({"effective_steps": 12.5}, "effective_steps=12.5: the Trainer decides .* pass effective_steps=True"),
        ({"sharded": True}, "the Trainer decides by giving every process the whole train_dataset"),
        ({"process_group": None}, "the Trainer decides by the processes that torchrun"),
        ({"method": "presampling"}, "choose another method"),
    ],
)
def test_settings(tmp_path, importance, words):
    with pytest.raises(EmaisError, match=words):
        make(tmp_path, importance=importance)


def test_settings_of_the_method(tmp_path):
    for importance, words in (
        ({"method": "emias"}, "did you mean 'emais'"),
        ({"tua": 3}, "takes no 'tua'"),
        ({"rule": "lin"}, "rule must be one of .* got 'lin'"),
    ):
        with pytest.raises(EmaisError, match=words):
            make(tmp_path, importance=importance)


def test_several_processes(tmp_path, monkeypatch):
    trainer = make(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused(trainer, "WORLD_SIZE=2 .* but the Trainer knows of 1.*start them with torchrun")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"train_sampling_strategy": "group_by_length"},
            "train_sampling_strategy='group_by_length'.*leave it at 'random'",
        ),
        ({"train_sampling_strategy": "sequential"}, "train_sampling_strategy='sequential'"),
        ({"auto_find_batch_size": True}, "set per_device_train_batch_size"),
    ],
)
def test_arguments(tmp_path, options, words):
    refused(make(tmp_path, **options), words)


def test_a_sampler_of_ones_own(tmp_path):
    class Weighed(ImportanceTrainer):
        def _get_train_sampler(self, *_):
            return WeightedRandomSampler(torch.ones(30), 30)

    refused(make(tmp_path, Weighed), "a sampler of its own, WeightedRandomSampler.*the engine draws")


def test_a_stream(tmp_path):
    stream = Dataset.from_dict({"input_ids": [[1, 2]], "label": [0]}).to_iterable_dataset()
    refused(make(tmp_path, dataset=stream), "IterableDataset, which has no length.*not a streamed one")


def test_a_collator_that_makes_no_dict(tmp_path):
    def pairs(rows):
        return torch.zeros(len(rows), 3), torch.zeros(len(rows))

    refused(make(tmp_path, rest={"data_collator": pairs}), "made a tuple of a minibatch: have it return a dict")


def test_a_model_without_logits(tmp_path):
    sizes = {"vocab_size": tiny.VOCABULARY, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model = BertForQuestionAnswering(BertConfig(**sizes, num_attention_heads=2))
    refused(
        make(tmp_path, model=model),
        "BertForQuestionAnswering returns start_logits and end_logits.*not supported",
    )
    model = BertForQuestionAnswering(BertConfig(**sizes, num_attention_heads=2))
    own = {"compute_loss_func": lambda outputs, labels, num_items_in_batch=None: outputs.start_logits.sum(1)}
    refused(
        make(tmp_path, model=model, rest=own), "BertForQuestionAnswering returned no logits, only start_logits, end_"
    )


def test_a_reduced_loss(tmp_path):
    def reduced(outputs, labels, num_items_in_batch=None):
        return torch.nn.functional.cross_entropy(outputs.logits, labels)

    refused(make(tmp_path, rest={"compute_loss_func": reduced}), r"shape \(4,\), got shape \(\).*one per sample")


def test_a_loss_that_is_divided_by_items(tmp_path):
    def divided(outputs, labels, num_items_in_batch=None):
        return torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch

    refused(
        make(tmp_path, rest={"compute_loss_func": divided}),
        r"compute_loss_func raised TypeError.*num_items_in_batch=None.*shape \(N,\), one per sample",
    )


def test_the_mixin_comes_first():
    with pytest.raises(EmaisError, match=r"class Last\(ImportanceMixin, Trainer\)"):

        class Last(Trainer, ImportanceMixin):
            pass


def test_an_unknown_optimizer(tmp_path):
    class Unknown(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        def step(self, closure=None):
            pass

    model = tiny.classifier()
    optimizer = Unknown(model.parameters())
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    rest = {"optimizers": (optimizer, schedule)}
    refused(make(tmp_path, model=model, rest=rest), r'for Unknown: give importance=\{"rule": ...\} with one of linear')


def test_minibatches_without_labels(tmp_path):
    def unlabelled(rows):
        return {name: x for name, x in tiny.pad(rows).items() if name != "labels"}

    refused(make(tmp_path, rest={"data_collator": unlabelled}), "has no labels, only input_ids, attention_mask")


def test_a_trainer_with_a_loss_of_its_own(tmp_path):
    class Own(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs).loss

    class Both(ImportanceMixin, Own):
        pass

    refused(make(tmp_path, Both), "Both.compute_loss never called compute_loss_func")


def test_a_loader_of_ones_own(tmp_path):
    class Own(ImportanceTrainer):
        def get_train_dataloader(self):
            return Trainer.get_train_dataloader(self)

    refused(make(tmp_path, Own), "no draw: get_train_dataloader was replaced")


def test_adafactor_without_a_rate(tmp_path):
    model = tiny.classifier()
    optimizer = Adafactor(model.parameters())  # relative_step=True: no rate
    schedule = torch.optim.lr_scheduler.LRScheduler.__new__(torch.optim.lr_scheduler.LRScheduler)
    rest = {"optimizers": (optimizer, schedule)}
    refused(
        make(tmp_path, model=model, rest=rest),
        r'Adafactor has relative_step=True.* or give importance=\{"rule": "none"\}',
    )


def test_a_checkpoint_of_a_plain_trainer(tmp_path):
    args = tiny.arguments(tmp_path, max_steps=2, save_strategy="steps", save_steps=1)
    Trainer(model=tiny.classifier(), args=args, train_dataset=tiny.classes(), data_collator=tiny.pad).train()
    trainer = make(tmp_path)
    with pytest.raises(EmaisError, match=r"checkpoint-1 has no emais.pt.*without resume_from_checkpoint"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_a_checkpoint_that_was_cut_off(tmp_path):
    make(tmp_path, save_strategy="steps", save_steps=1).train()
    path = tmp_path / "checkpoint-1" / "emais.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(EmaisError, match=r"checkpoint-1.emais.pt cannot be read .* resume from another checkpoint"):
        make(tmp_path).train(resume_from_checkpoint=str(path.parent))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"dataset": 31}, "of 30 samples, and train_dataset has 31.*give the data set of that run"),
        ({"per_device_train_batch_size": 5}, "minibatches of 4 samples, here 5: set per_device_train_batch_size=4"),
        ({"importance": {"method": "emais"}}, "same importance= and seed: method is 'emais-auto' in the state"),
        ({"importance": {"kappa": 3.0, "warmup_epochs": 0}}, "same importance= and seed: .*kappa is 1.0 in the state"),
    ],
)
def test_a_checkpoint_of_another_run(tmp_path, other, words):
    make(tmp_path, save_strategy="steps", save_steps=1).train()
    given = {**other, "dataset": tiny.classes(other.get("dataset", 30))}
    trainer = make(tmp_path, **given)
    with pytest.raises(EmaisError, match=words):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
