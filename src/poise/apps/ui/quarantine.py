"""Quarantine decisions about clients, and the experiment without the excluded clients.

A file in the run folder stores one decision per line: who decided, when and why. Lines
are never changed; a later line releases a client. Decisions do not change the run or
its model.
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
from poise.core.types import Ints
from poise.ledger.files import write_failure, write_whole
from poise.ledger.foreign import check_folder, open_regular, parse_json, read_text
from poise.results import Run

FILE = "quarantine.jsonl"
LONGEST = 2000
"""Maximum length of a reason."""


@dataclass(frozen=True)
class QuarantineDecision:
    """One line of the file.

    Args:
        client: number of the client in the run.
        owner: number among all data owners; differs if owners left before the run.
        action: ``quarantine`` or ``release``.
        who: name of the person who decided.
        why: the reason.
        when: time, UTC.
        rounds: number of aggregations of the run at that time.
        score: audit score at that time; None without an audit.
        p: p-value at that time; None without an audit.
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


def decisions(folder: Path) -> list[QuarantineDecision]:
    """All decisions about the clients of a run, in order."""
    file = folder / FOLDER / FILE
    if not os.path.lexists(file):
        return []
    try:
        lines = read_text(file, below=1).splitlines()
        recorded = [QuarantineDecision(**parse_json(line)) for line in lines]
        for decision in recorded:
            _check_types(decision)
        return recorded
    except (OSError, ValueError, TypeError) as error:
        raise LedgerError(f"cannot read {file}: {error}") from error


def _check_types(decision: QuarantineDecision) -> None:
    """Raise `ValueError` where a line of the file has entries of a wrong type."""
    numbers = (decision.client, decision.owner, decision.rounds)
    texts = (decision.action, decision.who, decision.why, decision.when)
    measured = (decision.score, decision.p)
    sound = (
        all(type(number) is int for number in numbers)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(value, float | int | None) for value in measured)
        and decision.action in ("quarantine", "release")
    )
    if not sound:
        raise ValueError(f"a wrong decision about client {decision.client!r:.20}")


def excluded(recorded: Sequence[QuarantineDecision]) -> list[int]:
    """The clients that are currently in quarantine."""
    last_action = {decision.client: decision.action for decision in recorded}
    return sorted(
        client for client, action in last_action.items() if action == "quarantine"
    )


def decide(
    run: Run,
    client: int,
    action: str,
    who: str,
    why: str,
    score: float | None = None,
    p: float | None = None,
) -> QuarantineDecision:
    """Record a decision; raises an error if it changes nothing."""
    assert run.path is not None
    require(
        0 <= client < run.clients,
        f"this run has no client {client}",
        f"choose a client from 0 to {run.clients - 1}",
    )
    require(
        bool(who.strip()),
        "the name of who decides is missing",
        "give a name; it is recorded",
    )
    require(bool(why.strip()), "the reason is missing", "give a reason; it is recorded")
    require(
        len(who) <= 200 and len(why) <= LONGEST,
        "the name or the reason is too long",
        f"use at most 200 characters for the name and {LONGEST} for the reason",
    )
    inside = client in excluded(decisions(run.path))
    if action not in ("quarantine", "release") or inside == (action == "quarantine"):
        state = "not in quarantine"
        if inside:
            state = "already in quarantine"
        raise InvalidOption(f"client {client} is {state}")
    decision = QuarantineDecision(
        client=client,
        owner=owner(client, run.array("members")),
        action="release" if inside else "quarantine",
        who=who.strip(),
        why=why.strip(),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        rounds=run.rounds,
        score=score,
        p=p,
    )
    _append(run.path / FOLDER / FILE, json.dumps(asdict(decision)) + "\n")
    return decision


def owner(client: int, members: Ints | None) -> int:
    """The number of a client among all data owners, of whom ``members`` take part."""
    if members is None:
        return client
    return int(members[client])


def _append(file: Path, line: str) -> None:
    """Append a line durably; lines of concurrent writers do not mix."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        out = open_regular(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, below=1)
        try:
            os.write(out, line.encode())
            os.fsync(out)
        finally:
            os.close(out)
    except OSError as error:
        raise write_failure(file, error) from error


def experiment_without(run: Run, clients: Sequence[int]) -> str:
    """The experiment file of a run for the remaining clients.

    ``[data] without`` lists the excluded data owners, whose numbers may differ from
    those in the run. Options per client (durations, groups, attacks) are renumbered for
    the remaining clients, as in retraining after an unlearning request.
    """
    import tomli_w

    from poise.config.experiment import parse
    from poise.core.parts import describe
    from poise.training import parts_in
    from poise.unlearning.retraining import for_clients

    stay = [c for c in range(run.clients) if c not in set(clients)]
    require(len(stay) > 0, "no client would remain", "keep at least one client")
    tables: dict[str, Any] = tomllib.loads(run.experiment)
    require(
        "source" in tables.get("data", {}),
        "the data of this run are Python objects",
        "train again in Python, with federation.without(clients)",
    )
    members = run.array("members")
    owners = {owner(client, members) for client in clients}
    tables["data"]["without"] = sorted({*tables["data"].get("without", ()), *owners})
    parts = for_clients(parts_in(parse(run.experiment)), stay)
    tables |= {slot: describe(part) for slot, part in parts.chosen() if slot in tables}
    tables.pop("attacks", None)
    if parts.attacks:
        tables["attacks"] = [describe(attack) for attack in parts.attacks]
    # branches start from a given model; this run starts anew
    tables["run"].pop("start", None)
    return tomli_w.dumps(tables)


def without_name(clients: Sequence[int]) -> str:
    """A file name for an experiment without these clients.

    >>> without_name([7, 2]), without_name(range(20))
    ('without-2-7', 'without-20-clients-5aff54')
    """
    numbers = "-".join(map(str, sorted(clients)))
    if len(clients) <= 8:
        return f"without-{numbers}"
    digest = hashlib.sha256(numbers.encode()).hexdigest()
    return f"without-{len(clients)}-clients-{digest[:6]}"


def write_experiment(run: Run, clients: Sequence[int]) -> Path:
    """Write `experiment_without` to a file in the run folder."""
    assert run.path is not None
    check_folder(run.path)
    file = run.path / FOLDER / f"{without_name(clients)}.toml"
    write_whole(file, experiment_without(run, clients).encode())
    return file
