"""The rooms of the library and of its experiments: imports point one way, and nothing grows out of sight."""

import ast
import re
from pathlib import Path

import pytest

import emais

ROOT = Path(emais.__file__).parent
EXPERIMENTS = ROOT / "experiments"
ROOMS = ("data", "train", "runs", "analysis", "report")  # each may import from those before it
SHARED = {"config", "numbers", "files", "progress"}  # modules that every room may import
CORE = ("functional", "draws", "statistics", "loading", "observing", "rates")  # each may import from those before it
CORE_MODULES = [path for room in CORE for path in sorted((ROOT / room).rglob("*.py"))]
MODULES = [path for room in ROOMS for path in sorted((EXPERIMENTS / room).rglob("*.py"))]


def imports(path: Path, root: Path = EXPERIMENTS) -> set[str]:
    """The first part, below a folder, of every module there that a file imports when it runs."""
    tree, found = ast.parse(path.read_text("utf-8")), set()
    checked = [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {id(inner) for node in checked for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in skipped:
            continue
        folder = path.parents[node.level - 1]
        target = [*folder.parts, *(node.module or "").split(".")]
        if target[: len(root.parts)] == list(root.parts):
            below = target[len(root.parts) :]
            found |= {part for part in below[:1] if part} or {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", CORE_MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_of_the_core_point_one_way(path):
    room = path.relative_to(ROOT).parts[0]
    assert imports(path, ROOT) <= {*CORE[: CORE.index(room) + 1], "errors"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(EXPERIMENTS).as_posix())
def test_imports_point_one_way(path):
    room = path.relative_to(EXPERIMENTS).parts[0]
    allowed = {*ROOMS[: ROOMS.index(room) + 1], *SHARED}
    assert imports(path) <= allowed


def test_the_library_imports_no_experiment():
    files = [path for path in ROOT.rglob("*.py") if EXPERIMENTS not in path.parents and path.name != "cli.py"]
    assert len(files) > 30
    assert not [path for path in files if "experiments" in path.read_text("utf-8")]


def test_the_analysis_knows_neither_torch_nor_html():
    for path in (EXPERIMENTS / "analysis").glob("*.py"):
        assert "import torch" not in path.read_text("utf-8"), path
        assert "html" not in path.read_text("utf-8"), path


def test_only_statistics_and_draws_know_numpy_from_torch():
    """Everything else that learns computes with `engine.arrays`."""
    rooms = [path for room in ("functional", "observing", "rates", "methods") for path in (ROOT / room).glob("*.py")]
    for path in [*rooms, *(ROOT / name for name in ("engine.py", "hooks.py", "state.py"))]:
        assert not re.search(r"import numpy|\bnp\.", path.read_text("utf-8")), path


def test_no_folder_holds_more_than_15_modules():
    folders = [ROOT, *(path for path in ROOT.rglob("*") if path.is_dir())]
    counts = {folder: len(list(folder.glob("*.py"))) for folder in folders}
    assert max(counts.values()) <= 15, counts


def public_names(path: Path) -> set[str]:
    """The functions, classes and constants that a module defines; not what it imports."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return {name for name in found if not name.startswith("_")}


SAME_MEANING = {
    "CLASSES",  # of the data set that the file is about
    "SHA256",  # of its files
    "main",
    "train",  # the command `emais train`, and the loop to read
}


def test_no_two_modules_give_a_name_different_meanings():
    places: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for name in public_names(path) - SAME_MEANING:
            places.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_names_of_modules_say_what_is_in_them():
    assert not [path for path in ROOT.rglob("*.py") if {"more", "own"} & set(path.stem.split("_"))]


def test_no_module_is_over_300_lines():
    assert not {
        path.name: count for path in ROOT.rglob("*.py") if (count := len(path.read_text("utf-8").splitlines())) > 300
    }


def test_pages_are_templates():
    """Python draws pictures, element by element; whatever else is HTML, style or script has a file of its own."""
    for path in [EXPERIMENTS / "demo.py", *(EXPERIMENTS / "report").rglob("*.py")]:
        found = re.findall(r"</?(?:html|body|div|p|ul|li|table|tr|td|section|style|script)\b", path.read_text("utf-8"))
        assert not found, path
