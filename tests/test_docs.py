"""The code on the pages of docs/ runs as it stands, and the figures that they give are the library's."""

import copy
import doctest
import importlib
import json
import math
import re
import statistics
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import pytest
import torch
from conftest import losses_of
from torch.utils.data import TensorDataset

import emais
from emais.experiments.catalogue import ITEMS
from emais.experiments.paper import ALL, BLOCKS
from emais.experiments.reaching import first_step
from emais.experiments.recalibration import changes, recalibrated
from emais.experiments.results import Results
from emais.experiments.selection import better, of_item, present
from emais.experiments.training import mean_sd
from emais.experiments.verdicts import clearly, standard_error

DOCS = Path(__file__).parent.parent / "docs"
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


# ---- the method cards


def test_every_method_has_a_card_and_a_true_line_in_the_index():
    index = (DOCS / "methods" / "README.md").read_text()
    row = r"^\| \[([\w-]+)\]\(\1\.md\) \|.* \| (yes|no) \| .* \| ([^|]+) \| ([\d.]+) \|$"
    rows = {name: rest for name, *rest in re.findall(row, index, re.M)}
    assert CARDS.keys() == rows.keys() == emais.METHODS.keys()
    for name, (unbiased, rule, used) in rows.items():
        method = emais.METHODS[name]
        assert used == bytes_a_sample(name)
        assert rule.startswith(method.rule or "linear for SGD, sqrt for the Adam family")
        assert unbiased == ("no" if "biased" in method.estimator.replace("unbiased", "") else "yes")


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_all_sections_and_the_memory_in_use(name):
    text = CARDS[name].read_text()
    titles = re.findall(r"^## (.*)$", text, re.M)
    assert text.startswith(f"# {name}: ")
    assert [t[: len(s)] for t, s in zip(titles, SECTIONS, strict=True)] == SECTIONS
    assert f"**Memory.** {bytes_a_sample(name)} bytes a sample (`nbytes()/M` at M = 60,000)" in text


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
    printed = [int(n) for n in re.findall(r"would be (\d+)", capsys.readouterr().out)]
    claimed = re.search(r"It prints (\d+) .* (\d+) for uniform.* (\d+) for τ.* (\d+) for the latest", AUTO.read_text())
    assert printed == pytest.approx([int(n) for n in claimed.groups()], rel=0.05)
    imp, traces = names["imp"], names["traces"]
    assert traces["emais"][-1] * (1 - 1 / imp.batch_size) == pytest.approx(float(imp.diagnostics.tr_is), rel=1e-4)


def test_the_tables_of_the_page_on_auto_are_those_of_the_result_files(make_auto):
    """If not: python docs/make_auto.py, and read again what the page says about them."""
    assert doctest.testmod(make_auto).failed == 0
    text = AUTO.read_text()
    assert make_auto.with_tables(text) == text


def test_the_bytes_of_the_page_on_auto():
    told = f"{bytes_a_sample('emais-auto')} by default, where emais has {bytes_a_sample('emais')}."
    assert told in " ".join(AUTO.read_text().split())


def test_the_words_about_the_tables_give_their_numbers(make_auto):
    _, tables, words = re.split("|".join(make_auto.MARKS), AUTO.read_text())
    quoted = re.findall(r"\d+(?:\.\d+)? ± \d+(?:\.\d+)?|\d+\.\d+", " ".join(words.split()))
    assert len(quoted) > 10
    assert [n for n in quoted if n not in tables] == ["0.23 ± 0.09"]  # of four seeds, see below


def test_what_the_page_on_auto_says_holds(make_auto):
    """Who is ahead of whom, and where it may be chance; see "What the tables show"."""
    found = make_auto.variants()

    def of(*place):
        own = {v.name: v for v in found if v.place == make_auto.Place(*place)}
        return own, own["**emais-auto, default**"]

    def noises(own, default):  # of the difference in error
        mean, error = make_auto.less_default(own, default)
        return mean / max(error, 1e-9) if math.isfinite(error) else math.nan

    def over(own, quantity, share):
        return make_auto.mean_sd([make_auto.tail(r, quantity, share) for r in own.runs.values()])[0]

    own, default = of("Fashion-MNIST", 6250, 1e-3, 0.01, "sgd", "lenet5", 128)
    linear, long, root = own["Linear-τ (emais)"], own["fixed: c = 1, a = 1"], own["a = 0.5"]
    boundless = own["fixed: c = 0.1, a = 1, bound = 1e+06"]
    assert noises(linear, default) > 2.8
    assert len([v for v in own.values() if v.options and not v.fixed]) >= 8
    assert [v for v in own.values() if v.options and abs(noises(v, default)) > 2.8] == [long, boundless]
    assert 3 * over(default, "score", 0.2) < over(long, "score", 0.2) < over(linear, "score", 0.2)
    assert over(default, "n_ems", 0.2) > over(root, "n_ems", 0.2) > over(long, "n_ems", 0.2)
    assert over(long, "n_ems", 0.2) > over(linear, "n_ems", 0.2)
    assert over(own["bound = 4"], "score", 0.2) > 1.5 * over(default, "score", 0.2)
    own, default = of("Fashion-MNIST", 12500, 1e-3, 0.01, "sgd", "lenet5", 128)
    assert all(abs(noises(v, default)) < 2.8 for v in own.values() if v is not default)
    assert over(default, "n_ems", 0.2) > 2 * over(own["Linear-τ (emais)"], "n_ems", 0.2)
    own, default = of("CIFAR-10", 17500, 1e-4, 0.1, "sgd", "resnet18", 128)
    assert noises(own["Linear-τ (emais)"], default) > 2.8  # not chance
    later = make_auto.mean_sd(
        [own["Linear-τ (emais)"].runs[s]["test_error"] - default.runs[s]["test_error"] for s in range(1, 5)]
    )
    assert f"seeds 1 to 4 alone have {later[0]:.2f} ± {later[1] / 2:.2f}, which may be chance" in words(AUTO)
    assert later[0] < 3.2 * later[1] / 2
    planned = [
        make_auto.mean_sd([v.runs[s]["test_error"] for s in range(3)])[0] for v in (default, own["Linear-τ (emais)"])
    ]
    assert "with 1e-4 {:.2f} against {:.2f}, and two more".format(*planned) in words(AUTO)
    bounds = [over(own[f"a = 1, 0.6{end}"], "n_ems", 0.2) for end in ("", "; bound = 5", "; bound = 3")]
    assert bounds == sorted(bounds, reverse=True)
    assert over(own["a = 1, 0.5, 0.25"], "n_ems", 0.2) > over(default, "n_ems", 0.2)
    own, default = of("CIFAR-10", 17500, 5e-4, 0.1, "sgd", "resnet18", 128)
    forgetting, linear = own["fixed: c = 0.1, a = 1, bound = 11"], own["Linear-τ (emais)"]
    assert over(default, "score", 0.5) < over(linear, "score", 0.5) < over(forgetting, "score", 0.5)
    assert over(default, "n_ems", 0.2) > over(linear, "n_ems", 0.2) > over(forgetting, "n_ems", 0.2)
    assert all(round(over(v, "n_ems", 0.2)) <= 236 for v in own.values() if v.fixed)
    assert 0 < noises(linear, default) < 2.8
    planned = [make_auto.mean_sd([v.runs[seed]["test_error"] for seed in range(3)])[0] for v in (default, linear)]
    assert "with 5e-4 they gave {:.2f} against Linear-τ's {:.2f}, with".format(*planned) in words(AUTO)
    assert len(forgetting.runs) == 1  # no noise to compare with


