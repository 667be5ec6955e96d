"""Act 1: the federation, before any training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports.inspection_page import (
    composition_figure,
    graph_figure,
    layout,
)
from poise.analysis.reports.plots import plot_of
from poise.analysis.reports.tables import Grid
from poise.apps.demo.act import Act
from poise.apps.demo.roles import Roles, federation_of, roles_of
from poise.apps.demo.snippets import federation_call
from poise.apps.demo.stage import Stage
from poise.apps.experiments.inspection import Inspection, inspect
from poise.graph import SimilarityGraph
from poise.results.drawing import empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = {
    "honest": "#0072B2",
    "wrong labels": "#D55E00",
    "pretends to work": "#CC79A7",
}
SLOW = "slow"


def show_federation(stage: Stage) -> Act:
    """Inspect the federation: sizes, classes, roles and the similarity graph."""
    advance = stage.count("1 of 6: inspect the federation", 2)
    federation = federation_of(stage)
    roles = roles_of(stage)
    advance()
    inspection = inspect(federation)
    advance()
    share = float(federation.importance[roles.wrong].sum())
    assert inspection.label_counts is not None
    figures = (
        plot_of([holdings_figure(inspection, roles)], [""]),
        plot_of([marked_graph(inspection.graph, roles)], [""]),
        plot_of([composition_figure(inspection.label_counts)], [""]),
    )
    return Act(
        title="The federation: 50 unequal clients",
        question="What does the federation look like, before any training?",
        findings=tuple(_findings(inspection, roles)),
        table=_table(inspection, roles, share),
        note="Every seed deals the digits anew; table and figures show the first seed.",
        figures=figures,
        python=_python(stage),
        commands=(f"poise inspect {stage.quoted('choice.toml')}",),
        numbers={
            "sizes": inspection.sizes.tolist(),
            "wrong labels": roles.wrong.tolist(),
            "free-riders": roles.free_riders.tolist(),
            "slow": roles.slow.tolist(),
            "share of wrong labels": share,
            "homogeneity": inspection.graph.homogeneity,
            "outliers": inspection.graph.outliers().tolist(),
        },
    )


SETTING = (
    "The experiment files fix the setting. Of eight draws of the clients with wrong "
    "labels, this is one in which they hold a third of the samples. With 12 % of the "
    "samples, another draw, act 3 shows no clear difference in accuracy."
)
"""How the clients with wrong labels were chosen."""


def _python(stage: Stage) -> str:
    data = stage.experiment("choice").table("data")
    return "\n".join(
        [
            "import poise",
            f"fed = {federation_call(data, stage.first)}",
            "graph = poise.graph.similarity(fed)",
            "print(fed.sizes, graph.homogeneity, graph.outliers())",
        ]
    )


def _findings(inspection: Inspection, roles: Roles) -> list[str]:
    found = set(inspection.graph.outliers().tolist())
    culprits = {*roles.wrong.tolist(), *roles.free_riders.tolist()}
    graph = "The similarity graph compares pixels, not labels or work."
    named = ", ".join(map(str, sorted(found)))
    outliers = f"{graph} Its outliers are clients {named}."
    if not found & culprits:
        outliers = f"{graph} None of the bad clients stands out in it."
    return [outliers, SETTING]


def _table(inspection: Inspection, roles: Roles, share: float) -> Grid:
    data = inspection.as_data()
    size = data["size"]
    slow = f"{_names(roles.slow)}: {roles.slowness:g} times slower than the others"
    body = [
        (
            "clients",
            f"{data['clients']}, with {size['smallest']} to {size['largest']} samples",
        ),
        ("samples", f"{data['samples']:,}"),
        ("classes per client", f"{data['classes per client']:.1f} of 10"),
        ("wrong labels", f"{len(roles.wrong)} clients, {share:.0%} of the samples"),
        ("pretend to work", _names(roles.free_riders)),
        ("slow", slow),
        ("homogeneity of the graph", f"{inspection.graph.homogeneity:.3f}"),
    ]
    return Grid(("federation", f"seed {_seed(inspection)}"), tuple(body))


def _seed(inspection: Inspection) -> str:
    return inspection.name.rpartition("seed ")[2].rstrip(")")


def _names(clients: np.ndarray) -> str:
    return "clients " + ", ".join(map(str, clients.tolist()))


def holdings_figure(inspection: Inspection, roles: Roles) -> Figure:
    """Samples of every client, coloured by its role; slow clients are hatched."""
    import plotly.graph_objects as go

    figure = empty_figure(
        "Samples of each client",
        "Hatched: slow clients. Clients that pretend to work declare samples.",
        "client",
        "samples",
    )
    clients = np.arange(len(inspection.sizes))
    named = np.array([roles.of(client) for client in clients.tolist()])
    for role, colour in COLOURS.items():
        shown = clients[named == role]
        hatched = np.where(np.isin(shown, roles.slow), "/", "").tolist()
        bars = go.Bar(
            x=shown,
            y=inspection.sizes[shown],
            name=role,
            marker={"color": colour, "pattern": {"shape": hatched}},
            hovertemplate=f"client %{{x}}: %{{y}} samples, {role}<extra></extra>",
        )
        figure.add_trace(bars)
    return figure.update_layout(barmode="stack", bargap=0.15)


def marked_graph(graph: SimilarityGraph, roles: Roles) -> Figure:
    """The similarity graph with rings around clients with a role."""
    import plotly.graph_objects as go

    figure = graph_figure(graph)
    positions = layout(graph)
    marked = {
        "wrong labels": roles.wrong,
        "pretends to work": roles.free_riders,
    }
    for role, clients in marked.items():
        rings = go.Scatter(
            x=positions[clients, 0],
            y=positions[clients, 1],
            mode="markers",
            name=role,
            marker={
                "size": 17,
                "symbol": "circle-open",
                "color": COLOURS[role],
                "line": {"width": 2},
            },
            hoverinfo="skip",
        )
        figure.add_trace(rings)
    return figure
