"""The clients' models after the local work of a round, for metrics of these models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from poise.core.round_updates import RoundUpdates
from poise.core.vectors import Vector

LocalModel = Callable[[int], Vector | None]
"""Returns a client's model after its work; None for a client that did not work."""


def no_local_model(client: int) -> Vector | None:
    """Return None: no client has worked."""
    return None


@dataclass(frozen=True)
class LocalModels:
    """The models of the clients whose updates a round used.

    A client that was drawn several times has the model of its last assignment.
    """

    updates: RoundUpdates

    @cached_property
    def _rows(self) -> dict[int, int]:
        clients = self.updates.clients.tolist()
        return {client: row for row, client in enumerate(clients)}

    def __call__(self, client: int) -> Vector | None:
        """Return the model that the client received plus its update, as sent."""
        row = self._rows.get(client)
        return None if row is None else self.updates.local_model(row)
