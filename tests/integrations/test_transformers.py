"""A Trainer that draws by importance: its loss, its steps, and what it leaves alone."""

import pytest
import tiny
import torch
from replays import IMPORTANCE, PLAIN, Recorded, Replayed, losses, make
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
)

from emais.transformers import ImportanceTrainer

# ---- the loss


def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": tiny.VOCABULARY, "n_positions": tiny.LONGEST, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def bert(cls):
    torch.manual_seed(0)
    sizes = {"vocab_size": tiny.VOCABULARY, "hidden_size": 8, "intermediate_size": 8, "num_labels": tiny.VOCABULARY}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return cls(BertConfig(**sizes, **heads, **dropout, max_position_embeddings=tiny.LONGEST))


def several(rows):
    """Minibatches for three outputs at once."""
    batch = tiny.pad(rows)
    return batch | {"labels": torch.stack([batch["labels"] == k % 2 for k in range(3)], 1).float()}


def number(rows):
    """Minibatches for one number."""
    batch = tiny.pad(rows)
    return batch | {"labels": batch["labels"].float()}


TASKS = {
    "Llama": (tiny.language_model, tiny.texts, tiny.pad),
    "GPT-2": (gpt2, tiny.texts, tiny.pad),
    "masked": (lambda: bert(BertForMaskedLM), tiny.texts, tiny.pad),
    "tokens": (lambda: bert(BertForTokenClassification), tiny.texts, tiny.pad),
    "one class": (tiny.classifier, tiny.classes, tiny.pad),
    "several classes": (lambda: tiny.classifier(num_labels=3), tiny.classes, several),
    "a number": (lambda: tiny.classifier(num_labels=1), tiny.classes, number),
}


# the loss of BERT's heads ignores how much is accumulated, and smoothing is of one class among several
CASES = [(task, smoothing, 3) for task in ("Llama", "GPT-2") for smoothing in (0.0, 0.2)]
CASES += [(task, 0.0, 1) for task in TASKS] + [(task, 0.2, 1) for task in ("Llama", "tokens", "one class")]


