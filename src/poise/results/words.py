"""Values of an experiment as short texts, for labels and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

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


def cut_apart(texts: Sequence[str], longest: int) -> list[str]:
    """Cut long texts so that different texts stay different.

    Texts that would become equal lose what they have in common, rather than their end.
    Texts that this does not tell apart stay whole.

    >>> cut_apart(["lr=0.1, sampler=uniform", "lr=0.1, sampler=full", "short"], 14)
    ['…sampler=unif…', '…sampler=full', 'short']
    """
    by_cut: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        by_cut.setdefault(_cut(text, longest), []).append(text)
    shown: dict[str, str] = {}
    for cut, same in by_cut.items():
        if len(same) == 1:
            shown[same[0]] = cut
            continue
        start = _difference(same)
        ends = cut_apart([text[start:] for text in same], longest - 1)
        shown |= {text: f"…{end}" for text, end in zip(same, ends, strict=True)}
    count = Counter(shown.values())
    for text, cut in shown.items():
        if count[cut] > 1:
            shown[text] = text
    return [shown[text] for text in texts]


def _difference(texts: Sequence[str]) -> int:
    """Where the part begins in which the texts differ; parts end with a comma."""
    first = min(texts)
    pairs = zip(first, max(texts), strict=False)
    equal = next((k for k, (a, b) in enumerate(pairs) if a != b), len(first))
    start = first[:equal].rfind(", ") + 2
    if start > 1:
        return start
    return max(equal - 8, 1)


def _cut(text: str, longest: int = LONGEST) -> str:
    if len(text) <= longest:
        return text
    return text[: longest - 1] + "…"
