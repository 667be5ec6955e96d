"""Group assignments into batches of clients that work together.

The grouping depends on the assignments alone, never on workers or machines. So results
do not depend on them either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core import spill
from poise.core.algorithm_state import AlgorithmState, memory_of
from poise.core.arrivals import UPDATE, Arrivals, rows_of
from poise.core.batches import batch_widths
from poise.core.capabilities import samples_per_step
from poise.core.errors import PoiseError, UpdateRefused
from poise.core.protocols import Oracle, Solver, WorkOrder
from poise.core.rng import U64, keys
from poise.core.types import Assignment, Ints
from poise.core.vectors import Stack, Vector
from poise.engine.local_work import LocalWork, WorkGroup

LARGE_STEP = 5_000_000
"""From this many rows x samples x parameters on, a step is worth a second worker."""

LEAST_CHUNKS = 16
"""The least number of chunks if an oracle computes clients one after the other."""

LARGE_COHORT = 2**28
"""From this many numbers on, the updates of a cohort are too many for memory."""

LARGE_CHUNK = 2**24
"""The numbers of a chunk of such a cohort, if clients are computed one by one."""


@dataclass(frozen=True)
class ClientBatch:
    """Clients that work together; ``rows`` are their places among the assignments."""

    rows: Ints
    clients: Ints
    versions: Ints
    streams: U64

    @property
    def span(self) -> slice | None:
        """The slice of the rows if they are consecutive, otherwise None."""
        if not bool((np.diff(self.rows) == 1).all()):
            return None
        return slice(int(self.rows[0]), int(self.rows[-1]) + 1)

    def work(
        self,
        local: LocalWork,
        models: Mapping[int, Vector],
        reports: frozenset[str],
        algorithm_state: AlgorithmState,
        out: Stack | None = None,
    ) -> Arrivals:
        """Do the local work; ``models`` by version, ``out`` memory for the updates."""
        version = int(self.versions[0])
        start = models[version].expand(len(self.rows), -1)
        if bool((self.versions != version).any()):
            start = torch.stack([models[int(v)] for v in self.versions])
        group = WorkGroup(self.clients, version, streams=self.streams, reports=reports)
        try:
            return local.run(start, group, algorithm_state=algorithm_state, out=out)
        except PoiseError:
            raise
        except (
            RuntimeError,
            ValueError,
            IndexError,
            TypeError,
        ) as error:  # from PyTorch
            if start.device.type == "cpu":  # errors on a GPU outlast their call
                for single in (
                    self.apart()
                ):  # the client at fault raises an error with its number
                    single.work(local, models, reports, algorithm_state)
            raise _work_failed(self.clients, version, error) from error

    def apart(self) -> list[ClientBatch]:
        """Return one batch per client; empty if there is only one client."""
        if len(self.rows) == 1:
            return []
        singles = []
        for k in range(len(self.rows)):
            row = slice(k, k + 1)
            singles.append(
                ClientBatch(
                    rows=self.rows[row],
                    clients=self.clients[row],
                    versions=self.versions[row],
                    streams=self.streams[row],
                )
            )
        return singles


def client_batches(
    local: LocalWork, sizes: Ints, seed: int, assignments: Sequence[Assignment]
) -> list[ClientBatch]:
    """Group the assignments into batches; ``sizes`` are those of all clients, (N,)."""
    clients = np.array([a.client for a in assignments], dtype=np.int64)
    versions = np.array([a.version for a in assignments], dtype=np.int64)
    occurrences = np.array([a.occurrence for a in assignments], dtype=np.int64)
    streams = keys(seed, "work", versions, clients, occurrences)
    chunks = cut_rows(
        local.oracle, local.solver, sizes=sizes[clients], versions=versions
    )
    return [
        ClientBatch(rows, clients[rows], versions=versions[rows], streams=streams[rows])
        for rows in chunks
    ]


@dataclass
class Gathered:
    """Collects the answers of batches in the order of the assignments.

    If updates travel whole and unchanged, batches write them straight into one stack.
    """

    local: LocalWork
    batches: Sequence[ClientBatch]
    stack: Stack | None

    @classmethod
    def of(
        cls,
        local: LocalWork,
        batches: Sequence[ClientBatch],
        order: WorkOrder,
        spare: Stack | None,
    ) -> Gathered:
        """Return an empty collection, with ``spare`` as its stack if that fits."""
        if not local.wire.direct:
            return cls(local, batches, stack=None)
        model = next(iter(order.models.values()))
        shape = (len(order.assignments), len(model))
        if spare is None or spare.shape != shape or spare.dtype != model.dtype:
            spare = spill.empty(shape, model)
        return cls(local, batches, stack=spare)

    def place(self, batch: ClientBatch) -> Stack | None:
        """Return memory for a batch's updates; None: the batch allocates its own."""
        if self.stack is None or batch.span is None:
            return None
        return self.stack[batch.span]

    def put(self, batch: ClientBatch, done: Arrivals) -> None:
        """Copy the updates of a batch that did not write them in place."""
        if self.stack is not None:
            self.stack[torch.from_numpy(batch.rows)] = done.payload[UPDATE]

    def finish(self, batch: ClientBatch) -> None:
        """Release the memory of a batch's updates, if the stack is in a file."""
        if self.stack is None or not spill.in_file(self.stack):
            return
        for row in batch.rows.tolist():
            spill.release(self.stack[row])

    def joined(self, done: Sequence[Arrivals]) -> Arrivals:
        """Return the answers of all batches, in the order of the assignments."""
        if self.stack is not None:  # the stack already has the updates
            done = [replace(part, payload={}) for part in done]
        order = np.argsort(np.concatenate([batch.rows for batch in self.batches]))
        arrivals: Arrivals = rows_of(Arrivals.join(done), order)
        if self.stack is None:
            return arrivals
        return arrivals.with_payload({UPDATE: self.stack})


