"""The page of a run that was asked to forget: its tree of histories, sensitivities, and what each
request took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.figures import PALETTE, empty_figure
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import plot_of
from poise.core.types import Floats

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CURVES = 60
REQUEST_HEAD = (
    "request",
    "clients",
    "method",
    "guarantee",
    "restart",
    "rounds",
    "on remaining",
    "on forgotten",
)


@dataclass(frozen=True)
class Story:
    """A branch of the tree: the training (branch 0) or the retraining that a request led to."""

    branch: int
    start: tuple[int, int]  # (branch, round) of its restart
    rounds: int
    psi: Floats  # (rounds + 1, N) with clients numbered as in the training
    certificate: Mapping[str, Any]  # empty for the training


def write_forgetting(
    title: str,
    stories: Sequence[Story],
    present: Sequence[tuple[int, int]],
    limit: float,
    path: Path,
) -> Path:
    """Write the page; ``present`` are the nodes of the present history."""
    drawn = [
        tree_figure(stories, present),
        *(psi_figure(s, stories, limit) for s in stories if s.rounds),
    ]
    head = f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n{_table(stories)}\n"
    body = head + sections.figures([plot_of([figure], [""]) for figure in drawn])
    return write_whole_page(path, document(title, body, True))


def _table(stories: Sequence[Story]) -> str:
    rows = "".join(
        f"<tr>{''.join(f'<td>{sections.text(c)}</td>' for c in request_cells(s))}</tr>"
        for s in stories[1:]
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in REQUEST_HEAD)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<section><div class="scroll">{table}</div></section>'


def request_cells(story: Story) -> list[str]:
    """What came of a request, one text for each of `REQUEST_HEAD`."""
    said = story.certificate
    promise, result = said["guarantee"], said["result"]
    guarantee = (
        f"epsilon {promise['epsilon']:g}, delta {promise['delta']:g}"
        if promise["promised"]
        else "none"
    )
    if promise["promised"] and said["grounds"]["not proved"]:
        guarantee += " (heuristic)"
    scores = [_score(result["on remaining clients"]), _score(result["on forgotten clients"])]
    if (
        "on held-out data" in result
    ):  # what retraining aimed at, where the clients' own data were not asked about
        scores[0] = f"{_score(result['on held-out data'])} (held-out data)"
    return [
        str(story.branch),
        ", ".join(map(str, said["clients"])),
        said["request"]["method"],
        guarantee,
        f"branch {story.start[0]}, round {story.start[1]}",
        str(story.rounds),
        *scores,
    ]


def _score(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"


def tree_figure(stories: Sequence[Story], present: Sequence[tuple[int, int]]) -> Figure:
    """Branches over rounds, each leaving the one it restarted from; the present history is drawn
    bold (E Fig. 5.1).
    """
    import plotly.graph_objects as go

    begins = {0: 0}
    for story in stories[1:]:
        begins[story.branch] = begins[story.start[0]] + story.start[1]
    figure = empty_figure(
        "Tree of histories",
        "Bold is the history of the present model; a ring is a restart, with noise.",
        "aggregations, along the history",
        "branch",
    )
    last = stories[-1]
    bold = {s: n for s, n in present if s != last.branch} | {last.branch: last.rounds}
    for story in stories:
        at, colour = begins[story.branch], PALETTE[story.branch % len(PALETTE)]
        spans = [(story.rounds, 2)] + ([(bold[story.branch], 6)] if story.branch in bold else [])
        for length, width in spans:
            figure.add_trace(_line([at, at + length], [story.branch] * 2, colour, width))
        if story.branch:
            figure.add_trace(_line([at, at], [story.start[0], story.branch], colour, 1, "dot"))
            figure.add_trace(
                go.Scatter(
                    x=[at],
                    y=[story.start[0]],
                    mode="markers",
                    showlegend=False,
                    marker={
                        "size": 11,
                        "symbol": "circle-open",
                        "color": colour,
                        "line": {"width": 2},
                    },
                    hovertemplate=f"request {story.branch} restarts here<extra></extra>",
                )
            )
    return figure.update_yaxes(dtick=1, autorange="reversed")


def _line(x: list[int], y: list[int], colour: str, width: int, dash: str = "solid") -> Any:
    import plotly.graph_objects as go

    style = {"color": colour, "width": width, "dash": dash}
    return go.Scatter(x=x, y=y, mode="lines", line=style, showlegend=False, hoverinfo="skip")


def psi_figure(story: Story, stories: Sequence[Story], limit: float) -> Figure:
    """Psi(n, i) of the clients of a branch against Psi*; those who were forgotten from it stand
    out.
    """
    asked = {
        c: s.branch
        for s in stories[1:]
        for c in s.certificate["clients"]
        if s.start[0] == story.branch
    }
    where = "the training" if story.branch == 0 else f"branch {story.branch}"
    note = (
        f"Psi* = {limit:.4g} (dashed); coloured are clients that a request made to be "
        "forgotten from here."
    )
    colours = {client: PALETTE[branch % len(PALETTE)] for client, branch in asked.items()}
    return sensitivity_figure(
        f"Sensitivity to the clients, {where}", note, story.psi, limit, colours
    )


def sensitivity_figure(
    title: str, note: str, psi: Floats, limit: float, colours: Mapping[int, str]
) -> Figure:
    """Columns of Psi(n, i) over the rounds against a limit: those of ``colours`` stand out, some
    others are grey.
    """
    import plotly.graph_objects as go

    figure = empty_figure(title, note, "aggregations", "Psi")
    finite = np.where(np.isfinite(psi), psi, np.nan)
    seen = np.flatnonzero(np.nanmax(finite, axis=0, initial=0.0) > 0)
    step = max(1, len(seen) // MOST_CURVES)
    others = [c for c in seen[::step].tolist() if c not in colours]
    every = max(1, len(finite) // 400)
    rounds = np.arange(0, len(finite), every)
    for client in [*others, *colours]:
        style = {"color": colours.get(client, "#b8bfc8"), "width": 2 if client in colours else 1}
        figure.add_trace(
            go.Scatter(
                x=rounds,
                y=finite[::every, client],
                mode="lines",
                showlegend=False,
                line=style,
                hovertemplate=f"client {client}: %{{y:.4g}} after %{{x}}<extra></extra>",
            )
        )
    figure.add_hline(y=limit, line={"dash": "dash", "color": "#57606c"})
    return figure