def test_what_the_page_says_about_replayed_runs_holds(make_auto):
    rows = [json.loads(line) for line in make_auto.REPLAY.read_text().splitlines()]
    runs = {}
    for row in rows:
        runs.setdefault(row["run"], []).append(row)

    def best(of, **what):
        found = [r for r in runs[of] if all(r.get(k) == v for k, v in what.items())]
        return max(r[make_auto.LATE] for r in found)

    fmnist, *cifar = runs
    assert len(cifar) == 2
    at = {"bound": make_auto.BOUND}
    promised = [best(of, sampler="mean", factor=0.3, power=0.6, **at) / best(of, sampler="as drawn") for of in cifar]
    assert "promises {:.2f} and {:.2f} times EMAIS's N_ems".format(*promised) in words(AUTO)
    assert "it is {} and {} times: then the end".format(*size_ratios(make_auto)[6:8]) in words(AUTO)
    own = settings("tab:res_cinic10")
    got = [late_size(own[(*row, "emais-auto")]) / late_size(own[(*row, "emais")]) for row in CIFAR_ROWS]
    assert "got {:.2f} and {:.2f} times, counted the same way".format(*got) in words(AUTO)
    assert all(
        best(of, sampler="mean", power=0.6, **at) > 1.05 * best(of, sampler="mean", power=1, **at) for of in cifar
    )
    for of, power in zip(runs, (1, 0.6, 0.6), strict=True):
        mean = best(of, sampler="mean", power=power, **at)
        assert all(mean >= best(of, sampler=form, **at) for form in ("mean + deviation", "root mean square", "mean"))
        hindsight = max(r[make_auto.LATE] for r in runs[of] if "shares" in r) / mean
        assert hindsight < (1.03 if of == fmnist else 1)


def late_size(setting):
    """N_ems over the second half of the runs as benchmarks/replay.py counts it, by the sums of the traces."""
    sums = [[sum(r["curves"][name][30:]) for name in ("tr_unif", "tr_is")] for r in setting.records]
    return 128 * sum(uniform / own for uniform, own in sums) / len(sums)


def auto_record(**changes):
    """A made-up run of emais-auto with a test error of 9, unless something else is said."""
    run = {"data_title": "Fashion-MNIST", "num_steps": 10, "weight_decay": 1e-3, "lr": 0.01, "optimizer": "sgd"}
    run |= {"model": "lenet5", "batch_size": 128, "method": "emais-auto", "seed": 0, "options": {}, "rule": None}
    return run | {"refresh_every": 0, "test_error": 9.0} | changes


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


def test_the_figure_of_the_page_on_auto_is_that_of_the_result_files(make_figures):
    """If not: python docs/make_figures.py."""
    assert doctest.testmod(make_figures).failed == 0

    def curves(text):
        return re.findall(r'class="(?:line|band)" d="([^"]+)"', text)

    drawn = (DOCS / "img" / "auto.svg").read_text()
    assert curves(make_figures.pictures()["auto.svg"]) == curves(drawn)
    assert "EMAIS-auto (5 seeds)" in drawn
    assert all(len(one.series) >= 3 for one in make_figures.auto_charts())  # of both data sets
    assert f"]({Path('img') / 'auto.svg'})" in AUTO.read_text()


# ---- the numbers in README.md and results.md


def test_the_readme_has_the_numbers_of_the_tables():
    """The first table of tab:res_fmnist, row by row, bold as there."""
    section = (DOCS / "tables.md").read_text().partition("## tab:res_fmnist")[2].partition("\n## ")[0]
    made = dict(re.findall(r"^\| 1e-3 \| (\d+) \| ((?:[^|\n]+ \| ){8}[^|\n]+) \|$", section, re.M))
    row = r"^\| (\d+) \| ((?:[^|\n]+ \| ){8}[^|\n]+) \|$"
    told = dict(re.findall(row, README.read_text().partition("## Results so far")[2].partition("\n## ")[0], re.M))
    assert len(made) == 3
    assert {steps: re.sub(r" \([\d.]+\)", "", cells) for steps, cells in told.items()} == made


def test_results_has_the_numbers_of_the_tables():
    """Its first table is the first of tables.md, bold as there."""
    made = re.findall(r"^\| .* \| (\d+) \| ((?:[^|\n]+ \| ){4})[^|\n]+ \|$", first_table(DOCS / "tables.md"), re.M)
    told = re.findall(r"^\|.*\| (\d+) \| [\dto ]+ \| ((?:[^|\n]+ \| ?){4})$", first_table(RESULTS), re.M)
    assert len(made) == 12
    assert {(n, re.sub(r" \([\d.]+\)", "", cells).strip(" |")) for n, cells in told} == {
        (n, cells.strip(" |")) for n, cells in made
    }


def first_table(path):
    return re.search(r"(?:^\|.*\n)+", path.read_text(), re.M)[0]


def words(path):
    return " ".join(path.read_text().split())


def all_records():
    names = ("fmnist", "cifar10", "chestxray14")
    return [r for name in names for r in Results(DOCS.parent / "results" / f"{name}.jsonl").read()]


def found(label):
    """The settings of a table or figure that were run."""
    return present(of_item(ITEMS[label], all_records()))


def settings(label):
    """Those of a table, without options, by data set, optimizer, weight decay, length and method."""
    own = [(s.config, s) for s in found(label) if not s.config.options]
    return {(c.data, c.optimizer, c.weight_decay, c.num_steps, c.method): s for c, s in own}


def by_rate(label):
    """Those of a table of tuned rates by method and learning rate."""
    return {(s.config.method, s.config.lr): s for s in found(label)}


def size_ratios(make_auto):
    """EMAIS-auto's N_ems over EMAIS's in every row: means over seeds and the second half of the run."""
    own = {
        k: s for label in ("res_fmnist", "adam", "res_cinic10", "res_nih") for k, s in settings(f"tab:{label}").items()
    }

    def size(*key):
        return make_auto.mean_sd([make_auto.tail(r, "n_ems", 0.5) for r in own[key].records])[0]

    rows = [key[:-1] for key in own if key[-1] == "emais-auto"]
    return [f"{size(*row, 'emais-auto') / size(*row, 'emais'):.2f}" for row in rows]


