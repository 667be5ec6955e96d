"""The page of an explanation: what the theory promised, and what a run made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.figures import DASHES, PALETTE, empty_figure
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import plot_of
from poise.core.errors import LedgerError
from poise.core.types import Floats
from poise.ledger.files import write_whole

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEAST = 1e-16
"""A logarithmic axis has no zero."""


FILE = "explanation.json"
"""Where a run folder keeps its explanation. It tells of theory, not of the run: no part of the
ledger."""


class Comparison(Protocol):
    """Bounds, predicted bias and measured curve: `Curves`, or
    `poise.analysis.explain.bounds_vs_run.Promises`.
    """

    @property
    def rounds(self) -> Floats:
        """The aggregations at which bounds were looked at, (k,)."""

    @property
    def bounds(self) -> dict[str, Floats]:
        """The bounds by name, (k,) each."""

    @property
    def bias(self) -> float:
        """The loss above its least value to which the objective leads."""

    @property
    def measured_rounds(self) -> Floats:
        """The aggregations after which the run was measured."""

    @property
    def measured(self) -> Floats:
        """The loss of the run above its least value."""


@dataclass(frozen=True)
class Curves:
    """Bounds, predicted bias and measured curve, as they were kept (see
    `poise.analysis.explain.bounds_vs_run.Promises`).
    """

    rounds: Floats
    bounds: dict[str, Floats]
    bias: float
    measured_rounds: Floats
    measured: Floats


@dataclass(frozen=True)
class Explained:
    """An explanation that a run folder keeps."""

    rows: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    advice: tuple[str, ...]
    curves: Curves | None


def keep_explanation(
    folder: Path,
    rows: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    advice: Sequence[str],
    promises: Comparison | None,
) -> Path:
    """Keep an explanation beside the ledger of the run that it is of."""
    drawn = None
    if promises is not None:
        drawn = {
            "rounds": promises.rounds.tolist(),
            "measured_rounds": promises.measured_rounds.tolist(),
            "measured": promises.measured.tolist(),
            "bounds": {name: values.tolist() for name, values in promises.bounds.items()},
            "bias": promises.bias,
        }
    document = {
        "rows": list(rows),
        "warnings": list(warnings),
        "advice": list(advice),
        "curves": drawn,
    }
    write_whole(folder / FILE, json.dumps(document, indent=1).encode())
    return folder / FILE


def kept_explanation(folder: Path) -> Explained | None:
    """The explanation that a run folder keeps; None where there is none."""
    if not (folder / FILE).exists():
        return None
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        drawn, curves = found["curves"], None
        if drawn is not None:
            lines = {
                name: np.array(drawn[name], dtype=np.float64)
                for name in ("rounds", "measured_rounds", "measured")
            }
            bounds = {str(k): np.array(v, dtype=np.float64) for k, v in drawn["bounds"].items()}
            curves = Curves(bounds=bounds, bias=float(drawn["bias"]), **lines)
        rows = tuple((str(k), str(v)) for k, v in found["rows"])
        return Explained(
            rows, tuple(map(str, found["warnings"])), tuple(map(str, found["advice"])), curves
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"{folder / FILE} cannot be read: {error}", "`poise explain RUN --keep` writes it anew"
        ) from error


def write_explanation(
    name: str,
    rows: Sequence[tuple[str, str]],
    texts: Sequence[str],
    promises: Comparison | None,
    path: Path,
) -> Path:
    """Write the page.

    Args:
        name: what was explained.
        rows: figures in words.
        texts: warnings and advice.
        promises: bound, bias and measured curve (`poise.analysis.explain.bounds_vs_run.Promises`),
            or None.
        path: the page to write.
    """
    title = f"Explanation of {name}"
    facts = "".join(
        f'<tr><th scope="row">{sections.text(key)}</th><td>{sections.text(value)}</td></tr>'
        for key, value in rows
    )
    said = "".join(f"<li>{sections.text(text)}</li>" for text in texts)
    head = f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n"
    head += f"<section><ul>{said}</ul><table>{facts}</table></section>\n"
    drawn = [] if promises is None else [plot_of([promise_figure(promises)], [""])]
    return write_whole_page(path, document(title, head + sections.figures(drawn), bool(drawn)))


def promise_figure(promises: Comparison) -> Figure:
    """Loss above its least value, on a logarithmic axis: bounds, where the surrogate leads, and the
    run.
    """
    import plotly.graph_objects as go

    note = (
        "Bounds hold under their theorems' assumptions; the dotted line is where the objective "
        "really minimised leads."
    )
    figure = empty_figure(
        "What was promised", note, "aggregations", "training loss above its least value"
    )
    for k, (name, values) in enumerate(promises.bounds.items()):
        line = {"color": PALETTE[(k + 1) % len(PALETTE)], "dash": DASHES[1]}
        figure.add_trace(
            go.Scatter(x=promises.rounds, y=values, name=f"bound: {name}", mode="lines", line=line)
        )
    if len(promises.measured):
        shown = np.maximum(promises.measured, LEAST)
        figure.add_trace(
            go.Scatter(
                x=promises.measured_rounds,
                y=shown,
                name="measured",
                mode="lines+markers",
                line={"color": PALETTE[0]},
            )
        )
    ends = [float(promises.rounds[0]), float(promises.rounds[-1])]
    if promises.bias > LEAST:
        dots = {"color": "#888888", "dash": DASHES[2]}
        figure.add_trace(
            go.Scatter(
                x=ends, y=[promises.bias] * 2, name="predicted bias", mode="lines", line=dots
            )
        )
    return figure.update_yaxes(type="log")
