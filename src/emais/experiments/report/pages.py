"""The one way to make a page: what is on it, and its HTML, with style and script inside so that it needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .figures.curves import PictureGroup
from .tables.cells import Table

REPORT_PACKAGE = "emais.experiments.report"
HOW_TO_READ = (
    "Click a table’s heading to sort by it, point at a value to see the single seeds, move over a chart to read it at "
    "a step, click a legend’s name to hide a line."
)

PagePart = Table | PictureGroup


@dataclass(frozen=True)
class Section:
    """Tables and pictures under one heading; label: what `emais reproduce` calls it."""

    label: str
    title: str
    parts: Sequence[PagePart]

    @property
    def anchor(self) -> str:
        """Its address on the page."""
        return "".join(c if c.isalnum() else "-" for c in self.label)

    def tables(self) -> list[Table]:
        """Its tables, without the pictures."""
        return [part for part in self.parts if isinstance(part, Table)]


@dataclass(frozen=True)
class Answer:
    """What comes first: a question, what was found, and the numbers behind it."""

    heading: str
    sentences: Sequence[str]
    parts: Sequence[PagePart] = ()


@dataclass(frozen=True)
class Page:
    """A page. short: its name in the contents; star: what a star in tables means; runs: what was run, and on what.

    command: what makes the page again; completes: what runs whatever tables and figures lack.
    """

    title: str
    short: str
    about: str
    groups: Mapping[str, Sequence[Section]]
    runs: Table
    command: str
    star: str = ""
    answer: Answer | None = None
    completes: str = ""


def render(page: Page, live: str = "") -> str:
    """The HTML of a page."""
    return from_template("page.html", page, live)


def from_template(name: str, page: object, live: str = "") -> str:
    """The HTML of a page with another template; live: names the version of one that refreshes itself."""
    return environment().get_template(name).render(page=page, live=live)


def terms() -> str:
    """What N_ems and S(W) are, in HTML, which Markdown takes as well."""
    return environment().get_template("terms.html").render()


def static(name: str) -> Markup:
    """A style sheet or script, to be put into a page as it is."""
    return Markup(files(REPORT_PACKAGE).joinpath("static", name).read_text("utf-8"))


@cache
def environment() -> Environment:
    """The templates of this folder; text is escaped, and a name that is not there is an error."""
    made = Environment(
        loader=PackageLoader(REPORT_PACKAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.globals["static"] = static
    return made
