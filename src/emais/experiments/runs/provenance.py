"""Where a record comes from: a hash of the source, versions, and hardware."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

import torch

import emais


@cache
def source_hash() -> str:
    """A short hash of the source that a run's numbers come from: records with the same one were made by the same code.

    That is the library itself, the data sets and the training; runs, analysis and pages are not in it.
    """
    root = Path(emais.__file__).parent
    files = sorted(source_files(root), key=lambda path: path.relative_to(root).as_posix())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]


def source_files(root: Path) -> list[Path]:
    """The files behind a run's numbers, in a folder that holds the package."""
    rooms = [root / "experiments" / name for name in ("data", "train")]
    library = [path for path in root.rglob("*.py") if "experiments" not in path.relative_to(root).parts]
    return [*library, root / "experiments" / "config.py", *(path for room in rooms for path in room.rglob("*.py"))]


def surroundings(device: torch.device | str) -> dict[str, str]:
    """Versions and hardware."""
    cuda = torch.device(device).type == "cuda"
    return {
        "emais": emais.__version__,
        "source": source_hash(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "hardware": torch.cuda.get_device_name() if cuda else processor(),
    }


def processor() -> str:
    """The processor's name, as well as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
