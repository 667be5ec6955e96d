"""The page of an inspection: how different the data of the clients are."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.bins import Bins, bins
from poise.analysis.reports.figures import HEAT
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import Plot, plot_of
from poise.core.types import Floats, Ints
from poise.graph import SimilarityGraph
from poise.results.drawing import PALETTE, empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure

MOST_EDGES = 400
MOST_CELLS = 200
"""Maximum rows and columns of the misalignment map."""
BINS = 60
LISTED = ("outliers", "most typical", "least typical", "size")
"""Findings that the page shows although they are lists or tables."""


def write_inspection(
    name: str,
    data: dict[str, Any],
    graph: SimilarityGraph,
    label_counts: Ints | None,
    path: Path,
) -> Path:
    """Write the page of an inspection; ``data`` comes from `Inspection.as_data`."""
    drawn = [misalignment_map(graph), spectrum_figure(graph), graph_figure(graph)]
    if label_counts is not None:
        drawn.append(composition_figure(label_counts))
    shown = [plot_of([figure], [""]) for figure in drawn]
    shown.insert(1, misalignment_plot({"pairs of clients": graph.edges}))
    title = f"Inspection of {name}"
    facts = ""
    for key, value in data.items():
        if not isinstance(value, list | dict) or key in LISTED:
            heading = f'<th scope="row">{sections.text(key)}</th>'
            facts += f"<tr>{heading}<td>{sections.text(value)}</td></tr>"
    head = f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n"
    body = f"{head}<section><table>{facts}</table></section>\n{sections.figures(shown)}"
    return write_whole_page(path, document(title, body, drawn=True))


def misalignment_map(graph: SimilarityGraph, most: int = MOST_CELLS) -> Figure:
    """mis(i, j) as a heat map, with similar clients next to each other.

    More than ``most`` clients are binned; a cell is then the mean over the pairs of two
    bins.
    """
    import plotly.graph_objects as go

    order = np.argsort(graph.clusters(min(8, graph.clients)), kind="stable")
    binned = bins(graph.clients, most)
    names = []
    for members in np.split(order, binned.edges[1:-1]):
        name = str(members[0])
        if len(members) > 1:
            name += " …"
        names.append(name)
    note = (
        "Misalignment 0: same direction; 1: opposite direction. "
        "Clients are sorted into eight clusters."
    )
    if binned.width > 1:
        note += (
            f" Bins of {binned.width} of {graph.clients:,} clients, named after "
            "their first."
        )
    figure = empty_figure("Misalignment of the clients", note, "client", "client")
    figure.add_trace(
        go.Heatmap(
            z=_block_means(graph.misalignment[np.ix_(order, order)], binned).astype(
                np.float32
            ),
            x=names,
            y=names,
            colorscale=HEAT,
            zmin=0,
            colorbar={
                "title": {"text": "misalignment"},
                "thickness": 12,
                "outlinewidth": 0,
            },
            hovertemplate="clients %{x} and %{y}: %{z:.4f}<extra></extra>",
        )
    )
    return figure.update_xaxes(type="category").update_yaxes(
        type="category", autorange="reversed"
    )


def _block_means(table: Floats, binned: Bins) -> Floats:
    """The mean of a table (N, N) over blocks of rows and columns, (K, K)."""
    starts = binned.edges[:-1]
    sums = np.add.reduceat(np.add.reduceat(table, starts, axis=0), starts, axis=1)
    return np.asarray(sums / np.outer(binned.sizes, binned.sizes))


def misalignment_plot(
    edges: Mapping[str, Floats], title: str = "Distribution of the misalignment"
) -> Plot:
    """`misalignment_distribution` with a linear and a logarithmic view."""
    views = [
        misalignment_distribution(edges, title, logarithm)
        for logarithm in (False, True)
    ]
    return plot_of(views, ["misalignment", "-ln misalignment"])


def misalignment_distribution(
    edges: Mapping[str, Floats], title: str, logarithm: bool = False
) -> Figure:
    """Distribution of the misalignment of client pairs, with a log-normal fit.

    Source: [Buttaci 2024, Fig. 3.3].

    Args:
        edges: ``-ln mis`` of the client pairs of each federation, by name
            (`SimilarityGraph.edges`).
        title: title of the figure.
        logarithm: show ``-ln mis``, whose fit is a normal distribution.
    """
    import plotly.graph_objects as go

    note = (
        "Bars: density over all pairs of clients. Line: log-normal fit, -ln mis ~ "
        "N(theta, phi^2)."
    )
    x = "misalignment of two clients"
    shown = {name: np.exp(-weights) for name, weights in edges.items()}
    if logarithm:
        x = f"-ln {x}"
        shown = dict(edges)
    figure = empty_figure(title, note, x, "density")
    top = max(1e-6, *(float(values.max()) for values in shown.values()))
    if logarithm:
        grid = np.linspace(0, top, 400)
        mis = np.exp(-grid)
    else:
        grid = np.geomspace(top * 1e-4, top, 400)
        mis = grid
    for k, (name, weights) in enumerate(edges.items()):
        figure.add_trace(_bars(name, shown[name], top, k))
        theta = float(weights.mean())
        phi = float(weights.std())
        if phi > 1e-9:  # equal misalignment of all pairs has no density
            density = log_normal_density(mis, theta, phi)
            if logarithm:
                density = density * mis  # times |d mis / d ln mis|
            fit = go.Scatter(
                x=grid,
                y=density,
                mode="lines",
                name=f"theta = {theta:.3g}, phi = {phi:.3g}",
                legendgroup=escape(name),
                line={"color": PALETTE[k % len(PALETTE)], "width": 2},
                hoverinfo="skip",
            )
            figure.add_trace(fit)
    return figure.update_layout(barmode="overlay", bargap=0)


def _bars(name: str, values: Floats, top: float, k: int) -> Bar:
    """The density of values in bins from 0 to ``top``, in the k-th colour."""
    import plotly.graph_objects as go

    heights, borders = np.histogram(values, BINS, (0, top), density=True)
    return go.Bar(
        x=(borders[1:] + borders[:-1]) / 2,
        y=heights,
        width=top / BINS,
        name=escape(name),
        legendgroup=escape(name),
        marker={"color": PALETTE[k % len(PALETTE)], "line": {"width": 0}},
        opacity=0.45,
        hovertemplate="about %{x:.4g}: density %{y:.4g}<extra>%{fullData.name}</extra>",
    )


def log_normal_density(mis: Floats, theta: float, phi: float) -> Floats:
    """Density of mis where ``-ln mis ~ N(theta, phi^2)``; meaningless above 1.

    >>> round(float(log_normal_density(np.array(1.0), 0.0, 1.0)), 4)
    0.3989
    """
    z = (np.log(mis) + theta) / phi
    return np.asarray(np.exp(-(z**2) / 2) / (mis * phi * np.sqrt(2 * np.pi)))


def spectra_figure(spectra: Mapping[str, Floats], title: str) -> Figure:
    """Distribution of the eigenvalues of several federations: [Buttaci 2024, Fig. 3.4].

    Args:
        spectra: the non-zero eigenvalues of each Laplacian, by name.
        title: title of the figure.
    """
    note = "Density of the non-zero eigenvalues. Further left: clients differ more."
    figure = empty_figure(title, note, "eigenvalue of the Laplacian", "density")
    top = max(1e-6, *(float(values.max()) for values in spectra.values()))
    for k, (name, values) in enumerate(spectra.items()):
        figure.add_trace(_bars(name, values, top, k))
    return figure.update_layout(barmode="overlay", bargap=0)


def spectrum_figure(graph: SimilarityGraph) -> Figure:
    """The non-zero eigenvalues of the Laplacian."""
    import plotly.graph_objects as go

    note = (
        f"The mean is 2 N times the homogeneity, {graph.homogeneity:.4f}. "
        "Further left: clients differ more."
    )
    figure = empty_figure(
        "Spectrum of the similarity graph",
        note,
        "eigenvalue of the Laplacian",
        "eigenvalues",
    )
    return figure.add_trace(
        go.Histogram(
            x=graph.spectrum[1:],
            nbinsx=40,
            marker={"color": "#0072B2"},
            showlegend=False,
        )
    )


def graph_figure(graph: SimilarityGraph) -> Figure:
    """Clients in the plane with their strongest edges; darker means more typical."""
    import plotly.graph_objects as go

    positions = layout(graph)
    upper = np.triu_indices(graph.clients, 1)
    weights = graph.nearest(min(3, graph.clients - 1))[upper]
    strongest = np.argsort(-weights)[:MOST_EDGES]
    joined = [(upper[0][e], upper[1][e]) for e in strongest if weights[e] > 0]
    figure = empty_figure(
        "Similarity graph",
        (
            "Edges connect each client with its three most similar clients. Darker: more "
            "typical."
        ),
        "",
        "",
    )
    xs: list[float | None] = []
    ys: list[float | None] = []
    for i, j in joined:  # None separates the edges
        xs += [positions[i, 0], positions[j, 0], None]
        ys += [positions[i, 1], positions[j, 1], None]
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode="lines",
            line={"color": "#c9ced6", "width": 1},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=positions[:, 0],
            y=positions[:, 1],
            mode="markers",
            showlegend=False,
            text=[f"client {i}: degree {d:.3g}" for i, d in enumerate(graph.degree)],
            customdata=np.arange(graph.clients),
            marker={"size": 10, "color": graph.degree, "colorscale": HEAT},
            hovertemplate="%{text}<extra></extra>",
        )
    )
    return figure.update_xaxes(visible=False).update_yaxes(visible=False)


def layout(graph: SimilarityGraph) -> Floats:
    """Positions of the clients, (N, 2): the first two principal components."""
    centred = graph.messages - graph.messages.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    positions = np.zeros((graph.clients, 2))
    positions[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
    return positions


def composition_figure(counts: Ints) -> Figure:
    """The share of each class in the data of each client."""
    import plotly.graph_objects as go

    shares = counts / counts.sum(axis=1, keepdims=True)
    figure = empty_figure(
        "Classes of the clients",
        "Share of each class among a client's samples.",
        "client",
        "class",
    )
    return figure.add_trace(
        go.Heatmap(
            z=shares.T.astype(np.float32),
            colorscale=HEAT,
            zmin=0,
            zmax=1,
            colorbar={"thickness": 12},
            hovertemplate="client %{x}, class %{y}: %{z:.3f}<extra></extra>",
        )
    )


def findings(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The findings of an inspection as (name, value), from `Inspection.as_data`."""
    size = data["size"]
    spectrum = data["spectrum"]
    rows = [
        ("clients", f"{data['clients']:,} with {data['samples']:,} samples"),
        (
            "samples per client",
            f"{size['smallest']:,} to {size['largest']:,}, median {size['median']:g}",
        ),
    ]
    if data.get("assumed"):
        rows.append(("partition", data["assumed"]))
    if data["classes"] is not None:
        rows.append(
            (
                "classes per client",
                f"{data['classes per client']:.1f} of {len(data['classes'])}",
            )
        )
    for name, divergence in data["divergence"].items():
        text = (
            f"mean {divergence['mean']:.3f}, largest {divergence['largest']:.3f} "
            "(0 … 1)"
        )
        rows.append((f"{name} from all", text))
    rows += [
        ("homogeneity", f"{data['homogeneity']:.4f} (higher: clients are more alike)"),
        (
            "-ln misalignment",
            f"mean {data['theta']:.3f}, standard deviation {data['phi']:.3f}",
        ),
        (
            "spectrum",
            f"{spectrum[1]:.3g} to {spectrum[-1]:.3g} (lower: clients differ more)",
        ),
        ("most typical clients", ", ".join(map(str, data["most typical"]))),
        ("least typical clients", ", ".join(map(str, data["least typical"]))),
        ("outliers", ", ".join(map(str, data["outliers"])) or "none"),
    ]
    return rows