def test_what_is_said_of_n_ems_holds(make_auto):
    found = size_ratios(make_auto)
    said = words(RESULTS).partition("the second half of the run, is ")[2].partition(" times. This ")[0]
    assert re.findall(r"\d\.\d\d", said) == found
    assert len(found) == 12
    said = words(RESULTS).partition("over the last fifth on CIFAR-10 ")[2].partition(". - ")[0]
    own = settings("tab:res_cinic10")
    late = [
        make_auto.mean_sd([make_auto.tail(r, name, 0.2) / size for r in own[(*row, method)].records])[0]
        for method in ("emais", "emais-auto")
        for name, size in (("lr_scale", 1), ("n_ems", 128))
        for row in CIFAR_ROWS
    ]
    assert re.findall(r"\d\.\d\d", said) == [f"{x:.2f}" for x in late]
    of_fmnist, of_cifar = found[:3], found[6:8]
    for path in (README, CARDS["emais-auto"]):
        assert f"{of_cifar[0]} and {of_cifar[1]} times" in words(path)
        assert f"{of_fmnist[0]} to {of_fmnist[2]} times" in words(path)


def test_what_is_said_of_the_lead_of_auto_holds():
    """The differences in results.md, in its order, and which of them are more than two standard errors."""
    fmnist, cifar, adam, chest = (settings(f"tab:{name}") for name in ("res_fmnist", "res_cinic10", "adam", "res_nih"))
    said = words(RESULTS).partition("not always a lower error.** ")[2].partition(" - **")[0]
    found = []
    for own in (fmnist, cifar, adam, chest):
        for key, auto in own.items():
            if key[-1] == "emais-auto":
                other = own[(*key[:-1], "emais")]
                found.append(
                    (f"{abs(auto.mean - other.mean):.2f}", clearly(auto, other), better(auto, auto.mean, other.mean))
                )
    short, long, of_cifar, rest = found[:2], found[2], found[3:6], found[6:]
    over_scan = [
        (f"{scan.mean - own.mean:.2f}", clearly(own, scan), True)
        for own, scan in ((cifar[(*row, "emais-auto")], cifar[(*row, "sgd-scan")]) for row in (*CIFAR_ROWS, CIFAR_LONG))
    ]
    in_order = [*short, *of_cifar, *over_scan, *rest[:3], long, *rest[3:]]
    in_order += [
        (f"{own.mean - scan.mean:.2f}", clearly(own, scan), True)
        for own, scan in ((chest[(*row, "emais-auto")], chest[(*row, "sgd-scan")]) for row in CHEST_ROWS)
    ]
    assert re.findall(r"\d\.\d\d", said) == [gap for gap, *_ in in_order]
    assert [k for k, (_, clear, _) in enumerate(in_order) if clear] == [0, 2, 5, 13, 16, 17]
    assert [ahead for *_, ahead in in_order] == [True] * 4 + [False] + [True] * 4 + [False] * 4 + [True] * 5


def only(setting, *seeds):
    """A setting with some of its seeds."""
    return replace(setting, records=tuple(r for r in setting.records if r["seed"] in seeds))


def test_what_is_said_in_short_holds(make_auto):
    """The leads and losses that the page begins with, whether they are clear, and the seconds."""
    fmnist, cifar, adam = (settings(f"tab:{name}") for name in ("res_fmnist", "res_cinic10", "adam"))
    said = words(RESULTS).partition("## In short")[2].partition("Test error in percent")[0]
    sizes = [float(x) for x in size_ratios(make_auto)[:9]]
    assert f"(N_ems {min(sizes):.1f} to {max(sizes):.1f} times EMAIS's" in said

    def lead(own, row, method="emais", over="sgd-scan"):
        a, b = own[(*row, method)], own[(*row, over)]
        return f"{b.mean - a.mean:.2f}", clearly(a, b)

    rows = [("fmnist", "sgd", 1e-3, 6250), ("fmnist", "sgd", 1e-3, 12500)]
    gaps = [lead(fmnist, row) for row in rows]
    gaps += [lead(adam, ("fmnist", "adam", *row[2:])) for row in rows]
    assert all(clear for _, clear in gaps)
    assert (
        "by {} and {} points at 6250 and 12500 steps with SGD, by {} and {} with Adam".format(*[g for g, _ in gaps])
        in said
    )
    gaps = [lead(cifar, row) for row in CIFAR_ROWS]
    assert all(clear for _, clear in gaps)
    scan, ours = (cifar[(*CIFAR_ROWS[1], method)] for method in ("sgd-scan", "emais"))
    assert scan.mean - ours.mean < 2.1 * standard_error(scan, ours)  # "only just"
    gaps.append(lead(cifar, CIFAR_LONG))
    assert (
        "it is {} and {} ahead, both clearly, the second only just, and {} at 35000 steps (two seeds)".format(
            *[g for g, _ in gaps]
        )
        in said
    )
    assert {len(s.records) for key, s in cifar.items() if key[:-1] == CIFAR_LONG} == {2}
    first = [[only(cifar[(*row, m)], 0, 1, 2) for m in ("sgd-scan", "emais")] for row in CIFAR_ROWS]
    assert (
        "Three seeds were run first, with leads of {:.2f} and {:.2f}, neither".format(
            *[a.mean - b.mean for a, b in first]
        )
        in said
    )
    assert not any(clearly(*pair) for pair in first)
    without = [only(s, 0, 1, 2, 3) for s in (scan, ours)]
    assert f"the 0.24 is {without[0].mean - without[1].mean:.2f} and not clear without the last seed" in said
    assert not clearly(*without)
    auto, emais_ = (only(cifar[(*CIFAR_ROWS[0], m)], 1, 2, 3, 4) for m in ("emais-auto", "emais"))
    assert f"({emais_.mean - auto.mean:.2f} and not clear without seed 0" in said
    assert not clearly(auto, emais_)
    tuned = by_rate("tuned_lr")
    assert f"{tuned['emais', 0.03].mean - tuned['emais-auto', 0.03].mean:.2f} with the tuned rate" in said
    assert clearly(tuned["emais", 0.03], tuned["emais-auto", 0.03])
    tuned = by_rate("tuned_lr_cifar10")
    pairs = [[only(tuned[m, rate], 0, 1).mean for m in ("sgd-scan", "emais")] for rate in (0.03, 0.1, 0.3)]
    leads = [round(a - b + 1e-9, 2) for a, b in pairs]
    assert "EMAIS leads SGD-Scan by {:.2f}, {:.2f} and {:.2f}: least at the best rate".format(*leads) in said
    assert f"about SGD-Scan's {scan.mean:.2f}, but a step" in said
    gap, clear = lead(adam, ("fmnist", "adam", 1e-3, 25000))
    assert f"with Adam EMAIS is {-float(gap):.2f} behind, not clearly" in said
    assert not clear
    best = {}
    for (method, _), setting in by_rate("tuned_lr").items():
        best[method] = min(setting.mean, best.get(method, math.inf))
    gap = best["sgd-scan"] - best["emais"]
    assert f"EMAIS keeps {gap:.2f} of its {lead(fmnist, rows[0])[0]} points at 6250 steps" in said
    assert f"EMAIS-auto is {best['sgd-scan'] - best['emais-auto']:.2f} ahead of SGD-Scan" in said
    assert lead(fmnist, rows[0], "emais-auto", "emais") == ("0.45", True)
    assert lead(adam, ("fmnist", "adam", 1e-3, 25000), "emais-auto") == ("-0.30", True)
    gap, clear = lead(cifar, CIFAR_ROWS[0], "emais-auto", "emais")
    assert f"It takes {gap} off on CIFAR-10 with weight decay 1e-4" in said
    assert clear
    unbiased = ("sgd-uni", "rais", "presampling", "emais", "emais-auto")
    for own, optimizer in ((fmnist, "sgd"), (adam, "adam")):
        long = ("fmnist", optimizer, 1e-3, 25000)
        assert not any(
            clearly(own[(*long, m)], own[(*long, "sgd-scan")]) and float(lead(own, long, m)[0]) > 0
            for m in unbiased
            if (*long, m) in own
        )
    steps = {"SGD-Scan": 9772, "RAIS": 5723, "EMAIS": 6553, "EMAIS-auto": 5017}  # of the page's own list
    ms = {t["method"]: t["ms"] for t in measured("single_lenet5.jsonl")}
    for name, count in steps.items():
        assert f"{name} {count}" in words(RESULTS)
        seconds = count * ms[name.lower()] / 1000
        assert re.search(rf"{name}(?: takes)? {seconds:.1f}\b", said)