def cut_rows(oracle: Oracle, solver: Solver, sizes: Ints, versions: Ints) -> list[Ints]:
    """Cut rows into chunks of one step rule, one batch width and similar step counts.

    The rows with most steps come first. The step rule changes with the model version
    only if the learning rate does, or if the solver has a memory.

    Args:
        oracle: limits how many clients go into one call.
        solver: gives the step rules and numbers of steps.
        sizes: samples of each row's client, (m,).
        versions: the model version of each row, (m,).
    """
    widths = batch_widths(sizes, samples_per_step(solver))
    rules = versions
    if memory_of(solver) is None:
        rates = {v: solver.rate(v) for v in set(versions.tolist())}
        rules = np.array([rates[int(v)] for v in versions])
    order = np.lexsort((-solver.steps_for(sizes), widths, rules))
    alike = (np.diff(rules[order]) == 0) & (np.diff(widths[order]) == 0)
    size = oracle.layout.size
    chunks: list[Ints] = []
    for rows in np.split(order, np.flatnonzero(~alike) + 1):
        if len(rows):
            width = int(widths[rows[0]])
            count = _chunk_count(len(rows), oracle, width=width)
            if not oracle.stacks(width) and len(sizes) * size > LARGE_COHORT:
                count = max(count, -(-len(rows) * size // LARGE_CHUNK))
            chunks += np.array_split(rows, min(count, len(rows)))
    return chunks


def _chunk_count(rows: int, oracle: Oracle, width: int) -> int:
    """Return the number of equal chunks: few for speed, more to keep workers busy."""
    least = -(-rows // oracle.rows(width))
    if not oracle.stacks(width):
        return max(least, min(rows, LEAST_CHUNKS))
    large = rows * width * oracle.layout.size >= LARGE_STEP
    if least == 1 and rows > 1 and large:
        return 2
    return least


def _work_failed(clients: Ints, version: int, error: Exception) -> UpdateRefused:
    """Return the error for local work that failed in PyTorch."""
    if len(clients) == 1:
        names = f"client {clients[0]}"
    else:
        names = f"clients {clients.tolist()}"
    hint = ""
    if "more than 1 value per channel" in str(error):
        hint = (
            "batch norm needs batches of two or more: choose a batch_size that leaves no single "
            "sample"
        )
    return UpdateRefused(
        f"round {version}: the local work of {names} failed: {error}", hint
    )