@pytest.mark.parametrize(("task", "smoothing", "accumulate"), CASES)
def test_without_importance_the_training_loss_is_the_trainers(tmp_path, task, smoothing, accumulate):
    """With r = 1 the run is that of a Trainer on the same minibatches, step by step."""
    model, dataset, collate = TASKS[task]
    options = {"label_smoothing_factor": smoothing, "gradient_accumulation_steps": accumulate, "max_steps": 5}
    ours = make(model(), tmp_path, Recorded, dataset(64), PLAIN, collate, **options)  # 16 minibatches an epoch
    ours.train()
    theirs = make(model(), tmp_path, Replayed, dataset(64), None, collate, **options)
    theirs.minibatches = ours.minibatches()
    theirs.train()
    assert len(losses(ours)) == 5
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-5)
    if dataset is tiny.texts:
        assert ours.items == theirs.items
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_classifier_averages_over_all_that_is_accumulated(tmp_path):
    """Three minibatches of four samples give the step that one minibatch of these twelve gives."""
    small = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "max_steps": 1, "optim": "sgd"}
    ours = make(tiny.classifier(), tmp_path, Recorded, tiny.classes(), PLAIN, **small)
    ours.train()
    index = torch.cat([batch["emais_draw"].index for batch in ours.fetched]).tolist()
    large = make(tiny.classifier(), tmp_path, Replayed, tiny.classes(), max_steps=1, optim="sgd")
    rows = tiny.classes()
    large.minibatches = [tiny.pad([{k: v for k, v in rows[i].items() if k != "note"} for i in index])]
    large.train()
    assert losses(ours) == pytest.approx(losses(large), rel=1e-5)
    for one, other in zip(ours.model.parameters(), large.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_each_minibatch_meets_its_own_draw(tmp_path, accumulate):
    """The loss is the sum of r times the losses of the drawn sequences, over what a uniform draw would have had."""
    dataset, sums = tiny.texts(48), []

    class Watched(Recorded):
        def training_step(self, model, inputs, num_items_in_batch=None):
            batch = {name: x for name, x in inputs.items() if name != "emais_draw"}
            labels = batch.pop("labels")[:, 1:]
            with torch.no_grad():
                z = model(**batch).logits[:, :-1].transpose(1, 2)
            losses = torch.nn.functional.cross_entropy(z, labels, reduction="none").sum(1)
            sums.append(float(inputs["emais_draw"].r @ losses))
            return super().training_step(model, inputs, num_items_in_batch)

    options = {"gradient_accumulation_steps": accumulate, "max_steps": 24 // accumulate, "learning_rate": 0.1}
    ours = make(tiny.language_model(), tmp_path, Watched, dataset, IMPORTANCE, **options)  # 12 minibatches an epoch
    ours.train()
    rows, draws = dataset["input_ids"], [batch["emais_draw"] for batch in ours.fetched]
    for batch, draw in zip(ours.fetched, draws, strict=True):
        ids = [x[mask.bool()].tolist() for x, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
        assert ids == [rows[k] for k in draw.index.tolist()]
    assert [bool((draw.r == 1).all()) for draw in draws] == [True] * 12 + [False] * 12
    expected = [sum(sums[k : k + accumulate]) for k in range(0, 24, accumulate)]
    assert losses(ours) == pytest.approx([s / n for s, n in zip(expected, ours.items, strict=True)], rel=1e-5)
    mean = sum(len(row) - 1 for row in rows) / 48
    assert ours.items[-1] == pytest.approx(4 * accumulate * mean)
    assert ours.importance.diagnostics.batch_size == 4 * accumulate  # all of a step, whatever their lengths


@pytest.mark.parametrize("ignored", [False, True])
def test_labels_of_a_classifier_that_are_ignored(tmp_path, ignored):
    """Every third sample has no label: it has no part in the loss, nor in what the loss is divided by."""

    def collate(rows):
        batch = tiny.pad(rows)
        return batch | {"labels": batch["labels"].where(batch["input_ids"][:, 0] % 3 > 0, -100 if ignored else 0)}

    ours = make(tiny.classifier(), tmp_path, Recorded, tiny.classes(32), IMPORTANCE, collate, max_steps=16)
    ours.train()
    known = sum(row[0] % 3 > 0 for row in tiny.classes(32)["input_ids"]) if ignored else 32
    assert ours.items[-1] == pytest.approx(4 * known / 32)
    assert ours.items[:8] == [float((batch["labels"] != -100).sum()) for batch in ours.fetched[:8]]


# ---- the run


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("length", [{"max_steps": 11}, {"max_steps": -1, "num_train_epochs": 2}])
@pytest.mark.parametrize("drop_last", [False, True])
def test_steps_are_as_without_importance(tmp_path, accumulate, length, drop_last):
    options = {"gradient_accumulation_steps": accumulate, "dataloader_drop_last": drop_last, **length}
    found = []
    for cls, importance in ((ImportanceTrainer, IMPORTANCE), (Trainer, None)):
        watch = tiny.Watch()
        dataset = tiny.classes(29)
        trainer = make(tiny.classifier(), tmp_path, cls, dataset, importance, rest={"callbacks": [watch]}, **options)
        trainer.train()
        rates = [(row["learning_rate"], row["epoch"]) for row in trainer.state.log_history if "loss" in row]
        found.append((trainer.state.global_step, watch.steps, trainer.state.epoch, rates))
    assert found[0] == found[1]


def test_evaluation_and_prediction_are_the_trainers(tmp_path):
    """Before, during and after training, and with label smoothing; and they use up no draws."""
    options = {"label_smoothing_factor": 0.1, "max_steps": 9, "eval_strategy": "steps", "eval_steps": 2}
    test = tiny.classes(20, seed=5)
    ours = make(
        tiny.classifier(), tmp_path, Recorded, tiny.classes(), IMPORTANCE, rest={"eval_dataset": test}, **options
    )
    theirs = make(tiny.classifier(), tmp_path, Trainer, tiny.classes(), rest={"eval_dataset": test}, **options)
    for trained in (False, True):
        if trained:
            ours.train()
            theirs.model.load_state_dict(ours.model.state_dict())
        assert ours.evaluate()["eval_loss"] == theirs.evaluate()["eval_loss"]
        assert (ours.predict(test).predictions == theirs.predict(test).predictions).all()
    assert [batch["emais_draw"].step for batch in ours.fetched] == list(range(1, 10))


def test_numbers_are_logged_with_the_training_loss(tmp_path):
    options = {"logging_steps": 5, "max_steps": 20, "eval_strategy": "steps", "eval_steps": 10, "learning_rate": 0.05}
    options["per_device_train_batch_size"] = 10
    rest = {"eval_dataset": tiny.texts(8, seed=3)}
    ours = make(tiny.language_model(), tmp_path, dataset=tiny.texts(60), importance=IMPORTANCE, rest=rest, **options)
    ours.train()
    history = ours.state.log_history
    trained = [row for row in history if "loss" in row]
    assert [row["step"] for row in trained] == [5, 10, 15, 20]
    for row in trained:
        assert row["emais/n_ems"] > 0
        assert row["emais/lr_scale"] > 0
    assert [row["emais/score"] for row in trained if "emais/score" in row]  # where it can be told
    assert trained[-1]["emais/n_ems"] == pytest.approx(ours.importance.summary(5).n_ems)
    assert not [row for row in history if "loss" not in row and any(name.startswith("emais/") for name in row)]


def test_an_audit_logs_what_it_projects(tmp_path):
    options = {"logging_steps": 5, "max_steps": 30, "learning_rate": 0.01, "per_device_train_batch_size": 6}
    ours = make(tiny.classifier(), tmp_path, dataset=tiny.classes(60), importance={"method": "audit"}, **options)
    ours.train()
    rows, found = [row for row in ours.state.log_history if "loss" in row], ours.importance.finding()
    assert ["emais/projected_n_ems" in row for row in rows] == [False, False, False, True, True, True]  # two epochs
    assert rows[-1]["emais/projected_n_ems"] == pytest.approx(found.n_ems)
    assert rows[-1]["emais/projected_n_ems_low"] < found.n_ems < rows[-1]["emais/projected_n_ems_high"]


def test_the_rate_is_scaled_and_its_schedule_is_not(tmp_path):
    options = {"max_steps": 24, "optim": "sgd", "lr_scheduler_type": "cosine"}
    importance = IMPORTANCE | {"rule": "linear"}
    ours = make(tiny.language_model(), tmp_path, dataset=tiny.texts(), importance=importance, **options)
    ours.train()
    theirs = make(tiny.language_model(), tmp_path, Trainer, tiny.texts(), **options)
    theirs.train()
    rates = [[row["learning_rate"] for row in t.state.log_history if "loss" in row] for t in (ours, theirs)]
    assert rates[0] == rates[1]
    assert ours.importance.diagnostics.rule == "linear"
    assert abs(ours.importance.effective_steps - 24) > 0.1


def test_a_second_run_begins_anew(tmp_path):
    """And the engine of the first has no part in it."""
    ours = make(tiny.classifier(), tmp_path, Recorded, tiny.classes(), IMPORTANCE)
    ours.train()
    first, worth = ours.importance, ours.importance.effective_steps
    draws = [batch["emais_draw"].index.tolist() for batch in ours.fetched]
    ours.fetched = []
    ours.train()
    assert ours.importance is not first
    assert (first.step, first.effective_steps) == (12, worth)
    assert [batch["emais_draw"].index.tolist() for batch in ours.fetched][:8] == draws[:8]  # the same seed
    assert ours.state.global_step == 12


def test_the_seed_is_the_trainers(tmp_path):
    engines = []
    for options in ({"seed": 3}, {"seed": 3, "data_seed": 4}):
        options |= {"importance": {"warmup_epochs": 0}, "max_steps": 1}
        ours = make(tiny.classifier(), tmp_path, dataset=tiny.classes(), **options)
        ours.train()
        engines.append(ours.importance)
    assert [imp.seed for imp in engines] == [3, 4]
    assert {imp.name for imp in engines} == {"emais-auto"}


@pytest.mark.parametrize(
    ("options", "planned"),
    [({"max_steps": 8}, 8), ({"max_steps": -1, "num_train_epochs": 1}, 8),
     ({"max_steps": 2, "gradient_accumulation_steps": 4}, 8), ({"max_steps": 1}, 1)],
)  # fmt: skip
def test_a_run_within_the_warm_up_is_told_once(tmp_path, options, planned):
    ours = make(tiny.classifier(), tmp_path, dataset=tiny.classes(), importance=IMPORTANCE, **options)
    with pytest.warns(UserWarning, match=r'set importance=\{"warmup_epochs": ...\} lower, or train longer') as told:
        ours.train()
    assert len(told) == 1
    assert f"this run has {planned} minibatch{'es' * (planned > 1)}, all within the" in str(told[0].message)
    assert "of the warm-up, which draws as plain training does" in str(ours.importance.summary())


@pytest.mark.parametrize(
    ("importance", "steps"),
    [(IMPORTANCE, 9), (IMPORTANCE | {"warmup_epochs": 0.5}, 8), ({"method": "audit"}, 4), ({"method": "sgd-uni"}, 4)],
)
def test_of_other_runs_nothing_is_told(tmp_path, importance, steps):
    ours = make(tiny.classifier(), tmp_path, dataset=tiny.classes(), importance=importance, max_steps=steps)
    ours.train()  # a warning would be an error here
    assert "warm-up" not in str(ours.importance.summary())


def test_a_look_at_the_training_data_is_a_plain_one(tmp_path):
    ours = make(tiny.classifier(), tmp_path, dataset=tiny.classes(), importance=IMPORTANCE)
    batch = next(iter(ours.get_train_dataloader()))
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert ours.importance is None


def test_losses_of_the_users_own(tmp_path):
    """compute_loss_func with a loss per sample: the training loss is the mean of r times it."""
    calls = []

    def own(outputs, labels, num_items_in_batch=None):
        calls.append(torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="none") * 2)
        return calls[-1]

    rest = {"compute_loss_func": own, "eval_dataset": tiny.classes(8)}
    ours = make(tiny.classifier(), tmp_path, Recorded, tiny.classes(), IMPORTANCE, rest=rest)
    ours.train()
    assert ours.compute_loss_func is own
    draws = [batch["emais_draw"] for batch in ours.fetched]
    expected = [float(draw.r @ found.detach()) / 4 for draw, found in zip(draws, calls, strict=True)]
    assert losses(ours) == pytest.approx(expected, rel=1e-5)
    assert ours.evaluate()["eval_loss"] > 0


def test_a_compiled_model(tmp_path):
    options = {"torch_compile": True, "torch_compile_backend": "aot_eager", "max_steps": 10}
    runs = [
        make(tiny.classifier(), tmp_path, dataset=tiny.classes(), importance=IMPORTANCE, **given)
        for given in (options, {"max_steps": 10})
    ]
    for run in runs:
        run.train()
    assert losses(runs[0]) == pytest.approx(losses(runs[1]), rel=1e-4)
    assert runs[0].importance.diagnostics.step == 10
