"""The page of an explanation: what the theory promised, and what a run made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.reports import sections
from poise.reports.figures import DASHES, PALETTE, empty_figure
from poise.reports.page import document, write_whole_page
from poise.reports.plots import plot_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEAST = 1e-16
"""A logarithmic axis has no zero."""


def write_explanation(
    name: str, rows: Sequence[tuple[str, str]], texts: Sequence[str], promises: Any, path: Path
) -> Path:
    """Write the page.

    Args:
        name: what was explained.
        rows: figures in words.
        texts: warnings and advice.
        promises: bound, bias and measured curve (`poise.explaining.promises.Promises`), or None.
        path: the page to write.
    """
    title = f"Explanation of {name}"
    facts = "".join(
        f'<tr><th scope="row">{sections.text(key)}</th><td>{sections.text(value)}</td></tr>' for key, value in rows
    )
    said = "".join(f"<li>{sections.text(text)}</li>" for text in texts)
    head = f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n"
    head += f"<section><ul>{said}</ul><table>{facts}</table></section>\n"
    drawn = [] if promises is None else [plot_of([promise_figure(promises)], [""])]
    return write_whole_page(path, document(title, head + sections.figures(drawn), bool(drawn)))


def promise_figure(promises: Any) -> Figure:
    """Loss above its least value, on a logarithmic axis: bounds, where the surrogate leads, and the run."""
    import plotly.graph_objects as go

    note = (
        "Bounds hold under their theorems' assumptions; the dotted line is where the objective really minimised leads."
    )
    figure = empty_figure("What was promised", note, "aggregations", "training loss above its least value")
    for k, (name, values) in enumerate(promises.bounds.items()):
        line = {"color": PALETTE[(k + 1) % len(PALETTE)], "dash": DASHES[1]}
        figure.add_trace(go.Scatter(x=promises.rounds, y=values, name=f"bound: {name}", mode="lines", line=line))
    if len(promises.measured):
        shown = np.maximum(promises.measured, LEAST)
        figure.add_trace(
            go.Scatter(
                x=promises.measured_rounds, y=shown, name="measured", mode="lines+markers", line={"color": PALETTE[0]}
            )
        )
    ends = [float(promises.rounds[0]), float(promises.rounds[-1])]
    if promises.bias > LEAST:
        dots = {"color": "#888888", "dash": DASHES[2]}
        figure.add_trace(go.Scatter(x=ends, y=[promises.bias] * 2, name="predicted bias", mode="lines", line=dots))
    return figure.update_yaxes(type="log")
