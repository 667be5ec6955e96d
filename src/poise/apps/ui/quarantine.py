"""Decisions to go on without a client: who decided, when, why, and the experiment that leaves it
out.

They are kept beside the run, one line each, and never changed: a client comes back by another line.
The run itself is not touched; what was trained stays as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from poise.apps.ui.jobs import FOLDER
from poise.core.errors import InvalidOption, LedgerError, require
from poise.ledger.files import write_failure, write_whole
from poise.ledger.run import Run

FILE = "quarantine.jsonl"
LONGEST = 2000
"""Characters of a reason."""


@dataclass(frozen=True)
class Decision:
    """One line of the file.

    Args:
        client: its number in the run.
        owner: its number among all owners of the experiment's data; another one where some had left
            before.
        action: ``quarantine``, or ``release`` for a client that comes back.
        who: the name of who decided, as they gave it.
        why: their reason.
        when: UTC.
        rounds: aggregations that the run had by then.
        score: of the audit at that time; None where it was not audited.
        p: its p-value.
    """

    client: int
    owner: int
    action: Literal["quarantine", "release"]
    who: str
    why: str
    when: str
    rounds: int
    score: float | None = None
    p: float | None = None


def decisions(folder: Path) -> list[Decision]:
    """What was decided about the clients of a run, in order."""
    file = folder / FOLDER / FILE
    if not file.exists():
        return []
    try:
        return [
            Decision(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()
        ]
    except (OSError, ValueError, TypeError) as error:
        raise LedgerError(f"{file} cannot be read: {error}") from error


def excluded(made: Sequence[Decision]) -> list[int]:
    """The clients that are in quarantine now."""
    last = {one.client: one.action for one in made}
    return sorted(client for client, action in last.items() if action == "quarantine")


def decide(
    run: Run,
    client: int,
    action: str,
    who: str,
    why: str,
    score: float | None = None,
    p: float | None = None,
) -> Decision:
    """Write a decision down; one that changes nothing is refused."""
    assert run.path is not None
    require(
        0 <= client < run.clients,
        f"there is no client {client} in this run",
        f"clients are 0 to {run.clients - 1}",
    )
    require(bool(who.strip()), "who decides this?", "give a name: it is kept with the decision")
    require(bool(why.strip()), "why?", "give a reason: it is kept with the decision")
    require(
        len(who) <= 200 and len(why) <= LONGEST,
        f"a name or a reason is longer than {LONGEST} characters",
    )
    inside = client in excluded(decisions(run.path))
    if action not in ("quarantine", "release") or inside == (action == "quarantine"):
        state = "in quarantine already" if inside else "not in quarantine"
        raise InvalidOption(f"client {client} is {state}")
    members = run.array("members")
    made = Decision(
        client=client,
        owner=client if members is None else int(members[client]),
        action="release" if inside else "quarantine",
        who=who.strip(),
        why=why.strip(),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        rounds=run.rounds,
        score=score,
        p=p,
    )
    _append(run.path / FOLDER / FILE, json.dumps(asdict(made)) + "\n")
    return made


def _append(file: Path, line: str) -> None:
    """Add a line, durably; lines of two writers do not mix."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(out, line.encode())
            os.fsync(out)
        finally:
            os.close(out)
    except OSError as error:
        raise write_failure(file, error) from error


def experiment_without(run: Run, clients: Sequence[int]) -> str:
    """The experiment file of a run for the clients that stay.

    ``[data] without`` names the owners that leave, whom the run may count otherwise; what was given
    client by client (durations, groups, attacks) is given for those that stay, renumbered, as
    retraining after a request does.
    """
    import tomli_w

    from poise.config.experiment import parse
    from poise.core.parts import describe
    from poise.training import parts_in
    from poise.unlearning.retraining import for_clients

    stay = [c for c in range(run.clients) if c not in set(clients)]
    require(len(stay) > 0, "nobody would be left", "keep one client")
    tables: dict[str, Any] = tomllib.loads(run.experiment)
    require(
        "source" in tables.get("data", {}),
        "the data of this run were given as Python objects",
        "train again from Python, with federation.without(clients)",
    )
    members = run.array("members")
    owners = {c if members is None else int(members[c]) for c in clients}
    tables["data"]["without"] = sorted({*tables["data"].get("without", ()), *owners})
    parts = for_clients(parts_in(parse(run.experiment)), stay)
    tables |= {slot: describe(part) for slot, part in parts.chosen() if slot in tables}
    tables.pop("attacks", None)
    if parts.attacks:
        tables["attacks"] = [describe(attack) for attack in parts.attacks]
    tables["run"].pop("start", None)  # a branch begins from a model of its own; this begins anew
    return tomli_w.dumps(tables)


def without_name(clients: Sequence[int]) -> str:
    """A name for what leaves these clients out.

    >>> without_name([7, 2]), without_name(range(20))
    ('without-2-7', 'without-20-clients-5aff54')
    """
    numbers = "-".join(map(str, sorted(clients)))
    if len(clients) <= 8:
        return f"without-{numbers}"
    return f"without-{len(clients)}-clients-{hashlib.sha256(numbers.encode()).hexdigest()[:6]}"


def write_experiment(run: Run, clients: Sequence[int]) -> Path:
    """`experiment_without` as a file beside the run."""
    assert run.path is not None
    file = run.path / FOLDER / f"{without_name(clients)}.toml"
    write_whole(file, experiment_without(run, clients).encode())
    return file
