"""Client timelines: when each client worked, on which version, with which weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports.clock_units import time_title
from poise.analysis.reports.figures import HEAT
from poise.core.types import Floats, Ints
from poise.results import Run
from poise.results.drawing import client_axis, empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CLIENTS = 60
MOST_TASKS = 1500


@dataclass(frozen=True)
class LocalTasks:
    """All local work that the server aggregated, in the order of the ledger."""

    clients: Ints
    begin: Floats  # simulated time at which the version went out
    end: Floats  # simulated time of the aggregation that used it
    versions: Ints
    rounds: Ints
    weights: Floats


def local_tasks(run: Run) -> LocalTasks:
    """The local work behind every contribution.

    The server sends version v right after aggregation v, and the first version at time
    0.
    """
    c = run.contributions
    sent = np.concatenate([[0.0], run.times])
    return LocalTasks(
        clients=c["client"],
        begin=sent[c["version"]],
        end=run.times[c["round"]],
        versions=c["version"],
        rounds=c["round"],
        weights=c["coefficient"],
    )


def overlaps(run: Run) -> bool:
    """Whether any client worked across an aggregation; else a timeline adds nothing."""
    c = run.contributions
    return bool(len(c) and (c["version"] < c["round"]).any())


def timeline_figure(
    run: Run, title: str = "Client timeline", latest: bool = False
) -> Figure:
    """One bar per local task, from sending the model to aggregating the update.

    Darker bars have a larger weight. Of too many tasks, the figure shows the first or,
    with ``latest``, the last ones.
    """
    import plotly.graph_objects as go

    work = local_tasks(run)
    of_shown_clients = work.clients < MOST_CLIENTS
    candidates = np.flatnonzero(of_shown_clients)
    which = "first"
    shown = candidates[:MOST_TASKS]
    if latest:
        which = "last"
        shown = candidates[-MOST_TASKS:]
    notes = ["Each bar: local training plus the wait for the next aggregation."]
    if not of_shown_clients.all():
        notes.append(f"Shows the first {MOST_CLIENTS} of {run.clients} clients.")
    if len(candidates) > MOST_TASKS:
        notes.append(f"Shows the {which} {MOST_TASKS} of {len(candidates)} bars.")
    figure = empty_figure(title, " ".join(notes), time_title([run]), "client")
    details = np.stack(
        [work.versions, work.rounds + 1, work.rounds - work.versions, work.weights],
        axis=1,
    )[shown]
    most = max(float(work.weights.max(initial=0.0)), 1e-12)
    bar = go.Bar(
        base=work.begin[shown],
        x=(work.end - work.begin)[shown],
        y=work.clients[shown],
        orientation="h",
        customdata=details,
        width=0.7,
        showlegend=False,
        marker={
            "color": _colours(work.weights[shown] / most),
            "line": {"color": "white", "width": 1},
        },
        hovertemplate=(
            "client %{y}: version %{customdata[0]}, used in aggregation %{customdata[1]}<br>"
            "staleness %{customdata[2]}, weight %{customdata[3]:.4g}<extra></extra>"
        ),
    )
    legend = {"title": {"text": "weight"}, "thickness": 12, "outlinewidth": 0}
    key = go.Scatter(
        x=[None],
        y=[None],
        mode="markers",
        showlegend=False,
        hoverinfo="skip",
        marker={
            "colorscale": HEAT,
            "cmin": 0,
            "cmax": most,
            "color": [0.0],
            "showscale": True,
            "colorbar": legend,
        },
    )
    figure.add_traces([bar, key])
    figure.update_yaxes(
        autorange="reversed", **client_axis(run.client_names, clients=run.clients)
    )
    return figure.update_layout(barmode="overlay")


def _colours(shares: Floats) -> list[str]:
    """The colour of each share of the largest weight.

    Plotly warns about bars whose colour is a number, so this function computes the
    colours.
    """
    from plotly.colors import sample_colorscale

    if not len(shares):
        return []
    scale = [[position, colour] for position, colour in HEAT]
    colours = sample_colorscale(scale, np.clip(shares, 0.0, 1.0).tolist())
    return [str(colour) for colour in colours]
