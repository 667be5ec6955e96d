"""What is known against a model: bias, suspected free-riders, refused updates, attacks."""

from __future__ import annotations

from collections import Counter

from poise.analysis.reports.bounds_vs_run import kept_explanation
from poise.auditing.audit import audit
from poise.auditing.probe import SKETCH
from poise.core.errors import PoiseError
from poise.exports.markdown import bullets, table, text
from poise.exports.model_cards.subject import Subject

MOST_CLIENTS = 2_000
"""A run with more clients is not audited for a card: it would take minutes."""

MOST_REASONS = 20
"""Reasons of refusals in a card."""

NOT_EXPLAINED = (
    "The ledger has no explanation. `poise explain RUN --keep` computes whether the "
    "choices are biased, and which objective they minimise."
)


def bias_section(subject: Subject) -> str:
    """Return the kept explanation: the objective, warnings and advice."""
    path = subject.run.path
    if path is None:
        return "The run was in memory; `poise.explain` tells whether its choices are biased."
    try:
        kept = kept_explanation(path)
    except PoiseError as error:
        return f"The explanation cannot be read: {text(error.message)}."
    if kept is None:
        return NOT_EXPLAINED
    warnings = bullets(text(warning) for warning in kept.warnings) or "No warnings."
    rows = [(text(name), text(value)) for name, value in kept.rows]
    return f"{warnings}\n\n{table(('explanation', 'value'), rows)}"


def audit_section(subject: Subject) -> str:
    """Return the clients that the audit suspects, and its limits."""
    run = subject.run
    if not run.rounds or SKETCH not in run.measurements:
        return "The ledger has no measurements for an audit."
    if run.clients > MOST_CLIENTS:
        return f"Not audited: {run.clients:,} clients. Run `poise audit` on the run."
    found = audit(run)
    lead = (
        f"{len(found.suspects)} of {run.clients:,} clients are suspected of free-riding, "
        f"at a false-alarm rate of {100 * found.alarm:g} % per client. The audit looks "
        "for clients that do no work, not for poisoned data."
    )
    lines = []
    for i in found.suspects:
        evidence = found.explain(i).partition(": ")[2] or found.explain(i)
        lines.append(
            f"{text(subject.client_name(i))}: p = {found.p_values[i]:.2g}; "
            f"{text(evidence)}"
        )
    events = [text(event) for event in run.events if event.startswith("audit:")]
    return "\n\n".join(filter(None, [lead, bullets([*lines, *events])]))


def refused_section(subject: Subject) -> str:
    """Return the updates that the server refused, by client and reason."""
    counts: Counter[tuple[int, str]] = Counter()
    for n, client, reason in subject.run.refusals:
        if n < subject.n:
            counts[client, reason] += 1
    if not counts:
        return "The server refused no update."
    rows = [
        (text(subject.client_name(client)), str(count), text(reason))
        for (client, reason), count in counts.most_common(MOST_REASONS)
    ]
    lead = f"The server refused {sum(counts.values()):,} updates."
    if len(counts) > MOST_REASONS:
        lead += f" The {MOST_REASONS} most frequent reasons:"
    return f"{lead}\n\n{table(('client', 'updates', 'reason'), rows)}"


def attack_section(subject: Subject) -> str:
    """Return the attacks that the experiment simulated; empty if there were none."""
    attacks = subject.experiment.get("attacks", [])
    if not attacks:
        return ""
    lines = []
    for attack in attacks:
        options = ", ".join(f"{k} = {v}" for k, v in attack.items() if k != "name")
        lines.append(text(f"{attack.get('name', '?')}: {options}"))
    lead = (
        "The experiment simulated dishonest clients, whose updates are in this model:"
    )
    return f"{lead}\n\n{bullets(lines)}"
