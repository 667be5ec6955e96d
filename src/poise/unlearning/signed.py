"""Sign certificates, and check their signatures.

``certificate.dsse`` beside ``certificate.json`` is a DSSE envelope with an in-toto
statement: its subjects are the models, its predicate holds the certificate with time,
serial number, request id, versions and the signed digest of the training. The log in
the folder of the branches names every envelope that was issued.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from poise._version import __version__
from poise.evidence import digests, log
from poise.evidence.envelope import Opened, Statement, Subject, seal, unseal
from poise.evidence.keys import PublicKey, signing_key
from poise.ledger.files import REQUEST, write_whole
from poise.ledger.foreign import read_bytes
from poise.results import Run
from poise.unlearning.certificate import canonical, write
from poise.unlearning.checks import Check, difference
from poise.unlearning.histories import Histories

ENVELOPE = "certificate.dsse"
PREDICATE = "urn:poise:unlearning-certificate:v3"
EVENT = "certificate"
UNSIGNED = "not signed: certificates before format 3 do not say who wrote them"


def require_key() -> None:
    """Raise before a request begins where no key can sign its certificate."""
    signing_key()


def issue(
    document: Mapping[str, Any],
    folder: Path,
    *,
    subjects: tuple[Subject, ...],
    anchor: Mapping[str, Any] | None,
) -> Path:
    """Sign a certificate and write it into its folder; this finishes the request.

    The file of the certificate comes last: without it, the request is unfinished, and
    repeating the request signs again.
    """
    if _is_issued(document, folder):  # only the file of the certificate was lost
        return write(document, folder)
    key = signing_key()
    time = log.now()
    predicate = {
        "anchor": anchor,
        "certificate": json.loads(canonical(document)),
        "request id": request_id(folder),
        "serial": log.next_serial(folder.parent),
        "time": time,
        "versions": {
            "poise": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }
    statement = Statement(subjects, PREDICATE, predicate)
    write_whole(folder / ENVELOPE, seal(statement, key))
    log.append(
        folder.parent,
        key,
        event=EVENT,
        subject=folder.name,
        digest=hashlib.sha256(statement.payload).hexdigest(),
        rounds=document["result"]["rounds"],
        time=time,
    )
    return write(document, folder)


def _is_issued(document: Mapping[str, Any], folder: Path) -> bool:
    """Whether the log's newest statement about this request is of this certificate."""
    issued = [e for e in log.entries(folder.parent) if _is_about(e, folder)]
    if not issued or not (folder / ENVELOPE).exists():
        return False
    opened = unseal(read_bytes(folder / ENVELOPE), folder / ENVELOPE)
    written = opened.statement.predicate.get("certificate")
    return issued[-1].digest == hashlib.sha256(
        opened.payload
    ).hexdigest() and written == json.loads(canonical(document))


def request_id(folder: Path) -> str:
    """Return the id of a request: the hash of its request.json."""
    return hashlib.sha256(read_bytes(folder / REQUEST)).hexdigest()[:32]


def anchor_of(root: Run, rounds: int) -> dict[str, Any] | None:
    """Return the newest signed digest of a training, up to a number of rounds."""
    assert root.path is not None
    known = [e for e in digests.anchors(root.path) if e.rounds <= rounds]
    if not known:
        return None
    return _anchor_table(known[-1])


def _anchor_table(entry: log.Entry) -> dict[str, Any]:
    return {
        "digest": entry.digest,
        "event": entry.event,
        "key": entry.key.id,
        "rounds": entry.rounds,
        "serial": entry.serial,
        "time": entry.time,
    }


def subjects_of(
    histories: Histories, document: Mapping[str, Any]
) -> tuple[Subject, ...]:
    """Return the model files that a certificate is about, with their hashes."""
    request = histories.branches[-1].request
    evidence = document["evidence"]
    branch = histories.run(request.index)
    models = {
        "restart model": (histories.run(request.node[0]), request.node[1]),
        "start": (branch, 0),
        "model": (branch, branch.rounds),
    }
    subjects = []
    for name, (run, n) in models.items():
        file = run.model_file(n)
        digest = evidence[name]["file"]
        if file is not None and digest is not None:
            subjects.append((f"{name}: {file.name}", str(digest)))
    return tuple(subjects)


# checks -------------------------------------------------------------------------------


