"""The plan of an erasure, on disk and signed before the first deletion.

The log of the branches names the hash of the plan. Only a plan that a key of this user
signed is followed after an interruption: anybody could have put another into the folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.core.errors import LedgerError
from poise.evidence import log
from poise.evidence.keys import PublicKey, key_names, load_key, signing_key
from poise.ledger.files import write_whole
from poise.ledger.foreign import read_json
from poise.unlearning.certificate import canonical
from poise.unlearning.signed import request_id

PLAN = "erasure.json"
"""The file in a branch whose erasure is not finished: what the runs had before it."""

ERASING = "erasing"
"""The event of a signed plan, and of the digest that a run had before its erasure."""

ENTRIES = ("clients", "before", "erased", "nodes")


def write_plan(folder: Path, plan: Mapping[str, Any]) -> None:
    """Sign a plan in the log of the branches, and write it into its branch."""
    log.append(
        folder.parent,
        signing_key(),
        event=ERASING,
        subject=folder.name,
        digest=_digest(folder, plan),
        rounds=0,
    )
    write_whole(folder / PLAN, json.dumps(plan, indent=1).encode())


def read_plan(folder: Path) -> dict[str, Any]:
    """Read the plan of an interrupted erasure; raise unless this user signed it."""
    file = folder / PLAN
    own = _own_keys()
    try:
        plan: Any = read_json(file)
        if not isinstance(plan, dict) or set(plan) != {*ENTRIES}:
            raise _refused(file, "is not a plan of poise")
        known = signers(folder, plan)
    except (OSError, ValueError) as error:
        raise _refused(file, f"cannot be read: {error}") from error
    if known.isdisjoint(own):
        raise _refused(file, "is not a plan that a key of yours signed")
    return plan


def signers(folder: Path, plan: Mapping[str, Any]) -> set[PublicKey]:
    """Return the keys that signed a plan for a branch."""
    digest = _digest(folder, plan)
    return {entry.key for entry in plan_entries(folder) if entry.digest == digest}


def plan_entries(folder: Path) -> list[log.Entry]:
    """Return the entries of the log about the plans of a branch."""
    known = log.entries(folder.parent)
    return [e for e in known if e.event == ERASING and e.subject == folder.name]


def _digest(folder: Path, plan: Mapping[str, Any]) -> str:
    """Return the hash of a plan and of the request that it belongs to."""
    content = canonical({"plan": dict(plan), "request id": request_id(folder)})
    return hashlib.sha256(content).hexdigest()


def _own_keys() -> set[PublicKey]:
    """Return the public keys of this user."""
    return {signing_key().public, *(load_key(name).public for name in key_names())}


def _refused(file: Path, problem: str) -> LedgerError:
    return LedgerError(
        f"{file} {problem}; nothing more was erased",
        "delete this file, then repeat the request with --erase: poise lists anew what "
        "is left to erase",
    )


__all__ = [
    "ENTRIES",
    "ERASING",
    "PLAN",
    "plan_entries",
    "read_plan",
    "signers",
    "write_plan",
]
