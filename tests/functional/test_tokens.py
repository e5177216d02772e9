"""The chunked cross-entropy of sequences is torch's, and its norms are those of autograd's gradients."""

import itertools

import pytest
import torch
from torch import nn

import emais
from emais import EmaisError
from emais import functional as F

N, T, V = 5, 7, 11
LABELS = torch.randint(0, V, (N, T), generator=torch.Generator().manual_seed(1))
LABELS[0, 4:] = -100  # padded
LABELS[1] = -100  # nothing to predict
LABELS[2, 0] = -100
R = torch.tensor([0.5, 2.0, 1.0, 0.8, 1.5])


def made(dtype=torch.float32, scale=2.0):
    z = torch.randn(N, T, V, generator=torch.Generator().manual_seed(0)) * scale
    return z.to(dtype).requires_grad_()


def torchs(z, labels, reduction="mean", smoothing=0.0):
    """The same from torch, one number per sequence."""
    dtype = torch.promote_types(z.dtype, torch.float32)
    flat = z.to(dtype).transpose(1, 2)
    losses = nn.functional.cross_entropy(flat, labels, reduction="none", label_smoothing=smoothing).sum(1)
    return losses / (labels != -100).sum(1).clamp(min=1) if reduction == "mean" else losses


@pytest.mark.parametrize("chunk", [1, 12, None])
@pytest.mark.parametrize(("reduction", "smoothing"), list(itertools.product(["mean", "sum"], [0.0, 0.1])))
def test_losses_gradients_and_norms(chunk, reduction, smoothing):
    z, other = made(), made()
    given = {"reduction": reduction, "label_smoothing": smoothing, "chunk": chunk}
    losses, norms, mean_norm = F.token_cross_entropy(z, LABELS, R, **given)
    want = torchs(other, LABELS, reduction, smoothing)
    assert torch.allclose(losses, want, atol=1e-6)
    g = F.logit_gradients(want, other)
    assert torch.allclose(norms, g.flatten(1).norm(dim=1), atol=1e-6)
    assert norms[1] == 0
    assert float(mean_norm) == pytest.approx(float((R @ g.flatten(1) / N).norm()), rel=1e-5)
    (R * losses).mean().backward()
    (R * want).mean().backward()
    assert torch.allclose(z.grad, other.grad, atol=1e-7)
    assert not norms.requires_grad
    assert not mean_norm.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype):
    """Half precision is widened chunk by chunk; the gradient comes in the dtype of the logits."""
    z, other = made(dtype), made(dtype)
    losses, norms, mean_norm = F.token_cross_entropy(z, LABELS, R, chunk=6)
    want = torchs(other, LABELS)
    wide = torch.promote_types(dtype, torch.float32)
    assert losses.dtype == norms.dtype == mean_norm.dtype == wide
    assert torch.allclose(losses, want, atol=1e-6)
    losses.sum().backward()
    want.sum().backward()
    assert z.grad.dtype == dtype
    assert torch.allclose(z.grad, other.grad, atol=1e-3)
    if dtype == torch.float64:
        small = made(dtype)
        assert torch.autograd.gradcheck(lambda x: F.token_cross_entropy(x, LABELS, chunk=6).losses, small)


def test_autocast_changes_nothing():
    plain = F.token_cross_entropy(made(), LABELS, R)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, plain, F.token_cross_entropy(made(), LABELS, R)))


def test_a_token_that_is_nearly_certain_keeps_its_norm():
    """softmax - onehot of p = 1 - 1e-9: in float32, p rounds to 1."""
    z = torch.zeros(1, 1, 2)
    z[0, 0, 0] = 20.7
    norm = F.token_cross_entropy(z, torch.zeros(1, 1, dtype=torch.int64)).norms
    want = F.token_cross_entropy(z.double(), torch.zeros(1, 1, dtype=torch.int64)).norms
    assert float(norm) > 0
    assert float(norm) == pytest.approx(float(want), rel=0.5)


