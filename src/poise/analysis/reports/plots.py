"""The figures that a page shows for groups of runs, as JSON for Plotly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports import figures
from poise.analysis.reports.clock_units import time_choice
from poise.analysis.reports.curves import curve
from poise.analysis.reports.groups import Group
from poise.analysis.reports.rows import all_metrics
from poise.analysis.reports.timelines import overlaps, timeline_figure
from poise.analysis.reports.weight_shifts import departure, traits_of
from poise.analysis.reports.wording import sentence
from poise.results import Run
from poise.results.drawing import Axis, axis_values, curve_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_MAPS = 6
"""Maximum number of weight maps on one page (one per group)."""

MOST_CLIENTS = 10_000
"""Maximum number of clients in figures with a position per client instead of bins."""

CHOICES: dict[Axis, str] = {
    "rounds": "aggregations",
    "time": "simulated time",
    "seconds": "real time",
    "bytes": "bytes sent",
}
"""The x-axes that a reader can choose for a curve."""


@dataclass(frozen=True)
class Plot:
    """One figure of a page, with a choice of views.

    Args:
        title: title of the figure.
        note: how to read the figure, and what it leaves out.
        views: (name, JSON of the figure); one or more.
        height: height in pixels.
    """

    title: str
    note: str
    views: tuple[tuple[str, str], ...]
    height: int = 420


def plots(groups: Sequence[Group]) -> list[Plot]:
    """All figures of a page: learning curves, weights, participation and classes."""
    return [plot for make in FIGURES.values() for plot in make(groups)]


def curve_plots(
    groups: Sequence[Group], axes: Sequence[Axis] = ("rounds", "time", "bytes")
) -> Iterator[Plot]:
    """A figure for every metric, with a view per axis that differs from the rounds."""
    for metric in all_metrics(groups):
        chosen = [axis for axis in axes if _worth_showing(groups, metric, axis)]
        if chosen:
            views = [figures.learning_curves(groups, metric, axis) for axis in chosen]
            runs = [run for group in groups for run in group.runs]
            names = {**CHOICES, "time": time_choice(runs)}
            yield plot_of(views, [names[axis] for axis in chosen])


def _weights(groups: Sequence[Group]) -> Iterator[Plot]:
    drawable = [group for group in groups if group.runs[0].rounds and _drawable(group)]
    for group in drawable[:MOST_MAPS]:
        label = f"{group.label}, seed {group.seeds[0]}"
        figure = figures.weight_map(
            group.runs[0], f"Weight of each client in each aggregation: {label}"
        )
        left_out = ""
        if len(drawable) > MOST_MAPS:
            left_out = f"Shows the first {MOST_MAPS} of {len(drawable)} groups."
        yield plot_of([figure], [""], left_out)


def _timelines(groups: Sequence[Group]) -> Iterator[Plot]:
    """Timelines of groups whose clients work across several aggregations."""
    overlapping = [
        group for group in groups if group.rounds and overlaps(group.runs[0])
    ]
    for group in overlapping[:MOST_MAPS]:
        label = f"{group.label}, seed {group.seeds[0]}"
        yield plot_of(
            [timeline_figure(group.runs[0], f"Client timeline: {label}")], [""]
        )


def _departures(groups: Sequence[Group]) -> Iterator[Plot]:
    """Distance from the base weights, if any run changed them."""
    runs = [run for group in groups for run in group.runs if run.rounds]
    if any(np.nanmax(departure(run), initial=0.0) > 1e-9 for run in runs):
        yield plot_of([figures.weight_departure(groups)], [""])


def _traits(groups: Sequence[Group]) -> Iterator[Plot]:
    begun = [group for group in groups if group.rounds]
    for trait in traits_of(begun):
        having = [group for group in begun if trait in group.runs[0].traits]
        yield plot_of([figures.trait_weights(having, trait)], [""])


def _participation(groups: Sequence[Group]) -> Iterator[Plot]:
    shown = [group for group in groups if group.rounds and _drawable(group)]
    if shown:
        yield plot_of([figures.participation(shown)], [""])


def _clients(groups: Sequence[Group]) -> Iterator[Plot]:
    """Every metric that is measured per client, by name, of the first seed of a group."""
    for group in groups[:MOST_MAPS]:
        run = group.runs[0]
        for metric in run.metrics:
            if not (run.is_per_client(metric) and _drawable(group)):
                continue
            figure = curve_figure(run, [metric], "rounds")
            words = metric.replace("_", " ")
            label = ""
            if len(groups) > 1 or len(group.runs) > 1:
                label = f": {group.label}, seed {group.seeds[0]}"
            figure.layout.title.text = escape(f"{sentence(words)} by client{label}")
            yield plot_of([figure], [""])


def _classes(groups: Sequence[Group]) -> Iterator[Plot]:
    """One figure per federation; runs on the same data share a figure."""
    owners: dict[bytes, tuple[Run, list[str]]] = {}
    for group in groups:
        counts = group.runs[0].array("label_counts")
        if counts is not None:
            owners.setdefault(counts.tobytes(), (group.runs[0], []))[1].append(
                group.label
            )
    for run, labels in owners.values():
        title = "Classes of the clients"
        if len(owners) > 1:
            title += f": {'; '.join(labels)}"
        yield plot_of([figures.class_composition(run, title)], [""])


FIGURES: dict[str, Callable[[Sequence[Group]], Iterator[Plot]]] = {
    "curves": curve_plots,
    "clients": _clients,
    "departures": _departures,
    "traits": _traits,
    "weights": _weights,
    "timelines": _timelines,
    "participation": _participation,
    "classes": _classes,
}
"""All kinds of figures by name, in page order; a kind without data yields no figure."""


def _worth_showing(groups: Sequence[Group], metric: str, axis: Axis) -> bool:
    """Whether the metric has a curve, and the axis differs from the rounds."""
    if all(curve(group, metric, axis) is None for group in groups):
        return False
    if axis == "rounds":
        return True
    runs = [run for group in groups for run in group.runs]
    same = all(
        np.array_equal(axis_values(run, axis), axis_values(run, "rounds"))
        for run in runs
    )
    return not same


def _drawable(group: Group) -> bool:
    return group.runs[0].clients <= MOST_CLIENTS


def plot_of(drawn: Sequence[Figure], names: Sequence[str], extra: str = "") -> Plot:
    """A `Plot` with one view per figure.

    Title and note move from the figure to the page, where they wrap and can be
    selected.
    """
    heading = drawn[0].layout.title
    title = unescape(heading.text or "")
    note = unescape(heading.subtitle.text or "")
    for figure in drawn:
        figure.layout.title = None
        figure.layout.margin.t = 56
    views = tuple(
        (name, str(figure.to_json())) for name, figure in zip(names, drawn, strict=True)
    )
    return Plot(title, f"{note} {extra}".strip(), views)
