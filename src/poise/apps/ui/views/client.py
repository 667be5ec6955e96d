"""One client of a run: what it holds, what it did in every round, how far it moved the model, what
the audit says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports.bins import bins, evenly
from poise.analysis.reports.figures import CLASSES, MOST_ROUNDS, PALETTE, empty_figure
from poise.analysis.reports.graphs import KeptGraph
from poise.analysis.reports.plots import Plot, plot_of
from poise.analysis.reports.tables import finite
from poise.analysis.reports.unlearning_page import sensitivity_figure
from poise.analysis.reports.wording import sentence
from poise.apps.ui.library import NotThere
from poise.apps.ui.models import (
    Contribution,
    Contributions,
    Neighbour,
    Participation,
    Place,
    Profile,
)
from poise.apps.ui.views.audit import MOST_CELLS
from poise.auditing.audit import Audit
from poise.core.types import Floats, Ints
from poise.graph.divergence import jensen_shannon, total_variation
from poise.ledger.run import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PER_PAGE = 50
"""Rounds of a client's table that are shown at once."""

NEIGHBOURS = 5


def checked(run: Run, client: int) -> int:
    """A client's number; refused where the run has none of it."""
    if not 0 <= client < run.clients:
        raise NotThere(
            f"there is no client {client} in this run", f"clients are 0 to {run.clients - 1}"
        )
    return client


def profile(run: Run, client: int) -> Profile:
    """What a client holds, as far as the ledger has a table of the clients."""
    sizes, importance, members = run.array("sizes"), run.array("importance"), run.array("members")
    counts = run.array("label_counts")
    return Profile(
        client=client,
        clients=run.clients,
        owner=client if members is None else int(members[client]),
        samples=None if sizes is None else int(sizes[client]),
        share=None if sizes is None else float(sizes[client] / sizes.sum()),
        importance=None if importance is None else float(importance[client]),
        classes=None if counts is None else counts[client].tolist(),
        divergence=_divergence(counts, client),
        traits={name: float(values[client]) for name, values in run.traits.items()},
    )


def _divergence(counts: Ints | None, client: int) -> dict[str, float]:
    """How far its class composition is from that of all; empty where it holds nothing, or nothing
    is known.
    """
    if counts is None or not counts[client].sum():
        return {}
    both = np.stack(
        [counts[client], counts.sum(axis=0) - counts[client]]
    )  # the totals are those of all clients
    if not both[1].sum():
        return {"Jensen-Shannon": 0.0, "total variation": 0.0}
    return {
        "Jensen-Shannon": float(jensen_shannon(both)[0]),
        "total variation": float(total_variation(both)[0]),
    }


def place(kept: KeptGraph, client: int) -> Place:
    """Where a client stands in the similarity graph: how typical it is, and whom it resembles
    most.
    """
    graph = kept.graph
    apart = np.where(np.arange(graph.clients) == client, np.inf, graph.misalignment[client])
    nearest = np.argsort(apart, kind="stable")[: min(NEIGHBOURS, graph.clients - 1)].tolist()
    return Place(
        degree=float(graph.degree[client]),
        rank=int(np.flatnonzero(graph.typical() == client)[0]) + 1,
        clients=graph.clients,
        outlier=client in graph.outliers().tolist(),
        nearest=[Neighbour(client=j, misalignment=float(apart[j])) for j in nearest],
    )


