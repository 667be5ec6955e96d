"""Curves of one run as a figure, in the style that all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from poise.core.client_names import client_title
from poise.core.types import Floats
from poise.results.words import cut_apart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from poise.results.models import ModelReader

Axis = Literal["rounds", "time", "seconds", "bytes"]
"""The x-axis of a curve."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe and Ito's colours [Okabe 2008] that are visible on white and on black."""

AXES: dict[Axis, str] = {
    "rounds": "aggregations",
    "time": "simulated time (units of the clock)",
    "seconds": "real time, spent on aggregations (seconds)",
    "bytes": "bytes sent, both ways",
}
"""Titles of the x-axes of learning curves."""

MOST_LINES = len(PALETTE)
"""Maximum number of clients with a line of their own."""


def curve_figure(run: ModelReader, metrics: list[str], against: Axis) -> Figure:
    """Return the curves of metrics; a metric of clients has a line for each, or a band."""
    import plotly.graph_objects as go

    words = [metric.replace("_", " ") for metric in metrics]
    title = ", ".join(words)
    figure = empty_figure(
        title[:1].upper() + title[1:],
        _note(run, metrics),
        AXES[against],
        words[0] if len(words) == 1 else "value",
    )
    x = axis_values(run, against)
    lines: dict[str, Floats] = {}
    for metric, word in zip(metrics, words, strict=True):
        lines |= _lines(run, metric, word)
    for k, (name, values) in enumerate(lines.items()):
        measured = ~np.isnan(values)
        trace = go.Scatter(
            x=x[measured],
            y=values[measured],
            name=escape(name),
            mode="lines+markers" if measured.sum() <= 40 else "lines",
            line={"color": PALETTE[k % len(PALETTE)], "width": 2},
            marker={"size": 5},
        )
        figure.add_trace(trace)
    if against == "rounds":
        figure.update_xaxes(whole_numbers(run.rounds))
    return figure


def _lines(run: ModelReader, metric: str, word: str) -> dict[str, Floats]:
    """Return the lines of a metric by name."""
    values = run.metric(metric)
    if values.ndim == 1:
        return {word: values}
    if run.clients <= MOST_LINES:
        names = run.client_names
        return {
            f"{word}, {client_title(i, names)}": values[:, i]
            for i in range(run.clients)
        }
    rows = {"lowest": values[:, 0], "median": values[:, 0], "highest": values[:, 0]}
    measured = ~np.isnan(values).all(axis=1)
    for share, name in ((0, "lowest"), (50, "median"), (100, "highest")):
        row = np.full(len(values), np.nan)
        row[measured] = np.nanpercentile(values[measured], share, axis=1)
        rows[name] = row
    return {f"{word}, {name} client": row for name, row in rows.items()}


def _note(run: ModelReader, metrics: list[str]) -> str:
    """Return how to read the figure."""
    if run.clients > MOST_LINES and any(run.is_per_client(m) for m in metrics):
        return (
            f"Lowest, median and highest of {run.clients} clients at each measurement."
        )
    return ""


def axis_values(run: ModelReader, against: Axis) -> Floats:
    """Rounds, simulated time, seconds or bytes both ways at each aggregation, (R,)."""
    if against == "time":
        return run.times
    if against == "seconds":
        return np.cumsum(run.seconds)
    if against == "bytes":
        return np.cumsum(run.bytes_up + run.bytes_down)
    return np.arange(1.0, run.rounds + 1)


FEW = 12
"""Up to this value, an axis of whole numbers has a tick at every one of them."""


def whole_numbers(largest: float) -> dict[str, Any]:
    """The options of an axis of clients, rounds or other counts: no tick at 0.5.

    >>> whole_numbers(4), whole_numbers(100)
    ({'tickformat': 'd', 'tick0': 0, 'dtick': 1}, {'tickformat': 'd'})
    """
    if largest <= FEW:
        return {"tickformat": "d", "tick0": 0, "dtick": 1}
    return {"tickformat": "d"}


MOST_TICKS = 25
"""Maximum number of labels side by side on an axis of categories."""


def category_step(categories: int) -> int:
    """Return how many categories there are from one label of an axis to the next.

    >>> [category_step(count) for count in (25, 50, 100, 200)]
    [1, 2, 5, 10]
    """
    step = 1
    while categories > MOST_TICKS * step:
        # 1, 2, 5, 10, 20, 50, ...
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return step


MOST_NAMES = 40
"""Maximum number of clients that an axis shows by name."""


def client_axis(names: Sequence[str], *, clients: int) -> dict[str, Any]:
    """The options of an axis of clients by number: ticks have names where clients do.

    >>> client_axis(["metz", "lille"], clients=2)["ticktext"]
    ['metz', 'lille']
    >>> client_axis([], clients=2) == whole_numbers(2)
    True
    """
    if not any(names) or clients > MOST_NAMES:
        return whole_numbers(clients)
    titles = legend_names([client_title(number, names) for number in range(clients)])
    return {"tickvals": list(range(clients)), "ticktext": titles}


LONGEST = 40
"""Maximum number of characters of a name in a legend."""


def legend_name(label: str) -> str:
    """A label as HTML for a legend; the end of a long one is cut.

    >>> legend_name("sampler=<full>")
    'sampler=&lt;full&gt;'
    >>> len(legend_name("x" * 100))
    40
    """
    return legend_names([label])[0]


def legend_names(labels: Sequence[str]) -> list[str]:
    """Labels as HTML for one legend; labels that are cut stay different.

    >>> legend_names([f"{'x' * 50}, m={m}" for m in (5, 10)])
    ['…m=5', '…m=10']
    """
    return [escape(label) for label in cut_apart(labels, LONGEST)]


def with_legend_aside(figure: Figure) -> Figure:
    """Move the legend to the right, where its lines cover neither title nor subtitle."""
    aside = {
        "orientation": "v",
        "x": 1.02,
        "xanchor": "left",
        "y": 1,
        "yanchor": "top",
    }
    return figure.update_layout(legend=aside)


def empty_figure(title: str, note: str, x: str, y: str) -> Figure:
    """An empty figure in the style that all figures share."""
    import plotly.graph_objects as go

    axis = {
        "automargin": True,
        "gridcolor": "#e3e6ea",
        "zerolinecolor": "#c9ced6",
        "linecolor": "#c9ced6",
    }
    layout = {
        "title": {
            "text": escape(title),
            "subtitle": {"text": escape(note)},
            "x": 0,
            "xref": "paper",
        },
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1d232b"},
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}},  # clear of long names
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
        },
        "margin": {"l": 56, "r": 16, "t": 90, "b": 48},
        "showlegend": True,
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": "#8a94a0",
            "activecolor": "#0067a3",
        },
    }
    return go.Figure(layout=layout)
