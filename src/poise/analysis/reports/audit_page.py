"""The page of an audit: suspects, their score over time, and the lengths of updates."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.bins import evenly
from poise.analysis.reports.figures import HEAT, MOST_CLIENTS, MOST_ROUNDS
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import plot_of
from poise.auditing.audit import Audit
from poise.core.client_names import client_title
from poise.core.types import Ints
from poise.results import Run
from poise.results.drawing import category_step, client_axis, empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SUSPECT = "#D55E00"
OTHER = "#0072B2"
HIGHEST = 20.0
"""Higher scores are drawn at this value."""

MOST_POINTS = 2_000
"""Updates drawn singly, of suspects and of others; pages forbid WebGL's scripts."""

SCORE_NOTE = (
    "Score: −log10 of the p-value; higher is more suspicious. "
    "p-value: how often an honest client looks at least this suspicious."
)


def write_audit(audits: Sequence[tuple[str, Run, Audit]], path: Path) -> Path:
    """Write one page about the audits of runs, given as (name, run, audit)."""
    body = "<header>\n<h1>Audit: suspected free-riders</h1>\n</header>\n"
    for name, run, audit in audits:
        body += f"<section><h2>{sections.text(name)}</h2>{_suspects(run, audit)}</section>\n"
        names = run.client_names
        drawn = [
            score_figure(audit, names),
            history_figure(audit, names),
            norm_figure(run, audit),
        ]
        body += sections.figures([plot_of([figure], [""]) for figure in drawn])
    return write_whole_page(path, document("Audit", body, drawn=True))


def _suspects(run: Run, audit: Audit) -> str:
    """The number of suspects, and a table with the evidence."""
    lead = (
        f"{len(audit.suspects)} of {run.clients} clients suspected after {run.rounds} rounds, "
        f"at a false-alarm rate of {100 * audit.alarm:g} %."
    )
    if not audit.suspects:
        return f"<p>{sections.text(lead)}</p>"
    rows = ""
    for i in sorted(audit.suspects, key=lambda i: -audit.scores[i]):
        evidence = sections.text(audit.explain(i).partition(": ")[2])
        rows += (
            f'<tr><th scope="row">{sections.text(client_title(i, run.client_names))}</th>'
            f"<td>{audit.scores[i]:.1f}</td>"
            f"<td>{audit.p_values[i]:.2g}</td><td>{evidence}</td></tr>"
        )
    caption = f"<caption>{sections.text(SCORE_NOTE)}</caption>"
    head = "<tr><th>client</th><th>score</th><th>p-value</th><th>evidence</th></tr>"
    return f"<p>{sections.text(lead)}</p><table>{caption}{head}{rows}</table>"


def most_suspected(audit: Audit, most: int = MOST_CLIENTS) -> Ints:
    """The ``most`` clients with the highest scores, sorted by client number."""
    order = np.argsort(-audit.scores, kind="stable")[:most]
    return np.sort(order)


def score_figure(audit: Audit, names: Sequence[str] = ()) -> Figure:
    """The score of every client, or of the 200 most suspicious ones."""
    import plotly.graph_objects as go

    shown = most_suspected(audit)
    note = (
        "−log10 of the p-value, for the kind of free-riding that fits best. Orange: suspects."
        f"{_left_out(audit)}"
    )
    figure = empty_figure("Score of every client", note, "client", "score")
    suspects = set(audit.suspects)
    colours = [SUSPECT if i in suspects else OTHER for i in shown.tolist()]
    figure.add_trace(
        go.Bar(
            x=list(map(str, shown)),
            y=np.minimum(audit.scores[shown], HIGHEST),
            marker={"color": colours},
            showlegend=False,
            text=[f"{score:.1f}" for score in audit.scores[shown]],
            textposition="none",
            hovertemplate="client %{x}: %{text}<extra></extra>",
        )
    )
    axis = client_axis(names, clients=len(audit.scores))
    if "tickvals" not in axis:
        axis["dtick"] = category_step(len(shown))
    return figure.update_xaxes(type="category", **axis)