CIFAR_ROWS = [("cifar10", "sgd", decay, 17500) for decay in (1e-4, 5e-4)]
CIFAR_LONG = ("cifar10", "sgd", 5e-4, 35000)
CHEST_ROWS = [("chestxray14", "sgd", 1e-4, steps) for steps in (1000, 2000, 4000)]


def test_what_is_said_of_the_other_methods_on_cifar10_holds():
    """Their errors in results.md, Self-paced's losses, and that Confidence is second with the lead that is said."""
    own = settings("tab:res_cinic10")
    others = ("SGD-Uni", "Presampling", "Confidence", "ConfVar", "Self-paced")
    for method, name in ((name.lower(), name) for name in others):
        pairs = [f"{own[(*row, method)].mean:.2f} ± {own[(*row, method)].sd:.2f}" for row in CIFAR_ROWS]
        counted = f"{name} (five seeds, the others three)" if method == "sgd-uni" else name
        assert f"{counted} {' and '.join(pairs)}" in words(RESULTS)
        assert {len(own[(*row, method)].records) for row in CIFAR_ROWS} == {5 if method == "sgd-uni" else 3}
    behind = [f"{own[(*row, 'self-paced')].mean - own[(*row, 'sgd-scan')].mean:.2f}" for row in CIFAR_ROWS]
    assert f"the other way round: {' and '.join(behind)} points behind SGD-Scan" in words(RESULTS)
    paced = [r["curves"] for row in CIFAR_ROWS for r in own[(*row, "self-paced")].records]
    stuck = [sum(c["test_error"][c["test_step"].index(step)] > 89.9 for c in paced) for step in (2100, 3500)]
    assert (len(paced), *stuck) == (6, 5, 3)  # "five of six", "three"
    short = [r["curves"] for key, s in settings("tab:res_fmnist").items() if key[-1] == "self-paced" for r in s.records]
    early = [c["test_error"][c["test_step"].index(1000)] for c in short]
    assert (len(early), f"{min(early):.0f} to {max(early):.0f}") == (15, "52 to 71")
    assert "the error is 52 to 71 % after 1000 steps" in words(RESULTS)
    behind = [own[(*row, "rais")].mean - own[(*row, "sgd-scan")].mean for row in CIFAR_ROWS]
    assert "RAIS is behind on CIFAR-10**, by {:.2f} and {:.2f}, the second clearly".format(*behind) in words(RESULTS)
    assert [clearly(own[(*row, "rais")], own[(*row, "sgd-scan")]) for row in CIFAR_ROWS] == [False, True]
    behind = [own[(*row, "sgd-uni")].mean - own[(*row, "sgd-scan")].mean for row in CIFAR_ROWS]
    assert "SGD-Uni is {:.2f} and {:.2f} behind SGD-Scan there".format(*behind) in words(RESULTS)
    assert not any(clearly(own[(*row, "sgd-uni")], own[(*row, "sgd-scan")]) for row in CIFAR_ROWS)
    scan, better_scan = (own[(*row, "sgd-scan")] for row in CIFAR_ROWS)
    confidence = [own[(*row, "confidence")] for row in CIFAR_ROWS]
    gaps = scan.mean - confidence[0].mean, confidence[1].mean - better_scan.mean
    assert "{:.2f} ahead and {:.2f} behind SGD-Scan, within chance".format(*gaps) in words(RESULTS)
    assert not any(clearly(s, own[(*row, "sgd-scan")]) for s, row in zip(confidence, CIFAR_ROWS, strict=True))
    for row, order in zip(CIFAR_ROWS, (["emais", "confidence"], ["emais", "sgd-scan", "confidence"]), strict=True):
        means = sorted((s.mean, key[-1]) for key, s in own.items() if key[:-1] == row and key[-1] != "emais-auto")
        assert [method for _, method in means[: len(order)]] == order


def test_what_is_said_of_presampling_on_cifar10_holds():
    """How far it is behind, the paper's worst, and that its training loss jumps where that of others does not."""
    own = settings("tab:res_cinic10")
    behind = [f"{own[(*row, 'presampling')].mean - own[(*row, 'sgd-scan')].mean:.2f}" for row in CIFAR_ROWS]
    assert f"unstable on CIFAR-10**: {' and '.join(behind)} points behind SGD-Scan" in words(RESULTS)
    jumps, scores = {}, {}
    for (*row, method), setting in own.items():
        for curves in (r["curves"] for r in setting.records if tuple(row) in CIFAR_ROWS):
            loss, fifth = curves["loss"], len(curves["loss"]) // 5
            late = zip(loss[fifth - 1 :], loss[fifth:], strict=False)
            jumps.setdefault(method, []).append(sum(now > 2 * before for before, now in late))
            scores.setdefault(method, []).append(statistics.median(curves["score"][fifth:]))
    found, lowest = jumps["presampling"], scores.pop("presampling")
    assert (len(found), min(found), max(found)) == (6, 2, 5)
    assert not any(sum(jumps[method]) for method in ("sgd-scan", "sgd-uni", "emais", "emais-auto"))
    assert f"{min(lowest):.2f} to {max(lowest):.2f}, is the lowest of the paper's methods" in words(RESULTS)
    assert max(lowest) < min(map(min, scores.values()))
    places = [ALL.index(method) for method in ("sgd-scan", "presampling")]
    pairs = [[row[k] for k in places] for b in BLOCKS if b.label == "tab:res_cinic10" for row in b.rows.values()]
    worst = max(other[0] - scan[0] for scan, other in pairs), max(other[1] for _, other in pairs)
    assert "up to {:.2f} points behind at longer ones, with standard deviations up to {:.2f}".format(*worst) in words(
        RESULTS
    )


