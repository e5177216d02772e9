"""The checks that run elsewhere are the checks that run here: hosted runners, commit hooks, `make` and `.ci/run`."""

import re

import pytest
import yaml
from places import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


def commands(target):
    """What `make` runs for a target, with the programs of the environment by their bare names."""
    body = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)[1]
    return [line.strip().replace("$(BIN)/", "") for line in body.splitlines()]


@pytest.fixture
def workflow():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())


@pytest.fixture
def hooks():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"  # anything else would be downloaded
    return repo["hooks"]


def test_hosted_runners_call_what_the_local_check_calls(workflow):
    local = re.findall(r"^make .*$", (ROOT / ".ci" / "run").read_text(), re.M)
    steps = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert [step for step in steps if step != "make install"] == local
    assert "make lint" in local
    assert any(line.startswith("make test") for line in local)
    for line in local:
        assert re.search(rf"^{line.split()[1]}:", MAKEFILE, re.M), f"{line}: the Makefile has no such target"


def test_hosted_runners_start_on_changes(workflow):
    started_by = workflow[True]  # YAML reads the key `on` as true
    assert set(started_by) == {"push", "pull_request"}
    assert all(job["timeout-minutes"] <= 30 for job in workflow["jobs"].values())


def test_hooks_are_the_commands_of_make_lint(hooks):
    entries = [hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for hook in hooks]
    assert entries == [line.removesuffix(" .") for line in commands("lint")]


def test_hooks_need_nothing_but_the_environment_of_make(hooks):
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
    # of ruff a file alone can be checked, of mypy only the package
    assert [hook.get("pass_filenames", True) for hook in hooks] == [True, True, False]


def test_every_target_is_explained_by_make_help():
    (listed,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    explained = re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.M)
    assert sorted(listed.split()) == sorted(explained)


def test_the_site_is_built_so_that_warnings_stop_it():
    """With --quiet mkdocs does not count warnings, and --strict lets broken links pass."""
    (command,) = commands("site")
    assert "mkdocs build --strict" in command
    assert not re.search(r" (-q|--quiet)\b", command)
