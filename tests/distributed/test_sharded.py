"""Each process has a part of the samples: it draws by itself, and all take the same steps."""

import pytest
import torch
from replicated_runs import BATCH, SAMPLES, counted, differences, train
from sharded_runs import EQUAL, UNEQUAL, PartRun, draws_alone, exchanges_in_flight, group_of_one, own, train_part

pytestmark = pytest.mark.launched

METHODS = ("sgd-scan", "sgd-uni", "rais", "emais", "emais-auto", "audit")


def check_together(results):
    """The model, the learning rate and the report are the same on all processes, to the bit."""
    first = results[0]
    for other in results[1:]:
        assert torch.equal(first["parameters"], other["parameters"])
        assert first["factors"] == other["factors"]
        assert first["numbers"] == other["numbers"]
        assert first["length"] == other["length"]


@pytest.mark.parametrize("cuts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
def test_all_take_the_same_steps(pair, cuts):
    results = pair(train_part, cuts=cuts, steps=200)
    check_together(results)
    assert len(set(results[0]["factors"])) > 100
    assert results[0]["draws"] != results[1]["draws"]
    assert results[0]["length"] == SAMPLES // BATCH


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_weights_its_losses(pair, method):
    results = pair(train_part, method=method, steps=100)
    check_together(results)
    assert torch.isfinite(results[0]["parameters"]).all()


def test_r_holds_the_share_of_the_part(pair):
    """r is K M_k/M in the warm-up; and its mean over the part, under the probabilities of the draw, always is."""
    for rank, result in enumerate(pair(train_part, steps=200)):
        share = 2 * (UNEQUAL[rank + 1] - UNEQUAL[rank]) / SAMPLES
        warm = -(-(UNEQUAL[rank + 1] - UNEQUAL[rank]) // (BATCH // 2))
        for step, index, r in result["draws"]:
            assert max(index) < UNEQUAL[rank + 1] - UNEQUAL[rank]
            if step <= warm:
                assert r == pytest.approx([share] * len(r), rel=1e-6)
        later = torch.tensor([x for step, _, r in result["draws"] if step > warm for x in r])
        error = float(later.std()) / len(later) ** 0.5
        assert abs(float(later.mean()) - share) < 4 * error
        assert float(later.std()) > 0.05 * share


def test_the_factor_is_1_while_all_draw_uniformly(pair):
    """Also where parts are unequal: a scan of parts is what plain training would do."""
    results = pair(train_part, steps=30)
    assert results[0]["factors"] == [1.0] * 30


def test_the_factor_is_1_then_from_norms_too(pair):
    results = pair(train_part, steps=30, norms=True)
    assert results[0]["factors"] == [1.0] * 30
    check_together(results)


def test_exchanges_do_not_pile_up_where_nobody_asks_for_the_factor(pair):
    assert max(pair(exchanges_in_flight)) <= 65


def test_workers_accumulation_and_a_gradient_that_is_not_finite(pair):
    check_together(pair(train_part, steps=60, workers=[0, 2], num_steps=60))
    results = pair(train_part, steps=90, accumulate=3)
    check_together(results)
    assert len(results[0]["factors"]) == 30
    results = pair(train_part, steps=90, spoil=(1, 70))
    check_together(results)
    assert [result["diagnostics"]["nonfinite"] for result in results] == [0, 1]


def test_methods_that_ignore_r_need_parts_of_one_size(pair):
    for message in pair.errors(train_part, method="confidence"):
        assert "all parts must have one size, got [400, 240]" in message
    check_together(pair(train_part, method="confidence", cuts=EQUAL, steps=60))


def test_a_part_that_is_too_small_is_an_error_everywhere(pair):
    for message in pair.errors(train_part, cuts=(0, SAMPLES - 5, SAMPLES)):
        assert "the part of rank 1 is too small: batch_size=8 is above kappa * num_samples = 1 * 5" in message


@pytest.mark.parametrize("form", [train, train_part], ids=["replicated", "sharded"])
def test_a_scaler_of_gradients_skips_the_same_steps(pair, form):
    """GradScaler leaves out a step whose gradients are not finite, which all processes share; factors stay equal."""
    first, second = pair(form, steps=80, scaled=True, explode=(1, 60), **({} if form is train_part else {"size": 2}))
    assert first["factors"] == second["factors"]
    assert first["skipped"] == second["skipped"] == 1
    assert torch.equal(first["parameters"], second["parameters"])
    assert torch.isfinite(first["parameters"]).all()


def test_one_process_with_all_samples_is_that_process(pair):
    alone = train(size=1, steps=90)
    for result in pair(group_of_one):
        assert result["draws"] == alone["draws"]
        assert result["factors"] == alone["factors"]
        assert torch.equal(result["parameters"], alone["parameters"])
        assert not differences(own(result["state"]), alone["state"])


def test_no_draw_waits_for_another_process(pair):
    drawn, nothing = pair(draws_alone)
    assert len(drawn) == 5
    assert nothing == []


def make_part(rank, **settings):
    return PartRun(rank, UNEQUAL, **settings)


def test_one_collective_a_step_of_few_bytes(pair):
    for trained, looked_at in pair(counted, make=make_part):
        assert len(trained) == 20
        assert max(trained) <= 64 + 4 * 3
        assert looked_at == []
