"""The page of an inspection: how different the clients of a federation are."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports import sections
from poise.analysis.reports.bins import Bins, bins
from poise.analysis.reports.figures import HEAT, PALETTE, empty_figure
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import Plot, plot_of
from poise.core.types import Floats, Ints
from poise.graph import SimilarityGraph

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure

MOST_EDGES = 400
MOST_CELLS = 200
"""Rows and columns of the map of misalignments."""
BINS = 60


def write_inspection(
    name: str, data: dict[str, Any], graph: SimilarityGraph, label_counts: Ints | None, path: Path
) -> Path:
    """Write the page; ``data`` is what the inspection found, as `Inspection.as_data` gives it."""
    drawn = [misalignment_map(graph), spectrum_figure(graph), graph_figure(graph)]
    if label_counts is not None:
        drawn.append(composition_figure(label_counts))
    shown = [plot_of([figure], [""]) for figure in drawn]
    shown.insert(1, misalignment_plot({"pairs of clients": graph.edges}))
    title = f"Inspection of {name}"
    facts = "".join(
        f'<tr><th scope="row">{sections.text(key)}</th><td>{sections.text(value)}</td></tr>'
        for key, value in data.items()
        if not isinstance(value, list | dict)
        or key in ("outliers", "most typical", "least typical", "size")
    )
    head = f"<header>\n<h1>{sections.text(title)}</h1>\n</header>\n<section><table>{facts}</table></section>\n"
    body = head + sections.figures(shown)
    return write_whole_page(path, document(title, body, True))


def misalignment_map(graph: SimilarityGraph, most: int = MOST_CELLS) -> Figure:
    """mis(i, j) as a heat map; clients that resemble each other stand together.

    More than ``most`` clients are put into bins of that order, which hold the mean over their
    pairs.
    """
    import plotly.graph_objects as go

    order = np.argsort(graph.clusters(min(8, graph.clients)), kind="stable")
    binned = bins(graph.clients, most)
    names = [
        str(some[0]) if len(some) == 1 else f"{some[0]} …"
        for some in np.split(order, binned.edges[1:-1])
    ]
    note = "Clients in the order of eight clusters; 0 is the same direction, 1 the opposite one."
    if binned.width > 1:
        note += f" {graph.clients:,} clients in bins of {binned.width}, each named by its first."
    figure = empty_figure("Misalignment of the clients", note, "client", "client")
    figure.add_trace(
        go.Heatmap(
            z=_block_means(graph.misalignment[np.ix_(order, order)], binned).astype(np.float32),
            x=names,
            y=names,
            colorscale=HEAT,
            zmin=0,
            colorbar={"title": {"text": "misalignment"}, "thickness": 12, "outlinewidth": 0},
            hovertemplate="clients %{x} and %{y}: %{z:.4f}<extra></extra>",
        )
    )
    return figure.update_xaxes(type="category").update_yaxes(type="category", autorange="reversed")


def _block_means(table: Floats, binned: Bins) -> Floats:
    """The mean of a table (N, N) over blocks of rows and columns, (K, K)."""
    starts = binned.edges[:-1]
    sums = np.add.reduceat(np.add.reduceat(table, starts, axis=0), starts, axis=1)
    return np.asarray(sums / np.outer(binned.sizes, binned.sizes))


def misalignment_plot(
    edges: Mapping[str, Floats], title: str = "Distribution of the misalignment"
) -> Plot:
    """`misalignment_distribution`, as it is and in logarithms."""
    views = [misalignment_distribution(edges, title, logarithm) for logarithm in (False, True)]
    return plot_of(views, ["misalignment", "-ln misalignment"])


def misalignment_distribution(
    edges: Mapping[str, Floats], title: str, logarithm: bool = False
) -> Figure:
    """How misaligned pairs of clients are, and the log-normal law that fits them: C Figure 3.3.

    Args:
        edges: ``-ln mis`` of the pairs of clients of each federation, by name
            (`SimilarityGraph.edges`).
        title: of the figure.
        logarithm: show ``-ln mis``, of which the law is normal.
    """
    import plotly.graph_objects as go

    note = (
        "Bars: density over the pairs of clients. Line: log-normal, -ln mis ~ N(theta, phi^2), "
        "fitted to them."
    )
    figure = empty_figure(
        title, note, f"{'-ln ' if logarithm else ''}misalignment of two clients", "density"
    )
    shown = {name: weights if logarithm else np.exp(-weights) for name, weights in edges.items()}
    top = max(1e-6, *(float(values.max()) for values in shown.values()))
    grid = np.linspace(0, top, 400) if logarithm else np.geomspace(top * 1e-4, top, 400)
    for k, (name, weights) in enumerate(edges.items()):
        figure.add_trace(_bars(name, shown[name], top, k))
        theta, phi = float(weights.mean()), float(weights.std())
        if phi > 1e-9:  # else all pairs are equally misaligned: there is no density
            mis = np.exp(-grid) if logarithm else grid
            density = log_normal_density(mis, theta, phi) * (
                mis if logarithm else 1.0
            )  # times |d mis / d ln mis|
            law = go.Scatter(
                x=grid,
                y=density,
                mode="lines",
                name=f"theta = {theta:.3g}, phi = {phi:.3g}",
                legendgroup=escape(name),
                line={"color": PALETTE[k % len(PALETTE)], "width": 2},
                hoverinfo="skip",
            )
            figure.add_trace(law)
    return figure.update_layout(barmode="overlay", bargap=0)


def _bars(name: str, values: Floats, top: float, k: int) -> Bar:
    """The density of some values in bins from 0 to ``top``, in the k-th colour."""
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
    """Density of mis where ``-ln mis ~ N(theta, phi^2)``; what it has above 1 no misalignment can
    have.

    >>> round(float(log_normal_density(np.array(1.0), 0.0, 1.0)), 4)
    0.3989
    """
    z = (np.log(mis) + theta) / phi
    return np.asarray(np.exp(-(z**2) / 2) / (mis * phi * np.sqrt(2 * np.pi)))


def spectra_figure(spectra: Mapping[str, Floats], title: str) -> Figure:
    """How the eigenvalues of several federations are spread: C Figure 3.4.

    Args:
        spectra: the eigenvalues of each Laplacian without the first, which is 0, by name.
        title: of the figure.
    """
    note = (
        "Density of the eigenvalues that are not 0: the further left, the less alike the clients."
    )
    figure = empty_figure(title, note, "eigenvalue of the Laplacian", "density")
    top = max(1e-6, *(float(values.max()) for values in spectra.values()))
    for k, (name, values) in enumerate(spectra.items()):
        figure.add_trace(_bars(name, values, top, k))
    return figure.update_layout(barmode="overlay", bargap=0)


def spectrum_figure(graph: SimilarityGraph) -> Figure:
    """The eigenvalues of the Laplacian that are not 0."""
    import plotly.graph_objects as go

    note = (
        f"Their mean is 2 N times the homogeneity, {graph.homogeneity:.4f}: the further left, "
        "the less alike."
    )
    figure = empty_figure(
        "Spectrum of the similarity graph", note, "eigenvalue of the Laplacian", "eigenvalues"
    )
    return figure.add_trace(
        go.Histogram(x=graph.spectrum[1:], nbinsx=40, marker={"color": "#0072B2"}, showlegend=False)
    )


def graph_figure(graph: SimilarityGraph) -> Figure:
    """Clients in the plane, the strongest edges between them; the darker, the more typical."""
    import plotly.graph_objects as go

    places = layout(graph)
    upper = np.triu_indices(graph.clients, 1)
    weights = graph.nearest(min(3, graph.clients - 1))[upper]
    strongest = np.argsort(-weights)[:MOST_EDGES]
    joined = [(upper[0][e], upper[1][e]) for e in strongest if weights[e] > 0]
    figure = empty_figure(
        "Similarity graph",
        "Edges to the three most similar clients; darker is more typical.",
        "",
        "",
    )
    xs = [v for i, j in joined for v in (places[i, 0], places[j, 0], None)]
    ys = [v for i, j in joined for v in (places[i, 1], places[j, 1], None)]
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
            x=places[:, 0],
            y=places[:, 1],
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
    """A place in the plane for every client, (N, 2): the two main directions of the messages around
    their mean.
    """
    centred = graph.messages - graph.messages.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((graph.clients, 2))
    places[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
    return places


def composition_figure(counts: Ints) -> Figure:
    """Which classes each client owns, as shares."""
    import plotly.graph_objects as go

    shares = counts / counts.sum(axis=1, keepdims=True)
    figure = empty_figure(
        "Classes of the clients", "Share of each class among a client's samples.", "client", "class"
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
    """What an inspection found, in words; ``data`` as `Inspection.as_data` gives it."""
    size, values = data["size"], data["spectrum"]
    found = [
        ("clients", f"{data['clients']:,} with {data['samples']:,} samples"),
        (
            "samples per client",
            f"{size['smallest']:,} to {size['largest']:,}, median {size['median']:g}",
        ),
    ]
    if data["classes"] is not None:
        found.append(
            ("classes per client", f"{data['classes per client']:.1f} of {len(data['classes'])}")
        )
    for name, one in data["divergence"].items():
        found.append(
            (f"{name} from all", f"mean {one['mean']:.3f}, largest {one['largest']:.3f} (0 … 1)")
        )
    found += [
        ("homogeneity", f"{data['homogeneity']:.4f} (higher: more alike)"),
        ("-ln misalignment", f"mean {data['theta']:.3f}, standard deviation {data['phi']:.3f}"),
        ("spectrum", f"{values[1]:.3g} to {values[-1]:.3g}"),
        ("most typical clients", ", ".join(map(str, data["most typical"]))),
        ("least typical clients", ", ".join(map(str, data["least typical"]))),
        ("outliers", ", ".join(map(str, data["outliers"])) or "none"),
    ]
    return found
