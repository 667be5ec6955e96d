"""The page of a reproduced comparison: claims, bar charts and a table of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from poise.analysis.reports import sections
from poise.analysis.reports.figures import colour
from poise.analysis.reports.plots import plot_of
from poise.results.drawing import empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from poise.analysis.reports.plots import Plot

Bars = Mapping[str, Sequence[tuple[float, float]]]
"""Method → (mean, half the width of the 95 % interval) for each category."""


def bars(
    title: str, x: str, y: str, categories: Sequence[str], methods: Bars
) -> Figure:
    """A grouped bar chart with 95 % intervals: one bar per method and category."""
    import plotly.graph_objects as go

    figure = empty_figure(
        title, "Mean over seeds with its 95 % confidence interval.", x, y
    )
    for k, (name, values) in enumerate(methods.items()):
        # one seed has no interval
        halves = [half if half < float("inf") else 0.0 for _, half in values]
        bar = go.Bar(
            x=list(categories),
            y=[mean for mean, _ in values],
            name=escape(name),
            marker={"color": colour(k)},
            error_y={"array": halves, "thickness": 1},
            hovertemplate="%{x}: %{y:.4g}<extra>%{fullData.name}</extra>",
        )
        figure.add_trace(bar)
    return figure.update_xaxes(type="category", showgrid=False).update_layout(
        barmode="group"
    )


def bar_plots(figures: Sequence[Figure]) -> list[Plot]:
    """The figures as plots of a page."""
    return [plot_of([figure], [""]) for figure in figures]


def comparison_body(
    title: str,
    lead: str,
    claims: Sequence[tuple[str, bool, str]],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    drawn: Sequence[Plot],
) -> str:
    """The body of the page: header, claims, figures and the table of scores."""
    header = (
        f"<header>\n<h1>{sections.text(title)}</h1>\n"
        f'<p class="lead">{sections.text(lead)}</p>\n</header>\n'
    )
    parts = (
        header,
        sections.claims(claims),
        sections.figures(drawn),
        sections.numbers(head, rows),
    )
    return "".join(parts)
