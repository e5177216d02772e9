"""What is shipped: one version everywhere, metadata that says what is true, archives that are complete."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from places import ROOT

import emais
from emais.cli import main

NOT_SOURCE = {
    ".git",
    ".venv",
    ".venv-integrations",
    ".venv-ray",
    "out",
    "build",
    "dist",
    "data",
}  # at the top; further down `data` is a package


@pytest.fixture(scope="module")
def check_dist():
    spec = importlib.util.spec_from_file_location("check_dist", ROOT / ".ci" / "check_dist.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_source(to):
    """The files of the project, without what is made from them."""

    def ignored(folder, names):
        made = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache", ".hypothesis", ".coverage*")(
            folder, names
        )
        return made | (NOT_SOURCE & set(names) if Path(folder) == ROOT else set())

    shutil.copytree(ROOT, to, ignore=ignored)


# ---- the version


def test_package_citation_and_changelog_have_one_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    version, date = re.search(r"^## \[(\d[^\]]*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.M).groups()
    assert metadata("emais")["Version"] == emais.__version__  # if not: make install
    assert (str(cited["version"]), str(cited["date-released"])) == (emais.__version__, date)
    assert version == emais.__version__


def test_the_version_is_written_in_one_place():
    """The project file asks the package, whose source is read without being run."""
    project = (ROOT / "pyproject.toml").read_text()
    assert emais.__version__ not in re.sub(r"#.*", "", project.split("[project.optional-dependencies]")[0])
    written = [path for path in (ROOT / "src").rglob("*.py") if f'"{emais.__version__}"' in path.read_text("utf-8")]
    assert written == [Path(emais.__file__)]


def test_the_changelog_keeps_its_form():
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.*)$", text, re.M)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", line) for line in releases[1:])
    assert set(re.findall(r"^### (.*)$", text, re.M)) <= {
        "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security",
    }  # fmt: skip


# ---- the metadata


def test_metadata_say_the_licence_and_the_pythons_of_the_workflow():
    found = metadata("emais")
    classifiers = found.get_all("Classifier")
    assert found["License-Expression"] == "MIT"
    assert found.get_all("License-File") == ["LICENSE"]
    assert not [line for line in classifiers if line.startswith("License")]  # not both: the expression says it
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    claimed = [line.rsplit(" ", 1)[1] for line in classifiers if re.search(r":: 3\.\d+$", line)]
    assert claimed == tested
    assert found["Requires-Python"] == f">={tested[0]}"


def test_authors_are_those_to_cite():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert metadata("emais")["Author"] == ", ".join(author["name"] for author in cited["authors"])


# ---- the command


def test_the_module_is_the_command(capsys):
    run = subprocess.run([sys.executable, "-m", "emais", "--help"], capture_output=True, text=True, check=True)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert run.stdout == capsys.readouterr().out


def test_the_module_returns_the_exit_status_of_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["emais", "reproduce", "tab:nothing"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("emais", run_name="__main__")
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("emais: error: ")


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_an_integration_names_the_extra_that_it_needs(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install emais\[{name}\]"):
        importlib.import_module(f"emais.{name}")


# ---- the archives


@pytest.mark.launched
def test_archives_are_complete_and_the_tests_in_them_run(check_dist, tmp_path):
    """Built from a copy, so that nothing here changes: then some of the unpacked tests, on the unpacked package."""
    source, made = tmp_path / "source", tmp_path / "dist"
    copy_source(source)
    templates = source / "src" / "emais" / "experiments" / "report" / "pages_to_be"
    templates.mkdir()
    (templates / "page.html.j2").write_text("a file that is no module, in a folder that is no package")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(source)]
    subprocess.run(build, capture_output=True, text=True, check=True)
    (wheel,), (sdist,) = made.glob("*.whl"), made.glob("*.tar.gz")
    packed = check_dist.in_wheel(wheel)
    assert "emais/experiments/report/pages_to_be/page.html.j2" in packed
    assert "emais/py.typed" in packed
    assert check_dist.wheel_problems(packed - {"emais/experiments/report/pages_to_be/page.html.j2"}) == []
    assert check_dist.sdist_problems(check_dist.in_sdist(sdist)) == []

    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (folder,) = (tmp_path / "unpacked").iterdir()
    some = [
        "tests/functional/test_functional.py",
        "tests/project/test_docs.py::test_every_method_has_a_card_and_a_true_line_in_the_index",
    ]
    some += ["tests/experiments/analysis/test_verdicts.py", "tests/test_cli.py::test_report_of_the_committed_results"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout


def test_a_wheel_that_is_not_whole_is_refused(check_dist, tmp_path, capsys):
    """Without the mark of typed packages, and with the tests in it."""
    source = Path(emais.__file__).parent
    with zipfile.ZipFile(tmp_path / "emais-1-py3-none-any.whl", "w") as archive:
        for path in source.rglob("*"):
            if path.is_file() and path.name != "py.typed" and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(source.parent))
        archive.writestr("tests/test_it.py", "")
    with tarfile.open(tmp_path / "emais-1.tar.gz", "w:gz") as archive:
        archive.add(ROOT / "README.md", "emais-1/README.md")
    assert check_dist.main([str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    wanted = ["the wheel lacks emais/py.typed", "the wheel should not have tests/test_it.py"]
    assert [line for line in told if line.startswith("the wheel")] == wanted
    if (ROOT / ".git").exists():
        assert "the sdist lacks tests/project/test_packaging.py" in told or "the sdist lacks tests/conftest.py" in told
        assert "the sdist lacks README.md" not in told


def test_an_empty_folder_is_refused(check_dist, tmp_path):
    assert "0 wheels and 0 sdists" in check_dist.problems(tmp_path)[0]
