"""The networks: both LeNet5s written out, shapes, stems, normalisation, stochastic depth, ResNet18 as it always was."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from emais import EmaisError
from emais.experiments.train.loop import initialised
from emais.experiments.train.models import Bottleneck, LeNet5, LeNet5ReLU, ResNet18, ResNet18GN, ResNet50, make_resnet

pytestmark = pytest.mark.usefixtures("one_thread")


def lenet5(x, parameters, activation, pool):
    """Two convolutions and three linear layers, by torch's functions."""
    w = iter(parameters)
    x = pool(activation(F.conv2d(x, next(w), next(w), padding=2)), 2)
    x = pool(activation(F.conv2d(x, next(w), next(w))), 2).flatten(1)
    for _ in range(2):
        x = activation(F.linear(x, next(w), next(w)))
    return F.linear(x, next(w), next(w))


def test_both_lenet5s_written_out():
    classic, relu = initialised(LeNet5, 3), initialised(LeNet5ReLU, 3)
    x = torch.rand(4, 1, 28, 28)
    scaled = (x - 0.2860) / 0.3530
    torch.testing.assert_close(classic(x), lenet5(scaled, classic.parameters(), torch.tanh, F.avg_pool2d))
    torch.testing.assert_close(relu(x), lenet5(x, relu.parameters(), F.relu, F.max_pool2d))
    for a, b in zip(classic.parameters(), relu.parameters(), strict=True):  # one start for both
        assert torch.equal(a, b)
    assert LeNet5(7)(x).shape == LeNet5ReLU(7)(x).shape == (4, 7)


@pytest.mark.parametrize(("model", "alone"), [(ResNet18, False), (ResNet18GN, True)])
def test_whether_a_sample_depends_on_the_others_of_its_minibatch(model, alone):
    net = initialised(lambda: model(4, width=32), 0).train()
    x = torch.randn(6, 3, 8, 8)
    same = torch.cat([x[:3], x[:3] + 1])
    with torch.no_grad():
        assert torch.allclose(net(x)[:3], net(same)[:3], atol=1e-5) == alone
    names = {type(module).__name__ for module in net.modules()}
    assert names & {"BatchNorm2d", "GroupNorm"} == ({"GroupNorm"} if alone else {"BatchNorm2d"})


def test_resnet18_computes_what_it_did_before_there_was_a_resnet50():
    net = initialised(ResNet18, 3).eval()
    x = torch.linspace(-2, 2, 2 * 3 * 32 * 32).sin().view(2, 3, 32, 32)
    want = [-0.142223, 0.127856, -0.216182, -0.086998, -0.237591, -0.660592, 0.142936, 0.209537, -0.064668, 0.13516]
    with torch.no_grad():
        torch.testing.assert_close(net(x)[0], torch.tensor(want), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("stem", "size", "side"), [("small", 32, 32), ("large", 72, 18)])
def test_stems(stem, size, side):
    net = ResNet50(14, channels=1, width=4, stem=stem)
    x = torch.randn(2, 1, size, size)
    assert net.stem(x).shape == (2, 4, side, side)
    assert net(x).shape == (2, 14)
    with pytest.raises(EmaisError, match="small or large"):
        ResNet50(stem="tiny")


def test_the_experiments_networks():
    small, large = make_resnet("resnet18", 32, 3, 10), make_resnet("resnet50", 72, 1, 14)
    assert type(small) is ResNet18
    assert type(make_resnet("resnet18-gn", 32, 3, 10)) is ResNet18GN
    assert len(small.stem) == 2
    assert small.stochastic_depth == 0
    assert len(large.stem) == 3
    assert large.stochastic_depth == 0.5
    assert sum(p.numel() for p in large.parameters()) == 25557032 - 986 * 2049 - 2 * 49 * 64
    with pytest.raises(EmaisError, match="resnet34"):
        make_resnet("resnet34", 32, 3, 10)


def narrow(depth=0.5):
    return initialised(lambda: ResNet50(5, width=4, stem="small", stochastic_depth=depth), 0)


def test_survival_falls_in_a_line():
    net = narrow()
    assert net.survival.squeeze().tolist() == pytest.approx([1 - 0.5 * k / 16 for k in range(1, 17)])
    with pytest.raises(EmaisError, match="below 1"):
        narrow(depth=1.0)


def test_stochastic_depth_keeps_the_mean_and_is_off_in_evaluation():
    net, plain = narrow(), narrow(depth=0.0)
    x = torch.randn(3, 3, 8, 8)
    net.eval()
    plain.eval()
    assert torch.equal(net(x), plain(x))
    net.train()
    keeps = torch.stack(list(net.keeps(torch.empty(40_000, 1), None))).view(16, -1)
    torch.testing.assert_close(keeps.mean(1), torch.ones(16), atol=0.025, rtol=0)  # five standard deviations
    levels = [len(row.unique()) for row in keeps]
    assert levels == [2] * 16


def test_a_dropped_branch_leaves_the_shortcut_of_its_own_sample_alone():
    block = Bottleneck(16, 4, 1).eval()
    x = torch.randn(3, 16, 6, 6).contiguous(memory_format=torch.channels_last)
    keep = torch.tensor([0.0, 1.0, 2.0]).view(3, 1, 1, 1)
    out, full = block(x, keep), block(x)
    torch.testing.assert_close(out[0], x[0].relu())
    torch.testing.assert_close(out[1], full[1])
    assert not torch.allclose(out[2], full[2])
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_the_numbers_decide():
    net, x = narrow(), torch.randn(4, 3, 8, 8)
    u = torch.rand(16, 4)
    assert torch.equal(net(x, u), net(x, u))
    assert not torch.equal(net(x, u), net(x, u.flip(1)))
    assert not torch.equal(net(x), net(x))


def test_batch_normalisation_and_depth_train():
    net = narrow()
    loss = nn.functional.cross_entropy(net(torch.randn(4, 3, 8, 8), torch.zeros(16, 4)), torch.arange(4))
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
