"""One client of a run: data, contributions, sensitivity, audit result, figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.reports.bins import bins, evenly
from poise.analysis.reports.client_tables import measured_on
from poise.analysis.reports.figures import CLASSES, MOST_ROUNDS, line_mode
from poise.analysis.reports.graphs import KeptGraph
from poise.analysis.reports.plots import Plot, plot_of
from poise.analysis.reports.tables import finite
from poise.analysis.reports.unlearning_page import sensitivity_figure
from poise.analysis.reports.wording import sentence
from poise.apps.ui.library import NotInRun
from poise.apps.ui.models import (
    ContributionRow,
    Contributions,
    GraphPosition,
    Neighbour,
    Participation,
    Profile,
)
from poise.apps.ui.quarantine import owner
from poise.apps.ui.views.audit import MOST_CELLS
from poise.auditing.audit import Audit
from poise.core.client_names import client_title
from poise.core.errors import InvalidOption
from poise.core.types import Floats, Ints
from poise.graph.divergence import jensen_shannon, total_variation
from poise.results import Run
from poise.results.drawing import PALETTE, empty_figure, legend_name, whole_numbers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PER_PAGE = 50
"""Rows per page of a client's table of rounds."""

NEIGHBOURS = 5


def checked(run: Run, client: int | str) -> int:
    """The number of a client that is given by number or by name.

    Raises `NotInRun` if the run has no such client.
    """
    if isinstance(client, str) and not client.isdecimal():
        try:
            return run.client_number(client)
        except InvalidOption as error:
            raise NotInRun(error.message, error.hint) from error
    client = int(client)
    if not 0 <= client < run.clients:
        raise NotInRun(
            f"this run has no client {client}",
            f"choose a client from 0 to {run.clients - 1}",
        )
    return client


def title(run: Run, client: int) -> str:
    """The name of a client; ``client 3`` without a name."""
    return client_title(client, run.client_names)


def profile(run: Run, client: int) -> Profile:
    """The data of a client, if the ledger has a client table."""
    sizes = run.array("sizes")
    importance = run.array("importance")
    counts = run.array("label_counts")
    samples = None
    share = None
    if sizes is not None:
        samples = int(sizes[client])
        share = float(sizes[client] / sizes.sum())
    return Profile(
        client=client,
        name=title(run, client),
        clients=run.clients,
        owner=owner(client, run.array("members")),
        samples=samples,
        share=share,
        importance=None if importance is None else float(importance[client]),
        classes=None if counts is None else counts[client].tolist(),
        divergence=_divergence(counts, client),
        traits={name: float(values[client]) for name, values in run.traits.items()},
    )


def _divergence(counts: Ints | None, client: int) -> dict[str, float]:
    """Divergence of its class distribution from the overall one; empty if unknown."""
    if counts is None or not counts[client].sum():
        return {}
    # client and all others: the totals are those of all clients
    both = np.stack([counts[client], counts.sum(axis=0) - counts[client]])
    if not both[1].sum():
        return {"Jensen-Shannon": 0.0, "total variation": 0.0}
    return {
        "Jensen-Shannon": float(jensen_shannon(both)[0]),
        "total variation": float(total_variation(both)[0]),
    }


def graph_position(kept: KeptGraph, client: int) -> GraphPosition:
    """How typical a client is in the similarity graph, and its most similar clients."""
    graph = kept.graph
    others = np.arange(graph.clients) != client
    misalignment = np.where(others, graph.misalignment[client], np.inf)
    nearest = np.argsort(misalignment, kind="stable")[
        : min(NEIGHBOURS, graph.clients - 1)
    ]
    return GraphPosition(
        degree=float(graph.degree[client]),
        rank=int(np.flatnonzero(graph.typical() == client)[0]) + 1,
        clients=graph.clients,
        outlier=client in graph.outliers().tolist(),
        nearest=[
            Neighbour(client=j, misalignment=float(misalignment[j]))
            for j in nearest.tolist()
        ],
    )


