"""Who came to each aggregation: what they own, how old their models were, how unequal their
losses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports.bins import bins, evenly
from poise.analysis.reports.figures import (
    MOST_ROUNDS,
    class_colours,
    colour,
    empty_figure,
    translucent,
)
from poise.analysis.reports.scores import distinct_clients, measured, participations
from poise.core.types import Floats, Ints
from poise.ledger import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def class_shares(run: Run, most: int = MOST_ROUNDS) -> Floats | None:
    """The share of each class among the samples of who took part, (bins of rounds, classes); None
    without classes.

    A client counts once in an aggregation; rounds in which nobody came are not a number.
    """
    counts = run.array("label_counts")
    if counts is None:
        return None
    rounds, clients = participations(run)
    binned = bins(run.rounds, most)
    table = np.zeros((len(binned.sizes), counts.shape[1]))
    np.add.at(table, binned.of(rounds), counts[clients])
    with np.errstate(invalid="ignore"):
        return np.asarray(table / table.sum(axis=1, keepdims=True))


def composition_figure(run: Run, title: str = "Classes of each cohort") -> Figure | None:
    """What the clients of each aggregation own, as shares that sum to one; None for data without
    classes.
    """
    import plotly.graph_objects as go

    shares = class_shares(run)
    if shares is None:
        return None
    binned = bins(run.rounds, MOST_ROUNDS)
    note = "Share of each class among the samples of the clients that took part."
    many = (
        f" {run.rounds} aggregations in bins of {binned.width}." if run.rounds > MOST_ROUNDS else ""
    )
    figure = empty_figure(title, note + many, "aggregation", "share of the samples")
    for k, own in enumerate(class_colours(shares.shape[1])):
        hover = f"aggregation %{{x:d}}<br>class {k}: %{{y:.1%}}<extra></extra>"
        marker = {"color": own, "line": {"width": 0}}
        bar = go.Bar(
            x=binned.centres + 1,
            y=shares[:, k],
            name=f"class {k}",
            marker=marker,
            hovertemplate=hover,
        )
        figure.add_trace(bar)
    figure.update_yaxes(range=[0, 1], tickformat=".0%").update_xaxes(showgrid=False, tickformat="d")
    return figure.update_layout(barmode="stack", bargap=0)


def cohort_size_figure(run: Run, title: str = "Clients of each cohort") -> Figure:
    """How many different clients each aggregation used, and how many updates were refused."""
    shown = evenly(run.rounds, MOST_ROUNDS)
    note = (
        f"{len(shown)} of {run.rounds} aggregations, evenly spaced."
        if len(shown) < run.rounds
        else ""
    )
    figure = empty_figure(title, note, "aggregation", "clients")
    figure.add_trace(_line(shown + 1, distinct_clients(run)[shown], "different clients", 0))
    refused = np.bincount([n for n, _, _ in run.refusals], minlength=run.rounds)
    if refused.any():
        figure.add_trace(_line(shown + 1, refused[shown], "refused updates", 1))
    return figure.update_yaxes(rangemode="tozero").update_xaxes(tickformat="d")


def ages(run: Run, most: int = MOST_ROUNDS) -> tuple[Floats, Floats, Ints]:
    """Mean and largest staleness of the contributions by bins of rounds, (bins,) each, and the
    edges of the bins.

    The staleness of a contribution is the number of aggregations since its model went out; nan
    where nobody came.
    """
    c = run.contributions
    binned = bins(run.rounds, most)
    of, age = binned.of(c["round"]), c["round"] - c["version"]
    count = np.bincount(of, minlength=len(binned.sizes))
    largest = np.full(len(count), -1)
    np.maximum.at(largest, of, age)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(of, age, minlength=len(count)) / count
    return mean, np.where(largest < 0, np.nan, largest), binned.edges


def staleness_figure(run: Run, title: str = "Staleness") -> Figure:
    """How many aggregations old the models were from which clients worked."""
    mean, largest, edges = ages(run)
    note = (
        "Aggregations between a model going out and its update counting: mean and largest of "
        "each aggregation."
    )
    many = (
        f" {run.rounds} aggregations in bins of {edges[1] - edges[0]}."
        if run.rounds > MOST_ROUNDS
        else ""
    )
    figure = empty_figure(title, note + many, "aggregation", "aggregations")
    x = (edges[:-1] + edges[1:] - 1) / 2 + 1
    figure.add_trace(_line(x, largest, "largest", 1))
    figure.add_trace(_line(x, mean, "mean", 0))
    return figure.update_yaxes(rangemode="tozero").update_xaxes(tickformat="d")


def loss_quantiles(run: Run, most: int = MOST_ROUNDS) -> tuple[Ints, Floats, str] | None:
    """Least, quartiles and largest of the clients' losses: aggregations from 1 (K,), values (K, 5),
    and of whom.

    Of all clients where they were measured (``client_loss``), else of the cohort, as its clients
    reported before their work; None where neither was recorded. Rounds without any loss are left
    out.
    """
    if "client_loss" in run.metrics:
        rounds, values = measured(run, "client_loss")
        shown = evenly(len(rounds), most) if len(rounds) else np.zeros(0, dtype=np.int64)
        rows, whose = [values[k] for k in shown], "all clients"
        at = rounds[shown]
    else:
        c = run.contributions
        ends = np.searchsorted(c["round"], np.arange(run.rounds + 1))
        shown = evenly(run.rounds, most)
        rows, whose = (
            [c["loss_before"][ends[n] : ends[n + 1]] for n in shown],
            "the cohort, before its work",
        )
        at = shown + 1
    known = [row[np.isfinite(row)] for row in rows]
    there = np.array([len(row) > 0 for row in known], dtype=bool)
    if not there.any():
        return None
    return at[there], np.array([np.quantile(row, QUANTILES) for row in known if len(row)]), whose


def loss_figure(run: Run, title: str = "Loss over the clients") -> Figure | None:
    """How unequally the model serves its clients: from the least to the largest loss, the middle
    half, the median.
    """
    import plotly.graph_objects as go

    found = loss_quantiles(run)
    if found is None:
        return None
    rounds, values, whose = found
    note = f"Losses of {whose}: least to largest, the middle half, and the median."
    figure = empty_figure(title, note, "aggregations", "loss")
    for low, high, name in ((0, 4, "least to largest"), (1, 3, "middle half")):
        x, y = (
            np.concatenate([rounds, rounds[::-1]]),
            np.concatenate([values[:, high], values[::-1, low]]),
        )
        band = go.Scatter(
            x=x,
            y=y,
            fill="toself",
            fillcolor=translucent(colour(0)),
            mode="none",
            hoverinfo="skip",
            name=name,
        )
        figure.add_trace(band)
    figure.add_trace(_line(rounds, values[:, 2], "median", 0))
    return figure.update_xaxes(tickformat="d")


def _line(x: Floats | Ints, y: Floats | Ints, name: str, k: int) -> Scatter:
    import plotly.graph_objects as go

    hover = "%{x:d}: %{y:.4g}<extra>%{fullData.name}</extra>"
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode="lines+markers" if len(x) <= 30 else "lines",
        hovertemplate=hover,
        line={"color": colour(k), "width": 2},
        marker={"size": 5},
    )
