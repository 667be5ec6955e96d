"""The last update of every client, and how alike these are: what samplers by similarity look back
on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from poise.core.sampling_distributions import SamplingDistributions
from poise.core.similarity import Measure, to_all
from poise.core.types import Floats, Record
from poise.core.vectors import Stack, Vector

GRADIENT = "gradient"
"""The name under which the ledger keeps a client's last update."""

SAMPLER = "sampler/"
"""How the names of tensors begin that the ledger keeps for a sampler."""

Made = Callable[[Floats], SamplingDistributions]


@dataclass
class Gradients:
    """Representative gradients G_i = last theta_i - theta, zero for a client that never worked.

    Only the rows of clients that worked are computed again: O(N m d) per round. A similarity is
    computed from its two updates alone, and rows are written in an order that the records tell, so
    that the matrix is the same to the bit when it is made anew from the ledger.

    Source: [Fraboni 2023, §3.5].
    """

    clients: int
    measure: Measure
    alike: Floats = field(init=False)  # (N, N)
    _rows: Stack | None = None
    _norms: Vector = field(init=False)
    _stale: list[int] = field(default_factory=list)
    _used: SamplingDistributions | None = None
    _ahead: Future[SamplingDistributions] | None = None
    _pool: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        self.alike = np.zeros((self.clients, self.clients))
        self._norms = torch.zeros(self.clients, dtype=torch.float64)

    def add(self, clients: Sequence[int], updates: Stack) -> dict[int, Vector]:
        """Take in what these clients sent, in this order; what is kept of each from now on."""
        if self._ahead is not None:
            self._ahead.result()  # it still reads the rows
        if self._rows is None and len(clients):
            self._rows = updates.new_zeros((self.clients, updates.shape[1]))
        for client, update in zip(clients, updates, strict=True):
            assert self._rows is not None
            self._rows[client] = update
            self._norms[client] = float(torch.linalg.vector_norm(update))
        self._stale += clients
        return {c: self._rows[c] for c in clients if self._rows is not None}

    def sampling_distributions(self, make: Made, ahead: bool) -> SamplingDistributions:
        """What ``make`` makes of the similarities: now, or in the background for the next time it
        is asked for.
        """
        if not ahead:
            return make(self.refreshed())
        if self._ahead is not None:
            self._used = self._ahead.result()
        elif self._used is None:
            self._used = make(self.alike)
        self._pool = self._pool or ThreadPoolExecutor(1, "poise-urns")
        self._ahead = self._pool.submit(self._later, make)
        return self._used

    def _later(self, make: Made) -> SamplingDistributions:
        torch.set_num_threads(1)  # PyTorch forgets a thread's setting when another changes its own
        return make(self.refreshed())

    def refreshed(self) -> Floats:
        """The similarities, after the rows that changed were computed again."""
        if self._stale:
            assert self._rows is not None
            found = to_all(
                self.measure, [self._rows[c] for c in self._stale], self._rows, self._norms
            )
            for client, row in zip(self._stale, found, strict=True):
                self.alike[client, :] = row
                self.alike[:, client] = row
            self._stale = []
        return self.alike

    def tensors(self) -> dict[str, torch.Tensor]:
        """The urns last drawn from, where they were made ahead: the ledger needs them to draw from
        them again.
        """
        if self._used is None:
            return {}
        u = self._used
        return {
            f"{SAMPLER}clients": torch.from_numpy(u.clients),
            f"{SAMPLER}ends": torch.from_numpy(u.ends),
            f"{SAMPLER}room": torch.tensor([u.room]),
        }

    def restore(
        self,
        kept: Mapping[int, Mapping[str, Vector]],
        records: Iterable[Record],
        tensors: Mapping[str, torch.Tensor],
    ) -> None:
        """Take up what the ledger kept: the gradients in the order in which they came."""
        order: dict[int, None] = {}
        for record in records:
            for c in record.contributions:
                order.pop(c.client, None)
                order[c.client] = None
        for client in order:
            self.add([client], kept[client][GRADIENT][None])
        found = {
            k.removeprefix(SAMPLER): v.numpy() for k, v in tensors.items() if k.startswith(SAMPLER)
        }
        if found:
            self._used = SamplingDistributions(
                found["clients"], found["ends"], int(found["room"][0])
            )

    def close(self) -> None:
        """Let go of the background thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
