"""The code on the pages of docs/ runs, and pages are rendered from the results."""

import copy
import doctest
import importlib
import importlib.util
import json
import re

import pytest
import torch
from conftest import losses_of
from places import DOCS
from torch.utils.data import TensorDataset

import emais

OWN = DOCS / "your_own_method.md"
AUTO = DOCS / "auto.md"
RESULTS = DOCS / "results.md"
STEPS = DOCS.parent / "benchmarks" / "results"
README = DOCS.parent / "README.md"
COSTS = DOCS / "costs.md"
CARDS = {path.stem: path for path in sorted((DOCS / "methods").glob("*.md")) if path.stem != "README"}
SECTIONS = ["Idea", "Formula", "Use", "Cost", "When it helps", "When it hurts", "What the original", "Reference"]
M = 60_000  # of the figures for memory


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)


def run_card(name):
    names = {}
    exec(python_blocks(CARDS[name])[0], names)
    return names


def bytes_a_sample(name):
    used = emais.create(name, M).nbytes()
    return f"{used / M:.2f}" if used else "0"


# ---- the walk of one step


def test_the_walk_of_a_step_has_as_many_calls_as_the_page_says():
    pinned = re.search(r"^torch==([\d.]+)", (DOCS.parent / "constraints.txt").read_text(), re.M)[1]
    if not torch.__version__.startswith(pinned):
        pytest.skip(f"the page counts the calls that torch {pinned} makes")
    place = DOCS.parent / "benchmarks" / "calls.py"
    calls = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("calls", place))
    spec.loader.exec_module(calls)
    found = calls.calls_of_a_step()
    row = " | ".join(map(str, (*calls.counts(found), calls.group_reads(found))))
    assert f"| {row} |" in (DOCS / "architecture.md").read_text()


# ---- the method cards


def test_every_method_has_a_card_and_a_true_line_in_the_index():
    index = (DOCS / "methods" / "README.md").read_text()
    row = r"^\| \[([\w-]+)\]\(\1\.md\) \|.* \| (yes|no) \| .* \| ([^|]+) \| ([\d.]+) \|$"
    rows = {name: rest for name, *rest in re.findall(row, index, re.M)}
    assert CARDS.keys() == rows.keys() == emais.METHODS.keys()
    for name, (unbiased, rule, used) in rows.items():
        method = emais.METHODS[name]
        assert used == bytes_a_sample(name)
        roots = {"linear": "sqrt", "steady": "steady-sqrt"}
        usual = method.rule
        assert rule.startswith(f"{usual} for SGD, {roots[usual]} for the Adam family" if usual in roots else usual)
        assert unbiased == ("no" if "biased" in method.estimator.replace("unbiased", "") else "yes")


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_all_sections_and_the_memory_in_use(name):
    text = CARDS[name].read_text()
    titles = re.findall(r"^## (.*)$", text, re.M)
    assert text.startswith(f"# {name}: ")
    assert [t[: len(s)] for t, s in zip(titles, SECTIONS, strict=True)] == SECTIONS
    assert re.findall(r"\*\*Memory\.\*\* ([\d.]+) bytes per sample", text) == [bytes_a_sample(name)]


@pytest.mark.parametrize("name", CARDS)
def test_the_loop_of_a_card_trains(name, capsys):
    names = run_card(name)
    imp, dataset = names["imp"], names["dataset"]
    assert imp.name == name
    assert imp.diagnostics.step == imp.num_steps
    assert "Diagnostics(step=" in capsys.readouterr().out
    inputs, targets = dataset.tensors
    assert (names["model"](inputs).argmax(1) == targets).float().mean() > 0.8


def test_the_rais_card_lets_the_schedule_follow():
    names = run_card("rais")
    imp, schedule = names["imp"], names["schedule"]
    assert imp.diagnostics.refits > imp.diagnostics.failed_refits
    assert schedule.t_eff == imp.num_steps  # gains are at least 1, and t_eff stops here
    assert schedule.get_last_lr()[0] < 1e-6


# ---- your own method


@pytest.fixture(scope="module")
def page():
    """What the blocks of the page define, run in order; they check a resume themselves."""
    torch.manual_seed(0)
    names = {}
    for block in python_blocks(OWN):
        exec(block, names)
    return names


@pytest.fixture
def noisy():
    """300 samples, every tenth with the wrong label: losses differ, and go on differing."""
    x = torch.randn(300, 5)
    return TensorDataset(x, (x[:, 0] > 0).long() ^ (torch.arange(300) % 10 == 0).long())


def all_losses(model, dataset):
    return losses_of(model, dataset.tensors)[0].detach()


