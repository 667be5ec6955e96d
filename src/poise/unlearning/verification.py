"""`poise verify`: check a certificate against the ledger and the models that it rests on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from poise.core.curvature import Curvature
from poise.core.errors import IncompatibleParts, LedgerError
from poise.core.vectors import Vector
from poise.evidence.countersign import FILE as COUNTERSIGNATURES
from poise.evidence.countersign import NodeKey, node_keys, signed_contributions
from poise.evidence.keys import PublicKey, read_public_key
from poise.ledger.models import content_hash
from poise.ledger.redaction import ERASED
from poise.results import Run, open_run
from poise.training import never, parts_in, recorded
from poise.unlearning.certificate import canonical, certify, read
from poise.unlearning.checks import Check, difference
from poise.unlearning.conditions import conditions_of
from poise.unlearning.erasure_checks import erasure_checks
from poise.unlearning.exact import require_sums
from poise.unlearning.histories import FOLDER, Histories, owners_of
from poise.unlearning.methods import decide, grounds_for, required_noise, start_model
from poise.unlearning.noise import commitment
from poise.unlearning.proof import Grounds
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import influence
from poise.unlearning.retraining import (
    ACCURACY,
    HELD_OUT,
    LOSSES,
    SCORE_NAME,
    Goal,
    unlearned_score,
)
from poise.unlearning.shards import holds_shards
from poise.unlearning.signed import anchored_check, signature_checks, subjects_of
from poise.unlearning.unaltered import evidence_then

SCORES = (ACCURACY, HELD_OUT, *LOSSES)

TABLES = (
    "poise",
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

SIGNED_TABLES = ("client keys", "erasure")
"""Tables that format 3 added."""

NEW_KEYS = (
    "guarantee",
    "for",
    "compared with",
    "psi from",
    "checked",
    "disclosed",
    "public",
)
"""Keys that format 2 added to the tables ``request``, ``guarantee`` and ``grounds``."""

REWORDED = (
    *NEW_KEYS,
    "promised",
    "psi",
    "composed epsilon",
    "theorem",
    "assumed",
    "not proved",
)
"""Keys of these tables whose meaning or wording format 2 changed."""

FORMAT_1 = (
    "format 1: its evidence holds; its texts and sensitivities are not compared, and it "
    "did not check eta <= 1/L"
)


def verify(
    path: str | Path,
    training: str | Path | None = None,
    public_keys: Iterable[str | Path] = (),
    nodes: str | Path | None = None,
) -> list[Check]:
    """Recompute a certificate from the run folder; raise at the first difference.

    The ledger holds no updates, so the measurements that sensitivities sum up cannot be
    recomputed. The chain of digests shows that they are the ones that training wrote.

    Args:
        path: ``certificate.json`` in the folder of its branch.
        training: the folder of the training run, if the branches do not lie inside it.
        public_keys: files with the public keys that may have signed it; by default any
            key may have, and the last check names it.
        nodes: a folder with the public keys of the nodes (``node-3/node.pub`` or
            ``3.pub``), to check what they signed.
    """
    file = Path(path)
    trusted = [read_public_key(Path(key)) for key in public_keys]
    if holds_shards(file.parent.parent.parent):
        from poise.unlearning.shard_certificate import verify_shards

        return verify_shards(file, trusted)
    document = read(file)
    checks = [Check("the certificate is unaltered")]
    try:
        histories = _histories_at(file, document, training)
        request = histories.branches[-1].request
        for check in _all_checks(histories, request, document, file, trusted):
            if check.problem:
                raise LedgerError(
                    f"{file}: {check.label}: {check.problem}",
                    "this certificate does not hold",
                )
            checks.append(check)
        keys = None if nodes is None else node_keys(Path(nodes))
        for s in range(request.index + 1):
            checks += _countersignature_checks(histories.run(s), _name(s), keys)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise LedgerError(
            f"{file}: an entry is missing or of a wrong kind: {error}",
            "this certificate does not hold",
        ) from error
    return checks


def _histories_at(
    file: Path, document: dict[str, Any], training: str | Path | None
) -> Histories:
    """Return the histories as they were when the certificate was written."""
    branches = file.parent.parent
    if training is None and branches.name != FOLDER:
        raise LedgerError(
            f"{file} does not lie in a run's folder", "name the training run with --run"
        )
    root = open_run(branches.parent if training is None else training)
    histories = Histories.of(root, branches)
    index = document["request"]["index"]
    if type(index) is not int or file.parent.name != f"{index:03d}":
        raise LedgerError(
            f"{file} is about request {index}, but lies in the folder {file.parent.name}",
            "this certificate does not hold",
        )
    if index > len(histories.branches) or histories.branches[index - 1].run is None:
        raise LedgerError(
            f"{branches} has no branch {index}", "restore the folder of the branch"
        )
    histories.branches = histories.branches[:index]
    return histories


def _all_checks(
    histories: Histories,
    request: Request,
    document: dict[str, Any],
    file: Path,
    trusted: Sequence[PublicKey],
) -> Iterator[Check]:
    """Yield the checks of the content of a certificate, then those of its signature."""
    _require_not_erased(histories, document)
    yield from _checks(histories, request, document)
    yield from erasure_checks(histories, document)
    for s in range(request.index + 1):
        yield anchored_check(histories.run(s), _name(s))
    yield from signature_checks(
        file,
        document,
        signed=document["certificate"] > 2,
        subjects=subjects_of(histories, document),
        root=histories.root,
        trusted=trusted,
    )


def _countersignature_checks(
    run: Run, name: str, keys: Mapping[int, NodeKey] | None
) -> list[Check]:
    """Check that nodes signed every contribution of a deployed run; raises if not."""
    assert run.path is not None
    if keys is None and not (run.path / COUNTERSIGNATURES).exists():
        return []
    signed = signed_contributions(run.path, keys)
    owners = owners_of(run)
    for c in run.contributions:
        work = (int(owners[c["client"]]), int(c["version"]), int(c["occurrence"]))
        if work not in signed:
            raise LedgerError(
                f"{run.path}: the node of client {work[0]} did not sign its work on "
                f"version {work[1]}",
                "this certificate does not hold",
            )
    label = f"the nodes signed all {len(run.contributions)} contributions to {name}"
    if keys is None:
        label += "; their keys were not checked: name their folder with --nodes"
    return [Check(label)]


def _require_not_erased(histories: Histories, document: dict[str, Any]) -> None:
    """Raise where a later request erased what a certificate rests on."""
    erased = int(histories.root.meta.get(ERASED, "0"))
    index = document["request"]["index"]
    if index < erased:
        raise LedgerError(
            f"request {erased} erased the evidence of the certificate of request {index}",
            f"verify the certificate of request {erased}, which covers its clients",
        )
    if index == erased and document.get("erasure") is None:
        raise LedgerError(
            f"the erasure of request {index} is not finished",
            "repeat the request with --erase",
        )


def _name(branch: int) -> str:
    return "the training" if branch == 0 else f"branch {branch}"


def _checks(
    histories: Histories, request: Request, document: dict[str, Any]
) -> Iterator[Check]:
    """Yield every check of a certificate."""
    evidence = document["evidence"]
    recorded_runs = [evidence["training"], *evidence["branches"]]
    for s, then in enumerate(recorded_runs):
        run = histories.run(s)
        name = _name(s)
        problem = run.damage or _growth_problem(run, then, branch=s)
        yield Check(f"the ledger of {name} is whole", problem)
        now = evidence_then(run, then, document["certificate"])
        yield Check(f"the evidence of {name} is unaltered", difference(then, now))
    yield from _recomputed_tables(histories, request, document)
    before = Histories(histories.root, histories.folder, histories.branches[:-1])
    if request.method in ("sifu", "scratch", "shards"):
        yield _restart_check(histories, before, request)
    if request.method == "exact":
        yield _sums_check(histories)
    yield _noise_check(histories, request)
    yield from _start_checks(histories, before, request)
    members = set(histories.members(request.index).tolist())
    present = sorted(set(histories.unlearned) & members)
    problem = f"client {present[0]} did" if present else ""
    yield Check("the unlearned clients took no part in retraining", problem)


def _growth_problem(run: Run, then: dict[str, Any], *, branch: int) -> str:
    """Return what is wrong with the number of rounds; a training may have grown since."""
    if run.rounds < then["rounds"]:
        return f"it has {run.rounds} rounds, the certificate names {then['rounds']}"
    if branch and run.rounds > then["rounds"]:
        return f"it went on after the certificate, to {run.rounds} rounds"
    return ""


def _recomputed_tables(
    histories: Histories, request: Request, document: dict[str, Any]
) -> Iterator[Check]:
    """Make the certificate again, and compare it table by table."""
    root = histories.root
    evidence = document["evidence"]
    earlier = [evidence["training"], *evidence["branches"][:-1]]
    lengths = [(histories.run(s), now["rounds"]) for s, now in enumerate(earlier)]
    in_ledger = Curvature.recorded(root.meta)
    if in_ledger is not None and in_ledger != request.curvature:
        yield Check("L is the one that training recorded", "request.json has another")
    grounds = grounds_again(histories, request, lengths)
    branch = histories.run(request.index)
    score = document["result"]["score"]
    metrics = [*branch.metrics, branch.meta.get(SCORE_NAME)]
    known = score in SCORES and score in metrics
    yield Check("the score is a metric of the branch", "" if known else f"{score!r}")
    again = made_again(histories, request, document=document, grounds=grounds)
    tables: tuple[str, ...] = TABLES
    if document["certificate"] > 2:
        tables = (*TABLES, *SIGNED_TABLES)
    for table in tables:
        written = document[table]
        recomputed = again[table]
        if document["certificate"] == 1 and table in (
            "request",
            "guarantee",
            "grounds",
        ):
            new = [key for key in NEW_KEYS if key in written and key != "compared with"]
            problem = f"format 1 has no entry {new[0]!r}" if new else ""
            yield Check(f"{table}: in format 1", problem)
            written = _without(written, REWORDED)
            recomputed = _without(recomputed, REWORDED)
        yield Check(f"{table}: recomputed", difference(written, recomputed))
    unknown = sorted({*document} - {*again})
    yield Check("there are no other entries", ", ".join(unknown))
    if document["certificate"] == 1:
        yield Check(FORMAT_1)


def grounds_again(
    histories: Histories, request: Request, lengths: Sequence[tuple[Run, int]]
) -> Grounds:
    """Return the grounds of a fulfilled request from what the ledgers recorded.

    ``lengths`` has the training and the branches before the request, with their rounds.
    """
    root = histories.root
    assert root.path is not None
    experiment = recorded(root.path)
    parts = parts_in(experiment)
    curvature = Curvature.recorded(root.meta) or request.curvature
    return grounds_for(
        request.method,
        parts,
        root.trainable < len(root.models(0)),
        budget=request.budget,
        conditions=conditions_of(lengths, parts, curvature),
        audit=experiment.table("run").get("audit"),
        start=experiment.table("run").get("start"),
    )


def made_again(
    histories: Histories,
    request: Request,
    *,
    document: dict[str, Any],
    grounds: Grounds,
) -> dict[str, Any]:
    """Make a certificate again, with the evidence for the rounds that it names."""
    format = document["certificate"]
    result = document["result"]
    branch = histories.run(request.index)
    measured = unlearned_score(branch)
    if format == 1:  # did not record it in the ledger
        measured = result["on forgotten clients"]
    again = certify(
        histories,
        request,
        grounds=grounds,
        score=result["score"],
        reached=_reached(request, branch, score=result["score"]),
        unlearned_score=measured,
        erasure=document.get("erasure"),
        format=format,
    )
    then = document["evidence"]["training"]
    again["evidence"]["training"] = evidence_then(histories.root, then, format)
    plain: dict[str, Any] = json.loads(canonical(again))
    return plain


def _reached(request: Request, branch: Run, *, score: str) -> bool:
    """Return whether a branch reached the target of its request."""
    goal = Goal(request.options, score, never)
    goal.follow(branch)
    return goal.met


def _without(table: dict[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def _restart_check(histories: Histories, before: Histories, request: Request) -> Check:
    """Check that the sensitivities allow the restart node."""
    branch, n = request.node
    decision = decide(request.method, before, request.units, request.budget)
    late = decision.ideal[0] != branch or decision.ideal[1] < n
    if request.method == "sifu":
        units = histories.units
        psi = histories.unit_psi(branch, request.budget, units)
        moved = influence(psi, range(len(units)))[n]
        late = late or bool(moved > request.budget.limit)
    problem = f"round {n} of branch {branch} is too late" if late else ""
    return Check("the restart follows from the sensitivities", problem)


def _sums_check(histories: Histories) -> Check:
    """Check that the training is one round of sums, which exact removal needs."""
    label = "the training is one round of sums with all clients"
    assert histories.root.path is not None
    try:
        require_sums(histories.root, parts_in(recorded(histories.root.path)))
    except IncompatibleParts as error:
        return Check(label, error.message)
    return Check(label)


def _noise_check(histories: Histories, request: Request) -> Check:
    """Check that the noise is large enough for the guarantee."""
    least = required_noise(histories, request)
    problem = ""
    if request.sigma < least * (1 - 1e-12):
        problem = f"it is {request.sigma:g}, the guarantee needs {least:g}"
    return Check("the noise is as large as the guarantee needs", problem)


def _start_checks(
    histories: Histories, before: Histories, request: Request
) -> Iterator[Check]:
    """Check that retraining started from the node's model, with the noise committed to."""
    retrained = histories.run(request.index)
    branch, n = request.node
    model = torch.from_numpy(histories.run(branch).models(n))
    if request.noise == "secret" and request.sigma:
        start = torch.from_numpy(retrained.models(0))
        yield _secret_noise_check(start, model, sigma=request.sigma)
        return
    seed = int(histories.root.meta["seed"])
    if request.sigma:
        same_seed = commitment(seed, request.index) == request.commitment
        problem = "" if same_seed else "the commitment names another seed"
        yield Check("the noise is the one committed to", problem)
    assert histories.root.path is not None
    parts = parts_in(recorded(histories.root.path))
    start = start_model(request, before, parts=parts, seed=seed)
    same_start = content_hash({"theta": start}) == retrained.meta["initial"]
    expected = "the restart model with that noise"
    if request.method in ("fed-accum", "exact"):
        expected = "the model from the stored updates of the others"
    yield Check(f"the start is {expected}", "" if same_start else "it is another model")


def _secret_noise_check(start: Vector, model: Vector, *, sigma: float) -> Check:
    """Check the size of noise whose seed is unknown, by its standard deviation."""
    spread = float((start - model).double().std()) / sigma
    slack = 6 / np.sqrt(2 * len(model))  # six standard errors of a standard deviation
    fits = abs(spread - 1) < slack
    problem = "" if fits else f"its noise is {spread:g} times as large"
    return Check("the start is the restart model with noise of that size", problem)


__all__ = ["Check", "verify"]