def test_what_is_said_of_presampling_with_batch_statistics_holds():
    """With the candidates' own BatchNorm statistics it is stable, on two seeds; N_ems counts draws as independent."""
    own = {bool(s.config.options): s for s in found("presampling_modes") if s.config.method == "presampling"}
    pairs = [[r["test_error"] for r in own[kind].records[:2]] for kind in (True, False)]
    assert [r["seed"] for r in own[True].records] == [r["seed"] for r in own[False].records[:2]] == [0, 1]
    said = "{:.2f} and {:.2f} instead of {:.2f} and {:.2f}".format(*pairs[0], *pairs[1])
    assert f"two seeds have {said}, S(W) is" in words(RESULTS)
    assert "5.81 and 5.32 % instead of 9.28 and 9.01" in words(RESULTS)  # in short
    assert pairs == [[5.81, 5.32], [9.28, 9.01]]
    assert "then it is {:.1f} and {:.1f} % with two seeds".format(*pairs[0]) in words(CARDS["presampling"])
    scores = {kind: [r["curves"]["score"][12:] for r in s.records] for kind, s in own.items()}
    medians = {f"{statistics.median(x):.2f}" for x in scores[True]}
    highest = [max(map(max, scores[kind])) for kind in (True, False)]
    said = "S(W) is {} and never above {:.2f} after the first fifth (before, up to {:.2f})".format(*medians, *highest)
    assert said in words(RESULTS)
    cells = dict(
        re.findall(r"^\| 17500 \| (Presampling[^|]*) \| \d \| [^|]+ \| (\d+) ", (DOCS / "tables.md").read_text(), re.M)
    )
    plain, ours = cells["Presampling-IS"], cells["Presampling-IS, batch_statistics = True"]
    assert f"N_ems over the second half {ours} instead of {plain}" in words(RESULTS)
    losses = [r["curves"]["loss"] for r in own[True].records]
    assert sum(b > 2 * a for loss in losses for a, b in pairwise(loss[11:])) == 1
    again = [r["recalibrated"] for r in own[True].records]
    assert "with those of uniform minibatches these two have {:.2f} and {:.2f}".format(*again) in words(RESULTS)


def curve_rows():
    """tables.md's rows of CIFAR-10 with N_ems and S(W) over the second half: {(steps, method): cells}."""
    rows = re.findall(r"^\| CIFAR-10 \| 5e-4 \| (\d+) \| ([^|]+) \|(.*)\|$", (DOCS / "tables.md").read_text(), re.M)
    split = [((int(steps), name), [c.strip() for c in cells.split("|")]) for steps, name, cells in rows]
    return {key: cells for key, cells in split if len(cells) >= 6}  # seeds, error, N_ems twice, S(W) twice


def test_what_is_said_of_memory_and_rules_on_cifar10_holds():
    own = curve_rows()
    others = ("EMAIS, τ = 2500", "EMAIS, τ = 7500", "EMAIS, τ = 17500", "EMAIS")
    names = (*others, "EMAIS, all statistics refreshed every 250 steps")
    scores = [own[17500, name][4] for name in names]
    assert f"second half is {min(scores)} to {max(scores)} with τ = 2500, 7500, 17500 and Linear-τ" in words(RESULTS)
    assert f"τ = 1250 has {own[17500, 'EMAIS, τ = 1250'][4]}" in words(RESULTS)
    assert own[17500, "EMAIS, τ = 1250"][4] > max(scores)
    assert f"steps to those of 35000 it goes from {own[8750, 'EMAIS'][4]} to {own[35000, 'EMAIS'][4]}" in words(RESULTS)
    first = settings("tab:res_cinic10")[(*CIFAR_ROWS[1], "rais")].records[0]
    assert first["seed"] == 0
    linear = own[17500, "RAIS, rule linear"]
    assert linear[0] == "1"
    told = f"With seed 0 on CIFAR-10 the linear rule gets to {linear[1]}, where the schedule has "
    assert f"{told}{at_step(first, 14000):.2f} at step 14000 and {first['test_error']:.2f} at the end" in words(RESULTS)
    late = [own[17500, name][5] for name in ("EMAIS, τ = 1250", "EMAIS")]
    assert "but over the last fifth {}, as Linear-τ ({})".format(*late) in words(RESULTS)
    rules = {
        (s.config.method, s.config.rule, s.config.num_steps): s
        for s in found("rais_rules")
        if s.config.data == "fmnist"
    }
    for rule in ("gain", "linear"):
        cells = [f"{rules['rais', rule, n].mean:.2f} ± {rules['rais', rule, n].sd:.2f}" for n in (6250, 12500)]
        assert " and ".join(cells) in words(RESULTS)
    assert clearly(rules["rais", "linear", 6250], rules["emais", None, 6250])
    tau = {s.config.options.get("tau"): s for s in found("fig:is_scores") if s.config.data == "fmnist"}
    worst = max(x for r in tau[25000].records for x in r["curves"]["score"][6:] if x is not None)
    ends = max(tau[25000].values), tau[25000].mean, tau[25000].sd
    told = "τ = 25000 up to {:.0f}, and one of its seeds ends at {:.2f} % (mean {:.2f} ± {:.2f})".format(worst, *ends)
    assert told in words(RESULTS)


def uniform(setting):
    """A setting with the results of uniform minibatches' statistics in place of its own."""
    return replace(setting, records=[r | {setting.metric: r["recalibrated"]} for r in setting.records])


