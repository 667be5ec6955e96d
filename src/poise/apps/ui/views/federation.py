"""All clients of a run: facts and figures of sizes, classes and similarity graph."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports import inspection_page
from poise.analysis.reports.bins import bins
from poise.analysis.reports.figures import class_composition
from poise.analysis.reports.graphs import KeptGraph
from poise.analysis.reports.plots import Plot, plot_of
from poise.apps.ui.jobs import FOLDER
from poise.core.client_names import client_title
from poise.core.types import Ints
from poise.graph.divergence import jensen_shannon, total_variation
from poise.results import Run
from poise.results.drawing import PALETTE, client_axis, empty_figure, whole_numbers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GRAPH = "graph.safetensors"
PAGE = "inspection.html"
NODES = (
    "nodes"  # data source of experiments whose data stay on the nodes of a deployment
)
MOST_CLIENTS = 2000
"""Maximum number of clients for which `poise inspect` computes a graph."""


def graph_file(folder: Path) -> Path:
    """The file of the similarity graph of a run."""
    return folder / FOLDER / GRAPH


def on_nodes(experiment: str) -> bool:
    """Whether a run's clients are nodes of a deployment."""
    tables = tomllib.loads(experiment)
    backend = tables.get("run", {}).get("backend", "local")
    if isinstance(backend, dict):
        backend = backend.get("name")
    source = tables.get("data", {}).get("source")
    return bool(backend == "flower" or source == NODES)


def why_no_graph(run: Run) -> str:
    """Why the console cannot compute the similarity graph of a run; empty if it can."""
    if on_nodes(run.experiment):
        return (
            "The clients of this run are nodes, which keep their data. Nodes send their direction "
            "of the graph only if the run needs it, and the ledger does not record it."
        )
    data = tomllib.loads(run.experiment).get("data", {})
    if "source" not in data:
        return "The data of this run are Python objects; the experiment file does not name them."
    if data.get("on_demand") or run.clients > MOST_CLIENTS:
        return f"{run.clients:,} clients are too many for the graph; the limit is {MOST_CLIENTS:,}."
    return ""


def facts(run: Run) -> list[tuple[str, str]]:
    """Facts about all clients from the ledger, as (name, value)."""
    sizes = run.array("sizes")
    counts = run.array("label_counts")
    rows = [("clients", f"{run.clients:,}")]
    if sizes is None:
        return [
            *rows,
            ("client table", "none: runs with more than 10,000 clients have none"),
        ]
    n = np.asarray(sizes)
    rows += [
        ("samples", f"{int(n.sum()):,}"),
        (
            "samples per client",
            f"{int(n.min()):,} to {int(n.max()):,}, median {np.median(n):g}",
        ),
    ]
    if counts is not None:
        rows.append(
            (
                "classes per client",
                f"{(counts > 0).sum(axis=1).mean():.1f} of {counts.shape[1]}",
            )
        )
        not_empty = counts[counts.sum(axis=1) > 0]
        measures = {
            "Jensen-Shannon": jensen_shannon,
            "total variation": total_variation,
        }
        for name, measure in measures.items():
            values = measure(not_empty)
            text = f"mean {values.mean():.3f}, largest {values.max():.3f} (0 … 1)"
            rows.append((f"{name} from all", text))
    for name, values in run.traits.items():
        rows.append((name, f"{values.min():g} to {values.max():g}"))
    return rows


def graph_facts(kept: KeptGraph) -> list[tuple[str, str]]:
    """The findings of the inspection that `facts` does not show."""
    known = ("clients", "samples per client", "classes per client")
    return [
        (k, v)
        for k, v in inspection_page.findings(kept.findings)
        if k not in known and not k.endswith("from all")
    ]


def plots(run: Run) -> list[Plot]:
    """The figures from the ledger: sizes and classes of the clients."""
    drawn = []
    if (sizes := run.array("sizes")) is not None:
        drawn.append(size_figure(np.asarray(sizes), run.client_names))
    if run.array("label_counts") is not None:
        drawn.append(class_composition(run))
    return [plot_of([figure], [""]) for figure in drawn]


def graph_plots(kept: KeptGraph) -> list[Plot]:
    """The figures of `poise inspect`, starting with the graph itself."""
    graph = kept.graph
    drawn = [
        inspection_page.graph_figure(graph),
        inspection_page.misalignment_map(graph),
    ]
    shown = [plot_of([figure], [""]) for figure in drawn]
    shown.append(inspection_page.misalignment_plot({"pairs of clients": graph.edges}))
    return [*shown, plot_of([inspection_page.spectrum_figure(graph)], [""])]


def size_figure(sizes: Ints, titles: Sequence[str] = ()) -> Figure:
    """Samples per client, sorted by size; means over bins for many clients."""
    import plotly.graph_objects as go

    order = np.argsort(sizes, kind="stable")
    binned = bins(len(sizes), 200)
    note = ""
    if binned.width > 1:
        note = f"Means over bins of {binned.width} clients; {len(sizes):,} clients in total."
    figure = empty_figure("Samples of the clients", note, "clients, by size", "samples")
    names = []
    for first, end in pairwise(binned.edges.tolist()):
        name = f"{end - first} clients"
        if end - first == 1:
            name = client_title(int(order[first]), titles)
        names.append(name)
    axis = whole_numbers(len(sizes))
    if any(titles) and binned.width == 1:
        axis = client_axis(names, clients=len(sizes))
    if "tickvals" in axis:
        axis["tickvals"] = [place + 1 for place in axis["tickvals"]]
    figure.update_xaxes(axis)
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
    """The most typical clients, the least typical clients, and the outliers."""
    order = kept.graph.typical()
    return {
        "most typical": order[:most].tolist(),
        "least typical": order[::-1][:most].tolist(),
        "outliers": kept.graph.outliers().tolist(),
    }
