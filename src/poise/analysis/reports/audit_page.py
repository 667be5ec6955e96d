"""The page of an audit: who is suspected, since when, and what their updates look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.bins import evenly
from poise.analysis.reports.figures import HEAT, MOST_CLIENTS, MOST_ROUNDS, empty_figure
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import plot_of
from poise.auditing.audit import Audit
from poise.core.types import Ints
from poise.ledger.run import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SUSPECT, OTHER = "#D55E00", "#0072B2"
HIGHEST = 20.0
"""Scores above this are drawn like this."""

MOST_POINTS = 2_000
"""Updates drawn one by one, of suspects and of others; as vectors: WebGL needs scripts that pages
do not allow."""


def write_audit(found: Sequence[tuple[str, Run, Audit]], path: Path) -> Path:
    """Write one page about the audits of some runs, each with its name."""
    body = "<header>\n<h1>Audit: who only pretends to work</h1>\n</header>\n"
    for name, run, one in found:
        body += f"<section><h2>{sections.text(name)}</h2>{_verdict(run, one)}</section>\n"
        drawn = [score_figure(one), history_figure(one), norm_figure(run, one)]
        body += sections.figures([plot_of([figure], [""]) for figure in drawn])
    return write_whole_page(path, document("Audit", body, True))


def _verdict(run: Run, found: Audit) -> str:
    """The suspects in words."""
    said = f"{len(found.suspects)} of {run.clients} clients suspected after {run.rounds} rounds, at a false-alarm rate of"
    rows = "".join(
        f'<tr><th scope="row">client {i}</th><td>{found.scores[i]:.1f}</td><td>{found.p_values[i]:.2g}</td>'
        f"<td>{sections.text(found.explain(i).partition(': ')[2])}</td></tr>"
        for i in sorted(found.suspects, key=lambda i: -found.scores[i])
    )
    head = "<tr><th>client</th><th>score</th><th>p</th><th>why</th></tr>"
    table = f"<table>{head}{rows}</table>" if rows else ""
    return f"<p>{sections.text(said)} {100 * found.alarm:g} %.</p>{table}"


def most_suspected(found: Audit, most: int = MOST_CLIENTS) -> Ints:
    """All clients, or of more than ``most`` those with the highest scores; in the order of their
    numbers.
    """
    order = np.argsort(-found.scores, kind="stable")[:most]
    return np.sort(order)


def score_figure(found: Audit) -> Figure:
    """The score of every client; of more than 200, those with the highest scores."""
    import plotly.graph_objects as go

    shown = most_suspected(found)
    note = f"-log10 of the p-value of the way of free-riding that fits best; suspects in orange.{_left_out(found)}"
    figure = empty_figure("Score of every client", note, "client", "score")
    suspects = set(found.suspects)
    colours = [SUSPECT if i in suspects else OTHER for i in shown.tolist()]
    figure.add_trace(
        go.Bar(
            x=list(map(str, shown)),
            y=np.minimum(found.scores[shown], HIGHEST),
            marker={"color": colours},
            showlegend=False,
            text=[f"{s:.1f}" for s in found.scores[shown]],
            textposition="none",
            hovertemplate="client %{x}: %{text}<extra></extra>",
        )
    )
    return figure.update_xaxes(type="category")


def history_figure(found: Audit) -> Figure:
    """How the scores rose, round by round; of more than 200 clients or 400 rounds, some."""
    import plotly.graph_objects as go

    shown, rounds = most_suspected(found), evenly(len(found.by_round), MOST_ROUNDS)
    some = (
        f" {len(rounds)} of {len(found.by_round)} rounds, evenly spaced."
        if len(rounds) < len(found.by_round)
        else ""
    )
    note = f"After each round, from all rounds so far; {HIGHEST:g} stands for this or more.{_left_out(found)}{some}"
    figure = empty_figure("Score, round by round", note, "round", "client")
    figure.add_trace(
        go.Heatmap(
            z=np.minimum(found.by_round[np.ix_(rounds, shown)], HIGHEST).T.astype(np.float32),
            x=rounds,
            y=list(map(str, shown)),
            colorscale=HEAT,
            zmin=0,
            zmax=HIGHEST,
            colorbar={"thickness": 12, "title": {"text": "score"}},
            hovertemplate="round %{x}, client %{y}: %{z:.1f}<extra></extra>",
        )
    )
    return figure.update_yaxes(type="category")


def _left_out(found: Audit) -> str:
    many = len(found.scores)
    return f" The {MOST_CLIENTS} highest of {many:,} clients." if many > MOST_CLIENTS else ""


def norm_figure(run: Run, found: Audit) -> Figure:
    """The length of every update; of very many, some."""
    import plotly.graph_objects as go

    c = run.contributions
    note = "Empty updates are left out; suspects in orange."
    if len(c) > 2 * MOST_POINTS:
        note += f" Of {len(c):,} updates, up to {MOST_POINTS:,} evenly spaced ones of either kind."
    figure = empty_figure("Length of the updates", note, "round", "norm")
    bad = np.isin(c["client"], found.suspects)
    for name, colour, rows in (("others", OTHER, ~bad), ("suspects", SUSPECT, bad)):
        drawn = c[rows & (c["norm"] > 0)]
        shown = drawn[evenly(len(drawn), MOST_POINTS)]
        figure.add_trace(
            go.Scatter(
                x=shown["round"],
                y=shown["norm"],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 4},
                text=[f"client {i}" for i in shown["client"]],
                hovertemplate="%{text}, round %{x}: %{y:.3g}<extra></extra>",
            )
        )
    return figure.update_yaxes(type="log")


def roc_figure(found: Audit, true: Sequence[int]) -> Figure:
    """How many free-riders are found at how many false alarms, where it is known who they are."""
    import plotly.graph_objects as go

    false, hits = found.roc(true)
    note = f"AUC {found.auc(true):.3f}: the chance that a free-rider scores higher than a client that works."
    figure = empty_figure(
        "Found against false alarms",
        note,
        "share of working clients suspected",
        "free-riders found",
    )
    figure.add_trace(
        go.Scatter(
            x=[0, 1],
            y=[0, 1],
            mode="lines",
            showlegend=False,
            hoverinfo="skip",
            line={"color": "#8a94a0", "dash": "dot", "width": 1},
        )
    )
    bad = np.isin(np.arange(len(found.scores)), true)
    here = [float(np.isin(np.flatnonzero(who), found.suspects).mean()) for who in (~bad, bad)]
    figure.add_trace(
        go.Scatter(
            x=false,
            y=hits,
            mode="lines",
            name="every limit",
            line={"color": OTHER, "width": 2},
            hovertemplate="%{y:.1%} found, %{x:.1%} false alarms<extra></extra>",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=here[:1],
            y=here[1:],
            mode="markers",
            name=f"alarm {found.alarm:g}",
            marker={"color": SUSPECT, "size": 11},
            cliponaxis=False,
            hovertemplate="%{y:.1%} found, %{x:.1%} false alarms<extra></extra>",
        )
    )
    return figure.update_xaxes(range=[-0.02, 1.02]).update_yaxes(range=[-0.02, 1.05])
