"""Figures about the cohort of each aggregation: classes, size, staleness and losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from poise.analysis.reports.bins import bins, evenly
from poise.analysis.reports.figures import (
    MOST_ROUNDS,
    class_colours,
    colour,
    line_mode,
    translucent,
)
from poise.analysis.reports.scores import (
    class_names,
    distinct_clients,
    measured,
    participations,
)
from poise.core.types import Floats, Ints
from poise.results import Run
from poise.results.drawing import empty_figure, whole_numbers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def class_shares(run: Run, most: int = MOST_ROUNDS) -> Floats | None:
    """The share of each class in the data of the cohort, (bins of rounds, classes).

    A client counts once per aggregation. Rounds without clients are nan. None without
    classes.
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


def composition_figure(
    run: Run, title: str = "Classes of each cohort"
) -> Figure | None:
    """Class shares of the data of each cohort; None for data without classes."""
    import plotly.graph_objects as go

    shares = class_shares(run)
    if shares is None:
        return None
    binned = bins(run.rounds, MOST_ROUNDS)
    note = "Share of each class among the samples of the clients that took part."
    if run.rounds > MOST_ROUNDS:
        note += f" {run.rounds} aggregations in bins of {binned.width}."
    figure = empty_figure(title, note, "aggregation", "share of the samples")
    classes = class_names(run, shares.shape[1])
    for k, class_colour in enumerate(class_colours(shares.shape[1])):
        hover = f"aggregation %{{x:d}}<br>{classes[k]}: %{{y:.1%}}<extra></extra>"
        marker = {"color": class_colour, "line": {"width": 0}}
        bar = go.Bar(
            x=binned.centres + 1,
            y=shares[:, k],
            name=classes[k],
            marker=marker,
            hovertemplate=hover,
        )
        figure.add_trace(bar)
    figure.update_yaxes(range=[0, 1], tickformat=".0%").update_xaxes(
        showgrid=False, **whole_numbers(run.rounds)
    )
    return figure.update_layout(barmode="stack", bargap=0)


def cohort_size_figure(run: Run, title: str = "Clients of each cohort") -> Figure:
    """Number of different clients and of refused updates in each aggregation."""
    shown = evenly(run.rounds, MOST_ROUNDS)
    note = ""
    if len(shown) < run.rounds:
        note = f"Shows {len(shown)} of {run.rounds} aggregations, evenly spaced."
    figure = empty_figure(title, note, "aggregation", "clients")
    figure.add_trace(
        _line(shown + 1, distinct_clients(run)[shown], "different clients", 0)
    )
    refused = np.bincount([n for n, _, _ in run.refusals], minlength=run.rounds)
    if refused.any():
        figure.add_trace(_line(shown + 1, refused[shown], "refused updates", 1))
    figure.update_xaxes(whole_numbers(run.rounds))
    return figure.update_yaxes(rangemode="tozero", **whole_numbers(run.clients))


class Staleness(NamedTuple):
    """Staleness of the updates by bins of rounds; nan for bins without updates.

    The staleness of an update is the number of aggregations since the server sent its
    model.
    """

    mean: Floats  # (bins,)
    largest: Floats  # (bins,)
    edges: Ints  # (bins + 1,)


def staleness(run: Run, most: int = MOST_ROUNDS) -> Staleness:
    """Mean and largest staleness of the updates, by bins of rounds."""
    c = run.contributions
    binned = bins(run.rounds, most)
    bin_of_row = binned.of(c["round"])
    age = c["round"] - c["version"]
    count = np.bincount(bin_of_row, minlength=len(binned.sizes))
    largest = np.full(len(count), -1)
    np.maximum.at(largest, bin_of_row, age)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(bin_of_row, age, minlength=len(count)) / count
    return Staleness(mean, np.where(largest < 0, np.nan, largest), binned.edges)


def staleness_figure(run: Run, title: str = "Staleness") -> Figure:
    """Mean and largest staleness of the updates in each aggregation."""
    mean, largest, edges = staleness(run)
    note = (
        "Number of aggregations between sending a model and using its update: mean and largest "
        "of each aggregation."
    )
    if run.rounds > MOST_ROUNDS:
        note += f" {run.rounds} aggregations in bins of {edges[1] - edges[0]}."
    figure = empty_figure(title, note, "aggregation", "aggregations")
    x = (edges[:-1] + edges[1:] - 1) / 2 + 1
    figure.add_trace(_line(x, largest, "largest", 1))
    figure.add_trace(_line(x, mean, "mean", 0))
    oldest = np.nanmax(largest, initial=0.0)
    figure.update_xaxes(whole_numbers(run.rounds))
    return figure.update_yaxes(rangemode="tozero", **whole_numbers(oldest))


class LossQuantiles(NamedTuple):
    """Minimum, quartiles and maximum of the clients' losses."""

    rounds: Ints  # (K,), from 1
    values: Floats  # (K, 5)
    clients: str  # "all clients" or the cohort


def loss_quantiles(run: Run, most: int = MOST_ROUNDS) -> LossQuantiles | None:
    """Quantiles of the clients' losses; None if the run recorded no losses.

    The losses are those of all clients if the run measured ``client_loss``, otherwise
    those that the cohort reported before local training. Rounds without losses are left
    out.
    """
    if "client_loss" in run.metrics:
        rounds, values = measured(run, "client_loss")
        if len(rounds):
            shown = evenly(len(rounds), most)
        else:
            shown = np.zeros(0, dtype=np.int64)
        clients = "all clients"
        rows = [values[k] for k in shown]
        numbers = rounds[shown]
    else:
        c = run.contributions
        ends = np.searchsorted(c["round"], np.arange(run.rounds + 1))
        shown = evenly(run.rounds, most)
        clients = "the cohort, before local training"
        rows = [c["loss_before"][ends[n] : ends[n + 1]] for n in shown]
        numbers = shown + 1
    finite = [row[np.isfinite(row)] for row in rows]
    has_losses = np.array([len(row) > 0 for row in finite], dtype=bool)
    if not has_losses.any():
        return None
    quantiles = np.array([np.quantile(row, QUANTILES) for row in finite if len(row)])
    return LossQuantiles(numbers[has_losses], quantiles, clients)


def loss_figure(run: Run, title: str = "Loss over the clients") -> Figure | None:
    """Range, middle half and median of the clients' losses; None without losses."""
    import plotly.graph_objects as go

    quantiles = loss_quantiles(run)
    if quantiles is None:
        return None
    rounds, values, clients = quantiles
    note = f"Losses of {clients}: minimum to maximum, middle half, and median."
    figure = empty_figure(title, note, "aggregations", "loss")
    for low, high, name in ((0, 4, "minimum to maximum"), (1, 3, "middle half")):
        x = np.concatenate([rounds, rounds[::-1]])
        y = np.concatenate([values[:, high], values[::-1, low]])
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
    return figure.update_xaxes(whole_numbers(run.rounds))


def _line(x: Floats | Ints, y: Floats | Ints, name: str, k: int) -> Scatter:
    import plotly.graph_objects as go

    hover = "%{x:d}: %{y:.4g}<extra>%{fullData.name}</extra>"
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode=line_mode(len(x)),
        hovertemplate=hover,
        line={"color": colour(k), "width": 2},
        marker={"size": 5},
    )
