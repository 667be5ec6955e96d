"""A request to forget in its folder: what is asked, and what was decided about it before any
training.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poise.config.unlearn_request import UnlearnRequest, client_numbers
from poise.core.errors import InvalidOption, LedgerError, require
from poise.core.options import check_keys, options_of
from poise.ledger import summary
from poise.ledger.files import write_whole
from poise.privacy.budget import Budget
from poise.unlearning.restart_tree import Node

FILE = summary.REQUEST

RECORDED = ("clients", "method", "target", "min_rounds", "max_rounds", "heuristic", "noise")
"""Options that request.json holds beside the budget; the others say where and what to measure, not
what to do."""


@dataclass(frozen=True)
class Request:
    """A request W_r, and what was decided about it.

    Args:
        asked: the options, with a target.
        index: r, counted from 1.
        node: (branch, round) of the restart.
        sigma: standard deviation of the noise on the restart model.
        commitment: a hash that binds to the seed of the noise; empty where there is none.
    """

    asked: UnlearnRequest
    index: int = 0
    node: Node = (0, 0)
    sigma: float = 0.0
    commitment: str = ""

    @property
    def clients(self) -> tuple[int, ...]:
        """Who is to be forgotten, numbered as in the training."""
        return self.asked.clients

    @property
    def method(self) -> str:
        """How they are forgotten."""
        return self.asked.method

    @property
    def budget(self) -> Budget:
        """What is guaranteed."""
        return self.asked.budget

    @property
    def target(self) -> float:
        """The score at which retraining ends."""
        assert self.asked.target is not None
        return self.asked.target

    @property
    def min_rounds(self) -> int:
        """The fewest rounds of retraining."""
        return self.asked.min_rounds

    @property
    def max_rounds(self) -> int:
        """The most rounds of retraining."""
        return self.asked.max_rounds

    @property
    def heuristic(self) -> bool:
        """Whether to go on where the bound has no proof."""
        return self.asked.heuristic

    @property
    def noise(self) -> str:
        """How the noise is drawn."""
        return self.asked.noise

    def differences(self, other: Request) -> dict[str, Any]:
        """The options of another request, by name, that differ from those asked for here."""
        mine, theirs = self._options(), other._options()
        return {name: value for name, value in theirs.items() if mine[name] != value}

    def _options(self) -> dict[str, Any]:
        return {**self._recorded(), **asdict(self.budget)}

    def _recorded(self) -> dict[str, Any]:
        """The options that request.json holds beside the budget."""
        asked = vars(self.asked)
        return {name: asked[name] for name in RECORDED}

    def save(self, folder: Path) -> None:
        """Write the request, whole or not at all, before anything else happens in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            **self._recorded(),
            "budget": asdict(self.budget),
            "index": self.index,
            "node": self.node,
            "sigma": self.sigma,
            "commitment": self.commitment,
        }
        write_whole(folder / FILE, json.dumps(document, indent=1).encode())


def load(folder: Path) -> Request:
    """The request in a folder."""
    path = folder / FILE
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        budget = document.pop("budget")
        check_keys(budget, options_of(Budget), "budget")
        asked = UnlearnRequest(
            **{name: document.pop(name) for name in RECORDED if name in document}, **budget
        )
        branch, round = document.pop("node")
        return Request(asked, node=(branch, round), **document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


def checked_clients(
    clients: int | Iterable[int], total: int, forgotten: Iterable[int]
) -> tuple[int, ...]:
    """The clients of a request, sorted; unknown ones, repeated ones, forgotten ones and all of them
    are refused.
    """
    given = client_numbers(clients)
    require(len(given) > 0, "no client was named", "for example clients=[3, 7]", where="clients")
    for client in given:
        whole = isinstance(client, int | np.integer) and not isinstance(client, bool)
        require(whole, f"client {client!r} is not a client number", where="clients")
        if not 0 <= client < total:
            raise InvalidOption(
                f"there is no client {client}", f"clients are 0 to {total - 1}", where=("clients",)
            )
    wanted = tuple(sorted({int(c) for c in given}))
    require(
        len(wanted) == len(given),
        f"a client is named twice in {[int(c) for c in given]}",
        where="clients",
    )
    gone = set(forgotten)
    for client in wanted:
        require(
            client not in gone,
            f"client {client} was forgotten already",
            "leave it out",
            where="clients",
        )
    left = total - len(gone) - len(wanted)
    require(
        left > 0,
        f"all {total} clients would be forgotten: nobody could train",
        "keep one",
        where="clients",
    )
    return wanted
