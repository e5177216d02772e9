"""How text becomes pages of the documentation site: pages from the top folder, entries of the API, docstrings."""

from __future__ import annotations

import re

import emais

ENTRY = re.compile(r"^::: (.*[(\[].*)$", re.M)  # of the API: an expression, not a dotted name
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.M)  # up to an empty line


def from_top(text: str) -> str:
    """A page of the top folder as one of docs/: its links point there.

    >>> from_top("[math](docs/math.md), ![x](docs/img/x.svg), [doi](https://doi.org/1)")
    '[math](math.md), ![x](img/x.svg), [doi](https://doi.org/1)'
    """
    return text.replace("](docs/", "](")


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
    """A docstring in Markdown, where lines that begin with >>> would be quotations.

    >>> shown("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nPaper: eq:n_ems").split("\\n")
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', '*Paper: eq:n_ems*']
    """
    fenced = EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", docstring)
    return re.sub(r"^(Paper: .*)$", r"*\1*", fenced, flags=re.M)
