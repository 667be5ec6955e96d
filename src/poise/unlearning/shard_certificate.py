"""Certificates of ensembles: which shards a request retrained, and which it left as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from poise._version import __version__
from poise.core.errors import LedgerError
from poise.evidence.envelope import Subject
from poise.evidence.keys import PublicKey
from poise.ledger.foreign import parse_json, read_bytes
from poise.results import Run
from poise.unlearning import request as requests
from poise.unlearning.certificate import canonical, digest_of, read
from poise.unlearning.checks import Check, difference
from poise.unlearning.histories import CERTIFICATE, Branch, Histories
from poise.unlearning.shards import (
    FILE,
    ShardEnsemble,
    open_shards,
    request_folder,
    touched,
)
from poise.unlearning.signed import issue, signature_checks
from poise.unlearning.verification import verify

FORMAT = 2
READABLE = (1, FORMAT)
KEY = "certificate of shards"


def certify_shards(ensemble: ShardEnsemble, index: int) -> dict[str, Any]:
    """Write the certificate of a request, which finishes it."""
    document = certificate_of(ensemble, index)
    issue(
        document,
        request_folder(ensemble.path, index),
        subjects=_subjects(document),
        anchor=None,
    )
    return document


def _subjects(document: dict[str, Any]) -> tuple[Subject, ...]:
    """Return the models of the shards that predict after a request."""
    shards = [*document["retrained"], *document["untouched"]]
    return tuple((f"model of shard {s['shard']}", str(s["model"])) for s in shards)


def certificate_of(
    ensemble: ShardEnsemble, index: int, format: int = FORMAT
) -> dict[str, Any]:
    """Make the certificate of a request from the folders of the shards."""
    request = requests.load(request_folder(ensemble.path, index))
    earlier = [requests.load(request_folder(ensemble.path, r)) for r in range(1, index)]
    gone = sorted({c for r in (*earlier, request) for c in r.clients})
    held = touched(ensemble, request.clients)
    retrained, left_out, untouched = [], [], []
    for k, members in enumerate(ensemble.members):
        histories = _histories_then(ensemble, k, gone)
        if not set(members) - set(gone):
            left_out.append({"shard": k, "clients": list(members)})
        elif k in held:
            retrained.append(_retrained(histories, k, [members[i] for i in held[k]]))
        else:
            untouched.append(_untouched(histories, k))
    document: dict[str, Any] = {
        KEY: format,
        "poise": __version__,
        "clients": list(request.clients),
        "forgotten so far": gone,
        "request": {"index": index, "method": request.method},
        "guarantee": {"promised": True, "epsilon": 0.0, "delta": 0.0},
        "grounds": {
            "theorem": "a model depends on the clients of its own shard only [Bourtoule 2021]",
            "assumed": [
                "who is in which shard does not depend on the clients' data",
                "the certificates of the retrained shards hold, with what they assume",
                (
                    "the folders of the shards still hold the trainings of the forgotten "
                    "clients; removal from the models does not delete them"
                ),
            ],
            "not proved": [],
        },
        "retrained": retrained,
        "left out": left_out,
        "untouched": untouched,
        "result": {
            "rounds": sum(shard["rounds"] for shard in retrained),
            "client rounds": sum(shard["client rounds"] for shard in retrained),
            "local steps": sum(shard["local steps"] for shard in retrained),
            "target reached": all(shard["target reached"] for shard in retrained),
        },
        "evidence": {
            FILE: _hash(ensemble.path / FILE),
            requests.FILE: _hash(request_folder(ensemble.path, index) / requests.FILE),
        },
    }
    return {**document, "digest": digest_of(document)}


def _histories_then(ensemble: ShardEnsemble, shard: int, gone: list[int]) -> Histories:
    """Return the histories of a shard as they were when these clients had been unlearned."""
    histories = ensemble.histories(shard)
    members = ensemble.members[shard]
    then: list[Branch] = []
    for branch in histories.finished:
        if not {members[i] for i in branch.request.clients} <= set(gone):
            break
        then.append(branch)
    histories.branches = then
    return histories


def _retrained(histories: Histories, shard: int, clients: list[int]) -> dict[str, Any]:
    """Return what a certificate says of a retrained shard."""
    folder = histories.branch_folder(histories.newest)
    assert folder is not None
    branch = histories.run(histories.newest)
    document = read(folder / CERTIFICATE)
    return {
        "shard": shard,
        "clients": clients,
        "branch": histories.newest,
        "certificate": document["digest"],
        "rounds": branch.rounds,
        "client rounds": len(branch.contributions),
        "local steps": int(branch.contributions["steps"].sum()),
        "target reached": document["result"]["target reached"],
        "model": branch.model_hash(branch.rounds),
    }


def _untouched(histories: Histories, shard: int) -> dict[str, Any]:
    """Return what a certificate says of a shard that the request leaves as it is."""
    run: Run = histories.run(histories.newest)
    return {
        "shard": shard,
        "branch": histories.newest,
        "rounds": run.rounds,
        "digest": run.digest,
        "model": run.model_hash(run.rounds),
    }


def _hash(file: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(file)).hexdigest()
    except OSError as error:
        raise LedgerError(
            f"cannot read {file}: {error.strerror}", "restore the file from a backup"
        ) from error


# verification -----------------------------------------------------------------------------


def verify_shards(file: Path, trusted: Sequence[PublicKey] = ()) -> list[Check]:
    """Recompute the certificate of an ensemble, and verify the certificate of every shard."""
    document = _read(file)
    ensemble = open_shards(file.parent.parent.parent)
    checks = [Check("the certificate is unaltered")]
    try:
        checks += _held(ensemble, document, file, trusted)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise LedgerError(
            f"{file}: an entry is missing or of a wrong kind: {error}",
            "this certificate does not hold",
        ) from error
    return checks


def _held(
    ensemble: ShardEnsemble,
    document: dict[str, Any],
    file: Path,
    trusted: Sequence[PublicKey],
) -> list[Check]:
    """Return the checks of a certificate; raise for the first that fails."""
    checks = []
    for check in (
        *_checks(ensemble, document),
        *signature_checks(
            file,
            document,
            signed=document[KEY] > 1,
            subjects=_subjects(document),
            root=None,
            trusted=trusted,
        ),
    ):
        if check.problem:
            raise LedgerError(
                f"{file}: {check.label}: {check.problem}",
                "this certificate does not hold",
            )
        checks.append(check)
    return checks


def _checks(ensemble: ShardEnsemble, document: dict[str, Any]) -> Iterator[Check]:
    """Yield every check of a certificate."""
    again = certificate_of(ensemble, document["request"]["index"], document[KEY])
    # the version that wrote the certificate is not in a ledger; the signature covers it
    again["poise"] = str(document["poise"])
    again["digest"] = digest_of(document)
    for table in sorted({*document, *again}):
        if table not in document or table not in again:
            yield Check(f"{table}: recomputed", "a missing or an unknown entry")
        else:
            problem = difference(document[table], again[table])
            yield Check(f"{table}: recomputed", problem)
    for shard in document["retrained"]:
        k = shard["shard"]
        folder = ensemble.histories(k).branch_folder(shard["branch"])
        assert folder is not None
        for check in verify(folder / CERTIFICATE):
            yield Check(f"shard {k}: {check.label}", check.problem)
        yield _repetition_check(ensemble, shard)
    for shard in document["untouched"]:
        yield _untouched_check(ensemble, shard)
    yield _members_check(ensemble, document)


def _repetition_check(ensemble: ShardEnsemble, shard: dict[str, Any]) -> Check:
    """Check that a shard was retrained as it had been trained."""
    histories = ensemble.histories(shard["shard"])
    branch = histories.run(shard["branch"])
    root = histories.root
    same = (branch.rounds, branch.meta["seed"]) == (root.rounds, root.meta["seed"])
    label = f"shard {shard['shard']}: retrained with the rounds and the seed of its training"
    return Check(label, "" if same else "it has other rounds or another seed")


def _untouched_check(ensemble: ShardEnsemble, shard: dict[str, Any]) -> Check:
    """Check that the ledger and the model of an untouched shard are whole."""
    k = shard["shard"]
    run = ensemble.histories(k).run(shard["branch"])
    problem = run.damage
    if not problem:
        run.models(
            shard["rounds"]
        )  # raises if the file is not what the ledger recorded
    return Check(f"shard {k}: untouched and whole", problem)


def _members_check(ensemble: ShardEnsemble, document: dict[str, Any]) -> Check:
    """Check that no unlearned client worked for a model of the ensemble."""
    gone = set(document["forgotten so far"])
    problem = ""
    for shard in (*document["retrained"], *document["untouched"]):
        k = shard["shard"]
        local = ensemble.histories(k).members(shard["branch"]).tolist()
        present = sorted(gone & {ensemble.members[k][i] for i in local})
        if present:
            problem = f"client {present[0]} works for shard {k}"
    return Check("no unlearned client works for a model of the ensemble", problem)


def _read(file: Path) -> dict[str, Any]:
    """Read the certificate of an ensemble; raise where the file differs from what poise wrote."""
    try:
        content = read_bytes(file)
        document: dict[str, Any] = parse_json(content)
    except OSError as error:
        raise LedgerError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise LedgerError(f"{file} is no certificate: {error}") from error
    if not isinstance(document, dict) or document.get(KEY) not in READABLE:
        raise LedgerError(
            f"{file} is no certificate of shards in a format that this poise reads",
            "use the version of poise that wrote it",
        )
    if content != canonical(document) or document.get("digest") != digest_of(document):
        raise LedgerError(
            f"{file} was altered: its content does not match its digest",
            "restore the file from a backup",
        )
    return document
