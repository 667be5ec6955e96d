"""The clients of a run beside each other: who holds what, and how alike they are."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports import inspection_page
from poise.analysis.reports.bins import bins
from poise.analysis.reports.figures import PALETTE, class_composition, empty_figure
from poise.analysis.reports.graphs import KeptGraph
from poise.analysis.reports.plots import Plot, plot_of
from poise.apps.ui.jobs import FOLDER
from poise.core.types import Ints
from poise.graph.divergence import jensen_shannon, total_variation
from poise.ledger.run import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GRAPH, PAGE = "graph.safetensors", "inspection.html"
NODES = "nodes"  # the source of an experiment whose data only the nodes of a deployment know
MOST_CLIENTS = 2000
"""Clients up to which `poise inspect` makes a graph."""


def graph_file(folder: Path) -> Path:
    """Where the similarity graph of a run is kept once it was made."""
    return folder / FOLDER / GRAPH


def on_nodes(experiment: str) -> bool:
    """Whether a run's clients are nodes of a deployment."""
    tables = tomllib.loads(experiment)
    backend = tables.get("run", {}).get("backend", "local")
    name = backend.get("name") if isinstance(backend, dict) else backend
    return name == "flower" or tables.get("data", {}).get("source") == NODES


def why_no_graph(run: Run) -> str:
    """Why the similarity graph of a run cannot be made here; empty where it can."""
    if on_nodes(run.experiment):
        return (
            "The clients of this run are nodes, and their data are there. A node tells its direction of the graph only "
            "when a part of the run asks for it, and the ledger does not keep what it told."
        )
    data = tomllib.loads(run.experiment).get("data", {})
    if "source" not in data:
        return "The data of this run were given as Python objects: its experiment file does not name them."
    if data.get("on_demand") or run.clients > MOST_CLIENTS:
        return f"{run.clients:,} clients are too many to be compared with each other: {MOST_CLIENTS:,} are the most."
    return ""


def facts(run: Run) -> list[tuple[str, str]]:
    """What the ledger says about all clients, in words."""
    sizes, counts = run.array("sizes"), run.array("label_counts")
    found = [("clients", f"{run.clients:,}")]
    if sizes is None:
        return [*found, ("table of clients", "none: runs of more than 10,000 clients keep none")]
    n = np.asarray(sizes)
    found += [
        ("samples", f"{int(n.sum()):,}"),
        ("samples per client", f"{int(n.min()):,} to {int(n.max()):,}, median {np.median(n):g}"),
    ]
    if counts is not None:
        found.append(
            ("classes per client", f"{(counts > 0).sum(axis=1).mean():.1f} of {counts.shape[1]}")
        )
        some = counts[counts.sum(axis=1) > 0]
        for name, measure in (
            ("Jensen-Shannon", jensen_shannon),
            ("total variation", total_variation),
        ):
            values = measure(some)
            found.append(
                (
                    f"{name} from all",
                    f"mean {values.mean():.3f}, largest {values.max():.3f} (0 … 1)",
                )
            )
    for name, values in run.traits.items():
        found.append((name, f"{values.min():g} to {values.max():g}"))
    return found


def graph_facts(kept: KeptGraph) -> list[tuple[str, str]]:
    """What the inspection found, in words; what the ledger says already is left out."""
    known = ("clients", "samples per client", "classes per client")
    return [
        (k, v)
        for k, v in inspection_page.findings(kept.found)
        if k not in known and not k.endswith("from all")
    ]


def plots(run: Run) -> list[Plot]:
    """The figures that the ledger allows: how much everyone holds, and of which classes."""
    drawn = []
    if (sizes := run.array("sizes")) is not None:
        drawn.append(size_figure(np.asarray(sizes)))
    if run.array("label_counts") is not None:
        drawn.append(class_composition(run))
    return [plot_of([figure], [""]) for figure in drawn]


def graph_plots(kept: KeptGraph) -> list[Plot]:
    """The figures of `poise inspect`; the first is the graph itself."""
    graph = kept.graph
    drawn = [inspection_page.graph_figure(graph), inspection_page.misalignment_map(graph)]
    shown = [plot_of([figure], [""]) for figure in drawn]
    shown.append(inspection_page.misalignment_plot({"pairs of clients": graph.edges}))
    return [*shown, plot_of([inspection_page.spectrum_figure(graph)], [""])]


def size_figure(sizes: Ints) -> Figure:
    """How many samples clients hold, from the smallest to the largest; the mean over bins where
    there are many.
    """
    import plotly.graph_objects as go

    order = np.argsort(sizes, kind="stable")
    binned = bins(len(sizes), 200)
    note = (
        f"{len(sizes):,} clients in bins of {binned.width}, averaged." if binned.width > 1 else ""
    )
    figure = empty_figure("Samples of the clients", note, "clients, by size", "samples")
    names = [
        f"client {order[a]}" if b - a == 1 else f"{b - a} clients"
        for a, b in zip(binned.edges[:-1].tolist(), binned.edges[1:].tolist(), strict=True)
    ]
    return figure.add_trace(
        go.Bar(
            x=binned.centres + 1,
            y=binned.sum(sizes[order].astype(np.float64)) / binned.sizes,
            text=names,
            textposition="none",
            showlegend=False,
            marker={"color": PALETTE[0]},
            hovertemplate="%{text}: %{y:.4g} samples<extra></extra>",
        )
    )


def typical(kept: KeptGraph, most: int = 5) -> dict[str, list[int]]:
    """Clients worth a look: the most and the least typical, and outliers."""
    order = kept.graph.typical()
    return {
        "most typical": order[:most].tolist(),
        "least typical": order[::-1][:most].tolist(),
        "outliers": kept.graph.outliers().tolist(),
    }