def test_what_is_said_of_batchnorm_holds():
    """Uniform statistics make EMAIS-auto worse on CIFAR-10 and leave SGD-Uni as it is; on the chest subset neither."""
    own = settings("batchnorm")
    auto, uni = ([own[(*row, method)] for row in CIFAR_ROWS] for method in ("emais-auto", "sgd-uni"))
    said = re.findall(
        r"from (\d\.\d\d) to (\d\.\d\d) %", words(RESULTS).partition("the BatchNorm statistics of its own")[2]
    )
    after = {id(s): mean_sd(recalibrated(s))[0] for s in own.values()}
    assert said == [(f"{s.mean:.2f}", f"{after[id(s)]:.2f}") for s in (auto[1], auto[0], uni[1], uni[0])]
    assert f"from {said[0][0]} to {said[0][1]} %" in words(README)
    assert f"by {min(changes(auto[1])):.2f} to {max(changes(auto[1])):.2f} with each of five seeds" in words(RESULTS)
    assert f"by {min(changes(auto[0])):.2f} to {max(changes(auto[0])):.2f} with each of five" in words(RESULTS)
    assert {len(s.records) for s in (*auto, *uni)} == {5}
    low, high = (changes(own[(*row, "emais")]) for row in CIFAR_ROWS)
    told = "loses as much, {:.2f} and {:.2f}, and {:.2f} and {:.2f}, with the two seeds of each that were measured"
    assert told.format(*high, *low) in words(RESULTS)
    plain = [own[(*row, "sgd-scan")] for row in CIFAR_ROWS]
    assert all(abs(mean_sd(changes(s))[0]) < 0.1 and len(s.records) == 2 for s in plain)
    for row, said in zip(
        CIFAR_ROWS, ("and {:.2f} becomes {:.2f} with 1e-4", "EMAIS's lead of {:.2f} becomes {:.2f} with"), strict=True
    ):
        scan, ours = (own[(*row, method)] for method in ("sgd-scan", "emais"))
        assert said.format(scan.mean - ours.mean, uniform(scan).mean - uniform(ours).mean) in words(RESULTS)
    assert all(abs(mean_sd(changes(s))[0]) < 0.1 for s in uni)
    same = [own[(*row, method)] for row in CIFAR_ROWS for method in ("confvar", "self-paced")]
    assert all(abs(mean_sd(changes(s))[0]) < 0.1 for s in same)
    assert all(0 < mean_sd(changes(own[(*row, "confidence")]))[0] < 0.11 for row in CIFAR_ROWS)  # "nearly"
    chest = [mean_sd(changes(s))[0] for key, s in own.items() if key[0] == "chestxray14"]
    assert f"by {min(chest):.2f} to {max(chest):+.2f} on average".replace("-", "−") in words(RESULTS)
    for one, other in (("emais", "sgd-scan"), ("emais-auto", "emais")):
        pairs = [[uniform(own[(*row, method)]) for method in (one, other)] for row in CHEST_ROWS]
        assert not any(clearly(a, b) for a, b in pairs)
    ours = [r for r in all_records() if r["data"] == "cifar10" and r["method"] == "emais" and r.get("recalibrated")]
    moved = sorted((r["recalibrated"] - r["test_error"], r["options"].get("tau", 0)) for r in ours)
    assert (len(moved), moved[-1][1]) == (17, 1250)  # "seventeen", "most with the shortest memory"
    assert f"(−{-moved[0][0]:.2f} to {moved[-1][0]:.2f} in its seventeen measured runs" in words(RESULTS)
    for k, said in (
        (1, "from {:.2f} to {:.2f} with weight decay 5e-4, no longer"),
        (0, "from {:.2f} to {:.2f} with 1e-4, still"),
    ):
        pair = uniform(auto[k]), uniform(uni[k])
        assert said.format(uni[k].mean - auto[k].mean, pair[1].mean - pair[0].mean) in words(RESULTS)
        assert clearly(auto[k], uni[k])
        assert clearly(*pair) is (k == 0)
    lost = [mean_sd(changes(own[(*row, "presampling")]))[0] for row in CIFAR_ROWS]
    assert f"loses {lost[1]:.2f} and {lost[0]:.2f}, with seeds apart" in words(RESULTS)
    moved = changes(own[(*CIFAR_LONG, "emais-auto")])
    assert f"disagree (−{-moved[0]:.2f} and +{moved[1]:.2f})" in words(RESULTS)
    later = [own[(*row, method)] for row in CIFAR_ROWS for method in ("sgd-scan", "rais", "emais")]
    assert all([r["seed"] for r in s.records] == [3, 4] for s in later)  # seeds 0 to 2 are from before


def test_what_is_said_of_the_chest_subset_holds():
    """Every method's lead over SGD-Scan beside the paper's, which are clear, and how much there is to gain."""
    own = settings("tab:res_nih")
    [block] = [b for b in BLOCKS if b.label == "tab:res_nih"]
    signed = [f"{row[1][0] - row[0][0]:+.2f}".replace("-", "−") for row in block.rows.values()]
    assert block.methods[1] == "sgd-uni"
    papers = {
        method: [f"{abs(row[k][0] - row[0][0]):.2f}" for row in block.rows.values()]
        for k, method in enumerate(block.methods)
    }

    def leads(method):
        ours = [own[(*row, method)].mean - own[(*row, "sgd-scan")].mean for row in CHEST_ROWS]
        return [f"{x:+.2f}".replace("-", "−") for x in ours]

    def clear(method):
        return [clearly(own[(*row, method)], own[(*row, "sgd-scan")]) for row in CHEST_ROWS]

    def three(numbers):
        return "{}, {} and {}".format(*numbers)

    said = words(RESULTS).partition("**On the chest subset ")[2].partition(" - **")[0]
    for method, name in (("rais", "RAIS has"), ("presampling", "Presampling"), ("sgd-uni", "SGD-Uni")):
        assert f"{name} {three(leads(method))} ({three(signed if method == 'sgd-uni' else papers[method])})" in said
        assert not any(clear(method))
    assert not any(clearly(own[(*row, "emais")], own[(*row, "sgd-uni")]) for row in CHEST_ROWS)
    plain = three([x.strip("+") for x in leads("emais")])
    assert f"EMAIS's {plain} (the paper's, on all of ChestX-ray14, are {three(papers['emais'])})" in said
    assert f"its mAP is {plain} above SGD-Scan's, the last clearly" in words(RESULTS)
    assert clear("emais") == [False, False, True]
    auto = [x.strip("+") for x in leads("emais-auto")]
    assert f"its mAP is {plain} points above" in words(README)
    assert f"EMAIS-auto's {three(auto)}; of these the last of EMAIS and the last two of EMAIS-auto" in words(README)
    assert clear("emais-auto") == [False, True, True]
    behind = [x.strip("−") for x in leads("self-paced")]
    assert f"{three(behind)} behind SGD-Scan ({three(papers['self-paced'])}), the first two clearly" in said
    assert clear("self-paced") == [True, True, False]
    orders = []
    for row in CHEST_ROWS:
        means = sorted((s.mean, key[-1]) for key, s in own.items() if key[:-1] == row and key[-1] != "emais-auto")
        orders.append([method for _, method in means])
    assert [order[0] for order in orders] == ["self-paced"] * 3
    assert [len(order) - order.index("emais") for order in orders] == [1, 3, 1]
    assert orders[1][-2:] == ["sgd-uni", "presampling"]
    runs = [[r["curves"] for r in own[(*row, "emais")].records] for row in CHEST_ROWS]
    room = {round(sum(c["tr_unif"][30:]) / sum(c["tr_opt"][30:]), 1) for some in runs for c in some}
    assert room == {1.6}
    scores = [statistics.median(x for c in some for x in c["score"][30:]) for some in runs]
    assert f"(S(W) {min(scores):.2f} to {max(scores):.2f})" in said
    for name, method in (("SGD-Uni", "sgd-uni"), ("Presampling", "presampling"), ("Self-paced", "self-paced")):
        cells = [f"{own[(*row, method)].mean:.2f} ± {own[(*row, method)].sd:.2f}" for row in CHEST_ROWS]
        assert f"{name} {three(cells)}" in words(RESULTS)


