"""The loss is the one that the model computes from its labels, also of encoder-decoders; another one is refused."""

import pytest
import tiny
import torch
from datasets import Dataset
from replays import IMPORTANCE, PLAIN, Recorded, Replayed, losses, make
from transformers import (
    BartConfig,
    BartForCausalLM,
    BartForConditionalGeneration,
    MixtralConfig,
    MixtralForCausalLM,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    T5ForSequenceClassification,
)

from emais import EmaisError

SIZES = {"vocab_size": tiny.VOCABULARY, "d_model": 8}


def pairs(num=30):
    """Labels that have nothing to do with the inputs, and are of another length."""
    sources, targets = tiny.sentences(num), tiny.sentences(num, seed=7)
    return Dataset.from_dict({"input_ids": sources, "labels": targets})


def pad(rows):
    """Inputs and labels, each padded to its own longest."""
    labels = tiny.pad([{"input_ids": row["labels"], "labels": row["labels"]} for row in rows])["labels"]
    return tiny.pad([{"input_ids": row["input_ids"], "label": 0} for row in rows]) | {"labels": labels}


def bart(cls=BartForConditionalGeneration, **config):
    torch.manual_seed(0)
    layers = {f"{part}_{name}": k for part in ("encoder", "decoder") for name, k in (("layers", 1), ("ffn_dim", 8))}
    heads = {f"{part}_attention_heads": 2 for part in ("encoder", "decoder")}
    return cls(BartConfig(**SIZES, **layers, **heads, **config, dropout=0.0, pad_token_id=0, decoder_start_token_id=1))


T5 = {"d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0, "decoder_start_token_id": 0}


def t5(cls=T5ForConditionalGeneration, **config):
    torch.manual_seed(0)
    return cls(T5Config(**SIZES, **T5, **config))


def switch():
    torch.manual_seed(0)
    experts = {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_experts": 2}
    return SwitchTransformersForConditionalGeneration(SwitchTransformersConfig(**SIZES, **T5, **experts))


def routing(rows):
    """Switch Transformers take this with the minibatch, not from their config."""
    return pad(rows) | {"output_router_logits": True}


def mixtral(router=True):
    torch.manual_seed(0)
    sizes = {"vocab_size": tiny.VOCABULARY, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_local_experts": 2}
    return MixtralForCausalLM(MixtralConfig(**sizes, **heads, output_router_logits=router))


def ending(rows):
    """Each sequence ends with the token that T5's classifier looks for."""
    return tiny.pad([row | {"input_ids": [*row["input_ids"], 19]} for row in rows])


def endless(num):
    rows = [[min(token, 18) for token in row] for row in tiny.sentences(num)]
    return Dataset.from_dict({"input_ids": rows, "label": [k % 2 for k in range(num)]})


TASKS = {
    "BART": (bart, pairs, pad),
    "T5": (t5, pairs, pad),
    "T5 as a classifier": (lambda: t5(T5ForSequenceClassification, num_labels=2, eos_token_id=19), endless, ending),
    "experts": (lambda: mixtral(router=False), tiny.texts, tiny.pad),
}


# the loss of BART and T5 ignores how much is accumulated
@pytest.mark.parametrize(("task", "accumulate"), [("experts", 3), *((task, 1) for task in TASKS)])
def test_without_importance_the_run_is_the_trainers(tmp_path, task, accumulate):
    model, dataset, collate = TASKS[task]
    options = {"gradient_accumulation_steps": accumulate, "max_steps": 5}
    ours = make(model(), tmp_path, Recorded, dataset(64), PLAIN, collate, **options)
    ours.train()
    theirs = make(model(), tmp_path, Replayed, dataset(64), None, collate, **options)
    theirs.minibatches = ours.minibatches()
    theirs.train()
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-5)
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [bart, t5])
def test_importance_sampling_of_an_encoder_decoder(tmp_path, model):
    """It learns a target that does not depend on the source, and its own evaluation says so."""
    dataset = Dataset.from_dict({"input_ids": tiny.sentences(40), "labels": [[5, 6, 7, 8]] * 40})
    options = {"max_steps": 60, "learning_rate": 0.05, "logging_steps": 20}
    ours = make(model(), tmp_path, dataset=dataset, importance=IMPORTANCE, collate=pad, **options)
    ours.train()
    assert ours.evaluate(dataset)["eval_loss"] < 0.3
    assert ours.importance.diagnostics.step == 60


def test_decoder_inputs_of_the_collator_stay(tmp_path):
    seen = []

    def decoding(rows):
        batch = pad(rows)
        return batch | {"decoder_input_ids": torch.full_like(batch["labels"], 3)}

    model = bart()
    model.register_forward_pre_hook(lambda _, __, given: seen.append(given["decoder_input_ids"]), with_kwargs=True)
    make(model, tmp_path, dataset=pairs(), importance=PLAIN, collate=decoding, max_steps=2).train()
    assert all((ids == 3).all() for ids in seen)


class NoWayForConditionalGeneration(BartForConditionalGeneration):
    prepare_decoder_input_ids_from_labels = None


@pytest.mark.parametrize(
    ("model", "dataset", "collate", "words"),
    [
        (
            lambda: bart(BartForCausalLM, init_std=0.5),
            tiny.texts,
            tiny.pad,
            r"BartForCausalLM computes .* of the first minibatch",
        ),
        (mixtral, tiny.texts, tiny.pad, "aux_loss belongs to no sample: switch output_router_logits off"),
        (switch, pairs, routing, "encoder_z_loss belongs to no sample: switch output_router_logits off"),
        (
            lambda: bart(NoWayForConditionalGeneration),
            pairs,
            pad,
            "NoWay.* makes no decoder inputs from labels.*decoder_input_ids",
        ),
    ],
    ids=["labels are not shifted", "router", "routers", "no decoder inputs"],
)
def test_another_loss_is_refused(tmp_path, model, dataset, collate, words):
    trainer = make(model(), tmp_path, dataset=dataset(), importance=PLAIN, collate=collate, max_steps=2)
    with pytest.raises(EmaisError, match=words):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.filterwarnings("ignore:.*all within the warm-up")
def test_the_look_at_the_loss_leaves_no_trace(tmp_path):
    """Dropout, and so the run, is what it is without: twice the same, and the modules train."""
    found = []
    for importance in (PLAIN, IMPORTANCE):
        ours = make(tiny.classifier(dropout=0.5), tmp_path, Recorded, tiny.classes(), importance, max_steps=1)
        state = torch.random.get_rng_state()
        ours.train()
        found.append(losses(ours))
        assert all(module.training for module in ours.model.modules())
        torch.random.set_rng_state(state)
    theirs = make(tiny.classifier(dropout=0.5), tmp_path, Replayed, tiny.classes(), max_steps=1)
    theirs.minibatches = ours.minibatches()
    theirs.train()
    assert found[0] == found[1] == pytest.approx(losses(theirs), rel=1e-6)
