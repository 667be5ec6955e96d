"""The figures of a run and of several, as one text that a page draws from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from poise.analysis.reports import cohorts
from poise.analysis.reports.bounds_vs_run import kept_explanation, bounds_figure
from poise.analysis.reports.curves import Axis
from poise.analysis.reports.groups import Group, group_runs
from poise.analysis.reports.plots import FIGURES, Plot, curve_plots, plot_of
from poise.analysis.reports.timelines import overlaps, timeline_figure
from poise.ledger.run import Run

AXES: tuple[Axis, ...] = ("rounds", "time", "seconds", "bytes")


class View(BaseModel):
    """One way to see a figure."""

    name: str
    figure: dict[str, Any]


class Drawing(BaseModel):
    """A figure: what is seen, how to read it, and one or more views of it in Plotly's terms."""

    title: str
    note: str
    height: int
    views: list[View]


class Drawings(BaseModel):
    """Figures that belong together."""

    plots: list[Drawing]


def drawn(plots: Iterable[Plot]) -> str:
    """Figures as JSON (`Drawings`). Their views are JSON already, and are put in as they are."""
    return '{"plots":[' + ",".join(map(_drawn, plots)) + "]}"


def _drawn(plot: Plot) -> str:
    head = json.dumps({"title": plot.title, "note": plot.note, "height": plot.height})
    views = ",".join(
        f'{{"name":{json.dumps(name)},"figure":{figure}}}' for name, figure in plot.views
    )
    return f'{head[:-1]},"views":[{views}]}}'


def warm_up() -> None:
    """Load what the first figure needs, so that nobody waits for it."""
    import plotly.graph_objects as go
    import scipy.special  # noqa: F401 - for intervals

    go.Figure(go.Scatter()).to_json()


def _alone(run: Run) -> list[Group]:
    return group_runs([run])


def _cohorts(run: Run) -> Iterator[Plot]:
    for figure in (
        (cohorts.composition_figure(run), cohorts.cohort_size_figure(run)) if run.rounds else ()
    ):
        if figure is not None:
            yield plot_of([figure], [""])


def _losses(run: Run) -> Iterator[Plot]:
    figure = cohorts.loss_figure(run) if run.rounds else None
    if figure is not None:
        yield plot_of([figure], [""])


def _times(run: Run) -> Iterator[Plot]:
    """Staleness where there is any, and who worked when [Fraboni 2023, Fig. 4.1]."""
    if run.rounds and overlaps(run):
        yield plot_of([cohorts.staleness_figure(run)], [""])
    if run.rounds:
        yield plot_of([timeline_figure(run, latest=True)], [""])


def _promises(run: Run) -> Iterator[Plot]:
    """Bound, predicted bias and measured curve, where ``poise explain RUN --keep`` left them."""
    kept = None if run.path is None else kept_explanation(run.path)
    if kept is not None and kept.curves is not None:
        yield plot_of([bounds_figure(kept.curves)], [""])


OF_A_RUN: dict[str, Callable[[Run], Iterable[Plot]]] = {
    "curves": lambda run: curve_plots(_alone(run), AXES),
    "weights": lambda run: [*FIGURES["weights"](_alone(run)), *FIGURES["departures"](_alone(run))],
    "cohorts": _cohorts,
    "losses": _losses,
    "times": _times,
    "promises": _promises,
    "clients": lambda run: [
        *FIGURES["participation"](_alone(run)),
        *FIGURES["traits"](_alone(run)),
        *FIGURES["classes"](_alone(run)),
    ],
}
"""What is drawn of a run, by name; a name may stand for several figures, or for none where there is
nothing to see."""


def side_by_side(groups: Sequence[Group]) -> list[Plot]:
    """The curves of several experiments, against each axis that they differ on."""
    return list(curve_plots(groups, AXES))
