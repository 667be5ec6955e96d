"""The guarantees of a model: differential privacy, unlearned clients and certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from poise.config.experiment import parse
from poise.core.client_names import client_title
from poise.core.errors import PoiseError
from poise.core.traits import ServerTraits, traits_of
from poise.exports.markdown import bullets, code, table, text
from poise.exports.model_cards.subject import Subject
from poise.results import Run
from poise.training import parts_in
from poise.unlearning.certificate import read
from poise.unlearning.histories import CERTIFICATE, Histories
from poise.unlearning.privacy_accounting import privacy_spent

DELTA = 0.01
"""The delta of the privacy in a card, the default of `privacy_spent`."""

MOST_CLIENTS = 1_000
"""Clients whose privacy is computed for a card."""


def guarantee_section(subject: Subject) -> str:
    """Return privacy, declared budget and unlearning requests of a run."""
    parts = [privacy(subject), declared(subject.experiment), unlearning(subject)]
    return "\n\n".join(filter(None, parts))


def privacy(subject: Subject) -> str:
    """Return the differential privacy of the training, or that there is none."""
    none = "The training gives no differential privacy."
    run = subject.run
    try:
        server = parts_in(parse(run.experiment)).server
        if traits_of(server, ServerTraits).noise == 0:
            return none
        if run.clients > MOST_CLIENTS:
            return (
                "`poise.unlearning.privacy_spent` computes the privacy of each client."
            )
        spent = privacy_spent(run, range(run.clients), DELTA)
    except PoiseError as error:
        return f"The privacy of the training is unknown: {text(error.message)}."
    worst = max(spent, key=lambda client: spent[client])
    return (
        f"Differential privacy of the training: at δ = {DELTA}, the largest ε of a client "
        f"is {spent[worst]:.3g} ({text(subject.client_name(worst))})."
    )


def declared(experiment: Mapping[str, Any]) -> str:
    """Return the budget that the training declared for later requests; empty if none."""
    budget = experiment.get("unlearning")
    if not budget:
        return ""
    options = ", ".join(f"{key} = {value}" for key, value in budget.items())
    return f"Declared for unlearning requests: {text(options)}."


def unlearning(subject: Subject) -> str:
    """Return the unlearning requests of the run, and what the model still knows."""
    try:
        with histories_of(subject.run) as histories:
            certificates = list(_certificates(histories))
            forgotten = forgotten_after(subject.run, histories)
            names = histories.root.client_names
    except PoiseError as error:
        return f"The unlearning requests cannot be read: {text(error.message)}."
    if not certificates:
        return "No client asked to be unlearned."
    lines = []
    if forgotten:
        shown = ", ".join(text(client_title(i, names)) for i in forgotten)
        lines.append(
            f"**This model still contains clients that were unlearned later: {shown}.** "
            "Use the model of the newest request."
        )
    heading = ("request", "clients", "method", "guarantee", "digest of certificate")
    rows = [_row(certificate, names) for certificate in certificates]
    return "\n\n".join([*lines, table(heading, rows), _gaps(certificates)]).rstrip()


def forgotten_after(run: Run, histories: Histories) -> list[int]:
    """Return the clients that were unlearned after the model of a run was made."""
    own = 0
    for branch in histories.finished:
        folder = histories.branch_folder(branch.request.index)
        if branch.run is run or (folder is not None and folder == run.path):
            own = branch.request.index
    later = [b for b in histories.finished if b.request.index > own]
    return sorted({client for b in later for client in b.request.clients})


@contextmanager
def histories_of(run: Run) -> Iterator[Histories]:
    """Open the training and the branches of a run, and close them after the block."""
    histories = Histories.of(run)
    try:
        yield histories
    finally:
        opened = [histories.root, *(b.run for b in histories.branches)]
        for other in opened:
            if other is not None and other is not run and other.path is not None:
                other.close()


def _certificates(histories: Histories) -> Iterator[Mapping[str, Any]]:
    """Yield the certificates of the finished requests, in order."""
    for branch in histories.finished:
        folder = histories.branch_folder(branch.request.index)
        yield branch.certificate if folder is None else read(folder / CERTIFICATE)


def _row(certificate: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
    """Return the cells of a certificate; ``names`` are those of the training."""
    guarantee = certificate["guarantee"]
    promise = "none"
    if guarantee["promised"]:
        promise = f"ε = {guarantee['epsilon']:.3g}, δ = {guarantee['delta']:.3g}"
    clients = ", ".join(client_title(i, names) for i in certificate["clients"])
    return (
        str(certificate["request"]["index"]),
        text(clients),
        text(certificate["request"]["method"]),
        promise,
        code(certificate["digest"][:16]),
    )


def _gaps(certificates: Sequence[Mapping[str, Any]]) -> str:
    """Return what the certificates do not prove."""
    gaps = [
        f"request {certificate['request']['index']}: {gap}"
        for certificate in certificates
        for gap in certificate["grounds"]["not proved"]
    ]
    if not gaps:
        return "`poise verify CERTIFICATE` recomputes each certificate."
    return f"Not proved:\n\n{bullets(text(gap) for gap in gaps)}"
