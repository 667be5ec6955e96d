"""What an erasure deletes and what stays, and the checks that nothing is back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from poise.core.disk import DRAFT
from poise.core.errors import LedgerError
from poise.evidence import log
from poise.evidence.countersign import FILE as COUNTERSIGNATURES
from poise.ledger.foreign import open_regular
from poise.ledger.redaction import Redaction, is_regular, remaining_trace
from poise.ledger.store import DATABASE, MODELS
from poise.results import Run
from poise.unlearning.checks import Check, difference
from poise.unlearning.erasure_plan import ENTRIES, PLAN, plan_entries, signers
from poise.unlearning.histories import Histories
from poise.unlearning.request import Request

COPIES = (
    f"*{DRAFT}",
    f"{DATABASE}.*",
    "ledger.*.sqlite*",  # copies that `poise resume` set aside
    "events.out.*",
    "explanation.json",
    "console/*.safetensors",
)
"""Files with measurements of clients that poise writes beside a ledger."""

PAGES = ("*.html", "console/*.html")
NAMES = ("report.html", "audit.html", "inspection.html")
"""The names that poise gives to pages, unless the user names another file."""

MARK = b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
"""What the beginning of every page of poise says: it loads nothing from the network."""

BEGINNING = 4096
"""Number of bytes in which a page has the mark."""

CONSOLE = "console"
"""The folder of a run in which the console keeps its jobs and the operator's decisions."""


def require_erased(histories: Histories) -> None:
    """Raise where an erasure was interrupted: the ledgers are between two states."""
    for branch in histories.finished:
        folder = histories.branch_folder(branch.request.index)
        if folder is not None and (folder / PLAN).exists():
            if branch is not histories.finished[-1]:
                raise LedgerError(
                    f"{folder / PLAN}: poise did not write it, as other requests followed",
                    "delete this file",
                )
            raise unfinished(folder, branch.request)


def unfinished(folder: Path, request: Request) -> LedgerError:
    """Return the error for a request whose erasure was interrupted."""
    clients = ",".join(map(str, request.clients))
    return LedgerError(
        f"{folder}: the erasure of this request is not finished",
        f"repeat the request: --clients {clients} --erase",
    )


def redactions(histories: Histories) -> list[Redaction]:
    """Return what to erase from the training and from each branch before the newest."""
    nodes = dict(histories.nodes)
    newest = histories.finished[-1].request
    result = []
    for s in range(newest.index):
        members = histories.members(s)
        clients = np.flatnonzero(np.isin(members, histories.unlearned)).tolist()
        rounds = nodes.get(s, 0)
        sums = newest.method == "exact" and s == 0
        result.append(
            Redaction(
                tuple(clients),
                rounds=1 if sums else rounds,
                models=nodes.get(s, -1),
                sums=sums,
            )
        )
    return result


def pages(run: Run) -> list[Path]:
    """Return the pages, copies and leftovers of poise beside the ledger of a run."""
    assert run.path is not None
    folder = run.path
    copies = {file for pattern in COPIES for file in folder.glob(pattern)}
    found = {file for file in copies if is_regular(file)}
    for pattern in PAGES:
        found |= {page for page in folder.glob(pattern) if is_page(page)}
    return sorted(found)


def is_page(file: Path) -> bool:
    """Whether poise wrote a page: it has a name that poise gives, or says so inside."""
    if not is_regular(file):
        return False
    if file.name in NAMES:
        return True
    try:
        with os.fdopen(open_regular(file), "rb") as page:
            return MARK in page.read(BEGINNING)
    except OSError:
        return False


def other_pages(histories: Histories) -> list[Path]:
    """Return the pages that poise did not write, in all folders of the histories."""
    folders = [histories.folder, *(run.path for run, _ in histories.lengths())]
    found = {
        page
        for folder in folders
        for pattern in PAGES
        if folder is not None
        for page in folder.glob(pattern)
    }
    return sorted(page for page in found if not is_page(page))


def name_of(branch: int) -> str:
    """Return the name of the training or a branch in a certificate."""
    return "training" if branch == 0 else f"branch {branch}"


def remaining(histories: Histories, plan: list[Redaction]) -> list[dict[str, str]]:
    """Return what stays about the clients, with reasons."""
    stays = []
    for s, redaction in enumerate(plan):
        name = name_of(s)
        if redaction.models >= 0:
            stays.append(
                {
                    "item": f"{name}: kept models up to round {redaction.models}",
                    "reason": (
                        "the new model restarted from the last of them, and later "
                        "requests may restart from the others; the clients moved them "
                        "by no more than the noise hides"
                    ),
                }
            )
        if redaction.rounds:
            stays.append(
                {
                    "item": (
                        f"{name}: for rounds 0 to {redaction.rounds - 1}, who took part, "
                        "coefficients, sample counts, steps, lengths of updates, "
                        "distances moved"
                    ),
                    "reason": "the sensitivities on this certificate are computed from them",
                }
            )
        stays.append(
            {
                "item": f"{name}: number of samples and importance of each client",
                "reason": "the hashes of the evidence cover them",
            }
        )
        folder = histories.run(s).path
        if folder is not None and (folder / COUNTERSIGNATURES).exists():
            stays.append(
                {
                    "item": f"{name}: hashes of updates in {COUNTERSIGNATURES}",
                    "reason": "the nodes signed them: they prove who contributed",
                }
            )
        stays.append(
            {
                "item": f"{name}: logs and decisions in the folder {CONSOLE}, if any",
                "reason": "they record the operator's actions",
            }
        )
        unknown = _unknown_files(histories, s)
        if unknown:
            stays.append(
                {
                    "item": f"{name}: {', '.join(unknown)}",
                    "reason": "poise did not write these files: look at them yourself",
                }
            )
    return stays


