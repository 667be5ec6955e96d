"""The page of an explanation: theoretical bounds, predicted bias, measured run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.figures import DASHES
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import plot_of
from poise.core.errors import LedgerError
from poise.core.types import Floats
from poise.ledger.files import write_whole
from poise.ledger.foreign import read_json
from poise.results.drawing import PALETTE, empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEAST = 1e-16
"""Smallest value drawn: a logarithmic axis has no zero."""


FILE = "explanation.json"
"""File of the explanation in a run folder. It is not part of the ledger."""


class SkewCurve(Protocol):
    """The weighting skew of a run.

    `KeptSkew` and `poise.analysis.explain.measured_skew.MeasuredSkew` have these
    fields.
    """

    @property
    def rounds(self) -> Floats:
        """The versions of the model at which the skew was measured, (k,)."""

    @property
    def skews(self) -> Floats:
        """rho(t, w_t) at these models, (k,)."""

    @property
    def lowest(self) -> float:
        """rho_, the least of them."""

    @property
    def highest(self) -> float:
        """rho~, the largest skew at the optimum."""

    @property
    def kappa(self) -> tuple[float, float]:
        """The range of alpha_i/p_i: pi and Pi."""


@dataclass(frozen=True)
class KeptSkew:
    """The `SkewCurve` that a run folder keeps."""

    rounds: Floats
    skews: Floats
    lowest: float
    highest: float
    kappa: tuple[float, float]


class BoundCurves(Protocol):
    """Bounds, predicted bias and measured curve.

    `KeptBounds` and `poise.analysis.explain.bounds_vs_run.BoundsVsRun` have these
    fields.
    """

    @property
    def rounds(self) -> Floats:
        """The aggregations at which the bounds were evaluated, (k,)."""

    @property
    def bounds(self) -> dict[str, Floats]:
        """The bounds by name, (k,) each."""

    @property
    def bias(self) -> float:
        """F - F* at the optimum of the objective that is really minimised."""

    @property
    def measured_rounds(self) -> Floats:
        """The aggregations after which the run was measured."""

    @property
    def measured(self) -> Floats:
        """F - F* of the run."""

    @property
    def skew(self) -> SkewCurve | None:
        """The weighting skew of the run, if it was measured."""


@dataclass(frozen=True)
class KeptBounds:
    """The `BoundCurves` that a run folder keeps."""

    rounds: Floats
    bounds: dict[str, Floats]
    bias: float
    measured_rounds: Floats
    measured: Floats
    skew: KeptSkew | None = None


@dataclass(frozen=True)
class KeptExplanation:
    """The explanation that a run folder keeps."""

    rows: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    advice: tuple[str, ...]
    curves: KeptBounds | None


def keep_explanation(
    folder: Path,
    rows: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    advice: Sequence[str],
    curves: BoundCurves | None,
) -> Path:
    """Save an explanation in the folder of its run."""
    curve_data = None
    if curves is not None:
        curve_data = {
            "rounds": curves.rounds.tolist(),
            "measured_rounds": curves.measured_rounds.tolist(),
            "measured": curves.measured.tolist(),
            "bounds": {name: values.tolist() for name, values in curves.bounds.items()},
            "bias": curves.bias,
            "skew": _skew_data(curves.skew),
        }
    data = {
        "rows": list(rows),
        "warnings": list(warnings),
        "advice": list(advice),
        "curves": curve_data,
    }
    write_whole(folder / FILE, json.dumps(data, indent=1).encode())
    return folder / FILE


def _skew_data(skew: SkewCurve | None) -> dict[str, Any] | None:
    """A skew as plain values."""
    if skew is None:
        return None
    return {
        "rounds": skew.rounds.tolist(),
        "skews": skew.skews.tolist(),
        "lowest": skew.lowest,
        "highest": skew.highest,
        "kappa": list(skew.kappa),
    }


def kept_explanation(folder: Path) -> KeptExplanation | None:
    """The explanation that a run folder keeps, or None."""
    if not os.path.lexists(folder / FILE):
        return None
    try:
        data = read_json(folder / FILE)
        curves = None
        if data["curves"] is not None:
            curves = _parse_curves(data["curves"])
        return KeptExplanation(
            rows=tuple((str(name), str(value)) for name, value in data["rows"]),
            warnings=tuple(map(str, data["warnings"])),
            advice=tuple(map(str, data["advice"])),
            curves=curves,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"cannot read {folder / FILE}: {error}",
            f"write it again with: poise explain {folder} --keep",
        ) from error


def _parse_curves(data: Mapping[str, Any]) -> KeptBounds:
    bounds = {}
    for name, values in data["bounds"].items():
        bounds[str(name)] = np.array(values, dtype=np.float64)
    return KeptBounds(
        rounds=np.array(data["rounds"], dtype=np.float64),
        bounds=bounds,
        bias=float(data["bias"]),
        measured_rounds=np.array(data["measured_rounds"], dtype=np.float64),
        measured=np.array(data["measured"], dtype=np.float64),
        skew=_parse_skew(data.get("skew")),
    )


def _parse_skew(data: Mapping[str, Any] | None) -> KeptSkew | None:
    if data is None:
        return None
    low, high = data["kappa"]
    return KeptSkew(
        rounds=np.array(data["rounds"], dtype=np.float64),
        skews=np.array(data["skews"], dtype=np.float64),
        lowest=float(data["lowest"]),
        highest=float(data["highest"]),
        kappa=(float(low), float(high)),
    )


def write_explanation(
    name: str,
    rows: Sequence[tuple[str, str]],
    texts: Sequence[str],
    curves: BoundCurves | None,
    path: Path,
) -> Path:
    """Write the page of an explanation.

    Args:
        name: name of the experiment.
        rows: facts, as (name, value).
        texts: warnings and advice.
        curves: bounds, bias and measured curve, or None.
        path: the HTML file to write.
    """
    title = f"Explanation of {name}"
    facts = "".join(
        f'<tr><th scope="row">{sections.text(key)}</th><td>{sections.text(value)}</td></tr>'
        for key, value in rows
    )
    items = "".join(f"<li>{sections.text(text)}</li>" for text in texts)
    head = f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n"
    head += f"<section><ul>{items}</ul><table>{facts}</table></section>\n"
    drawn = []
    if curves is not None:
        drawn.append(plot_of([bounds_figure(curves)], [""]))
        if curves.skew is not None:
            drawn.append(plot_of([skew_figure(curves.skew)], [""]))
    return write_whole_page(
        path, document(title, head + sections.figures(drawn), drawn=bool(drawn))
    )


def bounds_figure(curves: BoundCurves) -> Figure:
    """F - F* on a logarithmic axis: bounds, predicted bias and the measured run."""
    import plotly.graph_objects as go

    note = (
        "Dashed lines: upper bounds, valid under the assumptions of their theorems. Dotted line: "
        "final value predicted for the objective that is really minimised."
    )
    figure = empty_figure(
        "Bounds and measured run", note, "aggregations", "training loss − minimum"
    )
    for k, (name, values) in enumerate(curves.bounds.items()):
        line = {"color": PALETTE[(k + 1) % len(PALETTE)], "dash": DASHES[1]}
        figure.add_trace(
            go.Scatter(
                x=curves.rounds,
                y=values,
                name=f"bound: {name}",
                mode="lines",
                line=line,
            )
        )
    if len(curves.measured):
        figure.add_trace(
            go.Scatter(
                x=curves.measured_rounds,
                y=np.maximum(curves.measured, LEAST),
                name="measured",
                mode="lines+markers",
                line={"color": PALETTE[0]},
            )
        )
    ends = [float(curves.rounds[0]), float(curves.rounds[-1])]
    if curves.bias > LEAST:
        dots = {"color": "#888888", "dash": DASHES[2]}
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=[curves.bias] * 2,
                name="predicted bias",
                mode="lines",
                line=dots,
            )
        )
    return figure.update_yaxes(type="log", nticks=6)


def skew_figure(skew: SkewCurve) -> Figure:
    """The weighting skew along a run, with the values that its bounds use."""
    import plotly.graph_objects as go

    note = (
        "ρ(t, w_t): the loss gaps of the clients with the weights of round t, over those "
        "with the importance. Above 1, clients with large gaps count more. ρ̄: its least "
        "value; ρ̃: the largest skew at the optimum; π, Π: least and largest α_i/p_i."
    )
    figure = empty_figure("Weighting skew", note, "aggregations", "skew")
    figure.add_trace(
        go.Scatter(
            x=skew.rounds,
            y=skew.skews,
            name="ρ(t, w_t)",
            mode="lines+markers",
            line={"color": PALETTE[0]},
        )
    )
    ends = [float(skew.rounds[0]), float(skew.rounds[-1])]
    levels = {
        "ρ̄": skew.lowest,
        "ρ̃": skew.highest,
        "π": skew.kappa[0],
        "Π": skew.kappa[1],
    }
    for k, (name, value) in enumerate(levels.items()):
        line = {"color": PALETTE[(k + 1) % len(PALETTE)], "dash": DASHES[1]}
        figure.add_trace(
            go.Scatter(x=ends, y=[value] * 2, name=name, mode="lines", line=line)
        )
    return figure