def test_what_is_said_of_tuned_rates_on_cifar10_holds():
    own = by_rate("tuned_lr_cifar10")
    rates = (0.03, 0.1, 0.3)
    for method, name in (("sgd-scan", "SGD-Scan"), ("emais", "EMAIS"), ("rais", "RAIS")):
        low, paper, high = (f"{own[method, rate].mean:.2f} ± {own[method, rate].sd:.2f}" for rate in rates)
        assert f"{name} {low}, {paper} and {high}" in words(RESULTS)
        assert len(own[method, 0.03].records) == len(own[method, 0.3].records) == 2
    low, paper, high = (own["emais-auto", rate] for rate in rates)
    assert f"at 0.1 five, {low.mean:.2f}, {paper.mean:.2f} ± {paper.sd:.2f} and {high.mean:.2f}" in words(RESULTS)
    assert len(low.records) == len(high.records) == 1
    for method in ("sgd-scan", "emais", "emais-auto"):
        assert min(rates, key=lambda rate: own[method, rate].mean) == 0.1
    assert all(own["emais", rate].mean < own["sgd-scan", rate].mean for rate in rates)
    for rate, said in (
        (0.03, "with rate 0.03 EMAIS's lead of {:.2f} becomes {:.2f}"),
        (0.3, "0.3 one of {:.2f} becomes {:.2f}"),
    ):
        scan, ours = own["sgd-scan", rate], own["emais", rate]
        assert said.format(scan.mean - ours.mean, uniform(scan).mean - uniform(ours).mean) in words(RESULTS)
    first = [[r["test_error"] for r in own[m, 0.1].records if r["seed"] < 2] for m in ("sgd-scan", "emais")]
    told = "{:.2f} and {:.2f} with SGD-Scan at 0.1, {:.2f} and {:.2f} with EMAIS"
    assert told.format(*first[0], *first[1]) in words(RESULTS)
    ends = own["rais", 0.3].mean, own["sgd-scan", 0.3].mean
    assert "With rate 0.3 it is ahead of SGD-Scan there, {:.2f} against {:.2f}".format(*ends) in words(RESULTS)


def at_step(record, step, name="test_error", steps="test_step"):
    """A point of a curve."""
    curves = record["curves"]
    return curves[name][curves[steps].index(step)]


def test_what_is_said_of_rais_standing_still_holds():
    """Its weights do not change any more, its error does, and BatchNorm's statistics are why."""
    runs = settings("tab:res_cinic10")[(*CIFAR_ROWS[1], "rais")].records
    scan = settings("tab:res_cinic10")[(*CIFAR_ROWS[1], "sgd-scan")]
    assert {len(runs), len(scan.records)} == {5}
    still, end = (
        statistics.mean(values) for values in ([at_step(r, 14000) for r in runs], [r["test_error"] for r in runs])
    )
    said = words(RESULTS)
    assert (
        f"from {still:.2f} at step 14000, {still - scan.mean:.2f} behind SGD-Scan's end, to {end:.2f} at its own"
        in said
    )
    risen = [r for r in runs if r["test_error"] > 1 + at_step(r, 14000)]
    rises = [x for r in risen for x in (at_step(r, 14000), r["test_error"])]
    assert "two of five seeds, from {:.2f} to {:.2f} and from {:.2f} to {:.2f};".format(*rises) in said
    rest = [r["test_error"] - at_step(r, 14000) for r in runs if r not in risen]
    assert f"the others change by −{-min(rest):.2f} to +{max(rest):.2f}" in said
    losses = [x for r in risen for x in (at_step(r, 14000, "loss", "step"), r["curves"]["loss"][-1])]
    assert "these two seeds from {:.3f} to {:.3f} and from {:.3f} to {:.3f}".format(*losses) in said
    assert f"the second of these two seeds has {risen[1]['recalibrated']:.2f} with them" in said

    own = settings("batchnorm")
    rais, plain, ours, auto = (own[(*CIFAR_LONG, method)] for method in ("rais", "sgd-scan", "emais", "emais-auto"))
    assert all(r["curves"]["lr"][-10:] == [0] * 10 for r in rais.records)
    late, end = [at_step(r, 26600) for r in rais.records], rais.values
    again = [*recalibrated(rais), *recalibrated(plain)]
    assert "from {:.2f} and {:.2f} at step 26600 to {:.2f} and {:.2f}".format(*late, *end) in said
    assert "weights then have {:.2f} and {:.2f}, SGD-Scan's {:.2f} and {:.2f}".format(*again) in said
    card = words(CARDS["rais"])
    assert "from {:.2f} and {:.2f} % at step 26600 to {:.2f} and {:.2f} % at the end".format(*late, *end) in card
    assert "uniform minibatches it is {:.2f} and {:.2f} %".format(*again) in card

    new = [uniform(s).mean for s in (plain, ours, auto)]
    assert f"SGD-Scan stays at {plain.mean:.2f}, EMAIS goes from {ours.mean:.2f} to {new[1]:.2f}" in said
    assert abs(new[0] - plain.mean) < 0.01
    gaps = plain.mean - ours.mean, new[1] - new[0]
    assert "its lead of {:.2f} becomes a loss of {:.2f}".format(*gaps) in said
    assert "lead of {:.2f} into a loss of {:.2f}".format(*gaps) in words(README)
    gaps = auto.mean, new[2], plain.mean - auto.mean, new[0] - new[2]
    assert "EMAIS-auto from {:.2f} to {:.2f}, a lead of {:.2f} that becomes {:.2f}".format(*gaps) in said

    tuned = by_rate("tuned_lr_cifar10")
    low = tuned["rais", 0.03].records[0]
    told = f"from {at_step(low, 14000):.2f} at step 14000 to {low['test_error']:.2f}, then {low['recalibrated']:.2f}"
    assert told in said
    high = tuned["rais", 0.3].records
    before, after = ([r[key] for r in high] for key in ("test_error", "recalibrated"))
    assert "and they harm: {:.2f} and {:.2f} become {:.2f} and {:.2f}".format(*before, *after) in said
    assert all(r["test_error"] - at_step(r, 14000) < 0.11 for r in high)  # "nothing rises much"
    much = [r for r in all_records() if r["data"] == "cifar10" and r["method"] == "rais" and not r["rule"]]
    much = [
        r
        for r in much
        if r.get("recalibrated") and r["test_error"] > 1 + at_step(r, round(0.76 * r["num_steps"] / 700) * 700)
    ]
    assert len(much) == 4  # "all four runs"
    assert all(r["recalibrated"] < r["test_error"] - 1.5 for r in much)


def test_what_is_said_of_steps_to_an_error_on_cifar10_holds():
    """Sooner than SGD-Scan with weight decay 1e-4, not with 5e-4."""
    own = settings("steps_to_error")
    means, reached = {}, {}
    for row in CIFAR_ROWS:
        for method in ("sgd-scan", "emais", "emais-auto", "rais"):
            steps = [first_step(r, 7.0) for r in own[(*row, method)].records]
            there = [s for s in steps if math.isfinite(s)]
            means[row[2], method], reached[row[2], method] = statistics.mean(there), len(there)
    high = [means[5e-4, m] for m in ("emais", "emais-auto", "sgd-scan", "rais")]
    assert "(to 7 %: {:.0f}, {:.0f} and {:.0f} of 17500 steps)".format(*high) in words(RESULTS)
    assert f"RAIS is first with 5e-4 ({high[3]:.0f})" in words(RESULTS)
    assert high[3] < high[2] < min(high[:2])
    low = [means[1e-4, m] for m in ("emais", "emais-auto", "sgd-scan")]
    assert "With 1e-4 they are: {:.0f} and {:.0f} steps, where".format(*low) in words(RESULTS)
    assert f"the others take {low[2]:.0f} on average" in words(RESULTS)
    assert reached[1e-4, "sgd-scan"] == 4
    assert reached[1e-4, "emais"] == reached[1e-4, "emais-auto"] == 5
    assert max(low[:2]) < low[2]


