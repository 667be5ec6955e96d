"""Figures of a sweep: parallel coordinates, and the metric against each swept key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from poise.results.drawing import empty_figure
from poise.results.words import brief

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from poise.analysis.reports.estimates import Estimate

GOOD = (0, 90, 160)
BAD = (213, 160, 90)

SPREAD = 0.4
"""Width that the points of one value share; 1 is the distance between two values."""


@dataclass(frozen=True)
class SweptPoint:
    """A configuration in a figure.

    Args:
        name: its name.
        settings: the values of the swept keys.
        estimate: mean and interval of the metric.
        stopped: whether a rung stopped it.
    """

    name: str
    settings: Mapping[str, Any]
    estimate: Estimate
    stopped: bool = False


def parallel_coordinates(
    points: Sequence[SweptPoint], metric: str, *, lower_is_better: bool
) -> Figure:
    """One line per configuration, through its values to its mean.

    Drawn with lines instead of plotly's own kind of figure, which needs a policy of the
    page that allows generated code.
    """
    import plotly.graph_objects as go

    keys = list(points[0].settings)
    note = (
        "Each line is a configuration; blue is better. Dotted lines were stopped at a "
        "rung. Values of a key stand at equal distances."
    )
    figure = empty_figure("Configurations and their results", note, "", "")
    means = [point.estimate.mean for point in points]
    low, high = min(means), max(means)
    order = sorted(points, key=lambda p: p.estimate.mean, reverse=lower_is_better)
    for point in order:  # the best line on top
        share = _share(point.estimate.mean, low, high)
        good = 1 - share if lower_is_better else share
        heights = [_height(points, key, point.settings[key]) for key in keys]
        line = go.Scatter(
            x=list(range(len(keys) + 1)),
            y=[*heights, share],
            mode="lines+markers",
            line={
                "color": _colour(good),
                "width": 2,
                "dash": "dot" if point.stopped else "solid",
            },
            name=escape(point.name),
            hovertemplate=f"{escape(point.name)}<br>{escape(metric)} "
            f"{point.estimate.mean:.4g}<extra></extra>",
            showlegend=False,
        )
        figure.add_trace(line)
    for position, key in enumerate(keys):
        for value in _values(points, key):
            _write(figure, position, _height(points, key, value), brief(value))
    for height, mean in ((0.0, low), (1.0, high)):
        _write(figure, len(keys), height, f"{mean:.4g}")
    names = [*(escape(key) for key in keys), f"mean {escape(metric)}"]
    figure.update_xaxes(
        tickvals=list(range(len(names))), ticktext=names, range=[-0.3, len(keys) + 0.4]
    )
    return figure.update_yaxes(visible=False, range=[-0.08, 1.08])


def effect(points: Sequence[SweptPoint], key: str, metric: str) -> Figure:
    """The metric of every configuration against one swept key, with 95 % intervals."""
    import plotly.graph_objects as go

    note = "One point per configuration: mean over its seeds, with its 95 % interval."
    values = _values(points, key)
    if len(points) > len(values):
        note += (
            f" Points of the same {key} stand side by side around its value, best on the "
            "left."
        )
    note += " The values stand at equal distances."
    title = f"{metric.replace('_', ' ')} by {key}"
    figure = empty_figure(escape(title), note, escape(key), escape(metric))
    places = _places(points, key)
    for stopped, name in ((False, "to the end"), (True, "stopped at a rung")):
        shown = [point for point in points if point.stopped == stopped]
        if not shown:
            continue
        halves = [point.estimate.half_width or 0.0 for point in shown]
        trace = go.Scatter(
            x=[places[point.name] for point in shown],
            y=[point.estimate.mean for point in shown],
            error_y={"array": halves, "thickness": 1},
            mode="markers",
            marker={"symbol": "circle-open" if stopped else "circle", "size": 8},
            name=name,
            text=[escape(point.name) for point in shown],
            hovertemplate="%{text}: %{y:.4g}<extra></extra>",
        )
        figure.add_trace(trace)
    return figure.update_xaxes(
        tickvals=list(range(len(values))),
        ticktext=[escape(brief(value)) for value in values],
        range=[-0.6, len(values) - 0.4],
    )


def _places(points: Sequence[SweptPoint], key: str) -> dict[str, float]:
    """Return the place of each point on the axis of a key, by name.

    The only point of a value stands at the value; several stand around it.
    """
    places = {}
    for position, value in enumerate(_values(points, key)):
        same = [p for p in points if _text(p.settings[key]) == _text(value)]
        for number, point in enumerate(same):
            places[point.name] = position + SPREAD * ((number + 0.5) / len(same) - 0.5)
    return places


def _values(points: Sequence[SweptPoint], key: str) -> list[Any]:
    """Return the values of a key; numbers in ascending order, others as given."""
    values = list({_text(p.settings[key]): p.settings[key] for p in points}.values())
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        values.sort()
    return values


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _height(points: Sequence[SweptPoint], key: str, value: object) -> float:
    """Return the place of a value on its axis, between 0 and 1."""
    texts = [_text(v) for v in _values(points, key)]
    if len(texts) == 1:
        return 0.5
    return texts.index(_text(value)) / (len(texts) - 1)


def _share(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others, between 0 and 1."""
    if high <= low or not math.isfinite(value):
        return 0.5
    return (value - low) / (high - low)


def _colour(good: float) -> str:
    """Return a colour between orange (worst) and blue (best)."""
    mixed = [round(b + good * (g - b)) for g, b in zip(GOOD, BAD, strict=True)]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})"


def _write(figure: Figure, x: float, y: float, words: str) -> None:
    """Write a value beside its place on an axis."""
    figure.add_annotation(
        x=x,
        y=y,
        text=escape(words),
        showarrow=False,
        xanchor="left",
        xshift=6,
        bgcolor="rgba(255,255,255,0.75)",
        font={"color": "#222", "size": 11},
    )


__all__ = ["SweptPoint", "effect", "parallel_coordinates"]
