"""Which figures a page shows of its groups, ready to be put into HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports import figures
from poise.analysis.reports.curves import Axis, axis_values, curve
from poise.analysis.reports.groups import Group
from poise.analysis.reports.rows import all_metrics
from poise.analysis.reports.timelines import overlaps, timeline_figure
from poise.analysis.reports.weight_shifts import departure, traits_of
from poise.ledger import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_MAPS = 6
"""Weight maps on one page: one per group, up to this many."""

MOST_CLIENTS = 10_000
"""Clients up to which they are drawn one by one or in bins; beyond it a bin says nothing of
anyone."""

CHOICES: dict[Axis, str] = {
    "rounds": "aggregations",
    "time": "simulated time",
    "seconds": "real time",
    "bytes": "bytes sent",
}
"""What a reader may choose to see curves against."""


@dataclass(frozen=True)
class Plot:
    """One figure of a page, with a choice of views.

    Args:
        title: what is seen.
        note: how to read it, or what was left out.
        views: (name, JSON of the figure); one or more.
        height: in pixels.
    """

    title: str
    note: str
    views: tuple[tuple[str, str], ...]
    height: int = 420


def plots(groups: Sequence[Group]) -> list[Plot]:
    """The figures of a page: what was learned, who weighed how much, who took part, who owns
    what.
    """
    return [plot for make in FIGURES.values() for plot in make(groups)]


def curve_plots(
    groups: Sequence[Group], axes: Sequence[Axis] = ("rounds", "time", "bytes")
) -> Iterator[Plot]:
    """A figure for every metric, against each of the axes that shows something of its own."""
    for metric in all_metrics(groups):
        chosen = [axis for axis in axes if _worth_showing(groups, metric, axis)]
        if chosen:
            made = [figures.learning_curves(groups, metric, axis) for axis in chosen]
            yield plot_of(made, [CHOICES[axis] for axis in chosen])


def _weights(groups: Sequence[Group]) -> Iterator[Plot]:
    drawable = [group for group in groups if group.runs[0].rounds and _drawable(group)]
    for group in drawable[:MOST_MAPS]:
        which = f"{group.label}, seed {group.seeds[0]}"
        figure = figures.weight_map(
            group.runs[0], f"Weight of each client in each aggregation: {which}"
        )
        left_out = (
            f"The first {MOST_MAPS} of {len(drawable)} groups are shown."
            if len(drawable) > MOST_MAPS
            else ""
        )
        yield plot_of([figure], [""], left_out)


def _timelines(groups: Sequence[Group]) -> Iterator[Plot]:
    """Shown where work went on across aggregations."""
    for group in [g for g in groups if g.rounds and overlaps(g.runs[0])][:MOST_MAPS]:
        which = f"{group.label}, seed {group.seeds[0]}"
        yield plot_of([timeline_figure(group.runs[0], f"Who worked when: {which}")], [""])


def _departures(groups: Sequence[Group]) -> Iterator[Plot]:
    """Shown where some weighting departed from the base weights."""
    if any(
        np.nanmax(departure(run), initial=0.0) > 1e-9
        for group in groups
        for run in group.runs
        if run.rounds
    ):
        yield plot_of([figures.weight_departure(groups)], [""])


def _traits(groups: Sequence[Group]) -> Iterator[Plot]:
    begun = [group for group in groups if group.rounds]
    for trait in traits_of(begun):
        yield plot_of(
            [figures.trait_weights([g for g in begun if trait in g.runs[0].traits], trait)], [""]
        )


def _participation(groups: Sequence[Group]) -> Iterator[Plot]:
    shown = [group for group in groups if group.rounds and _drawable(group)]
    if shown:
        yield plot_of([figures.participation(shown)], [""])


def _classes(groups: Sequence[Group]) -> Iterator[Plot]:
    """One figure per different federation; runs on the same data share it."""
    owners: dict[bytes, tuple[Run, list[str]]] = {}
    for group in groups:
        counts = group.runs[0].array("label_counts")
        if counts is not None:
            owners.setdefault(counts.tobytes(), (group.runs[0], []))[1].append(group.label)
    for run, labels in owners.values():
        title = "Classes of the clients" + (f": {'; '.join(labels)}" if len(owners) > 1 else "")
        yield plot_of([figures.class_composition(run, title)], [""])


FIGURES: dict[str, Callable[[Sequence[Group]], Iterator[Plot]]] = {
    "curves": curve_plots,
    "departures": _departures,
    "traits": _traits,
    "weights": _weights,
    "timelines": _timelines,
    "participation": _participation,
    "classes": _classes,
}
"""What can be drawn of groups, by name, in the order of a page; each yields nothing where it would
show nothing."""


def _worth_showing(groups: Sequence[Group], metric: str, axis: Axis) -> bool:
    """Whether there is a curve, and whether this axis shows anything that rounds do not."""
    if all(curve(group, metric, axis) is None for group in groups):
        return False
    same = all(
        np.array_equal(axis_values(run, axis), axis_values(run, "rounds"))
        for g in groups
        for run in g.runs
    )
    return axis == "rounds" or not same


def _drawable(group: Group) -> bool:
    return group.runs[0].clients <= MOST_CLIENTS


def plot_of(made: Sequence[Figure], names: Sequence[str], extra: str = "") -> Plot:
    """Take title and note out of the figures: on a page they are text that wraps and can be
    selected.
    """
    title, note = (
        unescape(t or "") for t in (made[0].layout.title.text, made[0].layout.title.subtitle.text)
    )
    for figure in made:
        figure.layout.title = None
        figure.layout.margin.t = 56
    views = tuple((name, str(figure.to_json())) for name, figure in zip(names, made, strict=True))
    return Plot(title, f"{note} {extra}".strip(), views)
