"""How text becomes pages of the documentation site: pages from the top folder, entries of the API, docstrings."""

from __future__ import annotations

import json
import re

import emais

ENTRY = re.compile(r"^::: (.*[(\[].*)$", re.M)  # of the API: an expression, not a dotted name
OUTSIDE = {"CHANGELOG.md": "changelog.md", "examples/tour.ipynb": "tour.md"}  # pages that do not lie in docs/
NAMED = r"[a-z_]\w*(?:, [a-z_]\w*)*"  # settings or attributes, before a colon
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)  # up to an empty line


def from_top(text: str) -> str:
    """A page of the top folder as one of docs/: its links point there.

    >>> from_top("[math](docs/math.md), ![x](docs/img/x.svg), [doi](https://doi.org/1)")
    '[math](math.md), ![x](img/x.svg), [doi](https://doi.org/1)'
    >>> from_top('<img src="docs/img/x.svg">')
    '<img src="img/x.svg">'
    """
    return text.replace("](docs/", "](").replace('="docs/', '="')


def inside(text: str, page: str) -> str:
    """A page of docs/ on the site: links to files outside docs/ lead to the pages that are made of them.

    >>> inside("[changes](../../CHANGELOG.md)", "api/README.md")
    '[changes](../changelog.md)'
    """
    up = "../" * page.count("/")
    for source, made in OUTSIDE.items():
        text = text.replace(f"](../{up}{source})", f"]({up}{made})")
    return text


def from_notebook(text: str) -> str:
    """A notebook as a page: its text, and its code in fences.

    >>> from_notebook('{"cells": [{"cell_type": "code", "source": ["1 + 1"]}]}').split("\\n")
    ['```python', '1 + 1', '```', '']
    """
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    parts = [f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells]
    return "\n\n".join(parts) + "\n"


def resolved(text: str) -> str:
    """API entries that are expressions, by the class that is their value: no page has to know which file it is in.

    >>> resolved('::: emais.METHODS["emais"]').endswith(".EMAIS")
    True
    """

    def name(match: re.Match[str]) -> str:
        found = eval(match[1], {"emais": emais})
        return f"::: {found.__module__}.{found.__qualname__}"

    return ENTRY.sub(name, text)


def shown(docstring: str) -> str:
    """A docstring in Markdown, where lines that begin with >>> would be quotations; settings become a list.

    >>> shown("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nPaper: eq:n_ems").split("\\n")
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', '*Paper: eq:n_ems*']
    """
    listed = "\n\n".join(as_list(paragraph) for paragraph in docstring.split("\n\n"))
    fenced = EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", listed)
    return re.sub(r"^(Paper: .*)$", r"*\1*", fenced, flags=re.M)


def as_list(paragraph: str) -> str:
    """A paragraph of the form "name: text; name: text" as a list with an item for each name; others stay.

    >>> as_list("tau: steps, or none; low, high: the\\nends. Both are floats.").split("\\n")
    ['- `tau`: steps, or none', '- `low`, `high`: the ends. Both are floats.']
    >>> as_list("Some text: nothing else.")
    'Some text: nothing else.'
    """
    if not re.match(rf"{NAMED}: ", paragraph):
        return paragraph
    line = " ".join(part.strip() for part in paragraph.split("\n"))
    _, *parts = re.split(rf"(?:^|(?<=[.;]) )({NAMED}): ", line)
    items = zip(parts[::2], parts[1::2], strict=True)
    return "\n".join(f"- {quoted(names)}: {text.strip().removesuffix(';')}" for names, text in items)


def quoted(names: str) -> str:
    """Names as code.

    >>> quoted("low, high")
    '`low`, `high`'
    """
    return ", ".join(f"`{name}`" for name in names.split(", "))
