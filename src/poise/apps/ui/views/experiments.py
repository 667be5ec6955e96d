"""The runs of a page as experiments: seeds folded, named by what differs; sorted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from poise.analysis.reports.groups import members_by_data, telling_parts
from poise.analysis.reports.wording import phrase
from poise.apps.ui.views.listing import (
    GIVEN_IN_PYTHON,
    Interval,
    RunLine,
    one_per_seed,
)
from poise.results.words import cut_apart

Order = Literal["up", "down"]

LONGEST = 60
"""Maximum length of a short name."""

MOST_FOLDERS = 2
"""Maximum number of folders in a name; the others are counted."""

_KEYS: dict[str, Callable[[RunLine], object]] = {
    "run": lambda line: None,  # by name, which is the last key of all
    "state": lambda line: line.state,
    "data": lambda line: line.data,
    "progress": lambda line: line.progress,
    "began": lambda line: line.began and line.began.timestamp(),
    "duration": lambda line: line.seconds or None,
    "changed": lambda line: line.changed.timestamp(),
}
"""What runs can be sorted by beside scores; None comes last."""


@dataclass(frozen=True)
class Experiment:
    """Runs of a page that differ only in their seed.

    Args:
        name: the folder or folders of its runs, or the name of its only run.
        differs: what tells it from the other experiments of the page; empty if nothing.
        lines: its runs, at least one.
        data: its data in words, without a seed if it has several runs.
    """

    name: str
    differs: str
    lines: tuple[RunLine, ...]
    data: str = ""

    @property
    def states(self) -> dict[str, int]:
        """The number of its runs in each state."""
        return dict(Counter(line.state for line in self.lines))

    @property
    def scores(self) -> dict[str, Interval]:
        """The mean of each score over its seeds."""
        return self.lines[0].over_seeds

    @property
    def seeds(self) -> int:
        """The number of its seeds, also those on other pages if they have scores."""
        here = len(one_per_seed(self.lines))
        return max([here, *(score.n for score in self.scores.values())])

    @property
    def copies(self) -> int:
        """How many of its runs on the page repeat a seed."""
        return len(self.lines) - len(one_per_seed(self.lines))


def experiments(
    lines: Sequence[RunLine], identities: Mapping[str, dict[str, Any]]
) -> list[Experiment]:
    """The experiments of a page, in the order of their first runs.

    Args:
        lines: the runs of the page.
        identities: what the runs of an experiment share (`identity_of`), by name of the
            run; runs without experiment file are absent.
    """
    by_key: dict[str, list[RunLine]] = {}
    for line in lines:
        by_key.setdefault(line.experiment, []).append(line)
    groups = list(by_key.values())
    firsts = [group[0].name for group in groups if group[0].name in identities]
    names = _short_names({name: identities[name] for name in firsts})
    return [
        Experiment(
            _folders(group),
            names.get(group[0].name, ""),
            tuple(group),
            data=_data(group, identities.get(group[0].name)),
        )
        for group in groups
    ]


def _short_names(identities: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """What tells each experiment from the others with the same data, which have a column."""
    runs = list(identities)
    names: dict[str, str] = {}
    for same in members_by_data(list(identities.values())).values():
        told = telling_parts([identities[runs[k]] for k in same])
        short = cut_apart(told, LONGEST)
        names |= {runs[k]: name for k, name in zip(same, short, strict=True)}
    return names


def _folders(group: Sequence[RunLine]) -> str:
    """The folders of the runs of an experiment."""
    folders = list(dict.fromkeys(line.name.rpartition("/")[0] for line in group))
    if len(group) == 1 or "" in folders:
        return group[0].name
    named = ", ".join(folders[:MOST_FOLDERS])
    if len(folders) > MOST_FOLDERS:
        return f"{named} and {len(folders) - MOST_FOLDERS} more"
    return named


def _data(group: Sequence[RunLine], identity: Mapping[str, Any] | None) -> str:
    """The data that the runs of an experiment share, in words."""
    words = group[0].data
    if len(group) == 1 or identity is None or words == GIVEN_IN_PYTHON:
        return words
    return phrase(identity.get("data", {}))


def sorted_lines(
    lines: Sequence[RunLine], by: str, order: Order = "up"
) -> list[RunLine]:
    """All runs by a column or a score; the runs of an experiment stay together.

    An experiment is sorted by the mean of a score, or by its first run in that order.
    Runs without a value come last.
    """
    down = order == "down"
    values = {line.name: _value(line, by) for line in lines}
    best: dict[str, float | str | None] = {}
    for line in lines:
        value = values[line.name]
        known = best.get(line.experiment)
        if value is not None and (known is None or _before(value, known, down)):
            best[line.experiment] = value
    for line in lines:
        interval = line.over_seeds.get(by)
        if by not in _KEYS and interval is not None:
            best[line.experiment] = interval.mean
    # stable sorts, the least important key first
    result = list(lines)
    result.sort(key=lambda line: _sortable(values[line.name], down), reverse=down)
    first = {line.experiment: place for place, line in reversed([*enumerate(result)])}
    result.sort(key=lambda line: first[line.experiment])
    result.sort(
        key=lambda line: _sortable(best.get(line.experiment), down), reverse=down
    )
    return result


def _value(line: RunLine, by: str) -> float | str | None:
    """The value that a run is sorted by."""
    value = _KEYS[by](line) if by in _KEYS else line.scores.get(by)
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, int | float | str):
        return value
    return str(value)


def _before(value: float | str, other: float | str, down: bool) -> bool:
    if down:
        return _sortable(value, down) > _sortable(other, down)
    return _sortable(value, down) < _sortable(other, down)


def _sortable(value: float | str | None, down: bool) -> tuple[bool, float, str]:
    """A key for values of one kind; no value comes last in either order."""
    missing = value is None
    number = 0.0
    text = ""
    if isinstance(value, str):
        text = value
    elif value is not None:
        number = float(value)
    return missing is not down, number, text


def columns(scores: Sequence[str]) -> list[str]:
    """Everything that runs can be sorted by: the columns, then the scores."""
    return [*_KEYS, *(score for score in scores if score not in _KEYS)]
