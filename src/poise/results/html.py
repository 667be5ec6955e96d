"""A run as a small page for notebooks: state, curves, parts. No script, no other host."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.core.slots import RUN_SLOTS
from poise.core.types import Floats
from poise.ledger.summary import read_summary
from poise.results.words import brief

if TYPE_CHECKING:
    from poise.results.models import ModelReader

WIDTH, HEIGHT = 180, 44
"""Size of a curve in pixels."""

MOST_CURVES = 4
"""Maximum number of curves."""

MOST_POINTS = 200
"""Maximum number of points of a curve."""


def page(run: ModelReader) -> str:
    """Return the state, the curves and the parts of a run as HTML."""
    place = f"<code>{escape(str(run.path))}</code>" if run.path else "in memory"
    head = (
        f"<b>Run</b> {escape(_state(run))}: {run.rounds} rounds, {run.clients} clients, "
        f"seed {escape(run.meta.get('seed', '?'))}, {place}"
    )
    curves = "".join(_curve_cell(run, name) for name in _shown(run))
    return (
        '<div style="font-family:system-ui,sans-serif;line-height:1.4">'
        f'<div>{head}</div><div style="display:flex;flex-wrap:wrap;gap:1.2em;'
        f'margin:.5em 0">{curves}</div>{_parts(run.experiment.tables)}</div>'
    )


def _state(run: ModelReader) -> str:
    """Return how the run stands, in one word."""
    if run.path is not None:
        return read_summary(run.path).state
    return run.meta.get("status", "unknown")


def _shown(run: ModelReader) -> list[str]:
    """Return the metrics to draw: accuracy and loss first."""
    names = [name for name in run.metrics if not run.is_per_client(name)]
    names.sort(key=lambda name: (name != "accuracy", name != "loss", name))
    return names[:MOST_CURVES]


def _curve_cell(run: ModelReader, name: str) -> str:
    """Return one metric: its name, its last value and its curve."""
    values = run.metric(name)
    measured = np.flatnonzero(np.isfinite(values))
    if not len(measured):
        return ""
    last = f"{values[measured[-1]]:.4g}"
    words = escape(name.replace("_", " "))
    picture = sparkline(measured.astype(float), values[measured])
    return f"<div>{words} <b>{last}</b><br/>{picture}</div>"


def sparkline(x: Floats, y: Floats) -> str:
    """Return a small curve as an SVG picture.

    >>> sparkline(np.array([0.0, 1.0]), np.array([0.0, 1.0])).count("polyline")
    1
    """
    if len(x) > MOST_POINTS:
        chosen = np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int)
        x, y = x[chosen], y[chosen]
    left = 3 + (WIDTH - 6) * _share(x)
    top = HEIGHT - 3 - (HEIGHT - 6) * _share(y)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(left, top, strict=True))
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/>'
        f'<circle cx="{left[-1]:.1f}" cy="{top[-1]:.1f}" r="2.5" fill="#0072B2"/></svg>'
    )


def _share(values: Floats) -> Floats:
    """Return values between 0 and 1; a constant is in the middle."""
    span = float(values.max() - values.min())
    if span == 0:
        return np.full(len(values), 0.5)
    return np.asarray((values - values.min()) / span)


def _parts(tables: Mapping[str, Any]) -> str:
    """Return data, task and parts as a table."""
    rows = []
    for name in ("data", "task", *RUN_SLOTS, "attacks"):
        if name in tables:
            rows.append(
                f'<tr><td style="text-align:left"><b>{name}</b></td>'
                f'<td style="text-align:left">{escape(brief(tables[name]))}</td></tr>'
            )
    return f"<table>{''.join(rows)}</table>"
