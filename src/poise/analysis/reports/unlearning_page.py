"""The page of a run's unlearning requests: restart tree, sensitivities, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import plot_of
from poise.core.types import Floats
from poise.results.drawing import PALETTE, empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CURVES = 60
"""Sensitivity curves in one figure, besides the coloured ones."""

MOST_POINTS = 400
"""Points of a sensitivity curve."""

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

REQUEST_NOTE = (
    "Restart: branch and round of the model that retraining starts from. Rounds: aggregations of "
    "the retraining. On remaining, on forgotten: final score on the data of the remaining and of "
    "the unlearned clients."
)


@dataclass(frozen=True)
class UnlearningHistory:
    """A branch of the restart tree: the training (0) or the retraining of a request."""

    branch: int
    start: tuple[int, int]  # (branch, round) of its restart
    rounds: int
    psi: Floats  # (rounds + 1, N) with clients numbered as in the training
    certificate: Mapping[str, Any]  # empty for the training


def write_unlearning(
    title: str,
    histories: Sequence[UnlearningHistory],
    oracle: Sequence[tuple[int, int]],
    limit: float,
    path: Path,
) -> Path:
    """Write the page about all unlearning requests of a run.

    Args:
        title: headline of the page.
        histories: the training, then the retraining of every request.
        oracle: (branch, round) of every segment that leads to the current model.
        limit: the sensitivity limit Psi*.
        path: the HTML file to write.
    """
    figures = [tree_figure(histories, oracle)]
    figures += [
        psi_figure(history, histories, limit) for history in histories if history.rounds
    ]
    head = (
        f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n{_table(histories)}\n"
    )
    body = head + sections.figures([plot_of([figure], [""]) for figure in figures])
    return write_whole_page(path, document(title, body, drawn=True))


def _table(histories: Sequence[UnlearningHistory]) -> str:
    rows = ""
    for history in histories[1:]:
        cells = "".join(
            f"<td>{sections.text(cell)}</td>" for cell in request_cells(history)
        )
        rows += f"<tr>{cells}</tr>"
    head = "".join(f'<th scope="col">{name}</th>' for name in REQUEST_HEAD)
    note = f"<caption>{sections.text(REQUEST_NOTE)}</caption>"
    table = f"<table>{note}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<section><div class="scroll">{table}</div></section>'


def request_cells(history: UnlearningHistory) -> list[str]:
    """The result of a request: one text for each column of `REQUEST_HEAD`."""
    certificate = history.certificate
    result = certificate["result"]
    remaining = _score(result["on remaining clients"])
    if "on held-out data" in result:  # retraining aimed at held-out data instead
        remaining = f"{_score(result['on held-out data'])} (held-out data)"
    return [
        str(history.branch),
        ", ".join(map(str, certificate["clients"])),
        certificate["request"]["method"],
        _guarantee(certificate),
        f"branch {history.start[0]}, round {history.start[1]}",
        str(history.rounds),
        remaining,
        _score(result["on forgotten clients"]),
    ]


def _guarantee(certificate: Mapping[str, Any]) -> str:
    guarantee = certificate["guarantee"]
    heuristic = "compared with" in guarantee  # the method has a bound, without a proof
    if not guarantee["promised"] and not heuristic:
        return "none"
    text = f"epsilon {guarantee['epsilon']:g}, delta {guarantee['delta']:g}"
    if certificate["grounds"]["not proved"]:
        return f"{text} (heuristic)"
    return text


def _score(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4f}"


def tree_figure(
    histories: Sequence[UnlearningHistory], oracle: Sequence[tuple[int, int]]
) -> Figure:
    """Branches over rounds, each drawn from its restart point [Fraboni 2023, Fig. 5.1].

    A bold line marks the history of the current model.
    """
    begins = {0: 0}
    for history in histories[1:]:
        begins[history.branch] = begins[history.start[0]] + history.start[1]
    figure = empty_figure(
        "Restart tree",
        "Bold lines: history of the current model. Rings: restarts, where noise is added.",
        "aggregations since the start of training",
        "branch",
    )
    last = histories[-1]
    bold = {branch: rounds for branch, rounds in oracle if branch != last.branch}
    bold[last.branch] = last.rounds
    for history in histories:
        begin = begins[history.branch]
        colour = PALETTE[history.branch % len(PALETTE)]
        spans = [(history.rounds, 2)]
        if history.branch in bold:
            spans.append((bold[history.branch], 6))
        for length, width in spans:
            ends = [begin, begin + length]
            figure.add_trace(
                _line(ends, [history.branch] * 2, colour=colour, width=width)
            )
        if history.branch:
            levels = [history.start[0], history.branch]
            figure.add_trace(
                _line([begin, begin], levels, colour=colour, width=1, dash="dot")
            )
            figure.add_trace(_restart_marker(history, begin, colour))
    return figure.update_yaxes(dtick=1, autorange="reversed")


def _restart_marker(history: UnlearningHistory, begin: int, colour: str) -> Any:
    import plotly.graph_objects as go

    marker = {
        "size": 11,
        "symbol": "circle-open",
        "color": colour,
        "line": {"width": 2},
    }
    return go.Scatter(
        x=[begin],
        y=[history.start[0]],
        mode="markers",
        showlegend=False,
        marker=marker,
        hovertemplate=f"request {history.branch} restarts here<extra></extra>",
    )


def _line(
    x: list[int], y: list[int], colour: str, width: int, dash: str = "solid"
) -> Any:
    import plotly.graph_objects as go

    style = {"color": colour, "width": width, "dash": dash}
    return go.Scatter(
        x=x, y=y, mode="lines", line=style, showlegend=False, hoverinfo="skip"
    )


def psi_figure(
    history: UnlearningHistory, histories: Sequence[UnlearningHistory], limit: float
) -> Figure:
    """Psi(n, i) of a branch's clients against Psi*; unlearned clients in colour."""
    colours: dict[int, str] = {}
    for later in histories[1:]:
        if later.start[0] == history.branch:
            colour = PALETTE[later.branch % len(PALETTE)]
            colours.update(dict.fromkeys(later.certificate["clients"], colour))
    where = f"branch {history.branch}"
    if history.branch == 0:
        where = "the training"
    note = (
        f"Dashed line: limit Psi* = {limit:.4g}. "
        "Coloured lines: clients unlearned from this restart point."
    )
    return sensitivity_figure(
        f"Sensitivity to the clients, {where}",
        note,
        psi=history.psi,
        limit=limit,
        colours=colours,
    )


def sensitivity_figure(
    title: str, note: str, psi: Floats, limit: float, colours: Mapping[int, str]
) -> Figure:
    """Psi(n, i) by round against a limit: clients in ``colours``, others in grey.

    At most 60 other clients are drawn.
    """
    import plotly.graph_objects as go

    figure = empty_figure(title, note, "aggregations", "Psi")
    finite = np.where(np.isfinite(psi), psi, np.nan)
    active = np.flatnonzero(np.nanmax(finite, axis=0, initial=0.0) > 0)
    step = max(1, len(active) // MOST_CURVES)
    others = [client for client in active[::step].tolist() if client not in colours]
    every = max(1, len(finite) // MOST_POINTS)
    rounds = np.arange(0, len(finite), every)
    for client in [*others, *colours]:
        style = {
            "color": colours.get(client, "#b8bfc8"),
            "width": 2 if client in colours else 1,
        }
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
