"""Logit gradients of every kind of loss, the closed forms, and full gradients against one backward pass a sample."""

import pytest
import torch
from torch import nn

from emais import EmaisError
from emais import functional as F

ce, bce = nn.functional.cross_entropy, nn.functional.binary_cross_entropy_with_logits
N, C = 6, 4
hard = torch.tensor([0, 1, 2, 3, 0, 1])
soft = torch.rand(N, C).softmax(1)
multi = (torch.rand(N, C) > 0.5).float()
LOSSES = {
    "ce": ((N, C), lambda z: ce(z, hard, reduction="none")),
    "smooth": ((N, C), lambda z: ce(z, hard, reduction="none", label_smoothing=0.1)),
    "soft labels": ((N, C), lambda z: ce(z, soft, reduction="none")),
    "bce": ((N, C), lambda z: bce(z, multi, reduction="none").sum(1)),
    "mse": ((N,), lambda z: (z - hard) ** 2),
    "sequence": ((N, C, 5), lambda z: ce(z, hard[:, None].expand(N, 5), reduction="none").sum(1)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logit_gradients_are_those_of_single_samples(name, dtype):
    shape, loss = LOSSES[name]
    z = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    got = F.logit_gradients(loss(z), z)
    assert got.shape == shape
    assert not got.requires_grad
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    for i in range(N):
        (want,) = torch.autograd.grad(loss(z)[i], z)
        torch.testing.assert_close(got[i], want[i].to(got.dtype))
        assert not want[torch.arange(N) != i].any()


@pytest.mark.parametrize(
    ("name", "closed"),
    [
        ("ce", lambda z: F.cross_entropy_gradients(z, hard)),
        ("smooth", lambda z: F.cross_entropy_gradients(z, hard, label_smoothing=0.1)),
        ("soft labels", lambda z: F.cross_entropy_gradients(z, soft)),
        ("sequence", lambda z: F.cross_entropy_gradients(z, hard[:, None].expand(N, 5))),
        ("bce", lambda z: F.binary_cross_entropy_gradients(z, multi)),
    ],
)
def test_closed_forms_equal_autograd(name, closed):
    shape, loss = LOSSES[name]
    z = torch.randn(shape, requires_grad=True)
    before = z.detach().clone()
    torch.testing.assert_close(closed(z), F.logit_gradients(loss(z), z))
    assert torch.equal(z, before)


def test_graph_survives_for_the_backward_pass():
    z = torch.randn(N, C, requires_grad=True)
    losses = ce(z, hard, reduction="none")
    F.logit_gradients(losses, z)
    assert z.grad is None
    losses.mean().backward()
    assert z.grad is not None


def test_parameter_gradients_are_those_of_single_samples():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(18, C))
    for p in model[0].parameters():
        p.requires_grad_(False)
    x = torch.randn(N, 1, 5, 5)
    got = F.parameter_gradients(model, ce, x, hard)
    trainable = [p for p in model.parameters() if p.requires_grad]
    assert got.shape == (N, sum(p.numel() for p in trainable))
    for i in range(N):
        want = torch.autograd.grad(ce(model(x[i : i + 1]), hard[i : i + 1]), trainable)
        torch.testing.assert_close(got[i], torch.cat([g.flatten() for g in want]), rtol=1e-4, atol=1e-6)


def test_batchnorm_is_refused_in_training_mode_only():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    x = torch.randn(N, 3)
    with pytest.raises(EmaisError, match=r"1 is a BatchNorm layer in training mode.*eval\(\)"):
        F.parameter_gradients(model, ce, x, hard)
    assert F.parameter_gradients(model.eval(), ce, x, hard).shape == (N, 3 * 4 + 4 + 8)
    model[1] = nn.BatchNorm1d(4, track_running_stats=False).eval()
    with pytest.raises(EmaisError, match=r"1 is a BatchNorm layer without running statistics.*; replace it"):
        F.parameter_gradients(model, ce, x, hard)


class Kept(torch.autograd.Function):
    """Cross-entropy that makes its gradient in the forward pass and scales it in place, as fused kernels do."""

    @staticmethod
    def forward(ctx, z, y):
        p = z.softmax(1)
        losses = -p.gather(1, y[:, None]).log().squeeze(1)
        p[torch.arange(len(y)), y] -= 1
        ctx.kept = p
        return losses

    @staticmethod
    def backward(ctx, upstream):
        return ctx.kept.mul_(upstream[:, None]), None


@pytest.mark.parametrize("form", [lambda x: x, lambda x: 2 * x / 2])
def test_a_loss_that_keeps_its_gradient(form):
    z = torch.randn(N, C, requires_grad=True)
    losses = form(Kept.apply(z, hard))
    g = F.logit_gradients(losses, z)
    want = F.cross_entropy_gradients(z.detach(), hard)
    losses.mean().backward()
    torch.testing.assert_close(g, want)


class Product(torch.autograd.Function):
    """Written for autocast: forward and backward in the precision of the loop."""

    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return z @ w

    @staticmethod
    def backward(ctx, upstream):
        z, w = ctx.saved_tensors
        return upstream @ w.t(), z.t() @ upstream


def test_a_function_that_needs_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        z = torch.randn(N, C, requires_grad=True)
        losses = Product.apply(z, torch.randn(C, 5)).square().sum(1)
        g = F.logit_gradients(losses, z)
        losses.sum().backward()
    torch.testing.assert_close(g, z.grad)


def test_misuse_is_named():
    z = torch.randn(N, C, requires_grad=True)
    losses = ce(z, hard, reduction="none")
    for bad, message in [
        ((losses.mean(), z), r"got \(\).*reduction='none'"),
        ((losses, z[:3]), r"N = 6 .* got \(3, 4\)"),
        ((losses, z.detach()), "logits do not require grad"),
        ((losses, z.repeat(3, 1)), r"N = \d+ as the losses, got .*: pass them as they were before they were flattened"),
        ((losses.detach(), z), "losses do not require grad"),
        ((losses, z.clone()), "losses do not depend on logits"),
    ]:
        with pytest.raises(EmaisError, match=message):
            F.logit_gradients(*bad)


@pytest.mark.parametrize("scale", [1.0, 2.0])  # a short chain that is walked, and one that autograd is asked about
def test_a_backward_that_came_before_is_named(scale):
    z = torch.randn(N, C, requires_grad=True)
    losses = ce(z * scale if scale > 1 else z, hard, reduction="none") * scale
    losses.sum().backward()
    with pytest.raises(EmaisError, match=r"the graph of these losses is gone.*imp\.loss\(losses, logits, draw\) first"):
        F.logit_gradients(losses, z)