def test_own_method_trains(page, noisy):
    run = imp, model, _ = page["make"](300, num_steps=150)
    before = all_losses(model, noisy).mean()
    page["train"](*run, imp.loader(noisy))
    assert imp.diagnostics.step == 150
    assert all_losses(model, noisy).mean() < 0.8 * before


@pytest.mark.statistical
def test_own_method_draws_samples_with_a_low_loss_less_often(page, noisy):
    """Of draws made after training, far fewer go to the quarter with the lowest losses, as p says."""
    run = imp, model, _ = page["make"](300, num_steps=600)
    page["train"](*run, imp.loader(noisy), steps=500)
    order = all_losses(model, noisy).argsort()
    low, high = order[:75], order[-75:]
    p = imp.probabilities()
    assert p[low].max() < p[high].min()
    counts = torch.cat([imp.draw().index for _ in range(100)]).bincount(minlength=300)
    assert 2 * counts[low].sum() < counts[high].sum()
    for part in (low, high):
        share, total = p[part].sum(), counts.sum()
        assert abs(counts[part].sum() - total * share) < 4 * (total * share * (1 - share)).sqrt()


def test_own_method_is_unbiased(page, noisy):
    """r = 1/(M p) of the distribution that the draw came from, and at most 2 thanks to the offset."""
    run = imp, *_ = page["make"](300, num_steps=None)
    for _ in range(4):
        page["train"](*run, imp.loader(noisy))
    p = imp.probabilities()
    draw = imp.draw()
    torch.testing.assert_close(draw.r.double(), 1 / (300 * p[draw.index]), rtol=1e-6, atol=0)
    assert draw.r.max() <= 2
    assert p.max() > 2 * p.min()


@pytest.mark.parametrize("workers", [0, 2])
def test_own_method_resumes_exactly(page, noisy, workers):
    """Also with minibatches drawn ahead by workers."""

    def go_on(run, steps=None):
        return page["train"](*run, run[0].loader(noisy, num_workers=workers), steps)

    run = page["make"](300, num_steps=80)
    go_on(run, steps=50)
    saved = copy.deepcopy([part.state_dict() for part in run])
    rest = go_on(run)
    resumed = page["make"](300, num_steps=80)
    for part, state in zip(resumed, saved, strict=True):
        part.load_state_dict(state)
    again = go_on(resumed)
    assert [d.step for d in rest] == [d.step for d in again] == list(range(51, 81))
    for one, other in zip(rest, again, strict=True):
        assert torch.equal(one.index, other.index)
        assert torch.equal(one.r, other.r)
    assert rest[-1].r.max() > 1.2  # not the warm-up: r differs from 1


def test_own_method_refuses_the_state_of_another_decay(page):
    imp, *_ = page["make"](300, num_steps=80)
    other = page["LossSampling"](300, batch_size=20, num_steps=80, decay=0.9)
    with pytest.raises(emais.EmaisError, match="decay"):
        other.load_state_dict(imp.state_dict())


@pytest.mark.filterwarnings("ignore:.* no optimizer is attached")  # it trains nothing
def test_own_method_runs_resident_as_on_the_host(page, noisy):
    """The same class with torch in place of numpy gives the same probabilities."""
    x, y = noisy.tensors
    found = []
    for resident in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Linear(5, 2)
        imp = page["LossSampling"](300, batch_size=20, resident=resident, num_steps=60)
        for _ in range(60):
            draw = imp.draw()
            losses, logits = losses_of(model, (x[draw.index], y[draw.index]))
            imp.loss(losses, logits, draw)
        found.append(imp.probabilities())
    torch.testing.assert_close(*found)


# ---- emais-auto: the page, its tables and its figure


