"""The page of an audit: who is suspected, since when, and what their updates look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from poise.auditing.audit import Audit
from poise.ledger.run import Run
from poise.reports import sections
from poise.reports.figures import HEAT, empty_figure
from poise.reports.page import document, write_whole_page
from poise.reports.plots import plot_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SUSPECT, OTHER = "#D55E00", "#0072B2"
HIGHEST = 20.0
"""Scores above this are drawn like this."""


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
    said = (
        f"{len(found.suspects)} of {run.clients} clients suspected after {run.rounds} rounds, at a false-alarm rate of"
    )
    rows = "".join(
        f'<tr><th scope="row">client {i}</th><td>{found.scores[i]:.1f}</td><td>{found.p_values[i]:.2g}</td>'
        f"<td>{sections.text(found.explain(i).partition(': ')[2])}</td></tr>"
        for i in sorted(found.suspects, key=lambda i: -found.scores[i])
    )
    head = "<tr><th>client</th><th>score</th><th>p</th><th>why</th></tr>"
    table = f"<table>{head}{rows}</table>" if rows else ""
    return f"<p>{sections.text(said)} {100 * found.alarm:g} %.</p>{table}"


def score_figure(found: Audit) -> Figure:
    """The score of every client."""
    import plotly.graph_objects as go

    note = "-log10 of the p-value of the way of free-riding that fits best; suspects in orange."
    figure = empty_figure("Score of every client", note, "client", "score")
    colours = [SUSPECT if i in set(found.suspects) else OTHER for i in range(len(found.scores))]
    return figure.add_trace(
        go.Bar(
            x=list(range(len(found.scores))), y=np.minimum(found.scores, HIGHEST), marker={"color": colours},
            showlegend=False, text=[f"{s:.1f}" for s in found.scores], textposition="none",
            hovertemplate="client %{x}: %{text}<extra></extra>",
        )
    )  # fmt: skip


def history_figure(found: Audit) -> Figure:
    """How the scores rose, round by round."""
    import plotly.graph_objects as go

    note = f"After each round, from all rounds so far; {HIGHEST:g} stands for this or more."
    figure = empty_figure("Score, round by round", note, "round", "client")
    return figure.add_trace(
        go.Heatmap(
            z=np.minimum(found.by_round, HIGHEST).T.astype(np.float32), colorscale=HEAT, zmin=0, zmax=HIGHEST,
            colorbar={"thickness": 12, "title": {"text": "score"}},
            hovertemplate="round %{x}, client %{y}: %{z:.1f}<extra></extra>",
        )
    )  # fmt: skip


def norm_figure(run: Run, found: Audit) -> Figure:
    """The length of every update."""
    import plotly.graph_objects as go

    figure = empty_figure("Length of the updates", "Empty updates are left out; suspects in orange.", "round", "norm")
    c = run.contributions
    bad = np.isin(c["client"], found.suspects)
    for name, colour, rows in (("others", OTHER, ~bad), ("suspects", SUSPECT, bad)):
        shown = c[rows & (c["norm"] > 0)]
        figure.add_trace(
            go.Scattergl(
                x=shown["round"], y=shown["norm"], mode="markers", name=name, marker={"color": colour, "size": 4},
                text=[f"client {i}" for i in shown["client"]],
                hovertemplate="%{text}, round %{x}: %{y:.3g}<extra></extra>",
            )
        )  # fmt: skip
    return figure.update_yaxes(type="log")
