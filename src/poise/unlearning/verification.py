"""`poise verify`: hold a certificate against the ledger and the models that it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.core.errors import LedgerError
from poise.ledger.models import content_hash
from poise.ledger.run import Run, open_run
from poise.training import parts_in, recorded
from poise.unlearning.certificate import certify, read
from poise.unlearning.histories import FOLDER, Histories
from poise.unlearning.methods import decide, grounds_for, least_noise, start_of
from poise.unlearning.noise import commitment
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import influence

TABLES = (
    "clients",
    "forgotten so far",
    "request",
    "guarantee",
    "restart",
    "history",
    "grounds",
    "noise",
    "result",
    "evidence",
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; ``problem`` is empty where it is as it should be."""

    what: str
    problem: str = ""


def verify(path: str | Path, training: str | Path | None = None) -> list[Check]:
    """Recompute everything in a certificate that the run folder allows; raises on the first byte
    that was altered.

    The measurements from which sensitivities are summed cannot be made again from the ledger, since
    updates are not kept; the chain of digests shows that they are those that were written while
    training.

    Args:
        path: ``certificate.json``, where it was written: in its branch's folder.
        training: the run folder of the training, where branches do not lie inside it.
    """
    file = Path(path)
    document = read(file)
    histories, request = _rebuilt(file, document, training)
    checks = [Check("the certificate is as it was written")]
    for what, problem in _examined(histories, request, document):
        if problem:
            raise LedgerError(f"{file}: {what}: {problem}", "this certificate does not hold")
        checks.append(Check(what))
    return checks


def _rebuilt(
    file: Path, document: dict[str, Any], training: str | Path | None
) -> tuple[Histories, Request]:
    """The histories as they were when the certificate was written."""
    branches = file.parent.parent
    if training is None and branches.name != FOLDER:
        raise LedgerError(f"{file} does not lie in a run's folder", "name the training: --run")
    root = open_run(branches.parent if training is None else training)
    histories = Histories.of(root, branches)
    index = document["request"]["index"]
    if index > len(histories.branches) or histories.branches[index - 1].run is None:
        raise LedgerError(f"{branches} has no branch {index}")
    histories.branches = histories.branches[:index]
    return histories, histories.branches[-1].request


def _examined(
    histories: Histories, request: Request, document: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Every check with what is wrong, empty where nothing is."""
    runs = [histories.run(s) for s in range(request.index + 1)]
    said = [document["evidence"]["training"], *document["evidence"]["branches"]]
    for s, (run, wanted) in enumerate(zip(runs, said, strict=True)):
        yield f"the ledger of {_name(s)} is whole", run.damage or _grown(run, wanted, s)
    yield from _recomputed(histories, request, document)
    yield from _restarted(histories, request)
    gone = set(histories.forgotten)
    back = sorted(gone & set(histories.members(request.index).tolist()))
    yield "the forgotten took no part in retraining", f"client {back[0]} did" if back else ""


def _name(branch: int) -> str:
    return "the training" if branch == 0 else f"branch {branch}"


def _grown(run: Run, wanted: dict[str, Any], branch: int) -> str:
    """A ledger may only have grown since."""
    if run.rounds < wanted["rounds"]:
        return f"it has {run.rounds} rounds, the certificate speaks of {wanted['rounds']}"
    if branch and run.rounds > wanted["rounds"]:
        return f"it went on after the certificate, to {run.rounds} rounds"
    return ""


def _recomputed(
    histories: Histories, request: Request, document: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """The certificate made again, table by table."""
    root, said = histories.root, document["evidence"]["training"]
    assert root.path is not None
    buffers = document["grounds"]["statistics outside the optimiser"]
    experiment = recorded(root.path)
    audit = experiment.table("run").get("audit")
    found = grounds_for(request.method, parts_in(experiment), buffers, request.budget, audit=audit)
    result = document["result"]
    again = certify(
        histories,
        request,
        grounds=found,
        score=result["score"],
        reached=result["target reached"],
        forgotten=result["on forgotten clients"],
    )
    if root.rounds > said["rounds"]:  # the training went on since: its first rounds are what counts
        grown = {k: said[k] for k in ("rounds", "experiment", "file")}
        then = {
            **again["evidence"]["training"],
            **grown,
            "digest": root.digest_after(said["rounds"]),
        }
        again = {**again, "evidence": {**again["evidence"], "training": then}}
    for table in TABLES:
        yield f"{table}: recomputed", _difference(document[table], again[table])


def _difference(left: Any, right: Any) -> str:
    """Where two tables differ first, in words."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            if key not in left or key not in right:
                return f"{key} is missing"
            if inside := _difference(left[key], right[key]):
                return (
                    f"{key}: {inside}" if isinstance(left[key], dict | list) else f"{key} {inside}"
                )
        return ""
    return "" if left == right else f"is {left}, recomputed {right}"


def _restarted(histories: Histories, request: Request) -> Iterator[tuple[str, str]]:
    """Whether retraining really started from the node's model with the noise committed to."""
    before = Histories(histories.root, histories.folder, histories.branches[:-1])
    branch, n = request.node
    if request.method in ("sifu", "scratch"):
        decision = decide(request.method, before, request.clients, request.budget)
        late = decision.ideal[0] != branch or decision.ideal[1] < n
        if request.method == "sifu":
            moved = influence(histories.psi(branch, request.budget), histories.forgotten)[n]
            late = late or bool(moved > request.budget.limit)
        yield (
            "the restart follows from the sensitivities",
            f"round {n} of branch {branch} is too late" if late else "",
        )
    least = least_noise(histories, request)
    said = (
        f"it is {request.sigma:g}, {least:g} is due" if request.sigma < least * (1 - 1e-12) else ""
    )
    yield "the noise is as large as the promise asks for", said
    made, seed = histories.run(request.index), int(histories.root.meta["seed"])
    model = torch.from_numpy(histories.run(branch).models(n))
    if request.noise == "secret" and request.sigma:
        start = torch.from_numpy(made.models(0))
        spread = float((start - model).double().std()) / request.sigma
        slack = 6 / np.sqrt(2 * len(model))  # six standard errors of a standard deviation
        yield (
            "the start is the restart model with noise of that size",
            "" if abs(spread - 1) < slack else f"{spread:g}",
        )
        return
    if request.sigma:
        bound = commitment(seed, request.index) == request.commitment
        yield "the noise is the one committed to", "" if bound else "another seed was committed to"
    assert histories.root.path is not None
    start = start_of(request, before, parts_in(recorded(histories.root.path)), seed)
    same = content_hash({"theta": start}) == made.meta["initial"]
    stored = request.method == "fed-accum"
    said = (
        "what the stored updates of the others give"
        if stored
        else "the restart model with that noise"
    )
    yield f"the start is {said}", "" if same else "it is not"


__all__ = ["Check", "verify"]
