"""Who worked when, from which version, with which weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports.figures import HEAT, empty_figure
from poise.core.types import Floats, Ints
from poise.ledger import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CLIENTS, MOST_PIECES = 60, 1500


@dataclass(frozen=True)
class Pieces:
    """Pieces of work that were aggregated, in the order of the ledger."""

    clients: Ints
    begin: Floats  # simulated time at which the version went out
    end: Floats  # simulated time of the aggregation that used it
    versions: Ints
    rounds: Ints
    weights: Floats


def pieces(run: Run) -> Pieces:
    """Every contribution as a piece of work: version v went out with aggregation v, the first at
    time 0.
    """
    c = run.contributions
    went_out = np.concatenate([[0.0], run.times])
    return Pieces(
        clients=c["client"],
        begin=went_out[c["version"]],
        end=run.times[c["round"]],
        versions=c["version"],
        rounds=c["round"],
        weights=c["coefficient"],
    )


def overlaps(run: Run) -> bool:
    """Whether some work was under way across an aggregation: only then a timeline shows more than
    the rounds do.
    """
    c = run.contributions
    return bool(len(c) and (c["version"] < c["round"]).any())


def timeline_figure(run: Run, title: str = "Who worked when", latest: bool = False) -> Figure:
    """A bar per piece of work, from the time its model went out to the aggregation that used it;
    darker counts more.

    Of too many pieces the first ones are shown, or the ``latest``.
    """
    import plotly.graph_objects as go

    work = pieces(run)
    few = work.clients < MOST_CLIENTS
    shown = np.flatnonzero(few)[-MOST_PIECES:] if latest else np.flatnonzero(few)[:MOST_PIECES]
    notes = ["A bar is a piece of work, waiting for the aggregation included."]
    if not few.all():
        notes.append(f"The first {MOST_CLIENTS} of {run.clients} clients.")
    if few.sum() > MOST_PIECES:
        notes.append(
            f"The {'latest' if latest else 'first'} {MOST_PIECES} of {few.sum()} pieces of work."
        )
    figure = empty_figure(title, " ".join(notes), "simulated time (units of the clock)", "client")
    words = np.stack(
        [work.versions, work.rounds + 1, work.rounds - work.versions, work.weights], axis=1
    )[shown]
    most = max(float(work.weights.max(initial=0.0)), 1e-12)
    bar = go.Bar(
        base=work.begin[shown],
        x=(work.end - work.begin)[shown],
        y=work.clients[shown],
        orientation="h",
        customdata=words,
        width=0.7,
        showlegend=False,
        marker={
            "color": _colours(work.weights[shown] / most),
            "line": {"color": "white", "width": 1},
        },
        hovertemplate="client %{y}: version %{customdata[0]}, used in aggregation %{customdata[1]}<br>"
        "staleness %{customdata[2]}, weight %{customdata[3]:.4g}<extra></extra>",
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
    return figure.update_yaxes(autorange="reversed", tickformat="d").update_layout(
        barmode="overlay"
    )


def _colours(shares: Floats) -> list[str]:
    """The colour of each share of the largest weight; Plotly complains of every bar that is
    coloured by a number.
    """
    from plotly.colors import sample_colorscale

    scale = [[at, own] for at, own in HEAT]
    return (
        [str(c) for c in sample_colorscale(scale, np.clip(shares, 0.0, 1.0).tolist())]
        if len(shares)
        else []
    )
