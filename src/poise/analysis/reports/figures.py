"""Figures of runs; each subtitle says how to read the figure and what it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports.bins import bins, evenly, heat
from poise.analysis.reports.clock_units import time_title
from poise.analysis.reports.curves import Curve, curve, series
from poise.analysis.reports.groups import Group
from poise.analysis.reports.rows import per_client
from poise.analysis.reports.scores import class_names, participations
from poise.analysis.reports.weight_shifts import departure, weights_by_trait
from poise.analysis.reports.wording import sentence
from poise.core.directions import bounds_of
from poise.core.errors import InvalidOption
from poise.results import Run
from poise.results.drawing import (
    AXES,
    PALETTE,
    Axis,
    client_axis,
    empty_figure,
    legend_names,
    whole_numbers,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DASHES = ("solid", "dash", "dot", "dashdot")

CLASSES = (
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
    "#BBBBBB",
)
"""Tol's muted colours, for up to ten classes."""

HEAT = ((0.0, "#b7d6ea"), (0.5, "#4292c6"), (1.0, "#5e3c99"))
"""Colour scale: darker is more; every step is visible on white and on black."""

MOST_CLIENTS = 200
MOST_ROUNDS = 400
MOST_BARS = 100


def learning_curves(
    groups: Sequence[Group], metric: str, against: Axis = "rounds"
) -> Figure:
    """A metric over the run: the mean over seeds with its 95 % confidence band.

    Args:
        groups: groups of runs, one line each.
        metric: name of the metric; a metric with one value per client is drawn as the
            standard deviation over clients.
        against: the x-axis: ``"rounds"``, ``"time"``, ``"seconds"`` or ``"bytes"``.
    """
    name = metric.replace("_", " ")
    y = name
    least, most = bounds_of(metric)
    if per_client(groups, metric):
        name = f"{name}, standard deviation over clients"
        y = "standard deviation"
        least, most = 0.0, np.inf
    curves = [(group, curve(group, metric, against)) for group in groups]
    drawn = [
        (group, line.within(least, most)) for group, line in curves if line is not None
    ]
    if not drawn:
        raise InvalidOption(f"no run measured {metric}")
    note = ""
    if any(line.banded for _, line in drawn):
        note = "Mean over seeds; the band is the 95 % confidence interval."
    x = AXES[against]
    if against == "time":
        x = time_title(run for group in groups for run in group.runs)
    figure = empty_figure(sentence(name), note, x, y)
    order = {group.label: k for k, group in enumerate(groups)}
    names = _legend(groups)
    for group, line in drawn:
        k = order[group.label]
        figure.add_traces(
            _line_traces(group.label, line, name=names[k], k=k, against=against)
        )
    if against == "bytes":
        figure.update_xaxes(tickformat="~s", ticksuffix="B")
    if against == "rounds":
        figure.update_xaxes(whole_numbers(max(line.x[-1] for _, line in drawn)))
    return figure


def weight_map(
    run: Run, title: str = "Weight of each client in each aggregation"
) -> Figure:
    """The weight of each client in each aggregation, as a heat map.

    More than 200 clients or 400 rounds are binned: weights are summed over the clients
    of a bin and averaged over its rounds. A column then still sums to the weight of a
    mean aggregation.
    """
    import plotly.graph_objects as go

    image = heat(run, MOST_CLIENTS, MOST_ROUNDS)
    figure = empty_figure(
        title, f"Blank: weight 0. {image.note}".strip(), "aggregation", "client"
    )
    z = np.where(image.values == 0, np.nan, image.values).T.astype(np.float32)
    low = min(0.0, image.values.min(initial=0.0))
    high = max(image.values.max(initial=0.0), 1e-12)
    near = ""
    if image.note:
        near = "about "
    trace = go.Heatmap(
        x=image.rounds.centres + 1,
        y=image.clients.centres,
        z=z,
        zmin=low,
        zmax=high,
        colorscale=HEAT,
        colorbar={"title": {"text": "weight"}, "thickness": 12, "outlinewidth": 0},
        hoverongaps=False,
        hovertemplate=f"client {near}%{{y:d}}, aggregation {near}%{{x:d}}<br>weight "
        f"%{{z:.4g}}<extra></extra>",
    )
    figure.add_trace(trace)
    figure.update_yaxes(
        autorange="reversed", **client_axis(run.client_names, clients=run.clients)
    )
    return figure.update_xaxes(showgrid=False, **whole_numbers(run.rounds))