@pytest.fixture
def make_auto(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("make_auto")


@pytest.fixture
def make_figures(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("make_figures")


def test_the_example_by_hand_of_the_page_on_auto(capsys):
    """All nine minibatches give exactly the candidate's trace, as do the fractions in the table."""
    exec(python_blocks(AUTO)[0], {})
    assert capsys.readouterr().out == "2.000000 2.000000\n-7.000000\n-7.000000\n"
    rows = re.findall(r"^\| \d, \d.*?\| (.*) \|$", AUTO.read_text(), re.M)
    found = [[eval(cell.replace("−", "-")) for cell in row.split(" | ")] for row in rows]
    assert sum(chance for chance, *_ in found) == 1
    assert all(mean - product == pytest.approx(rest) for _, mean, product, rest in found)
    assert sum(chance * rest for chance, *_, rest in found) == pytest.approx(2 / 9)


def test_the_tool_in_a_loop_of_the_page_on_auto(capsys):
    """It says of EMAIS itself what the engine says, and of the others what the page says."""
    names = {}
    exec(python_blocks(AUTO)[1], names)
    (shown,) = re.findall(r"```text\n(.*?)```", AUTO.read_text(), re.S)
    printed, claimed = (dict(re.findall(r"(.*): N_ems .* (\d+)", text)) for text in (capsys.readouterr().out, shown))
    assert printed.keys() == claimed.keys() == names["traces"].keys()
    assert [int(n) for n in printed.values()] == pytest.approx([int(n) for n in claimed.values()], rel=0.05)
    imp, traces = names["imp"], names["traces"]
    assert traces["emais"][-1] * (1 - 1 / imp.batch_size) == pytest.approx(float(imp.diagnostics.tr_is), rel=1e-4)


def auto_record(**changes):
    """A made-up run of emais-auto with a test error of 9, unless something else is said."""
    run = {"data_title": "Fashion-MNIST", "num_steps": 10, "weight_decay": 1e-3, "lr": 0.01, "optimizer": "sgd"}
    run |= {"model": "lenet5", "batch_size": 128, "method": "emais-auto", "seed": 0, "options": {}, "rule": None}
    return run | {"refresh_every": 0, "test_error": 9.0, "layout": 2} | changes


SPECIAL = [
    {"options": {"smoothing": 0.5}},
    {"options": {"unbiased": True}},
    {"options": {"max_scale": 2}},
    {"options": {"warmup_epochs": 1, "factors": 0.1, "powers": [1]}},
    {"options": {"no_longer_there": 1}},
    {"batch_size": 64},
    {"model": "perceptron"},
    {"momentum": 0.5},
]


@pytest.fixture
def files(make_auto, monkeypatch, tmp_path):
    """Writes records to a result file and gives the variants that are found there."""
    monkeypatch.setattr(make_auto, "ROOT", tmp_path)
    (tmp_path / "results").mkdir()

    def write(*records):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / "results" / "fmnist.jsonl").write_text(lines)
        return make_auto.variants()

    return write


@pytest.mark.parametrize("special", SPECIAL, ids=str)
def test_a_special_run_of_auto_does_not_stand_for_the_default(files, special):
    """Whatever sets it apart, also a setting that the method's class inherits."""
    tried = auto_record(options={"window": 50})
    found = files(auto_record(), tried, auto_record(test_error=50.0, **special))
    own = [v for v in found if v.is_default]
    assert [[r["test_error"] for r in v.runs.values()] for v in own] == [[9.0]]
    assert len({v.name for v in found if v.options}) == (2 if "options" in special else 1)


def test_settings_that_are_given_as_the_default_are_the_default(make_auto, files):
    given = {"smoothing": 0, "unbiased": False, "factors": [1, 0.3, 0.1, 0.03], "kappa": 1}
    found = files(
        auto_record(options=given), auto_record(seed=1), auto_record(options={"window": 50, "smoothing": 0.5})
    )
    assert [list(v.runs) for v in found if v.is_default] == [[0, 1]]
    assert [v.name for v in found if v.options] == ["window = 50; smoothing = 0.5"]
    assert make_auto.defaults(emais.METHODS["emais-auto"]).keys() == set(emais.METHODS["emais-auto"].settings())


# ---- pages and pictures that are made from the results


@pytest.fixture
def render(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module("render")


@pytest.mark.launched
def test_pages_and_pictures_are_those_of_the_result_files(render, make_figures):
    """If not: make docs."""
    assert not any(doctest.testmod(module).failed for module in (render, make_figures, render.make_harm))
    for path, text in render.rendered().items():
        if path.suffix == ".svg":  # text may be laid out by other fonts: the curves count
            assert curves(text) == curves(path.read_text()), path
        else:
            assert text == path.read_text(), path


def curves(picture):
    return re.findall(r'class="(?:line|band)" d="([^"]+)"', picture)


def test_a_claim_that_does_not_hold_is_not_printed(render):
    facts = render.Facts(render.read_all(render.ROOT / "results"))
    page = render.environment(facts).from_string("{{ claim(sure('fmnist', 6250, 'sgd-scan', 'emais')) }}")
    with pytest.raises(ValueError, match="does not hold any more"):
        page.render()


@pytest.mark.parametrize(
    "call", ["value('fmnist', 6250, 'emais')", "harm.loss('vine', PAPER)", "harm.more_decay(7, 'wine', SCAN)"]
)
def test_a_number_that_was_never_measured_is_not_printed(render, call):
    page = render.environment(render.Facts([])).from_string("{{ " + call + " }}")
    with pytest.raises(LookupError, match=r"no runs of .*(emais|sgd-scan)"):
        page.render()


def test_the_readme_is_short():
    """At most 900 words, code and tables included."""
    assert len(README.read_text("utf-8").split()) <= 900
