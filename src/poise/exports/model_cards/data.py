"""The data of a model card: sizes and classes by client, and no samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from poise.analysis.reports.numbers import number
from poise.analysis.reports.wording import phrase
from poise.core.types import Floats, Ints
from poise.exports.markdown import code, table, text
from poise.exports.model_cards.subject import Subject

MOST_ROWS = 100
"""Clients in the table; a larger federation is only summarised."""

MOST_CLASSES = 3
"""Classes of a client that the table names, the most frequent first."""


def data_section(subject: Subject, source: str = "") -> str:
    """Return what the ledger says about the clients' data; ``source`` cites works."""
    lines = [text(phrase(subject.experiment.get("data", {}))) + "."]
    if "data" not in subject.experiment:
        lines = [
            "The data were given in Python; the ledger has no description of them."
        ]
    if source:
        lines.append(source)
    lines += _summary(subject)
    rows = client_table(subject)
    if rows:
        lines += ["", rows]
    return "\n".join(lines)


def _summary(subject: Subject) -> list[str]:
    """Return the number of clients, their sizes and their classes as sentences."""
    run = subject.run
    sizes = run.array("sizes")
    if sizes is None:
        return [f"{run.clients:,} clients; the ledger does not list their sizes."]
    lines = [
        f"{run.clients:,} clients with {int(sizes.sum()):,} training samples in all: "
        f"between {int(sizes.min()):,} and {int(sizes.max()):,} per client, median "
        f"{number(float(np.median(sizes)))}."
    ]
    counts = run.array("label_counts")
    if counts is not None:
        held = (counts > 0).sum(axis=1)
        lines.append(
            f"{counts.shape[1]} classes; a client has between {held.min()} and "
            f"{held.max()} of them."
        )
        lines += ["", class_table(subject, counts)]
    return lines


def class_table(subject: Subject, counts: Ints) -> str:
    """Return the samples and the clients of each class."""
    rows = []
    for k, (samples, clients) in enumerate(
        zip(counts.sum(axis=0), (counts > 0).sum(axis=0), strict=True)
    ):
        rows.append((class_name(subject, k), f"{samples:,}", f"{clients:,}"))
    return table(("class", "samples", "clients that have it"), rows)


def class_name(subject: Subject, k: int) -> str:
    """Return the name of a class as Markdown, or its number."""
    if k < len(subject.class_names):
        return text(subject.class_names[k])
    return str(k)


def client_table(subject: Subject) -> str:
    """Return a row per client: size, classes, share of the weight, metrics; or nothing."""
    run = subject.run
    sizes = run.array("sizes")
    wanted = subject.options.list_clients and run.clients <= MOST_ROWS
    if sizes is None or not wanted:
        return ""
    columns = dict(_columns(subject, sizes))
    rows = [
        (text(subject.client_name(i)), *(cells[i] for cells in columns.values()))
        for i in range(run.clients)
    ]
    return table(("client", *columns), rows)


def _columns(subject: Subject, sizes: Ints) -> Iterator[tuple[str, list[str]]]:
    """Yield title and cells of each column about clients."""
    run = subject.run
    yield "samples", [f"{size:,}" for size in sizes]
    counts = run.array("label_counts")
    if counts is not None:
        yield "most frequent classes", [_classes(subject, row) for row in counts]
    for name, values in run.traits.items():
        yield text(name), [number(float(value)) for value in values]
    rounds = np.bincount(run.contributions["client"], minlength=run.clients)
    yield "updates", [f"{count:,}" for count in rounds]
    yield "share of the weight", [f"{100 * share:.1f} %" for share in _shares(subject)]
    for metric in subject.client_metrics:
        yield code(metric), [_cell(value) for value in subject.client_scores(metric)]


def _shares(subject: Subject) -> Floats:
    """Return the share of each client in all coefficients, (N,)."""
    contributions = subject.run.contributions
    totals = np.bincount(
        contributions["client"],
        weights=contributions["coefficient"],
        minlength=subject.run.clients,
    )
    total = totals.sum()
    if total:
        return np.asarray(totals / total)
    return np.asarray(totals, dtype=np.float64)


def _classes(subject: Subject, counts: Ints) -> str:
    """Return the most frequent classes of a client, with their numbers of samples."""
    order = np.argsort(-counts, kind="stable")
    present = [k for k in order if counts[k]]
    shown = [
        f"{class_name(subject, k)} ({counts[k]:,})" for k in present[:MOST_CLASSES]
    ]
    if len(present) > MOST_CLASSES:
        shown.append("…")
    return ", ".join(shown)


def _cell(value: float) -> str:
    if np.isnan(value):
        return "—"
    return number(value)
