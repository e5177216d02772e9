"""Checks the archives in a folder: the wheel has all of the package, the sdist all that is under version control.

python .ci/check_dist.py dist
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "emais"


def in_wheel(wheel: Path) -> set[str]:
    """Paths in a wheel, as below src."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def in_sdist(sdist: Path) -> set[str]:
    """Paths in a source distribution, without its top folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def wheel_problems(found: set[str]) -> list[str]:
    """Files of the package, modules or not, that a wheel lacks, and files in it that belong elsewhere."""
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    wanted = {path.relative_to(PACKAGE.parent).as_posix() for path in files}
    lacks = [f"the wheel lacks {name}" for name in sorted(wanted - found)]
    extra = sorted(name for name in found - wanted if ".dist-info/" not in name)
    return lacks + [f"the wheel should not have {name}" for name in extra]


def sdist_problems(found: set[str]) -> list[str]:
    """Files under version control that a source distribution lacks; where there is no git, nothing is compared."""
    if not (ROOT / ".git").exists():
        return []
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
    return [f"the sdist lacks {name}" for name in sorted(wanted - found)]


def problems(folder: Path) -> list[str]:
    """What is wrong with the one wheel and the one sdist of a folder."""
    wheels, sdists = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        return [f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists, expected one of each: empty it first"]
    return wheel_problems(in_wheel(wheels[0])) + sdist_problems(in_sdist(sdists[0]))


def main(argv: list[str]) -> int:
    """Print what is wrong; the exit status says whether anything is."""
    found = problems(Path(argv[0] if argv else ROOT / "dist"))
    for line in found:
        print(line)
    if not found:
        print("the wheel and the sdist are complete")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
