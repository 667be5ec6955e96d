"""The page of a comparison whose figures are numbers already: a table, what was claimed, and
bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from poise.analysis.reports import sections
from poise.analysis.reports.figures import colour, empty_figure
from poise.analysis.reports.plots import plot_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from poise.analysis.reports.plots import Plot

Bars = Mapping[str, Sequence[tuple[float, float]]]
"""By method: (mean, half of the 95 % interval) for each place on the axis."""


def bars(title: str, x: str, y: str, places: Sequence[str], methods: Bars) -> Figure:
    """Bars side by side, one for each method at each place, with their intervals."""
    import plotly.graph_objects as go

    figure = empty_figure(title, "Mean over seeds with its 95 % confidence interval.", x, y)
    for k, (name, values) in enumerate(methods.items()):
        halves = [
            half if half < float("inf") else 0.0 for _, half in values
        ]  # one seed has no interval
        bar = go.Bar(
            x=list(places),
            y=[mean for mean, _ in values],
            name=escape(name),
            marker={"color": colour(k)},
            error_y={"array": halves, "thickness": 1},
            hovertemplate="%{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
        )
        figure.add_trace(bar)
    return figure.update_xaxes(type="category", showgrid=False).update_layout(barmode="group")


def bar_plots(made: Sequence[Figure]) -> list[Plot]:
    """Figures, ready for a page."""
    return [plot_of([figure], [""]) for figure in made]


def comparison_body(
    title: str,
    lead: str,
    claims: Sequence[tuple[str, bool, str]],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    drawn: Sequence[Plot],
) -> str:
    """The body of the page: what was claimed and whether it holds, the figures, and the numbers
    behind them.
    """
    return "".join(
        (
            (
                f"<header>\n<h1>{sections.text(title)}</h1>\n<p "
                f'class="lead">{sections.text(lead)}</p>\n</header>\n'
            ),
            sections.claims(claims),
            sections.figures(drawn),
            sections.numbers(head, rows),
        )
    )