def weight_departure(groups: Sequence[Group]) -> Figure:
    """Distance of weights from base weights: mean over seeds with a 95 % band."""
    note = (
        "Sum over the cohort of |weight - base weight|, both normalised to sum to 1. "
        "0: equal to the base weights; 2: the maximum."
    )
    figure = empty_figure(
        "Distance of the weights from the base weights",
        note,
        AXES["rounds"],
        "distance",
    )
    names = _legend(groups)
    for k, group in enumerate(groups):
        line = series(group, departure)
        if line is not None:
            line = line.within(0.0, 2.0)
            figure.add_traces(
                _line_traces(group.label, line, name=names[k], k=k, against="rounds")
            )
    longest = max(group.rounds for group in groups)
    figure.update_xaxes(whole_numbers(longest))
    return figure.update_yaxes(rangemode="tozero")


def trait_weights(groups: Sequence[Group], trait: str) -> Figure:
    """The weight per contribution by a trait of the client, such as imbalance."""
    import plotly.graph_objects as go

    note = (
        "Bars: mean weight of a contribution, over seeds, with the 95 % interval. "
        "Dashes: mean base weight."
    )
    weight = "weight per contribution"
    figure = empty_figure(f"{weight.capitalize()} by {trait}", note, trait, weight)
    legend = _legend(groups)
    for k, group in enumerate(groups):
        rows = weights_by_trait(
            [run for run in group.runs if trait in run.traits], trait
        )
        names = [f"{row.value:g}" for row in rows]
        hover = (
            "%{x}: %{y:.4g}, %{customdata} contributions<extra>%{fullData.name}</extra>"
        )
        bars = go.Bar(
            x=names,
            y=[row.weight.mean for row in rows],
            name=legend[k],
            marker={"color": colour(k)},
            error_y={
                "array": [row.weight.half_width or 0.0 for row in rows],
                "thickness": 1,
            },
            offsetgroup=str(k),
            customdata=[row.contributions for row in rows],
            hovertemplate=hover,
        )
        base = go.Scatter(
            x=names,
            y=[row.base for row in rows],
            mode="markers",
            showlegend=False,
            name=legend[k],
            offsetgroup=str(k),
            marker={"symbol": "line-ew-open", "size": 14, "color": "#6b7480"},
            hovertemplate="%{x}: base %{y:.4g}<extra>%{fullData.name}</extra>",
        )
        figure.add_traces([bars, base])
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_layout(barmode="group", scattermode="group")


def class_composition(run: Run, title: str = "Classes of the clients") -> Figure:
    """Samples of each class per client; at most 100 evenly spaced clients are shown."""
    import plotly.graph_objects as go

    counts = run.array("label_counts")
    if counts is None:
        raise InvalidOption(
            "the run recorded no classes",
            "poise records classes for labelled data of up to 10,000 clients",
        )
    shown = evenly(len(counts), MOST_BARS)
    note = ""
    if len(shown) < len(counts):
        note = f"Shows {len(shown)} of {len(counts)} clients, evenly spaced."
    figure = empty_figure(title, note, "client", "samples")
    names = [str(client) for client in shown]
    classes = class_names(run, counts.shape[1])
    for k, colour in enumerate(class_colours(counts.shape[1])):
        hover = f"client %{{x}}<br>{classes[k]}: %{{y}} samples<extra></extra>"
        bar = go.Bar(
            x=names,
            y=counts[shown, k],
            name=classes[k],
            marker={"color": colour},
            hovertemplate=hover,
        )
        figure.add_trace(bar)
    figure.update_xaxes(
        type="category",
        showgrid=False,
        **client_axis(run.client_names, clients=run.clients),
    )
    gap = 0.08
    if len(shown) >= 50:
        gap = 0
    return figure.update_layout(barmode="stack", bargap=gap)