KNOWN = (
    "experiment.toml",
    "ledger.sqlite",
    "ledger.sqlite-shm",
    "ledger.sqlite-wal",
    "lock",
    "models",
    "request.json",
    "certificate.json",
    "certificate.dsse",
    log.FILE,
    PLAN,
    COUNTERSIGNATURES,
    CONSOLE,
)


def _unknown_files(histories: Histories, s: int) -> list[str]:
    """Return the names in a run folder that poise does not know."""
    folder = histories.run(s).path
    assert folder is not None
    branches = histories.folder
    known = set(pages(histories.run(s)))
    places = [place for place in folder.iterdir() if place.name not in KNOWN]
    places += folder.glob("console/*.html")
    models = folder / MODELS
    if models.is_dir():
        places += [place for place in models.iterdir() if not is_regular(place)]
    return sorted(
        str(place.relative_to(folder))
        for place in places
        if place not in known
        and (branches is None or place.resolve() != branches.resolve())
    )


def erasure_checks(
    histories: Histories, document: Mapping[str, Any]
) -> Iterator[Check]:
    """Yield the checks of what a certificate says was erased."""
    erasure = document.get("erasure")
    if erasure is None:
        return
    plan = redactions(histories)
    label = "erased: the list names what the request asks for"
    problem = difference(erasure["clients"], histories.unlearned)
    if set(erasure) != {*ENTRIES, "stays"}:
        problem = "it has other entries"
    if any(not isinstance(text, str) for text in erasure["nodes"]):
        problem = "what it says about nodes is not a text"
    yield Check(label, problem)
    yield _plan_check(histories, erasure)
    yield Check(
        "erased: what stays is named",
        difference(erasure["stays"], remaining(histories, plan)),
    )
    for s, redaction in enumerate(plan):
        run = histories.run(s)
        assert run.path is not None
        problem = remaining_trace(run.path, redaction)
        back = pages(run)
        if back and not problem:
            problem = f"{back[0].name} is there"
        yield Check(f"erased: no trace of the clients in the {name_of(s)}", problem)
        yield _before_check(run, erasure["before"][s], s)
    yield _files_check(histories, erasure["erased"])


def _plan_check(histories: Histories, erasure: Mapping[str, Any]) -> Check:
    """Check that what was erased is what the plan listed before the first deletion."""
    folder = histories.branch_folder(histories.branches[-1].request.index)
    assert folder is not None
    plan = {name: erasure[name] for name in ENTRIES}
    never_signed = not plan_entries(folder)  # an erasure of an earlier version
    same = never_signed or bool(signers(folder, plan))
    problem = "" if same else "it is another list"
    return Check("erased: the list was signed before the first deletion", problem)


def _before_check(run: Run, before: Mapping[str, Any], s: int) -> Check:
    """Check that the digest before the erasure is the one signed during training."""
    assert run.path is not None
    known = log.entries(run.path)
    cuts = [k for k, entry in enumerate(known) if entry.event == "erased"]
    label = f"erased: the digest of the {name_of(s)} before it is the one signed"
    if not cuts:
        return Check(label, f"{log.FILE} does not name the erasure")
    signed = [(entry.rounds, entry.digest) for entry in known]
    never_signed = cuts[0] == 0  # a run of an earlier version
    same = never_signed or (before["rounds"], before["digest"]) in signed
    complete = set(before) == {"rounds", "digest"}
    return Check(label, "" if same and complete else "it is another digest")


def _files_check(histories: Histories, erased: list[Mapping[str, Any]]) -> Check:
    """Check that no file of the list is there again."""
    problem = ""
    for item in erased:
        run = histories.run(item["run"])
        assert run.path is not None
        file = run.path / item["file"]
        if set(item) != {"run", "file", "sha256"} or ".." in file.parts:
            problem = f"{item} is not an entry of the list"
        elif file.exists():
            problem = f"{file} is there again"
    return Check("erased: no file of the list is back", problem)


__all__ = [
    "erasure_checks",
    "is_page",
    "name_of",
    "other_pages",
    "pages",
    "redactions",
    "remaining",
    "require_erased",
    "unfinished",
]
