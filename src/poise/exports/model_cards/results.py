"""The results of a model card: scores with intervals over seeds, and their spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.analysis.reports.numbers import number, score_text
from poise.analysis.reports.rows import ScoreRow, score_note, score_table
from poise.exports.markdown import bullets, code, table, text
from poise.exports.model_cards.subject import Subject


def results_section(subject: Subject) -> str:
    """Return the scores of the model and of all seeds, and those of the clients."""
    if not subject.group.metrics:
        return "The run measured no metric."
    (row,) = score_table([subject.group])
    parts = [_lead(subject), _scores(subject, row), _spread(subject), _course(row)]
    return "\n\n".join(filter(None, parts))


def _lead(subject: Subject) -> str:
    """Return how to read the numbers."""
    seeds = len(subject.group.runs)
    if seeds == 1:
        return "One seed: the numbers have no interval."
    return (
        f"All seeds: mean over {seeds} seeds ± half the width of the 95 % confidence "
        "interval (Student). This model is one of them."
    )


def _scores(subject: Subject, row: ScoreRow) -> str:
    """Return a table with the metrics of the model, beside those of all seeds."""
    rows = []
    several = len(subject.group.runs) > 1
    for metric in subject.scalar_metrics:
        cells = [code(metric), number(subject.score(metric))]
        if several:
            cells.append(score_text(row.scores[f"final {metric}"]))
        rows.append(cells)
    if not rows:
        return ""
    heading = ["metric", f"this model (seed {text(subject.seed)}, round {subject.n})"]
    if several:
        heading.append("all seeds, at the end")
    return table(heading, rows)


def _spread(subject: Subject) -> str:
    """Return least, median and largest value of the metrics per client."""
    rows = []
    for metric in subject.client_metrics:
        values = subject.client_scores(metric)
        known = np.flatnonzero(~np.isnan(values))
        if not len(known):
            continue
        worst = _worst(subject, metric)
        quantiles = np.quantile(values[known], [0.0, 0.5, 1.0])
        cells = [number(float(value)) for value in quantiles]
        rows.append((code(metric), *cells, text(subject.client_name(worst))))
    if not rows:
        return ""
    heading = ("metric per client", "least", "median", "largest", "worst for")
    notes = _meanings(subject.client_metrics)
    return "\n\n".join(filter(None, [table(heading, rows), bullets(notes)]))


MEASURED_ON = {
    "client_test_": "each client's own test data",
    "client_local_": "each client's own test data, its model after its local work",
    "client_": "each client's training data",
}
"""What metrics per client are measured on, by prefix; the longest prefixes first."""


def _meanings(metrics: Sequence[str]) -> list[str]:
    """Return what the data of each metric per client are."""
    found: dict[str, list[str]] = {}
    for metric in metrics:
        data = next((MEASURED_ON[p] for p in MEASURED_ON if metric.startswith(p)), "")
        found.setdefault(data, []).append(code(metric))
    return [f"{', '.join(names)}: on {data}." for data, names in found.items() if data]


def worst_client(subject: Subject) -> str:
    """Return the client for which the model is worst, with its value; or nothing."""
    known = [
        metric
        for metric in sorted(subject.client_metrics, key=_least_telling)
        if not np.isnan(subject.client_scores(metric)).all()
    ]
    if not known:
        return ""
    metric = known[0]
    values = subject.client_scores(metric)
    worst = _worst(subject, metric)
    return (
        f"The model is worst for {text(subject.client_name(worst))}: {code(metric)} "
        f"{number(float(values[worst]))}, against a median of "
        f"{number(float(np.nanmedian(values)))} over the clients."
    )


def _least_telling(metric: str) -> tuple[bool, bool, bool]:
    """Sort key: test data before training data, the common model, then accuracy."""
    return (
        not metric.startswith("client_test_"),
        metric.startswith("client_local_"),
        not metric.endswith("accuracy"),
    )


def _worst(subject: Subject, metric: str) -> int:
    """Return the client with the worst value of a metric that some client has."""
    values = subject.client_scores(metric)
    if subject.run.directions.lower_is_better(metric):
        return int(np.nanargmax(values))
    return int(np.nanargmin(values))


def _course(row: ScoreRow) -> str:
    """Return the other scores of the training: speed, smoothness and cost."""
    names = [name for name in row.scores if not name.startswith("final ")]
    rows: Sequence[tuple[str, str]] = [
        (text(name), score_text(row.scores[name])) for name in names
    ]
    notes = [f"{text(n)}: {text(score_note(n))}" for n in names if score_note(n)]
    return f"{table(('of the training', 'value'), rows)}\n\n{bullets(notes)}"
