"""A request to forget: what is asked, and what was decided about it before any training."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poise.core.errors import InvalidOption, LedgerError, require, suggest
from poise.ledger.files import write_whole
from poise.unlearning.budget import Budget
from poise.unlearning.tree import Node

FILE = "request.json"
METHODS = ("sifu", "scratch", "fine-tune", "last", "dp", "fed-accum")


@dataclass(frozen=True)
class Request:
    """W_r and how to honour it.

    Args:
        clients: who is to be forgotten, numbered as in the training.
        method: one of `METHODS`.
        budget: what is promised.
        target: accuracy on the remaining clients at which retraining ends (a loss, for tasks without accuracy).
        min_rounds: it goes on for at least this many rounds.
        max_rounds: and ends after this many.
        heuristic: go on where the bound has no proof.
        noise: ``seeded`` (from the run's seed) or ``secret``.
        index: r, counted from 1.
        node: (branch, round) of the restart.
        sigma: standard deviation of the noise on the restart model.
        commitment: a hash that binds to the seed of the noise; empty where there is none.
    """

    clients: tuple[int, ...]
    method: str
    budget: Budget
    target: float
    min_rounds: int = 50
    max_rounds: int = 10_000
    heuristic: bool = False
    noise: str = "seeded"
    index: int = 0
    node: Node = (0, 0)
    sigma: float = 0.0
    commitment: str = ""

    def __post_init__(self) -> None:
        require(self.method in METHODS, f"method = {self.method!r}", suggest(str(self.method), METHODS))
        require(self.noise in ("seeded", "secret"), f"noise = {self.noise!r}", "known: secret, seeded")
        number = isinstance(self.target, int | float) and not isinstance(self.target, bool)
        require(number and bool(np.isfinite(self.target)), f"target must be a number, not {self.target!r}")
        for name, least in (("min_rounds", 0), ("max_rounds", 1)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            require(whole and value >= least, f"{name} must be a whole number of at least {least}, not {value!r}")
        orderly = self.min_rounds <= self.max_rounds
        require(orderly, f"min_rounds {self.min_rounds} is above max_rounds {self.max_rounds}")

    def otherwise_than(self, other: Request) -> dict[str, Any]:
        """What another request asks for differently, whatever was decided about it since: its options by name."""
        decided = ("index", "node", "sigma", "commitment", "budget")
        mine, found = ({**asdict(one), **asdict(one.budget)} for one in (self, other))
        mine["sigma"], found["sigma"] = self.budget.sigma, other.budget.sigma
        names = [name for name in mine if name not in decided or name == "sigma"]
        return {name: found[name] for name in names if mine[name] != found[name]}

    def save(self, folder: Path) -> None:
        """Write it down, whole or not at all, before anything else happens in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, json.dumps(asdict(self), indent=1).encode())


def load(folder: Path) -> Request:
    """The request in a folder."""
    path = folder / FILE
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        budget = Budget.of({k: v for k, v in found.pop("budget").items() if v is not None})
        branch, round = found.pop("node")
        return Request(tuple(found.pop("clients")), budget=budget, node=(branch, round), **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


def checked_clients(clients: Any, total: int, forgotten: Iterable[int]) -> tuple[int, ...]:
    """The clients of a request, sorted; unknown ones, repeated ones, forgotten ones and all of them are refused."""
    single = isinstance(clients, int | np.integer)
    require(single or isinstance(clients, Iterable), f"clients = {clients!r} is not a list of clients", "as in [3, 7]")
    given = [clients] if single else list(clients)
    require(len(given) > 0, "no client was named", "for example clients=[3, 7]")
    for client in given:
        whole = isinstance(client, int | np.integer) and not isinstance(client, bool)
        require(whole, f"client {client!r} is not a client number")
        if not 0 <= client < total:
            raise InvalidOption(f"there is no client {client}", f"clients are 0 to {total - 1}")
    wanted = tuple(sorted({int(c) for c in given}))
    require(len(wanted) == len(given), f"a client is named twice in {[int(c) for c in given]}")
    gone = set(forgotten)
    already = [c for c in wanted if c in gone]
    require(not already, f"client {already[:1] and already[0]} was forgotten already", "leave it out")
    require(len(gone) + len(wanted) < total, f"all {total} clients would be forgotten: nobody could train", "keep one")
    return wanted


def parse_clients(text: str) -> list[int]:
    """Clients as the user writes them.

    >>> parse_clients("3,7"), parse_clients("0..2,9")
    ([3, 7], [0, 1, 2, 9])
    """
    if not re.fullmatch(r"\d+(\.\.\d+)?(,\d+(\.\.\d+)?)*", text):
        raise InvalidOption(f"--clients {text!r} is not a list of clients", "write 3,7 or 0..4")
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("..")
        found += range(int(first), int(last or first) + 1)
    return found