@dataclass(frozen=True)
class Part:
    """A client's part in a run, from its contributions (the rows of `Run.contributions` that are
    its own).
    """

    rows: np.ndarray
    rounds: int
    refused: list[tuple[int, str]]
    events: list[str]

    @property
    def facts(self) -> Participation:
        """How often it took part, from how old a model, and how much it weighed."""
        r, some = self.rows, len(self.rows) > 0
        stale = r["round"] - r["version"]
        return Participation(
            rounds=len(np.unique(r["round"])),
            of=self.rounds,
            first=int(r["round"].min()) + 1 if some else None,
            last=int(r["round"].max()) + 1 if some else None,
            mean_weight=float(r["coefficient"].mean()) if some else None,
            mean_staleness=float(stale.mean()) if some else None,
            largest_staleness=int(stale.max()) if some else None,
            samples=int(r["samples"].sum()),
            steps=int(r["steps"].sum()),
            refused=len(self.refused),
        )

    def page(self, number: int, size: int = PER_PAGE) -> Contributions:
        """A page of the table of its rounds, the newest first; pages are counted from 1."""
        pages = max(1, -(-len(self.rows) // size))
        number = min(max(number, 1), pages)
        shown = self.rows[::-1][(number - 1) * size : number * size]
        return Contributions(
            page=number, pages=pages, total=len(self.rows), rows=[_row(r) for r in shown]
        )


def part(run: Run, client: int) -> Part:
    """What a client did in a run."""
    c = run.contributions
    refused = [(n + 1, reason) for n, who, reason in run.refusals if who == client]
    said = f"client {client} "
    events = [e for e in run.events if e.startswith("audit:") and said in f"{e} "]
    return Part(c[c["client"] == client], run.rounds, refused, events)


def _row(r: np.void) -> Contribution:
    """One contribution; what was not reported is None."""
    return Contribution(
        aggregation=int(r["round"]) + 1,
        version=int(r["version"]),
        staleness=int(r["round"] - r["version"]),
        base=float(r["base"]),
        weight=float(r["coefficient"]),
        norm=finite(float(r["norm"])),
        samples=int(r["samples"]),
        steps=int(r["steps"]),
        loss_before=finite(float(r["loss_before"])),
        loss_after=finite(float(r["loss_after"])),
    )


def plots(
    run: Run, client: int, own: Part, psi: Floats | None, limit: float, found: Audit | None
) -> list[Plot]:
    """The figures of a client; ``psi`` is its sensitivity after each aggregation, (R + 1,), where
    it can be counted.
    """
    counts = run.array("label_counts")
    drawn = [] if counts is None else [class_figure(counts, client)]
    if len(own.rows):
        drawn += [
            weight_figure(own),
            *([loss_figure(own)] if _reported(own) else []),
            length_figure(own),
        ]
    drawn += [metric_figure(name, run.metric(name)[:, client]) for name in measured(run)]
    if psi is not None and len(psi) > 1:
        note = (
            f"Psi* = {limit:.4g} (dashed): up to there a request to forget it can be honoured "
            "with noise."
        )
        column = psi[:, None]
        drawn.append(
            sensitivity_figure(
                f"Sensitivity Psi to client {client}", note, column, limit, {0: PALETTE[0]}
            )
        )
        drawn[-1].data[0].hovertemplate = "%{y:.4g} after %{x}<extra></extra>"
    if found is not None and len(found.by_round):
        drawn.append(suspicion_figure(found, client))
    return [plot_of([figure], [""]) for figure in drawn]


def class_figure(counts: Ints, client: int) -> Figure:
    """The classes of a client's samples beside those of all, as shares."""
    import plotly.graph_objects as go

    figure = empty_figure(
        "Classes",
        "Share of each class among its samples, and among those of all.",
        "class",
        "share",
    )
    classes = [str(k) for k in range(counts.shape[1])]
    for name, colour, row in (
        (f"client {client}", PALETTE[0], counts[client]),
        ("all clients", CLASSES[-1], counts.sum(axis=0)),
    ):
        share = row / max(row.sum(), 1)
        figure.add_trace(
            go.Bar(
                x=classes,
                y=share,
                name=name,
                marker={"color": colour},
                customdata=row,
                hovertemplate="class %{x}: %{y:.1%} (%{customdata} "
                "samples)<extra>%{fullData.name}</extra>",
            )
        )
    return figure.update_xaxes(type="category", showgrid=False).update_layout(barmode="group")


def weight_figure(own: Part) -> Figure:
    """The weight it had, and the base weight that the sampler and importance gave it."""
    figure = _over_rounds(own, "Weight in each round it took part in", "weight")
    _add(figure, own, "coefficient", name="weight", colour=PALETTE[0])
    _add(figure, own, "base", name="base weight", colour="#8a94a0", dash="dot")
    return figure.update_yaxes(rangemode="tozero")


def loss_figure(own: Part) -> Figure:
    """The losses that it reported, before and after its local work."""
    figure = _over_rounds(own, "Losses that it reported", "loss")
    _add(figure, own, "loss_before", "before its work", PALETTE[1])
    return _add(figure, own, "loss_after", "after its work", PALETTE[0])


def length_figure(own: Part) -> Figure:
    """The length of its updates."""
    figure = _over_rounds(own, "Length of its updates", "norm")
    return _add(figure, own, "norm", "norm", PALETTE[2]).update_yaxes(rangemode="tozero")


def measured(run: Run) -> list[str]:
    """The metrics that have a value for every client; none where there are too many values to read
    them for one.
    """
    if not run.rounds or run.rounds * run.clients > MOST_CELLS:
        return []
    return [name for name in run.metrics if run.metric(name).ndim == 2]


def metric_figure(name: str, values: Floats) -> Figure:
    """A metric of the model on a client's own data, whether it took part or not."""
    import plotly.graph_objects as go

    words = name.replace("_", " ")
    known = np.flatnonzero(np.isfinite(values))
    shown = known[evenly(len(known), MOST_ROUNDS)]
    figure = empty_figure(
        f"{sentence(words)} after each aggregation", "On its own data.", "aggregations", words
    )
    return figure.add_trace(
        go.Scatter(
            x=shown + 1,
            y=values[shown],
            mode="lines",
            showlegend=False,
            line={"color": PALETTE[3], "width": 2},
            hovertemplate="%{y:.4g} after %{x}<extra></extra>",
        )
    )


def suspicion_figure(found: Audit, client: int) -> Figure:
    """How the audit's score of a client rose, and the score from which it is suspected."""
    import plotly.graph_objects as go

    limit = -np.log10(found.alarm / len(found.auditor.patterns))
    note = (
        "-log10 of the p-value, from all rounds so far; above the dashed line it is suspected "
        f"(alarm {found.alarm:g})."
    )
    figure = empty_figure("Score of the audit", note, "aggregations", "score")
    score = found.by_round[:, client]
    rounds = np.flatnonzero(np.isfinite(score))
    some = (
        bins(len(rounds), MOST_ROUNDS).edges[1:] - 1
    )  # the last of every bin: scores are sums over all before
    figure.add_trace(
        go.Scatter(
            x=rounds[some] + 1,
            y=score[rounds][some],
            mode="lines",
            showlegend=False,
            line={"color": PALETTE[1], "width": 2},
            hovertemplate="%{y:.2f} after %{x}<extra></extra>",
        )
    )
    return figure.add_hline(y=limit, line={"dash": "dash", "color": "#57606c"}).update_yaxes(
        rangemode="tozero"
    )


def _reported(own: Part) -> bool:
    return bool(
        np.isfinite(own.rows["loss_before"]).any() or np.isfinite(own.rows["loss_after"]).any()
    )


def _over_rounds(own: Part, title: str, y: str) -> Figure:
    many = len(own.rows) > MOST_ROUNDS
    note = (
        (
            f"{len(own.rows):,} contributions in bins of {bins(len(own.rows), MOST_ROUNDS).width}, "
            "averaged."
        )
        if many
        else ""
    )
    return empty_figure(title, note, "aggregation", y)


def _add(
    figure: Figure, own: Part, column: str, name: str, colour: str, dash: str = "solid"
) -> Figure:
    """A column over the rounds; very many contributions are averaged over bins of neighbours."""
    import plotly.graph_objects as go

    binned = bins(len(own.rows), MOST_ROUNDS)
    x, y = (_means(own.rows[c].astype(np.float64), binned.edges) for c in ("round", column))
    few = len(x) <= 60
    return figure.add_trace(
        go.Scatter(
            x=x + 1,
            y=y,
            name=name,
            mode="lines+markers" if few else "lines",
            marker={"size": 5},
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="aggregation %{x:d}: %{y:.4g}<extra>%{fullData.name}</extra>",
        )
    )


def _means(values: Floats, edges: Ints) -> Floats:
    """The mean over each bin, of what is known there."""
    known = np.isfinite(values)
    sums, counts = (
        np.add.reduceat(v, edges[:-1])
        for v in (np.where(known, values, 0.0), known.astype(np.float64))
    )
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