def participation(groups: Sequence[Group]) -> Figure:
    """Number of aggregations that each client took part in, as a mean over seeds."""
    import plotly.graph_objects as go

    most = max(run.clients for group in groups for run in group.runs)
    binned = bins(most, MOST_CLIENTS)
    note = ""
    if most > MOST_CLIENTS:
        note = f"Means over bins of {binned.width} clients."
    figure = empty_figure(
        "Participation of the clients", note, "client", "aggregations taken part in"
    )
    legend = _legend(groups)
    for k, group in enumerate(groups):
        counts = np.mean([_participation(run, most) for run in group.runs], axis=0)
        y = binned.sum(counts) / binned.sizes
        trace = go.Scatter(
            x=binned.centres,
            y=y,
            name=legend[k],
            mode=line_mode(most, few=60),
            text=binned.labels("client"),
            line={"color": colour(k), "dash": _dash(k), "shape": "hvh", "width": 2},
            hovertemplate="%{text}: %{y:.4g} "
            "aggregations<extra>%{fullData.name}</extra>",
        )
        figure.add_trace(trace)
    longest = max(group.rounds for group in groups)
    names = shared_names([run for group in groups for run in group.runs])
    figure.update_xaxes(client_axis(names, clients=most))
    return figure.update_yaxes(rangemode="tozero", **whole_numbers(longest))


def shared_names(runs: Sequence[Run]) -> Sequence[str]:
    """The names of the clients; none if the runs have other clients."""
    first = runs[0].client_names
    if all(run.client_names == first for run in runs):
        return first
    return ()


def _legend(groups: Sequence[Group]) -> list[str]:
    """The labels of the groups as HTML, cut where they are long."""
    return legend_names([group.label for group in groups])


def _line_traces(
    label: str, line: Curve, *, name: str, k: int, against: Axis
) -> list[Any]:
    """The confidence band, if any, and the mean curve on top of it.

    Args:
        label: the whole label, for the tooltip.
        line: the curve.
        name: the label as HTML, as the legend shows it.
        k: number of the group, for colour and dash.
        against: the x-axis.
    """
    import plotly.graph_objects as go

    traces = []
    if line.banded:
        known = np.isfinite(line.low)
        x = np.concatenate([line.x[known], line.x[known][::-1]])
        y = np.concatenate([line.high[known], line.low[known][::-1]])
        band = go.Scatter(
            x=x,
            y=y,
            fill="toself",
            fillcolor=translucent(colour(k)),
            mode="none",
            hoverinfo="skip",
            showlegend=False,
            legendgroup=str(k),
        )
        traces.append(band)
    interval = ""
    if line.banded:
        interval = _INTERVAL
    # the whole label, which the legend may cut; a percent sign begins a placeholder
    whole = escape(label).replace("%", "&#37;")
    mean = go.Scatter(
        x=line.x,
        y=line.mean,
        name=name,
        mode=line_mode(len(line.x)),
        legendgroup=str(k),
        customdata=np.stack([line.low, line.high, line.seeds], axis=1),
        line={"color": colour(k), "dash": _dash(k), "width": 2},
        marker={"size": 5},
        hovertemplate=f"{_HOVER[against]}: %{{y:.4g}}{interval}<extra>{whole}</extra>",
    )
    return [*traces, mean]


_HOVER: dict[Axis, str] = {
    "rounds": "after %{x:d} aggregations",
    "time": "at time %{x:.4g}",
    "seconds": "after %{x:.4g} s",
    "bytes": "after %{x:.3s}B",
}
_INTERVAL = (
    "<br>95 % CI %{customdata[0]:.4g} to %{customdata[1]:.4g}, %{customdata[2]} seeds"
)


def _participation(run: Run, clients: int) -> np.ndarray:
    return np.bincount(participations(run)[1], minlength=clients)


def class_colours(classes: int) -> Sequence[str]:
    """One colour per class."""
    if classes <= len(CLASSES):
        return CLASSES[:classes]
    from plotly.colors import sample_colorscale

    return [
        str(c)
        for c in sample_colorscale("Viridis", np.linspace(0, 1, classes).tolist())
    ]


def line_mode(points: int, few: int = 30) -> str:
    """Plotly's mode of a line; few points also get markers."""
    if points <= few:
        return "lines+markers"
    return "lines"


def colour(k: int) -> str:
    """The colour of the k-th group."""
    return PALETTE[k % len(PALETTE)]


def _dash(k: int) -> str:
    return DASHES[(k // len(PALETTE) + k) % len(DASHES)]


def translucent(colour: str) -> str:
    """A translucent version of a colour, for bands."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