@dataclass(frozen=True)
class ClientHistory:
    """A client's contributions to a run, as rows of `Run.contributions`, and events."""

    rows: np.ndarray
    rounds: int
    refused: list[tuple[int, str]]
    events: list[str]

    @property
    def facts(self) -> Participation:
        """Number of rounds, weight and staleness of the client."""
        rows = self.rows
        facts = Participation(
            rounds=len(np.unique(rows["round"])),
            of=self.rounds,
            first=None,
            last=None,
            mean_weight=0.0,
            weight_per_contribution=None,
            mean_staleness=None,
            largest_staleness=None,
            samples=int(rows["samples"].sum()),
            steps=int(rows["steps"].sum()),
            refused=len(self.refused),
        )
        if len(rows):
            staleness = rows["round"] - rows["version"]
            facts.first = int(rows["round"].min()) + 1
            facts.last = int(rows["round"].max()) + 1
            facts.mean_weight = float(rows["coefficient"].sum()) / self.rounds
            facts.weight_per_contribution = float(rows["coefficient"].mean())
            facts.mean_staleness = float(staleness.mean())
            facts.largest_staleness = int(staleness.max())
        return facts

    def page(self, number: int, size: int = PER_PAGE) -> Contributions:
        """A page of the table of its rounds, newest first; pages count from 1."""
        pages = max(1, -(-len(self.rows) // size))
        number = min(max(number, 1), pages)
        shown = self.rows[::-1][(number - 1) * size : number * size]
        return Contributions(
            page=number,
            pages=pages,
            total=len(self.rows),
            rows=[_row(r) for r in shown],
        )


def client_history(run: Run, client: int) -> ClientHistory:
    """The contributions, refused updates and audit events of a client."""
    c = run.contributions
    refused = []
    for n, refused_client, reason in run.refusals:
        if refused_client == client:
            refused.append((n + 1, reason))
    name = f"client {client} "
    events = [e for e in run.events if e.startswith("audit:") and name in f"{e} "]
    return ClientHistory(
        c[c["client"] == client], run.rounds, refused=refused, events=events
    )


def _row(r: np.void) -> ContributionRow:
    """One contribution; values that were not reported are None."""
    return ContributionRow(
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
    run: Run,
    client: int,
    history: ClientHistory,
    psi: Floats | None,
    limit: float,
    audit: Audit | None,
) -> list[Plot]:
    """The figures of a client.

    Args:
        run: the run.
        client: number of the client.
        history: its contributions.
        psi: its sensitivity after each aggregation, (R + 1,), or None if unknown.
        limit: the sensitivity limit Psi*.
        audit: the audit of the run, or None.
    """
    counts = run.array("label_counts")
    figures = []
    if counts is not None:
        figures.append(class_figure(counts, client, title(run, client)))
    if len(history.rows):
        figures.append(weight_figure(history))
        if _reported_losses(history):
            figures.append(loss_figure(history))
        figures.append(length_figure(history))
    figures += [
        metric_figure(name, run.metric(name)[:, client]) for name in measured(run)
    ]
    if psi is not None and len(psi) > 1:
        figures.append(_psi_figure(title(run, client), psi, limit))
    if audit is not None and len(audit.by_round):
        figures.append(suspicion_figure(audit, client))
    return [plot_of([figure], [""]) for figure in figures]


def _psi_figure(name: str, psi: Floats, limit: float) -> Figure:
    note = (
        f"Dashed line: limit Psi* = {limit:.4g}. Below it, poise can unlearn the client by adding "
        "noise."
    )
    figure = sensitivity_figure(
        f"Sensitivity Psi to {name}",
        note,
        psi=psi[:, None],
        limit=limit,
        colours={0: PALETTE[0]},
    )
    figure.data[0].hovertemplate = "%{y:.4g} after %{x}<extra></extra>"
    return figure


def class_figure(counts: Ints, client: int, name: str) -> Figure:
    """The class shares of a client next to those of all clients."""
    import plotly.graph_objects as go

    figure = empty_figure(
        "Classes",
        "Share of each class among the samples of this client, and of all clients.",
        "class",
        "share",
    )
    classes = [str(k) for k in range(counts.shape[1])]
    for label, colour, row in (
        (legend_name(name), PALETTE[0], counts[client]),
        ("all clients", CLASSES[-1], counts.sum(axis=0)),
    ):
        share = row / max(row.sum(), 1)
        figure.add_trace(
            go.Bar(
                x=classes,
                y=share,
                name=label,
                marker={"color": colour},
                customdata=row,
                hovertemplate="class %{x}: %{y:.1%} (%{customdata} "
                "samples)<extra>%{fullData.name}</extra>",
            )
        )
    return figure.update_xaxes(type="category", showgrid=False).update_layout(
        barmode="group"
    )


def weight_figure(history: ClientHistory) -> Figure:
    """The weight of the client, and its base weight from sampler and importance."""
    figure = _over_rounds(history, "Weight in each round with this client", "weight")
    _add(figure, history, column="coefficient", name="weight", colour=PALETTE[0])
    _add(
        figure, history, column="base", name="base weight", colour="#8a94a0", dash="dot"
    )
    return figure.update_yaxes(rangemode="tozero")


def loss_figure(history: ClientHistory) -> Figure:
    """The losses that the client reported before and after local training."""
    figure = _over_rounds(history, "Losses that the client reported", "loss")
    before = PALETTE[1]
    after = PALETTE[0]
    _add(
        figure,
        history,
        column="loss_before",
        name="before local training",
        colour=before,
    )
    return _add(
        figure, history, column="loss_after", name="after local training", colour=after
    )


def length_figure(history: ClientHistory) -> Figure:
    """The length of the client's updates."""
    figure = _over_rounds(history, "Length of its updates", "norm")
    _add(figure, history, column="norm", name="norm", colour=PALETTE[2])
    return figure.update_yaxes(rangemode="tozero")


def measured(run: Run) -> list[str]:
    """The metrics with one value per client; empty with too many values to read."""
    if not run.rounds or run.rounds * run.clients > MOST_CELLS:
        return []
    return [name for name in run.metrics if run.metric(name).ndim == 2]


def latest(run: Run, client: int) -> dict[str, float]:
    """The last known value of each metric of a client, by name in words."""
    found = {}
    for name in measured(run):
        values = run.metric(name)[:, client]
        known = values[np.isfinite(values)]
        if len(known):
            found[name.replace("_", " ")] = float(known[-1])
    return found


def measured_in_words(run: Run) -> dict[str, str]:
    """The model and the data of each metric per client, by name in words."""
    return {name.replace("_", " "): measured_on(name) for name in measured(run)}


def metric_figure(name: str, values: Floats) -> Figure:
    """A metric of the model on the client's data, in all rounds."""
    import plotly.graph_objects as go

    words = name.replace("_", " ")
    known = np.flatnonzero(np.isfinite(values))
    shown = known[evenly(len(known), MOST_ROUNDS)]
    figure = empty_figure(
        f"{sentence(words)} after each aggregation",
        "On its own data.",
        "aggregations",
        words,
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


def suspicion_figure(audit: Audit, client: int) -> Figure:
    """The audit score of a client over the rounds, and the threshold of suspicion."""
    import plotly.graph_objects as go

    limit = -np.log10(audit.alarm / len(audit.auditor.patterns))
    note = (
        "−log10 of the p-value, from all rounds so far. Dashed line: threshold at a false-alarm "
        f"rate of {audit.alarm:g}."
    )
    figure = empty_figure("Score of the audit", note, "aggregations", "score")
    score = audit.by_round[:, client]
    rounds = np.flatnonzero(np.isfinite(score))
    # of every bin: scores are cumulative
    last = bins(len(rounds), MOST_ROUNDS).edges[1:] - 1
    figure.add_trace(
        go.Scatter(
            x=rounds[last] + 1,
            y=score[rounds][last],
            mode="lines",
            showlegend=False,
            line={"color": PALETTE[1], "width": 2},
            hovertemplate="%{y:.2f} after %{x}<extra></extra>",
        )
    )
    return figure.add_hline(
        y=limit, line={"dash": "dash", "color": "#57606c"}
    ).update_yaxes(rangemode="tozero")


def _reported_losses(history: ClientHistory) -> bool:
    return bool(
        np.isfinite(history.rows["loss_before"]).any()
        or np.isfinite(history.rows["loss_after"]).any()
    )


def _over_rounds(history: ClientHistory, title: str, y: str) -> Figure:
    note = ""
    count = len(history.rows)
    if count > MOST_ROUNDS:
        width = bins(count, MOST_ROUNDS).width
        note = f"Means over bins of {width}; {count:,} contributions in total."
    figure = empty_figure(title, note, "aggregation", y)
    return figure.update_xaxes(whole_numbers(history.rounds))


def _add(
    figure: Figure,
    history: ClientHistory,
    column: str,
    name: str,
    colour: str,
    dash: str = "solid",
) -> Figure:
    """Add a column over the rounds; many contributions are averaged over bins."""
    import plotly.graph_objects as go

    edges = bins(len(history.rows), MOST_ROUNDS).edges
    x = _bin_means(history.rows["round"].astype(np.float64), edges)
    y = _bin_means(history.rows[column].astype(np.float64), edges)
    return figure.add_trace(
        go.Scatter(
            x=x + 1,
            y=y,
            name=name,
            mode=line_mode(len(x), few=60),
            marker={"size": 5},
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="aggregation %{x:d}: %{y:.4g}<extra>%{fullData.name}</extra>",
        )
    )


def _bin_means(values: Floats, edges: Ints) -> Floats:
    """The mean of the finite values in each bin."""
    known = np.isfinite(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), edges[:-1])
    counts = np.add.reduceat(known.astype(np.float64), edges[:-1])
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
