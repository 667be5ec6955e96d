"""The figures of one or several runs, as JSON for the pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from poise.analysis.reports import cohorts
from poise.analysis.reports.bounds_vs_run import (
    bounds_figure,
    kept_explanation,
    skew_figure,
)
from poise.analysis.reports.groups import Group, group_runs
from poise.analysis.reports.plots import FIGURES, Plot, curve_plots, plot_of
from poise.analysis.reports.timelines import overlaps, timeline_figure
from poise.results import Run
from poise.results.drawing import Axis

AXES: tuple[Axis, ...] = ("rounds", "time", "seconds", "bytes")


class View(BaseModel):
    """One view of a figure."""

    name: str
    figure: dict[str, Any]


class Drawing(BaseModel):
    """A figure: title, note and one or more Plotly views."""

    title: str
    note: str
    height: int
    views: list[View]


class Drawings(BaseModel):
    """The figures of one section of a page."""

    plots: list[Drawing]


def drawn(plots: Iterable[Plot]) -> str:
    """Figures as JSON (`Drawings`); inserts their views, already JSON, verbatim."""
    return '{"plots":[' + ",".join(map(_plot_json, plots)) + "]}"


def _plot_json(plot: Plot) -> str:
    head = json.dumps({"title": plot.title, "note": plot.note, "height": plot.height})
    views = ",".join(
        f'{{"name":{json.dumps(name)},"figure":{figure}}}'
        for name, figure in plot.views
    )
    return f'{head[:-1]},"views":[{views}]}}'


def warm_up() -> None:
    """Load the modules of the figures, so that the first figure appears quickly."""
    import plotly.graph_objects as go
    import scipy.special  # noqa: F401 - for intervals

    go.Figure(go.Scatter()).to_json()


def _group_of(run: Run) -> list[Group]:
    return group_runs([run])


def _cohorts(run: Run) -> Iterator[Plot]:
    if not run.rounds:
        return
    for figure in (cohorts.composition_figure(run), cohorts.cohort_size_figure(run)):
        if figure is not None:
            yield plot_of([figure], [""])


def _losses(run: Run) -> Iterator[Plot]:
    if not run.rounds:
        return
    figure = cohorts.loss_figure(run)
    if figure is not None:
        yield plot_of([figure], [""])


def _times(run: Run) -> Iterator[Plot]:
    """Staleness, if any, and the client timeline [Fraboni 2023, Fig. 4.1]."""
    if run.rounds and overlaps(run):
        yield plot_of([cohorts.staleness_figure(run)], [""])
    if run.rounds:
        yield plot_of([timeline_figure(run, latest=True)], [""])


def _bounds(run: Run) -> Iterator[Plot]:
    """Bounds, measured curve and skew that ``poise explain --keep`` saved."""
    if run.path is None:
        return
    kept = kept_explanation(run.path)
    if kept is None or kept.curves is None:
        return
    yield plot_of([bounds_figure(kept.curves)], [""])
    if kept.curves.skew is not None:
        yield plot_of([skew_figure(kept.curves.skew)], [""])


OF_A_RUN: dict[str, Callable[[Run], Iterable[Plot]]] = {
    "curves": lambda run: curve_plots(_group_of(run), AXES),
    "weights": lambda run: _figures(run, "weights", "departures"),
    "cohorts": _cohorts,
    "losses": _losses,
    "times": _times,
    "promises": _bounds,
    "clients": lambda run: _figures(run, "participation", "traits", "classes"),
}
"""The figures of a run by kind; a kind may have several figures, or none."""


def _figures(run: Run, *kinds: str) -> Iterator[Plot]:
    group = _group_of(run)
    for kind in kinds:
        yield from FIGURES[kind](group)


def side_by_side(groups: Sequence[Group]) -> list[Plot]:
    """The curves of several experiments, for all axes."""
    return list(curve_plots(groups, AXES))
