"""The last update of every client and their similarities, for cluster samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from poise.core.row_distances import RowDistances
from poise.core.sampling_distributions import SamplingDistributions
from poise.core.similarity import Measure, to_all
from poise.core.types import Floats, Record
from poise.core.vectors import Stack, Vector

GRADIENT = "gradient"
"""The name under which the ledger keeps a client's last update."""

SAMPLER = "sampler/"
"""The prefix of the tensors that the ledger keeps for a sampler."""

ClusterClients = Callable[[RowDistances], SamplingDistributions]
"""Makes the sampling distributions from the distances of the similarities' rows."""


@dataclass
class Gradients:
    """Representative gradients G_i = last theta_i - theta, zero before the first work.

    Each round computes only the rows of clients that worked: O(N m d). A similarity
    depends on its two updates alone, and rows are written in the order of the records,
    so that a matrix rebuilt from the ledger is the same to the bit.

    Source: [Fraboni 2023, §3.5].
    """

    clients: int
    measure: Measure
    alike: Floats = field(init=False)  # (N, N)
    distances: RowDistances = field(init=False)
    _rows: Stack | None = None
    _norms: Vector = field(init=False)
    # clients whose similarities are out of date
    _stale: list[int] = field(default_factory=list)
    _used: SamplingDistributions | None = None
    _prefetched: Future[SamplingDistributions] | None = None
    _pool: ThreadPoolExecutor | None = None

    def __post_init__(self) -> None:
        self.alike = np.zeros((self.clients, self.clients))
        self.distances = RowDistances(self.alike, self.measure)
        self._norms = torch.zeros(self.clients, dtype=torch.float64)

    def add(self, clients: Sequence[int], updates: Stack) -> dict[int, Vector]:
        """Store the updates of these clients; return the stored rows by client."""
        if self._prefetched is not None:
            self._prefetched.result()  # the background thread still reads the rows
        if self._rows is None and len(clients):
            self._rows = updates.new_zeros((self.clients, updates.shape[1]))
        for client, update in zip(clients, updates, strict=True):
            assert self._rows is not None
            self._rows[client] = update
            self._norms[client] = float(torch.linalg.vector_norm(update))
        self._stale += clients
        return {c: self._rows[c] for c in clients if self._rows is not None}

    def sampling_distributions(
        self, make: ClusterClients, ahead: bool
    ) -> SamplingDistributions:
        """Return the distributions that ``make`` computes from the distances.

        With ``ahead``, return those of the previous call, and compute the next ones in
        the background.
        """
        if not ahead:
            return make(self.refreshed_distances())
        if self._prefetched is not None:
            self._used = self._prefetched.result()
        elif self._used is None:
            self._used = make(self.distances)
        self._pool = self._pool or ThreadPoolExecutor(1, "poise-sampling-distributions")
        self._prefetched = self._pool.submit(self._make_in_background, make)
        return self._used

    def _make_in_background(self, make: ClusterClients) -> SamplingDistributions:
        # PyTorch drops a thread's setting when another thread sets its own
        torch.set_num_threads(1)
        return make(self.refreshed_distances())

    def refreshed_distances(self) -> RowDistances:
        """Recompute what changed; return the distances of the similarities' rows."""
        self.refreshed()
        self.distances.refresh()
        return self.distances

    def refreshed(self) -> Floats:
        """Recompute the similarities that changed; return all of them, (N, N)."""
        if self._stale:
            assert self._rows is not None
            changed = [self._rows[client] for client in self._stale]
            similarities = to_all(self.measure, changed, self._rows, norms=self._norms)
            for client, row in zip(self._stale, similarities, strict=True):
                self.alike[client, :] = row
                self.alike[:, client] = row
            self.distances.changed(self._stale)
            self._stale = []
        return self.alike

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the prefetched distributions in use; the ledger keeps them."""
        if self._used is None:
            return {}
        return {
            f"{SAMPLER}clients": torch.from_numpy(self._used.clients),
            f"{SAMPLER}ends": torch.from_numpy(self._used.ends),
            f"{SAMPLER}room": torch.tensor([self._used.room]),
        }

    def restore(
        self,
        client_states: Mapping[int, Mapping[str, Vector]],
        records: Iterable[Record],
        tensors: Mapping[str, torch.Tensor],
    ) -> None:
        """Load the gradients from the ledger, in the order in which they arrived."""
        order: dict[int, None] = {}  # clients by their last arrival
        for record in records:
            for contribution in record.contributions:
                order.pop(contribution.client, None)
                order[contribution.client] = None
        for client in order:
            self.add([client], client_states[client][GRADIENT][None])
        stored = {
            name.removeprefix(SAMPLER): values.numpy()
            for name, values in tensors.items()
            if name.startswith(SAMPLER)
        }
        if stored:
            self._used = SamplingDistributions(
                stored["clients"], stored["ends"], room=int(stored["room"][0])
            )

    def close(self) -> None:
        """Stop the background thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
