"""An unlearning request as `request.json` stores it: the options, and the decision about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from poise.config.unlearn_request import Guarantee, UnlearnRequest, client_numbers
from poise.core.curvature import Curvature
from poise.core.errors import InvalidOption, LedgerError, PoiseError, require
from poise.core.options import check_keys, options_of
from poise.core.sensitivity import Group
from poise.ledger.files import REQUEST, write_whole
from poise.ledger.foreign import read_json
from poise.privacy.budget import Budget
from poise.unlearning.restart_tree import Node

FILE = REQUEST

RECORDED = (
    "clients",
    "method",
    "target",
    "min_rounds",
    "max_rounds",
    "heuristic",
    "plan_sigma",
    "guarantee",
    "noise",
)
"""Options that request.json holds beside the budget.

The other options name folders and measurements; they do not change the result.
"""


@dataclass(frozen=True)
class Request:
    """A request W_r, and the decision about it.

    Args:
        options: the options of the request, with a target.
        index: r, counted from 1.
        node: (branch, round) of the restart.
        sigma: standard deviation of the noise on the restart model.
        commitment: a hash that binds to the seed of the noise; empty without noise.
        curvature: bounds of the clients' Hessians that the guarantee rests on.
    """

    options: UnlearnRequest
    index: int = 0
    node: Node = (0, 0)
    sigma: float = 0.0
    commitment: str = ""
    curvature: Curvature | None = None

    @property
    def units(self) -> tuple[Group, ...]:
        """The clients that the guarantee is about: each by itself, or all together."""
        return units_of(self.options)

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients to unlearn, numbered as in the training."""
        return self.options.clients

    @property
    def method(self) -> str:
        """The unlearning method."""
        return self.options.method

    @property
    def budget(self) -> Budget:
        """The parameters of the guarantee."""
        return self.options.budget

    @property
    def target(self) -> float:
        """The score at which retraining ends."""
        assert self.options.target is not None
        return self.options.target

    @property
    def min_rounds(self) -> int:
        """The fewest rounds of retraining."""
        return self.options.min_rounds

    @property
    def max_rounds(self) -> int:
        """The most rounds of retraining."""
        return self.options.max_rounds

    @property
    def heuristic(self) -> bool:
        """Whether to continue where the bound has no proof."""
        return self.options.heuristic

    @property
    def noise(self) -> str:
        """How the noise is drawn."""
        return self.options.noise

    def differences(self, other: Request) -> dict[str, Any]:
        """Return the options of another request that differ from the options of this one."""
        options = self._compared_options()
        others = other._compared_options()
        return {name: value for name, value in others.items() if options[name] != value}

    def _compared_options(self) -> dict[str, Any]:
        return {**self._recorded(), **asdict(self.budget)}

    def _recorded(self) -> dict[str, Any]:
        """Return the options that request.json holds beside the budget."""
        options = vars(self.options)
        return {name: options[name] for name in RECORDED}

    def save(self, folder: Path) -> None:
        """Write request.json, whole or not at all, as the first file of the folder."""
        document = {
            **self._recorded(),
            "budget": asdict(self.budget),
            "index": self.index,
            "node": self.node,
            "sigma": self.sigma,
            "commitment": self.commitment,
        }
        # only where they are set: earlier versions of poise do not know these keys
        if self.options.guarantee == "each":
            del document["guarantee"]
        if not self.options.plan_sigma:
            del document["plan_sigma"]
        if self.curvature is not None:
            document["curvature"] = asdict(self.curvature)
        write_whole(folder / FILE, json.dumps(document, indent=1).encode())


def load(folder: Path) -> Request:
    """Read the request in a folder."""
    path = folder / FILE
    try:
        document: dict[str, Any] = read_json(path)
        budget = document.pop("budget")
        check_keys(budget, options_of(Budget), "budget")
        recorded = {name: document.pop(name) for name in RECORDED if name in document}
        recorded.setdefault("noise", "seeded")  # the only kind at first
        branch, round = document.pop("node")
        options = UnlearnRequest(**recorded, **budget)
        table = document.pop("curvature", None)
        curvature = None if table is None else Curvature(**table)
        request = Request(
            options, node=(branch, round), curvature=curvature, **document
        )
        _check_decision(request)
        return request
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error
    except PoiseError as error:
        raise LedgerError(
            f"{path}: {error.message}", "restore the file from a backup"
        ) from error


def _check_decision(request: Request) -> None:
    """Raise where the decision about a request has entries of a wrong kind."""
    numbers = (request.index, *request.node)
    counts = all(type(number) is int and number >= 0 for number in numbers)
    require(
        counts and request.index > 0 and request.node[0] < request.index,
        f"index {request.index!r} and node {request.node!r} are not those of a request",
    )
    sigma = request.sigma
    require(
        isinstance(sigma, float | int) and not isinstance(sigma, bool) and sigma >= 0,
        f"sigma {sigma!r} is not a standard deviation",
    )
    require(
        isinstance(request.commitment, str),
        f"commitment {request.commitment!r} is not a text",
    )


def units_of(options: UnlearnRequest) -> tuple[Group, ...]:
    """Return the clients that a guarantee is about: each by itself, or all together."""
    return split_units(options.clients, options.guarantee)


def split_units(clients: Sequence[int], guarantee: Guarantee) -> tuple[Group, ...]:
    """Return each client by itself, or all clients together."""
    if guarantee == "group":
        return (tuple(sorted(clients)),)
    return tuple((client,) for client in clients)


def unit_name(unit: Group) -> str:
    """Return the name of a client or group in a certificate.

    >>> unit_name((3,)), unit_name((3, 7))
    ('3', '3, 7')
    """
    return ", ".join(map(str, unit))


def checked_clients(
    clients: int | Iterable[int], total: int, unlearned: Iterable[int]
) -> tuple[int, ...]:
    """Return the clients of a request, sorted.

    Raise for unknown clients, repeated ones, ones unlearned before, and for all clients
    at once.
    """
    requested = known_clients(clients, total)
    before = set(unlearned)
    for client in requested:
        require(
            client not in before,
            f"client {client} was unlearned already",
            "leave it out",
            where="clients",
        )
    remaining = total - len(before) - len(requested)
    require(
        remaining > 0,
        f"all {total} clients would be unlearned: no client would be left to train",
        "keep at least one client",
        where="clients",
    )
    return requested


def known_clients(clients: int | Iterable[int], total: int) -> tuple[int, ...]:
    """Return clients sorted; raise for unknown clients and repeated ones."""
    given = client_numbers(clients)
    require(
        len(given) > 0,
        "the request names no client",
        "for example clients=[3, 7]",
        where="clients",
    )
    for client in given:
        is_number = isinstance(client, int | np.integer) and not isinstance(
            client, bool
        )
        require(is_number, f"client {client!r} is not a client number", where="clients")
        if not 0 <= client < total:
            raise InvalidOption(
                f"there is no client {client}",
                f"clients are 0 to {total - 1}",
                where=("clients",),
            )
    requested = tuple(sorted({int(c) for c in given}))
    require(
        len(requested) == len(given),
        f"a client is named twice in {[int(c) for c in given]}",
        where="clients",
    )
    return requested
