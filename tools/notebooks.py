"""The notebooks of the examples, made from their scripts: ``python tools/notebooks.py``.

A script is cut at its ``# %%`` lines; ``# %% [markdown]`` begins a cell of text. Nothing is added,
so that the script can be read, run and compared line by line, and the notebook is never edited by
hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def cells(script: str) -> list[tuple[str, str]]:
    r"""Kind and text of every cell of a script.

    >>> cells("# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\n\n# %%\nx\n")
    [('markdown', '# Title\n\nText.'), ('code', 'x = 1'), ('code', 'x')]
    """
    found = []
    for head, body in re.findall(
        r"^# %%(.*)\n((?:(?!# %%).*(?:\n|\Z))*)", script, re.MULTILINE
    ):
        text = body.strip("\n")
        if head.strip() == "[markdown]":
            found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE)))
        else:
            found.append(("code", text))
    return found


def notebook(script: str) -> str:
    """A script as the text of a notebook without outputs."""
    made = [
        _cell(number, kind, text) for number, (kind, text) in enumerate(cells(script))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return {**cell, "source": text.splitlines(keepends=True)}


def scripts() -> list[Path]:
    """The examples that are one script."""
    return sorted(EXAMPLES.glob("*.py"))


if __name__ == "__main__":
    for each in scripts():
        each.with_suffix(".ipynb").write_text(
            notebook(each.read_text(encoding="utf-8")), encoding="utf-8"
        )
        print(each.with_suffix(".ipynb").name)