def test_a_label_whose_probability_is_no_float():
    """exp(-300) is 0 in float32; its loss is not infinite."""
    z = torch.zeros(1, 2, V)
    z[..., 0], z[..., 3] = 100.0, -200.0
    z.requires_grad_()
    found = F.token_cross_entropy(z, torch.tensor([[3, 0]]), reduction="sum")
    assert float(found.losses.detach()) == 300
    found.losses.sum().backward()
    assert z.grad[0, 0, [0, 3]].tolist() == [1.0, -1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_may_be_used_again(dtype):
    """The first backward pass gives away what the forward pass kept; the second computes the same numbers."""
    z = made(dtype)
    losses = F.token_cross_entropy(z, LABELS, R).losses
    first = torch.autograd.grad(losses @ R, z, retain_graph=True)[0].clone()
    second = torch.autograd.grad((losses @ R) * 2, z, retain_graph=True)[0]
    assert torch.equal(first * 2, second)
    (losses @ R).backward()
    assert torch.equal(z.grad, first)


def test_shifted_labels():
    z, other = made(), made()
    losses, norms, mean_norm = F.token_cross_entropy(z, LABELS, shift=True)
    want = F.token_cross_entropy(other[:, :-1], LABELS[:, 1:])
    assert torch.allclose(losses, want.losses)
    assert torch.allclose(norms, want.norms)
    assert mean_norm is want.mean_norm is None
    losses.sum().backward()
    assert (z.grad[:, -1] == 0).all()


@pytest.mark.parametrize("shape", [(0, T), (N, 0), (0, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_sequences_or_no_tokens(shape, dtype):
    z = torch.zeros(*shape, V, dtype=dtype, requires_grad=True)
    losses, norms, mean_norm = F.token_cross_entropy(z, torch.zeros(shape, dtype=torch.int64), torch.ones(shape[0]))
    assert losses.tolist() == norms.tolist() == [0.0] * shape[0]
    assert mean_norm == 0
    losses.sum().backward()
    assert z.grad.shape == z.shape


def test_another_ignore_index():
    labels = LABELS.where(LABELS != -100, 0)
    labels[3] = 0
    losses = F.token_cross_entropy(made(), labels, ignore_index=0).losses
    assert losses[3] == 0
    assert torch.allclose(losses, torchs(made(), labels.where(labels != 0, -100)), atol=1e-6)


def test_the_graph_keeps_nothing_as_large_as_the_logits_but_them_and_their_gradient():
    z, kept = made(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        losses = F.token_cross_entropy(z, LABELS, R).losses
    large = [x for x in kept if x.numel() >= N * T * V]
    assert [x.data_ptr() for x in large] == [z.data_ptr()]
    place = losses.grad_fn.gradient.data_ptr()
    losses.sum().backward()
    assert z.grad.data_ptr() == place  # no copy was made
    assert losses.grad_fn.gradient is None


def test_a_run_is_the_run_with_gradients():
    """A small model of tokens, by norms and by gradients."""
    data = torch.randint(0, V, (40, T + 1), generator=torch.Generator().manual_seed(2))

    def trained(by_norms):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(V, 8), nn.Linear(8, V))
        imp = emais.EMAISAuto(40, batch_size=8, warmup_epochs=1)
        optimizer, rows = torch.optim.SGD(model.parameters(), lr=0.5), []
        imp.attach(optimizer)
        for _ in range(30):
            draw = imp.draw()
            inputs, labels = data[draw.index, :-1], data[draw.index, 1:]
            z = model(inputs)
            if by_norms:
                losses, norms, mean_norm = F.token_cross_entropy(z, labels, draw.r, chunk=10)
                loss = imp.loss(losses, z, draw, norms=norms, mean_norm=mean_norm)
            else:
                loss = imp.loss(torchs(z, labels), z, draw)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows.append((draw.index.tolist(), loss.item(), imp.diagnostics.n_ems, imp.diagnostics.lr_scale))
        return rows

    for one, other in zip(trained(True), trained(False), strict=True):
        assert one[0] == other[0]
        assert one[1:] == pytest.approx(other[1:], rel=1e-3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((torch.zeros(2, 3), torch.zeros(2, 3)), r"logits must be \(N, T, V\).*got torch.float32 \(2, 3\)"),
        ((torch.zeros(2, 3, 4).long(), torch.zeros(2, 3)), "float dtype, got torch.int64"),
        ((torch.zeros(2, 3, 4), torch.zeros(2, 2)), r"labels must be \(N, T\).*got \(2, 2\) for logits \(2, 3, 4\)"),
        ((torch.zeros(2, 3, 4), torch.zeros(2, 3)), "labels must be int64 or int32.*got torch.float32"),
        (
            (torch.zeros(2, 3, 4), torch.zeros(2, 3).byte()),
            r"int64 or int32.*got torch.uint8.*\.long\(\)",
        ),
        ((torch.zeros(2, 3, 4), torch.zeros(2, 3).bool()), "labels must be int64 or int32.*got torch.bool"),
        ((torch.zeros(2, 3, 0), torch.zeros(2, 3).long()), r"V at least 1, .*got torch.float32 \(2, 3, 0\)"),
        ((torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), torch.ones(3)), r"r must be \(N,\) with N = 2"),
    ],
)
def test_what_is_wrong_is_said(given, words):
    with pytest.raises(EmaisError, match=words):
        F.token_cross_entropy(*given)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"reduction": "none"}, "'mean' or 'sum'"), ({"chunk": 0}, "chunk"), ({"label_smoothing": 1.0}, "below 1")],
)
def test_options_are_checked(options, words):
    with pytest.raises(EmaisError, match=words):
        F.token_cross_entropy(made(), LABELS, **options)


def test_it_is_differentiated_once():
    """A second derivative that is silently 0 would be worse than none."""
    z = made()
    losses = F.token_cross_entropy(z, LABELS).losses
    with pytest.raises(EmaisError, match="can be differentiated once"):
        torch.autograd.grad(losses.sum(), z, create_graph=True)
