"""The tutorial and the guides: every code block runs, in order, and what the text around them says is true."""

import json
import re

import pytest
from places import DOCS, ROOT

ELSEWHERE = ("lightning", "transformers", "trl", "accelerate")  # guides that tests/integrations runs
PAGES = {path.stem: path for path in [DOCS / "tutorial.md", *sorted((DOCS / "guides").glob("[a-z]*.md"))]}


def run(name):
    """What the blocks of a page define, run one after the other."""
    names = {"__name__": f"the page {name}"}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGES[name].read_text("utf-8"), re.S | re.M)
    assert blocks
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{PAGES[name].name}, block {number}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Pages write their files into the present folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "name", [name for name in PAGES if name not in ("tutorial", "diagnostics", "limits", "experiments", *ELSEWHERE)]
)
def test_the_code_of_a_guide_runs(name):
    """Its blocks check with `assert` what the text says."""
    assert "\nassert " in PAGES[name].read_text("utf-8")
    assert "emais" in run(name)


def test_the_tutorial_says_what_happens(capsys):
    names = run("tutorial")
    told = [float(error) for error in re.findall(r"([\d.]+) % of the test", capsys.readouterr().out)]
    assert len(told) == 2
    assert max(told) < 12
    assert abs(told[0] - told[1]) < 2  # "by a few images of 360"
    history, losses = names["history"], names["losses"]
    for seen in history[:2]:  # "the first two epochs are plain"
        assert (seen["n_ems"], seen["score"], seen["lr_scale"]) == pytest.approx((32, 1, 1))
    late = history[10:]
    assert sum(seen["n_ems"] for seen in late) / len(late) > 40  # "a gain"
    assert sum(seen["score"] for seen in late) / len(late) < 0.8
    for seen in late:
        assert 1 < seen["lr_scale"] <= 10  # "how many ordinary steps this one is worth"
    assert losses[names["often"]].mean() > 10 * losses[names["rarely"]].mean()


def test_the_tutorial_changes_the_five_lines_of_the_readme():
    """The same calls under the same numbers, and nothing but them."""
    calls = ["emais.EMAISAuto(", "imp.loader(", "imp.attach(", "draw in loader", "imp.loss("]
    for page in (PAGES["tutorial"], DOCS.parent / "README.md"):
        marked = re.findall(r"^(.*?)  # ([1-5])  ", page.read_text("utf-8"), re.M)
        assert [number for _, number in marked] == list("12345"), page
        for call, (line, _) in zip(calls, marked, strict=True):
            assert call in line, page


def test_the_guide_to_the_diagnostics_names_all_of_them(capsys):
    names = run("diagnostics")
    score, size = re.search(r"S\(W\) ([\d.]+), N_ems (\d+) of 64", capsys.readouterr().out).groups()
    assert float(score) < 1
    assert int(size) > 64
    summary, _, step = PAGES["diagnostics"].read_text("utf-8").partition("## The numbers of one step")
    for text, known in (
        (step, names["report"].as_dict().keys() - names["imp"].report().keys()),
        (summary, vars(names["summary"]).keys() - {"batch_size", "rule"}),
    ):
        table = re.findall(r"^\| (`.*?`) \|", text, re.M)
        assert sorted(re.findall(r"`(\w+)`", " ".join(table))) == sorted(known)


def test_the_guide_to_language_models_has_the_measured_numbers():
    rows = [json.loads(line) for line in (ROOT / "benchmarks" / "results" / "tokens.jsonl").read_text().splitlines()]
    page = PAGES["language_models"].read_text("utf-8")
    told = re.findall(r"^\| N = (\d+), T = (\d+) \| .*?(\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    keys = ("logits", "of_plain", "time_of_plain")
    want = {(row["case"], row["method"]): [f"{row[key]:.2f}" for key in keys] for row in rows}
    assert {(f"N={n}, T={t}, V=50257", way): list(numbers) for n, t, way, *numbers in told} == want
    assert {row["hardware"]["cpu"] in page for row in rows} == {True}
    assert all(row["of_plain"] <= 1.05 for row in rows if row["method"] == "norms")


def test_the_guides_are_listed():
    listed = re.findall(r"^\| \[.*?\]\((\w+)\.md\)", (DOCS / "guides" / "README.md").read_text("utf-8"), re.M)
    assert sorted([*listed, "tutorial"]) == sorted(PAGES)
