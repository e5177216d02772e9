"""Where data are looked for and where decoded data are kept, and what is said when there are none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import EmaisError

OPTION = "--folder DIR, in Python folder=DIR"


def roots() -> list[Path]:
    """The folders that hold data sets: $EMAIS_DATA where it is set, then ./data."""
    given = os.environ.get("EMAIS_DATA")
    return [*([Path(given).expanduser()] if given else []), Path("data")]


def places(folder: Path | str | None, names: Sequence[str]) -> list[Path]:
    """Where to look for a data set, in this order; a folder that is given comes first, and nothing outside it.

    names: of its own folder in the given one or in one of the roots; a root itself comes last.
    """
    if folder is not None:
        given = Path(folder).expanduser()
        return [given, *(given / name for name in names)]
    set_to = os.environ.get("EMAIS_DATA")
    if set_to and not Path(set_to).expanduser().exists():
        raise EmaisError(f"EMAIS_DATA is set to {set_to}, which does not exist: set it to a folder that holds data")
    return [place for root in roots() for place in (*(root / name for name in names), root)]


def cache_folders() -> list[Path]:
    """Where decoded data are kept: $EMAIS_DATA/cache, ./data/cache if there is a ./data, the user's cache folder."""
    kept = [root / "cache" for root in roots() if root.is_dir()]
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return [*kept, Path(user).expanduser() / "emais"]


def missing(title: str, looked: Sequence[Path], source: str, layout: str) -> EmaisError:
    """The error for data that are in none of the places: where they come from and what is expected there."""
    where = ", ".join(str(place) for place in looked)
    return EmaisError(
        f"{title} was not found: looked in {where}. Get it from {source} and put it into one of these, or give its "
        f"folder ({OPTION}), or set EMAIS_DATA to the folder that holds it. Expected: {layout}"
    )
