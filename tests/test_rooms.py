"""The rooms of the experiments: imports point one way, and no folder or module grows out of sight."""

import ast
from pathlib import Path

import pytest

import emais

ROOT = Path(emais.__file__).parent
EXPERIMENTS = ROOT / "experiments"
ROOMS = ("data", "train", "runs", "analysis", "report")  # each may import from those before it
SHARED = {"config", "numbers", "files", "progress"}  # modules that every room may import
MODULES = [path for room in ROOMS for path in sorted((EXPERIMENTS / room).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """The first part, below `experiments`, of every module of the experiments that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        folder = path.parents[node.level - 1]
        target = [*folder.relative_to(ROOT).parts, *(node.module or "").split(".")]
        if target[0] == "experiments":
            found |= {part for part in target[1:2] if part} or {alias.name for alias in node.names}
    return found


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


def test_no_folder_holds_more_than_15_modules():
    folders = [EXPERIMENTS, *(path for path in EXPERIMENTS.rglob("*") if path.is_dir())]
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
BEING_RENAMED = {  # by the report and the demo, which share these names with each other or with other rooms
    *("BOTTOM", "HEIGHT", "LEFT", "RIGHT", "TOP", "WIDTH", "SCRIPT", "STYLE", "SHOWN", "NOTE", "LABELS", "RUNS"),
    *("COLUMNS", "OPTIMIZERS", "TITLES", "Setting", "find", "lead", "mark", "number", "place", "tables"),
    "verdict",
}


def test_no_two_modules_give_a_name_different_meanings():
    places: dict[str, list[str]] = {}
    for path in sorted(EXPERIMENTS.rglob("*.py")):
        for name in public_names(path) - SAME_MEANING - BEING_RENAMED:
            places.setdefault(name, []).append(path.relative_to(EXPERIMENTS).as_posix())
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_no_module_is_over_300_lines():
    own = [path for path in MODULES if "report" not in path.relative_to(EXPERIMENTS).parts]
    assert not {path.name: count for path in own if (count := len(path.read_text("utf-8").splitlines())) > 300}
