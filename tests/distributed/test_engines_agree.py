"""The same training under DDP, FSDP2 and torchrun: the same numbers, at the same data-parallel size."""

import runpy
import warnings

import pytest
import torch
from places import ROOT
from process_pool import Pool
from scripts import run_script, torchrun

pytestmark = pytest.mark.launched

EXAMPLES = ROOT / "examples"


def trained(rank, name, epochs, **options):
    """(parameters, sum of weights, factor, S(W)) after an example's training, in this process."""
    names = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    train = names["train"]
    train.__globals__["EPOCHS"] = epochs
    with warnings.catch_warnings():  # FSDP2 warns of in-place operations on the logits, of which there are none
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
        model, imp = train(**options)
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    parameters = torch.cat([p.detach().flatten() for p in whole])
    return parameters, imp.sampler.total(), imp.diagnostics.lr_scale, imp.diagnostics.score


def test_fsdp_is_ddp_to_the_bit_and_torchrun_changes_nothing(pair):
    """Two processes: what each adds up is a sum of two numbers, which has no order."""
    found = run_script(torchrun(2, EXAMPLES / "distributed_fsdp.py"))
    assert found.returncode == 0, found.stderr
    results = pair(trained, name="distributed_ddp", epochs=6)
    results += pair(trained, name="distributed_fsdp", epochs=6, tensor_parallel=1)
    parameters, total, factor, _ = results[0]
    for other in results[1:]:
        assert torch.equal(other[0], parameters)
        assert other[1:3] == (total, factor)
    assert f"sum of weights {total.hex()}, factor {factor.hex()}" in found.stdout
    assert "alike on all of them: True" in found.stdout
    assert factor > 1.2


def test_tensor_parallelism_beside_fsdp_is_ddp(pair, tmp_path):
    """Two by two processes. Sums over the tensor-parallel ones round differently; the four agree to the bit."""
    four = Pool(4, tmp_path)
    try:
        results = four(trained, name="distributed_fsdp", epochs=2, tensor_parallel=2)
    finally:
        four.close()
    parameters, total, factor, score = pair(trained, name="distributed_ddp", epochs=2)[0]
    for other in results:
        assert torch.equal(other[0], results[0][0])
        assert other[1:] == results[0][1:]
        assert torch.allclose(other[0], parameters, rtol=0, atol=1e-6)
        torch.testing.assert_close(other[1:], (total, factor, score), rtol=1e-5, atol=0)


def test_the_example_is_short():
    assert len((EXAMPLES / "distributed_fsdp.py").read_text("utf-8").splitlines()) < 80
