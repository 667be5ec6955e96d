"""Values of an experiment as short texts, for labels and tables."""

from __future__ import annotations

from collections.abc import Mapping

LONGEST = 32
"""Maximum number of characters of a value in a label."""

MOST_ITEMS = 4
"""Longer lists are shortened in a label."""

HEADINGS = ("name", "model", "source")
"""The options that name a table."""


def brief(value: object) -> str:
    """A value of an experiment file, shortened for a label.

    >>> brief([1, 2, 3, 4, 5, 6])
    '[1, 2, …, 6]'
    >>> brief({"name": "uniform", "m": 5}), brief([0, 1]), brief(0.1 + 0.2), brief(True)
    ('uniform(m=5)', '[0, 1]', '0.3', 'yes')
    """
    if isinstance(value, Mapping):
        heading = next((str(value[key]) for key in HEADINGS if key in value), "")
        options = ", ".join(
            f"{k}={brief(v)}" for k, v in value.items() if k not in (*HEADINGS, "slot")
        )
        if options:
            return f"{heading}({options})"
        return heading
    if isinstance(value, list | tuple):
        shown = [brief(v) for v in value]
        if value and all(isinstance(v, Mapping) for v in value):
            return _cut(", ".join(shown))
        if len(shown) > MOST_ITEMS:
            shown[2:-1] = ["…"]
        inside = f"[{', '.join(shown)}]"
        return _cut(inside)
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return _cut(str(value))


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST - 1] + "…"