TIMES = ("after a sixth of the run", "after a half", "at its end")


def test_what_is_said_of_following_holds():
    """SGD-Uni with minibatches of EMAIS's N_ems has EMAIS's training loss, and not that of N = 128."""
    own = {(s.config.method, s.config.follow): s for s in found("fig:fmnist_sgd_unif_n_ems")}

    def losses(*key):
        curves = [r["curves"]["loss"] for r in own[key].records]
        return [statistics.mean(points) for points in zip(*curves, strict=True)]

    leader, follower, plain = losses("emais", ""), losses("sgd-uni", "emais"), losses("sgd-uni", "")
    most = max(1 - b / a for a, b in zip(leader, follower, strict=True))
    assert f"at most {100 * most:.0f} % below" in words(RESULTS)
    assert all(b < 1.02 * a for a, b in zip(leader, follower, strict=True))
    of = itemgetter(9, 29, -1)
    said = words(RESULTS).partition("SGD-Uni with minibatches of EMAIS's N_ems")[2].partition(". The test errors")[0]
    pairs = [f"{b:.2f} and {a:.2f} {when}" for a, b, when in zip(of(leader), of(follower), TIMES, strict=True)]
    assert ", ".join(pairs) in said
    assert "has {:.2f}, {:.2f} and {:.2f}".format(*of(plain)) in said
    cells = [f"{own[key].mean:.2f} ± {own[key].sd:.2f}" for key in (("sgd-uni", "emais"), ("emais", ""))]
    assert f"The test errors are {cells[0]} and {cells[1]}, not clearly apart" in words(RESULTS)
    assert not clearly(own["sgd-uni", "emais"], own["emais", ""])


def measured(file):
    """The rows of a benchmark."""
    return [json.loads(line) for line in (STEPS / file).read_text().splitlines()]


def ratios(file, case):
    """The ratio of each method, as the benchmark wrote it down."""
    return {t["method"]: t["ratio"] for t in measured(file) if t["case"] == case}


@pytest.mark.parametrize("end", ["", ", by sample"])
def test_the_step_times_are_the_measured_ones(end):
    """A row for 0 workers, and one for 2 or 4."""
    network, gpu = "LeNet5, 2 CPU cores, TensorDataset", "ResNet18, bf16, H200, eager, TensorDataset"
    kinds = ("the same sample by sample", "the same on the H200 sample by sample") if end else (network, gpu)
    for kind, file, case, some in zip(
        kinds, ("cpu", "cuda"), ("LeNet5 cpu", "ResNet18 gpu eager"), (2, 4), strict=True
    ):
        for workers in (0, some):
            own = ratios(f"step_{file}.jsonl", f"{case}, {workers} workers{end}")
            cells = re.search(rf"^\| {kind}, {workers} workers \|(.*)\|$", COSTS.read_text(), re.M)[1].split("|")
            told = [float(cell.split()[0]) for cell in cells]
            assert told == pytest.approx([own[m] for m in ("emais", "emais-auto", "rais", "sgd again")], abs=5.1e-4)


def test_what_the_readme_says_of_costs_is_measured():
    """EMAIS's rows of the step benchmark, and the sampler's shortest and longest time."""
    section = README.read_text().partition("## What it costs")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (?:LeNet5|ResNet18).*?\| ([\d.]+) \| ([\d.]*) ?\|$", section, re.M)
    cases = [("LeNet5 cpu", 2, "cpu"), ("ResNet18 gpu eager", 4, "cuda")]
    wanted = [
        tuple(ratios(f"step_{file}.jsonl", f"{case}, {workers} workers{end}")["emais"] for workers in (0, some))
        for case, some, file in cases
        for end in ("", ", by sample")
    ]
    wanted.append((ratios("step_cuda.jsonl", "ResNet18 gpu resident graph")["emais"],))
    assert len(cells) == len(wanted)
    for told, own in zip(cells, wanted, strict=True):
        assert [float(x) for x in told if x] == pytest.approx(own, abs=5.1e-4)
    times = [row["ms"] for row in measured("sampler.jsonl") if (row["way"], row["N"]) == ("emais", 128)]
    assert f"take {min(times):.2f} to {max(times):.2f} ms from 10⁴ to 10⁸ samples" in " ".join(section.split())


def test_the_range_of_eager_step_times_is_the_measured_one():
    lines = [row for name in ("cuda", "cpu") for row in measured(f"step_{name}.jsonl")]
    own = [(row["case"], row["ratio"]) for row in lines if row["method"] == "emais" and "workers" in row["case"]]
    for network, said in (
        ("ResNet18", "{:.2f} to {:.2f} times a plain one"),
        ("LeNet5", "{:.2f} to {:.2f} with LeNet5"),
    ):
        found = [ratio for case, ratio in own if case.startswith(network)]
        assert len(found) == 4
        assert said.format(min(found), max(found)) in words(RESULTS)


def test_what_a_minibatch_from_a_worker_costs_is_the_measured_time():
    cost = {row["method"]: row["cpu_ms"] for row in measured("parcels.jsonl") if row["case"].startswith("393216 ")}
    said = "{shared:.2f} ms of CPU time, by value {by value:.2f}, with labels alone by value {labels by value:.2f}"
    assert said.format(**cost) in words(DOCS / "architecture.md")


def near(told, measured):
    """Whether numbers in words are the measured ones, to their last digit."""
    ends = [0.51 * 10.0 ** -len(number.partition(".")[2]) for number in told]
    return all(abs(float(a) - b) <= end for a, b, end in zip(told, measured, ends, strict=True))


def test_the_step_times_of_a_network_alone_are_the_measured_ones():
    """A row for each in costs.md, and what results.md says of them."""
    models = {"ResNet18": "resnet18", "ResNet50": "resnet50", "LeNet5": "lenet5"}
    own = {name: ratios(f"single_{model}.jsonl", f"{model} alone") for name, model in models.items()}
    for name, times in own.items():
        cells = re.search(rf"^\| {name}, H200, alone \|(.*)\| \|$", COSTS.read_text(), re.M)[1]
        assert near(cells.replace("|", " ").split(), [times[m] for m in ("emais", "emais-auto", "rais")])
    said = words(RESULTS).partition("**Time of a step** ")[2].partition("In an eager loop")[0]
    in_order = [times[m] for m in ("emais", "emais-auto", "rais", "presampling") for times in own.values()]
    assert near(re.findall(r"\d\.\d{2,3}\b(?! ms)", said), in_order)
    short = [f"{own['LeNet5'][m]:.2f}" for m in ("emais", "emais-auto")]
    assert f"0.36 ms, so little that the bookkeeping shows: {' and '.join(short)}" in words(COSTS)
    others = ("sgd-uni", "confidence", "confvar", "self-paced", "presampling")
    listed = re.search(r"alone: (sgd-uni [^.]*\.\d+.*?)\. ", words(COSTS))[1]
    assert re.findall(r"([a-z-]+) [\d.]+", listed) == list(others)
    assert near(re.findall(r"[\d.]+", listed), [own["ResNet18"][m] for m in others])
