"""Markdown and its front matter; texts from a ledger are escaped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")


def text(words: object) -> str:
    r"""Return any value as Markdown that shows it as it is, on one line.

    >>> print(text("a|b <c> *d*"))
    a\|b \<c\> \*d\*
    """
    return _SPECIAL.sub(r"\\\1", " ".join(str(words).split()))


def code(words: object) -> str:
    """Return any value as code on one line.

    >>> print(code("a`b"))
    `` a`b ``
    """
    line = " ".join(str(words).split())
    if "`" in line:
        return f"`` {line} ``"
    return f"`{line}`"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are Markdown already.

    >>> print(table(("name", "value"), [("m", "5")]))
    | name | value |
    |---|---|
    | m | 5 |
    """
    lines = [heading, ["---"] * len(heading), *rows]
    head, rule, *body = [list(line) for line in lines]
    shown = [f"| {' | '.join(head)} |", f"|{'|'.join(rule)}|"]
    shown += [f"| {' | '.join(cells)} |" for cells in body]
    return "\n".join(shown)


def bullets(items: Iterable[str]) -> str:
    """Return a list; the items are Markdown already."""
    return "\n".join(f"- {item}" for item in items)


def fence(content: str, language: str = "") -> str:
    """Return a block of code, fenced by more backticks than the code has in a row."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{content.rstrip()}\n{ticks}"


def front_matter(values: Mapping[str, Any]) -> str:
    """Return values as the YAML block that begins a model card.

    Scalars are written as JSON, which YAML reads.

    >>> print(front_matter({"license": "mit", "tags": ["a", "b"], "n": [{"x": 1, "y": 2}]}))
    ---
    license: "mit"
    tags:
      - "a"
      - "b"
    n:
      - x: 1
        y: 2
    ---
    """
    return "\n".join(["---", *_lines(values, 0), "---"])


def _lines(value: object, depth: int) -> list[str]:
    """Return the lines of a mapping or a sequence at a depth of indentation."""
    indent = "  " * depth
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, Mapping | list):
                lines += [f"{indent}{key}:", *_lines(item, depth + 1)]
            else:
                lines.append(f"{indent}{key}: {_scalar(item)}")
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping | list):
                first, *rest = _lines(item, depth + 1)
                lines += [f"{indent}- {first.lstrip()}", *rest]
            else:
                lines.append(f"{indent}- {_scalar(item)}")
    return lines


def _scalar(value: object) -> str:
    """Return a scalar as JSON; characters above 16 bits stay as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
