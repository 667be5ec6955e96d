"""The score table for the terminal, for pages and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poise.analysis.reports.compare import Comparison, Contrast
from poise.analysis.reports.estimates import Estimate
from poise.analysis.reports.numbers import score_text
from poise.analysis.reports.rows import Score, ScoreRow, score_note

if TYPE_CHECKING:
    from rich.table import Table

ACROSS = 5
"""Up to this many groups become columns; more groups become rows."""


@dataclass(frozen=True)
class Grid:
    """A table of texts: a heading, and rows that start with their name."""

    heading: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]


def score_grid(rows: Sequence[ScoreRow]) -> Grid:
    """The scores as texts: a row per score for few groups, a row per group for many."""
    names = _score_names(rows)
    cells = [[score_text(row.scores[name]) for name in names] for row in rows]
    seeds = [str(len(row.seeds)) for row in rows]
    if len(rows) > ACROSS:
        lines = (
            (row.label, n, *line)
            for row, n, line in zip(rows, seeds, cells, strict=True)
        )
        return Grid(("experiment", "runs", *names), tuple(lines))
    columns = zip(names, *cells, strict=True)
    return Grid(("score", *(row.label for row in rows)), (("runs", *seeds), *columns))


def terminal_table(rows: Sequence[ScoreRow], title: str = "") -> Table:
    """The scores as a rich table: mean ± half the 95 % interval over seeds."""
    from rich.table import Table
    from rich.text import Text

    grid = score_grid(rows)
    caption = None
    if any(len(row.seeds) > 1 for row in rows):
        caption = "mean ± half the width of the 95 % confidence interval over seeds"
    table = Table(
        title=Text(title) if title else None, caption=caption, caption_justify="left"
    )
    first, *others = grid.heading
    widest = max((len(line[0]) for line in grid.body), default=0)
    table.add_column(Text(first), overflow="fold", min_width=min(widest, 24))
    for name in others:
        table.add_column(Text(name), justify="right", overflow="fold")
    for line in grid.body:
        table.add_row(*(Text(cell) for cell in line))
    return table


def terminal_notes(rows: Sequence[ScoreRow]) -> list[str]:
    """One line for every score of a table whose name does not explain itself."""
    names = _score_names(rows)
    return [f"{name}: {note}" for name in names if (note := score_note(name))]


def _score_names(rows: Sequence[ScoreRow]) -> list[str]:
    """The names of the scores, which all rows share."""
    if not rows:
        return []
    return list(rows[0].scores)


def rows_as_data(rows: Sequence[ScoreRow]) -> list[dict[str, Any]]:
    """The scores as plain values for ``--json``; NaN and infinity become null."""
    return [
        {
            "label": row.label,
            "data": row.data,
            "seeds": list(row.seeds),
            "rounds": row.rounds,
            "scores": {
                name: _score_as_data(score) for name, score in row.scores.items()
            },
        }
        for row in rows
    ]


def comparison_as_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as plain values for ``--json``."""
    contrasts = [_contrast_as_data(contrast) for contrast in comparison.contrasts]
    return {"groups": rows_as_data(comparison.rows), "contrasts": contrasts}


def _contrast_as_data(contrast: Contrast) -> dict[str, Any]:
    data: dict[str, Any] = {
        "score": contrast.score,
        "label": contrast.label,
        "baseline": contrast.baseline,
        "method": None,
        "difference": _estimate_as_data(contrast.difference),
        "significant": None,
        "sentence": contrast.sentence,
    }
    if contrast.difference is not None:
        data["method"] = contrast.difference.method
        data["significant"] = contrast.difference.significant
    return data


def finite(value: float | None) -> float | None:
    """The value if it is a finite number, which JSON can hold; otherwise None.

    >>> finite(float("nan")), finite(None), finite(0.5)
    (None, None, 0.5)
    """
    if value is not None and math.isfinite(value):
        return value
    return None


def _score_as_data(score: Score) -> dict[str, Any]:
    interval = _estimate_as_data(score.estimate) or {
        "mean": None,
        "low": None,
        "high": None,
        "n": len(score.known),
    }
    return {
        **interval,
        "values": [finite(v) for v in score.values],
        "unit": score.unit,
        "better": score.better,
    }


def _estimate_as_data(e: Estimate | None) -> dict[str, Any] | None:
    if e is None:
        return None
    return {
        "mean": finite(e.mean),
        "low": finite(e.low),
        "high": finite(e.high),
        "n": e.n,
    }
