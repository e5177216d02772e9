"""The rooms of the experiments: imports point one way, and no folder or module grows out of sight."""

import ast
import re
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


def test_no_two_modules_of_the_report_define_the_same_name():
    seen = {}
    for path in sorted((EXPERIMENTS / "report").rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            for name in (getattr(target, "id", getattr(target, "name", None)) for target in targets):
                if name is not None:
                    seen.setdefault(name, []).append(path.relative_to(EXPERIMENTS).as_posix())
    assert {name: places for name, places in seen.items() if len(places) > 1} == {}


def test_pages_are_templates():
    """Python draws pictures, element by element; whatever else is HTML, style or script has a file of its own."""
    for path in [EXPERIMENTS / "demo.py", *(EXPERIMENTS / "report").rglob("*.py")]:
        found = re.findall(r"</?(?:html|body|div|p|ul|li|table|tr|td|section|style|script)\b", path.read_text("utf-8"))
        assert not found, path
