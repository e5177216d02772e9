"""ResNets at the same time: every run is what it would be alone."""

import torch
from test_resnet_run import config, losses, made_up, network, on_gpu

from emais.experiments.train.parallel_resnets import ParallelResNets
from emais.experiments.train.resnet_run import ResNetRun
from emais.experiments.train.sharing import advance_together

METHODS = ("sgd-scan", "rais", "emais")


def runs(data, device, **settings):
    configs = [config(method, lr=0.005, seed=seed, **settings) for seed, method in enumerate(METHODS)]
    together = ParallelResNets(configs, data, device, model=network)
    alone = [ResNetRun(c, data, device, model=network) for c in configs]
    for trainer in (*together.runs, *alone):
        trainer.mixed_precision = False
    return together, alone


def test_each_is_what_it_would_be_alone():
    together, alone = runs(made_up(), "cpu")
    heard = []
    together.train(points=3, on_steps=heard.append)
    assert sum(heard) == 14 * len(METHODS)
    for trainer, (told, result) in zip(alone, together.finish(), strict=True):
        trainer.train(points=3)
        [(asked, expected)] = trainer.finish()
        assert told == asked
        assert repr(result["curves"]) == repr(expected["curves"])  # S(W) may be NaN
        assert result["test_error"] == expected["test_error"]
        assert (result["side_by_side"], expected["side_by_side"]) == (3, 1)
        assert result["ms_per_step"] > 0


class TestOnTheGPU:
    pytestmark = on_gpu

    def test_each_is_what_it_would_be_alone(self, exact):
        together, alone = runs(made_up(size=32, n=256), "cuda", num_steps=40, batch_size=16)
        advance_together(together.runs, 30)
        for run, trainer in zip(together.runs, alone, strict=True):
            trainer.advance(30)
            assert run._graph is not None
            assert run.stream != torch.cuda.default_stream()
            assert run.imp.step == trainer.imp.step == 30
            torch.testing.assert_close(losses(run), losses(trainer), rtol=1e-2, atol=1e-3)

    def test_they_share_the_clock(self):
        together, _ = runs(made_up(size=32, n=256), "cuda", num_steps=20, batch_size=16)
        advance_together(together.runs, 20)
        assert [run.timed for run in together.runs] == [17, 17, 17]
        assert len({run.seconds for run in together.runs}) == 1
