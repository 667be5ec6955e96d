"""`poise unlearn --erase`: delete the traces of unlearned clients, and certify it.

The plan is on disk before the first deletion. Every step can be repeated, so a process
that dies leaves a plan that the same command finishes. The new certificate comes last.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from poise.config.unlearn_request import UnlearnRequest
from poise.core.disk import DRAFT
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.evidence import log
from poise.evidence.digests import sign_digest
from poise.evidence.keys import signing_key
from poise.ledger.files import REQUEST
from poise.ledger.lock import Lock
from poise.ledger.redaction import (
    ERASED,
    NEW,
    is_regular,
    redact,
    require_erasable_folder,
    surplus_files,
)
from poise.ledger.store import LOCK
from poise.results import Run, open_run
from poise.unlearning.certificate import FORMAT, digest_of, file_hash, read
from poise.unlearning.erasure_checks import (
    is_page,
    name_of,
    other_pages,
    pages,
    redactions,
    remaining,
    unfinished,
)
from poise.unlearning.erasure_plan import ERASING, PLAN, read_plan, write_plan
from poise.unlearning.histories import (
    CERTIFICATE,
    Histories,
    locked_folder,
    require_ended,
)
from poise.unlearning.repeated_requests import fulfilled_before
from poise.unlearning.request import Request
from poise.unlearning.shards import holds_shards
from poise.unlearning.signed import anchor_of, anchored_check, issue, subjects_of
from poise.unlearning.unaltered import require_as_certified, require_at_rest
from poise.unlearning.verification import grounds_again, made_again

METHODS = ("sifu", "scratch", "exact")


def erase(
    run: Run | str | Path,
    out: str | Path | None = None,
    nodes: Sequence[str] = (),
) -> dict[str, Any]:
    """Erase the traces of all unlearned clients from a run folder, and certify it anew.

    Models after the restart, stored updates, client states, sketches, losses, pages, and
    the rounds after the restart are gone afterwards. The new certificate lists them, and
    what stays, with reasons. The training cannot be resumed any more.

    Args:
        run: the training run, or its folder.
        out: folder of the branches; ``unlearning`` in the run's folder by default.
        nodes: what was erased outside of the run folder, for the certificate.

    Returns:
        the new certificate.
    """
    histories = _histories(run, out)
    require_ended(histories.root)
    assert histories.folder is not None
    with locked_folder(histories.folder):
        histories = _histories(run, out)
        newest = histories.finished[-1].request
        folder = histories.branch_folder(newest.index)
        assert folder is not None
        document = read(folder / CERTIFICATE)
        begun = None
        if (folder / PLAN).exists():
            begun = read_plan(folder)
        if document.get("erasure") is None:
            require_erasable(histories, newest)
            with _locked_runs(histories):
                histories = _histories(run, out)  # as the last writer left them
                if not _is_begun(histories):
                    require_as_certified(histories, pending=begun is not None)
                plan = _plan(histories, begun, nodes)
                _warn_of_other_pages(histories)
                if plan != begun:
                    write_plan(folder, plan)
                _delete(histories, newest, plan)
            document = _certify(_histories(run, out), document, plan)
            begun = plan
        if begun is not None:
            for draft in folder.parent.glob(f"**/.*{DRAFT}"):
                if is_regular(draft):
                    draft.unlink()  # of a process that died
            (folder / PLAN).unlink()
        return document


def erasable(run: Run | str | Path, out: str | Path | None = None) -> list[str]:
    """Return the files that `erase` would delete, relative to the run; changes nothing.

    Empty where the traces were erased before. Raises where `erase` would refuse.
    """
    histories = _histories(run, out)
    require_ended(histories.root)
    newest = histories.finished[-1].request
    folder = histories.branch_folder(newest.index)
    assert folder is not None
    if read(folder / CERTIFICATE).get("erasure") is not None:
        return []
    require_erasable(histories, newest)
    require_as_certified(histories)
    assert histories.root.path is not None
    found = []
    for s, redaction in enumerate(redactions(histories)):
        branch = histories.run(s)
        _require_signed(branch, s)
        assert branch.path is not None
        files = (*surplus_files(branch.path, redaction), *pages(branch))
        found += [os.path.relpath(file, histories.root.path) for file in files]
    return found


def erasure_begun(run: str | Path, request: UnlearnRequest) -> bool:
    """Whether an erasure was interrupted; raise where it is that of another request.

    Raises, too, where the request has other options than the one that was fulfilled.
    """
    out = None
    if request.out is not None:
        out = Path(request.out)
    histories = Histories.of(open_run(run), out, repair=True)
    if not histories.finished:
        return False
    newest = histories.finished[-1].request
    folder = histories.branch_folder(newest.index)
    assert folder is not None
    rewritten = histories.root.meta.get(ERASED) == str(newest.index)
    certified = read(folder / CERTIFICATE).get("erasure") is not None
    if not (folder / PLAN).exists() and (certified or not rewritten):
        return False
    if fulfilled_before(histories, request) is None:
        raise unfinished(folder, newest)
    return True


def require_erasable(histories: Histories, request: Request) -> None:
    """Raise where the new model rests on what an erasure would delete."""
    if request.method not in METHODS:
        raise IncompatibleParts(
            f"--erase: after {request.method} the new model rests on the last model of "
            "the training, which the clients moved, and verification needs all of it",
            f"use one of the methods {', '.join(METHODS)}",
        )
    if request.options.guarantee == "group" and histories.root.keeps_updates:
        raise IncompatibleParts(
            "--erase: the sensitivity of the group rests on the stored updates",
            "declare the group before training ([unlearning] groups), without "
            "keep_updates",
        )
    assert histories.root.path is not None
    own = None if histories.folder is None else histories.folder.resolve()
    for file in histories.root.path.glob(f"*/*/{REQUEST}"):
        if file.parent.parent.resolve() != own:
            raise IncompatibleParts(
                f"--erase: {file.parent.parent} is another history of this training",
                "move it away, or delete it if you no longer need it",
            )


def _histories(run: Run | str | Path, out: str | Path | None) -> Histories:
    """Return the histories of a run folder, opened anew."""
    path = Path(run) if isinstance(run, str | Path) else run.path
    if path is None:
        raise InvalidOption("--erase: a run in memory has no folder", "delete the run")
    if holds_shards(path):
        raise IncompatibleParts(
            "--erase does not apply to ensembles of shards",
            "delete the folders of the shards that you no longer need",
        )
    histories = Histories.of(open_run(path), None if out is None else Path(out))
    if not histories.finished:
        raise LedgerError(
            f"{path} has no finished request", "unlearn clients first: poise unlearn"
        )
    return histories


@contextmanager
def _locked_runs(histories: Histories) -> Iterator[None]:
    """Lock the runs that an erasure rewrites, so that no other process adds a round."""
    with ExitStack() as locks:
        for s in range(len(redactions(histories))):
            folder = histories.run(s).path
            assert folder is not None
            lock = Lock(folder / LOCK)
            lock.acquire()
            locks.callback(lock.release)
        yield


def _plan(
    histories: Histories, begun: Mapping[str, Any] | None, nodes: Sequence[str]
) -> dict[str, Any]:
    """Return what the runs had before the erasure, and the files that it deletes.

    The plan of an interrupted erasure, ``begun``, is followed for what is gone by now;
    the runs say the rest.
    """
    before = []
    files: dict[tuple[int, str], dict[str, Any]] = {}
    if begun is not None:
        files = {(item["run"], item["file"]): item for item in begun["erased"]}
        nodes = list(dict.fromkeys([*begun["nodes"], *nodes]))
    for s, redaction in enumerate(redactions(histories)):
        before.append(_state_before(histories, s))
        run = histories.run(s)
        assert run.path is not None
        for file in (*surplus_files(run.path, redaction), *pages(run)):
            if file.name == NEW:  # what an interrupted erasure wrote itself
                continue
            name = str(file.relative_to(run.path))
            digest = file_hash(file) if file.is_file() else None
            files[s, name] = {"run": s, "file": name, "sha256": digest}
    return {
        "clients": histories.unlearned,
        "before": before,
        "erased": list(files.values()),
        "nodes": list(nodes),
    }


def _is_erased(histories: Histories, s: int) -> bool:
    """Whether the erasure of the newest request has rewritten a run."""
    newest = histories.finished[-1].request
    return histories.run(s).meta.get(ERASED) == str(newest.index)


def _is_begun(histories: Histories) -> bool:
    """Whether the erasure of the newest request has rewritten a run."""
    return any(_is_erased(histories, s) for s in range(len(redactions(histories))))


def _state_before(histories: Histories, s: int) -> dict[str, Any]:
    """Return the rounds and the digest that a run had before the erasure."""
    if not _is_erased(histories, s):
        return _signed_state(histories, s)
    folder = histories.run(s).path
    assert folder is not None
    known = log.entries(folder)
    signed = [entry for entry in known if entry.event == ERASING]
    if not signed:  # an earlier version of poise began
        signed = [entry for entry in known if entry.event != "erased"]
    if not signed:
        raise LedgerError(
            f"{folder} was erased in part, and {log.FILE} has no digest from before",
            f"restore {log.FILE} from a backup",
        )
    return {"rounds": signed[-1].rounds, "digest": signed[-1].digest}


def _signed_state(histories: Histories, s: int) -> dict[str, Any]:
    """Sign the digest of a run before anything of it is deleted, and return it.

    A training that was killed has rounds that nobody signed yet.
    """
    run = histories.run(s)
    _require_signed(run, s)
    assert run.path is not None
    rounds, digest = run.rounds, run.digest
    key = signing_key()
    sign_digest(run.path, key, ERASING, rounds=rounds, digest=digest, again=True)
    return {"rounds": rounds, "digest": digest}


def _require_signed(run: Run, s: int) -> None:
    """Raise where a run is not the one whose digests were signed, or cannot be changed."""
    assert run.path is not None
    require_erasable_folder(run.path)
    check = anchored_check(run, name_of(s))
    problem = run.damage or check.problem
    if problem:
        raise LedgerError(
            f"{run.path}: {problem}; nothing of it was erased",
            "restore the folder from a backup, then repeat the request with --erase",
        )


def _delete(histories: Histories, newest: Request, plan: dict[str, Any]) -> None:
    """Delete everything of the plan, and sign the digests of what stays."""
    key = signing_key()
    for s, redaction in enumerate(redactions(histories)):
        run = histories.run(s)
        assert run.path is not None
        run.close()
        before = plan["before"][s]["digest"]
        digest = redact(run.path, redaction, newest.index, before)
        for page in pages(run):
            page.unlink()
        sign_digest(
            run.path, key, "erased", rounds=redaction.rounds, digest=digest, again=True
        )
    histories.run(newest.index).close()
    assert histories.folder is not None
    for page in filter(is_page, histories.folder.glob("*.html")):
        page.unlink()  # curves of the clients; the next request writes it anew


def _warn_of_other_pages(histories: Histories) -> None:
    """Name the pages that stay because poise did not write them."""
    others = other_pages(histories)
    if others:
        warnings.warn(
            f"--erase leaves {', '.join(map(str, others))}: poise did not write it; look "
            "whether it names the clients",
            stacklevel=4,
        )


def _certify(
    histories: Histories, document: dict[str, Any], plan: dict[str, Any]
) -> dict[str, Any]:
    """Write the certificate of what is left."""
    request = histories.finished[-1].request
    erasure = {**plan, "stays": remaining(histories, redactions(histories))}
    lengths = [(run, run.rounds) for run, _ in histories.lengths()[:-1]]
    grounds = grounds_again(histories, request, lengths)
    basis = {**document, "certificate": FORMAT, "erasure": erasure}
    training = {"rounds": histories.root.rounds}
    basis["evidence"] = {**document["evidence"], "training": training}
    again = made_again(histories, request, document=basis, grounds=grounds)
    again["digest"] = digest_of(again)
    require_at_rest(again, histories)
    folder = histories.branch_folder(request.index)
    assert folder is not None
    issue(
        again,
        folder,
        subjects=subjects_of(histories, again),
        anchor=anchor_of(histories.root, histories.root.rounds),
    )
    return again


__all__ = ["erasable", "erase", "erasure_begun"]
