"""A state goes on with another number of processes, as if nothing had happened."""

import pytest
import torch
from replicated_runs import continued, train, whole

pytestmark = pytest.mark.launched


def go_on(pair, size, steps, saved, **options):
    given = {"state": saved["state"], "parameters": saved["parameters"], "steps": steps, "dtype": torch.float64}
    if size == 2:
        return pair(continued, size=2, **given, **options)
    return [continued(0, size=1, **given, **options)]


@pytest.mark.parametrize("method", ["emais", "emais-auto"])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 2)])
def test_saved_on_some_and_continued_on_others(pair, before, after, method):
    options = {"method": method, "dtype": torch.float64}
    undisturbed = train(size=1, steps=130, **options)
    saved = pair(train, steps=90, **options)[0] if before == 2 else train(size=1, steps=90, **options)
    results = go_on(pair, after, 40, saved, method=method)
    expected = {step: draw for step, draw in whole([undisturbed]).items() if step > 90}
    assert {step: draw[0] for step, draw in whole(results).items()} == {s: draw[0] for s, draw in expected.items()}
    assert torch.allclose(results[-1]["parameters"], undisturbed["parameters"], rtol=0, atol=1e-8)


def test_minibatches_that_workers_had_drawn_come_first(pair):
    """The state of a process with workers, continued by two of which one has none."""
    options = {"dtype": torch.float64, "num_steps": 130}
    undisturbed = train(size=1, steps=130, workers=1, **options)
    saved = pair(train, steps=90, workers=[1, 0], **options)[0]
    assert len(saved["state"]["passes"]["step"]) == 2
    results = go_on(pair, 2, 40, saved, num_steps=130, workers=[0, 1])
    expected = {step: draw[0] for step, draw in whole([undisturbed]).items() if step > 90}
    assert {step: draw[0] for step, draw in whole(results).items()} == expected
    assert torch.allclose(results[0]["parameters"], undisturbed["parameters"], rtol=0, atol=1e-8)
