"""Check that a training and its branches are what certificates rest on, and stay so.

A new request continues the history that earlier certificates describe. It must not
continue another history, nor one that was altered.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from poise.core.errors import LedgerError
from poise.results import Run, open_run
from poise.unlearning.certificate import evidence, facts_of, read
from poise.unlearning.erasure_checks import require_erased
from poise.unlearning.histories import CERTIFICATE, Branch, Histories

Contents: TypeAlias = list[tuple[str, str]]
"""Of the training and every branch: the digest of its rounds, and the hash of its metadata."""


def evidence_then(run: Run, then: dict[str, Any], format: int) -> dict[str, Any]:
    """Return the evidence of a run for the rounds that a certificate names.

    A training may have grown since: its first rounds must be the same, but its file and
    its experiment, which names the number of rounds, may not.
    """
    now = evidence(run, format)
    if run.rounds <= then["rounds"]:
        return now
    grown = {key: then[key] for key in ("rounds", "experiment", "file")}
    return {**now, **grown, "digest": run.digest_after(then["rounds"])}


def require_as_certified(histories: Histories, *, pending: bool = False) -> None:
    """Raise where the training or a branch is not as the newest certificate recorded it.

    Raises, too, where an erasure is not finished, unless ``pending`` is true.
    """
    if histories.folder is None:
        return
    finished = histories.finished
    if not pending:
        require_erased(histories)
    for branch in finished:
        _require_same_request(histories, branch)
    if not finished:
        return
    file = histories.folder / f"{finished[-1].request.index:03d}" / CERTIFICATE
    document = read(file)
    recorded = document["evidence"]
    for s, then in enumerate([recorded["training"], *recorded["branches"]]):
        run = _run_of(histories, s)
        run.settle()
        now = evidence_then(run, then, document["certificate"])
        changed = [key for key in then if then[key] != now.get(key)]
        if s == 0 and "digest" in changed:
            raise LedgerError(
                f"{file} rests on another training than {run.path}",
                "name the training of these branches, or another folder with out= (--out)",
            )
        if changed:
            raise LedgerError(
                f"{run.path} is not as {file} recorded it: {changed[0]} differs",
                "restore the folder from a backup, or start another history with out= (--out)",
            )


def _require_same_request(histories: Histories, branch: Branch) -> None:
    """Raise where request.json and the certificate of a branch name different things."""
    request = branch.request
    folder = histories.branch_folder(request.index)
    assert folder is not None
    document = read(folder / CERTIFICATE)
    decided = {"branch": request.node[0], "round": request.node[1]}
    same = (
        document["clients"] == list(request.clients)
        and document["request"]["method"] == request.method
        and document["restart"] == decided
        and document["noise"]["sigma"] == request.sigma
    )
    if not same:
        raise LedgerError(
            f"{folder}: request.json and {CERTIFICATE} are about different requests",
            "restore the folder from a backup",
        )


def _run_of(histories: Histories, s: int) -> Run:
    """Return the training or a branch, also one whose certificate is lost."""
    if s == 0:
        return histories.root
    folder = histories.branch_folder(s)
    assert folder is not None
    if s > len(histories.branches):
        raise LedgerError(
            f"{folder} is gone, and a later certificate rests on it",
            "restore the folder from a backup",
        )
    return histories.branches[s - 1].run or open_run(folder)


def whole_contents(histories: Histories) -> Contents:
    """Return the contents of the training and its branches; raise where one is damaged."""
    contents = []
    for run, _ in histories.lengths():
        run.settle()
        if run.damage:
            raise LedgerError(
                f"{run!r}: {run.damage}",
                "poise certifies only what a whole ledger shows: restore it from a backup",
            )
        contents.append((run.digest, facts_of(run)))
    return contents


def require_unchanged(histories: Histories, before: Contents) -> None:
    """Raise where a ledger changed on disk since ``before``, or the new branch is damaged.

    The training may have grown in the meantime.
    """
    for s, (run, rounds) in enumerate(histories.lengths()):
        if run.path is None:
            continue
        now = open_run(run.path)
        try:
            same = s >= len(before) or before[s] == (
                now.digest_after(rounds),
                facts_of(now),
            )
            problem = now.damage or ("" if same else "it changed during the request")
        finally:
            now.close()
        if problem:
            raise LedgerError(
                f"{run!r}: {problem}",
                "restore it from a backup, then repeat the request",
            )


def require_at_rest(document: dict[str, Any], histories: Histories) -> None:
    """Raise where a ledger could not be hashed, because a reader keeps its log open."""
    recorded = document["evidence"]
    for s, then in enumerate([recorded["training"], *recorded["branches"]]):
        path = histories.run(s).path
        if path is not None and then["file"] is None:
            raise LedgerError(
                f"another program is reading {path}, so its file is not complete yet",
                "close that program, then repeat the request",
            )


__all__ = [
    "evidence_then",
    "require_as_certified",
    "require_at_rest",
    "require_unchanged",
    "whole_contents",
]