def history_figure(audit: Audit, names: Sequence[str] = ()) -> Figure:
    """The scores after each round; at most 200 clients and 400 rounds."""
    import plotly.graph_objects as go

    shown = most_suspected(audit)
    rounds = evenly(len(audit.by_round), MOST_ROUNDS)
    note = (
        f"Score after each round, from all rounds so far; {HIGHEST:g} means {HIGHEST:g} or more."
        f"{_left_out(audit)}"
    )
    if len(rounds) < len(audit.by_round):
        note += f" Shows {len(rounds)} of {len(audit.by_round)} rounds, evenly spaced."
    figure = empty_figure("Score after each round", note, "round", "client")
    figure.add_trace(
        go.Heatmap(
            z=np.minimum(audit.by_round[np.ix_(rounds, shown)], HIGHEST).T.astype(
                np.float32
            ),
            x=rounds,
            y=list(map(str, shown)),
            colorscale=HEAT,
            zmin=0,
            zmax=HIGHEST,
            colorbar={"thickness": 12, "title": {"text": "score"}},
            hovertemplate="round %{x}, client %{y}: %{z:.1f}<extra></extra>",
        )
    )
    axis = client_axis(names, clients=len(audit.scores))
    return figure.update_yaxes(type="category", **axis)


def _left_out(audit: Audit) -> str:
    clients = len(audit.scores)
    if clients <= MOST_CLIENTS:
        return ""
    return f" Shows the {MOST_CLIENTS} highest scores of {clients:,} clients."


def norm_figure(run: Run, audit: Audit) -> Figure:
    """The length of every update, or of evenly spaced ones if there are many."""
    import plotly.graph_objects as go

    c = run.contributions
    note = "Orange: suspects. Updates of length 0 are not shown."
    if len(c) > 2 * MOST_POINTS:
        note += (
            f" Shows up to {MOST_POINTS:,} evenly spaced updates of suspects and of others, "
            f"out of {len(c):,}."
        )
    figure = empty_figure("Length of the updates", note, "round", "norm")
    suspected = np.isin(c["client"], audit.suspects)
    for name, colour, rows in (
        ("others", OTHER, ~suspected),
        ("suspects", SUSPECT, suspected),
    ):
        drawn = c[rows & (c["norm"] > 0)]
        shown = drawn[evenly(len(drawn), MOST_POINTS)]
        figure.add_trace(
            go.Scatter(
                x=shown["round"],
                y=shown["norm"],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 4},
                text=[
                    escape(client_title(int(i), run.client_names))
                    for i in shown["client"]
                ],
                hovertemplate="%{text}, round %{x}: %{y:.3g}<extra></extra>",
            )
        )
    return figure.update_yaxes(type="log", nticks=6)


def roc_figure(audit: Audit, free_riders: Sequence[int]) -> Figure:
    """The ROC curve, for runs whose free-riders are known."""
    import plotly.graph_objects as go

    false_alarms, hits = audit.roc(free_riders)
    note = (
        f"AUC {audit.auc(free_riders):.3f}: probability that a free-rider scores higher than an "
        "honest client."
    )
    figure = empty_figure(
        "Detection rate and false alarms (ROC)",
        note,
        "share of honest clients suspected",
        "share of free-riders found",
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
    guilty = np.isin(np.arange(len(audit.scores)), free_riders)
    suspected = np.isin(np.arange(len(audit.scores)), audit.suspects)
    figure.add_trace(
        go.Scatter(
            x=false_alarms,
            y=hits,
            mode="lines",
            name="all thresholds",
            line={"color": OTHER, "width": 2},
            hovertemplate="%{y:.1%} found, %{x:.1%} false alarms<extra></extra>",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[float(suspected[~guilty].mean())],
            y=[float(suspected[guilty].mean())],
            mode="markers",
            name=f"false-alarm rate {audit.alarm:g}",
            marker={"color": SUSPECT, "size": 11},
            cliponaxis=False,
            hovertemplate="%{y:.1%} found, %{x:.1%} false alarms<extra></extra>",
        )
    )
    return figure.update_xaxes(range=[-0.02, 1.02]).update_yaxes(range=[-0.02, 1.05])