def signature_checks(
    file: Path,
    document: Mapping[str, Any],
    *,
    signed: bool,
    subjects: tuple[Subject, ...],
    root: Run | None,
    trusted: Collection[PublicKey],
) -> Iterator[Check]:
    """Yield the checks of a certificate's signature.

    Args:
        file: the certificate.
        document: its content.
        signed: whether certificates of its format are signed.
        subjects: the models that the certificate is about, as they are now.
        root: the training, whose signed digest the certificate names; None for an
            ensemble.
        trusted: the public keys that may have signed it; empty to accept any key.
    """
    folder = file.parent
    issued = [e for e in log.entries(folder.parent) if _is_about(e, folder)]
    if not signed:
        replaced = (folder / ENVELOPE).exists() or bool(issued)
        problem = "a signed certificate was issued for this request" if replaced else ""
        if trusted and not problem:
            problem = "no key signed it"
        yield Check(UNSIGNED, problem)
        return
    if not (folder / ENVELOPE).exists():
        yield Check("the certificate is signed", f"{ENVELOPE} is missing")
        return
    opened = unseal(read_bytes(folder / ENVELOPE), folder / ENVELOPE)
    yield _statement_check(opened, folder, document, subjects=subjects)
    yield _log_check(opened, issued)
    yield from _anchor_checks(opened, root, document)
    yield _key_check(opened.key, trusted)


def _is_about(entry: log.Entry, folder: Path) -> bool:
    return entry.event == EVENT and entry.subject == folder.name


def _statement_check(
    opened: Opened,
    folder: Path,
    document: Mapping[str, Any],
    *,
    subjects: tuple[Subject, ...],
) -> Check:
    """Check that the signed statement says what certificate and folder say."""
    predicate = opened.statement.predicate
    expected = {
        "anchor": predicate.get("anchor"),  # `_anchor_checks` compares these entries
        "certificate": json.loads(canonical(document)),
        "request id": request_id(folder),
        "serial": predicate.get("serial"),  # and `_log_check` these
        "time": predicate.get("time"),
        "versions": predicate.get("versions"),
    }
    problem = difference(dict(predicate), expected)
    if opened.statement.predicate_type != PREDICATE:
        problem = f"it is a {opened.statement.predicate_type}"
    if opened.statement.subjects != subjects:
        problem = "it is about other models"
    return Check("the signed statement is this certificate", problem)


def _log_check(opened: Opened, issued: list[log.Entry]) -> Check:
    """Check that the newest entry of the log about this request is this statement."""
    problem = "the log has no entry of it"
    if issued:
        entry = issued[-1]
        predicate = opened.statement.predicate
        same = (
            entry.digest == hashlib.sha256(opened.payload).hexdigest()
            and entry.time == predicate["time"]
            and entry.serial == predicate["serial"]
            and entry.key == opened.key
        )
        problem = "" if same else "the log names another statement, time or key"
    return Check(f"{log.FILE} names the signed statement", problem)


def _anchor_checks(
    opened: Opened, root: Run | None, document: Mapping[str, Any]
) -> Iterator[Check]:
    """Check the signed digest of the training that a certificate names."""
    anchor = opened.statement.predicate["anchor"]
    if root is None or anchor is None:
        problem = "" if anchor is None else "an ensemble has no digest of its own"
        yield Check("the training has no signed digest", problem)
        return
    assert root.path is not None
    known = {entry.serial: _anchor_table(entry) for entry in log.entries(root.path)}
    problem = difference(anchor, known.get(anchor["serial"]))
    erased = document["erasure"] is not None and anchor["event"] != "erased"
    if not problem and not erased:
        same = root.digest_after(anchor["rounds"]) == anchor["digest"]
        problem = "" if same else "the ledger has another digest after these rounds"
    label = f"the training's digest was signed on {anchor['time']} by {anchor['key']}"
    yield Check(label, problem)


def _key_check(key: PublicKey, trusted: Collection[PublicKey]) -> Check:
    """Check who signed a certificate."""
    if not trusted:
        return Check(
            f"signed by {key.id}; this key was not checked: name the key that you trust "
            "with --public-key"
        )
    problem = "" if key in trusted else f"{key.id} signed it, which is another key"
    return Check("signed by the key that you trust", problem)


def anchored_check(run: Run, name: str) -> Check:
    """Check that a ledger still has every digest that was signed while it was trained."""
    assert run.path is not None
    problem = ""
    for entry in digests.anchors(run.path):
        if entry.rounds > run.rounds:
            problem = f"its log has the digest of {entry.rounds} rounds"
        elif run.digest_after(entry.rounds) != entry.digest:
            problem = f"its log has another digest of round {entry.rounds}"
    return Check(
        f"the ledger of {name} has the digests signed during training", problem
    )


__all__ = [
    "ENVELOPE",
    "anchor_of",
    "anchored_check",
    "issue",
    "require_key",
    "signature_checks",
    "subjects_of",
]
