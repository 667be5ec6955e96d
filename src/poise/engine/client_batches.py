"""Which pieces of local work are done together.

How work is cut depends on the work alone, never on who does it: so results do not depend on workers
or machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.algorithm_state import AlgorithmState, memory_of
from poise.core.arrivals import UPDATE, Arrivals, rows_of
from poise.core.batches import batch_widths
from poise.core.errors import PoiseError, UpdateRefused
from poise.core.protocols import Oracle, Solver, WorkOrder
from poise.core.rng import U64, keys
from poise.core.types import Assignment, Ints
from poise.core.vectors import Stack, Vector
from poise.engine.local_work import LocalWork, WorkGroup

LONG = 5_000_000  # rows x samples x parameters of a step that are worth a second worker
PIECES = 16  # at least, where clients of a batch follow each other anyway


@dataclass(frozen=True)
class ClientBatch:
    """Clients whose work is done together; ``rows`` are their places among the assignments asked
    for.
    """

    rows: Ints
    clients: Ints
    versions: Ints
    streams: U64

    @property
    def span(self) -> slice | None:
        """Where the rows stand together, that place."""
        together = bool((np.diff(self.rows) == 1).all())
        return slice(int(self.rows[0]), int(self.rows[-1]) + 1) if together else None

    def work(
        self,
        local: LocalWork,
        models: Mapping[int, Vector],
        reports: frozenset[str],
        algorithm_state: AlgorithmState,
        out: Stack | None = None,
    ) -> Arrivals:
        """Do it; ``models`` holds the versions, ``out`` is where the changes may go."""
        version = int(self.versions[0])
        start = models[version].expand(len(self.rows), -1)
        if bool((self.versions != version).any()):
            start = torch.stack([models[int(v)] for v in self.versions])
        try:
            return local.run(
                start, WorkGroup(self.clients, version, self.streams, reports), algorithm_state, out
            )
        except PoiseError:
            raise
        except (
            RuntimeError,
            ValueError,
            IndexError,
            TypeError,
        ) as error:  # from PyTorch: say whose work it was
            if start.device.type == "cpu":  # a GPU's errors outlast their call
                for alone in self.apart():
                    alone.work(local, models, reports, algorithm_state)
            raise _refused(self.clients, version, error) from error

    def apart(self) -> list[ClientBatch]:
        """A batch for each client, where there are several."""
        if len(self.rows) == 1:
            return []
        columns = (self.rows, self.clients, self.versions, self.streams)
        return [
            ClientBatch(*one) for one in zip(*(np.split(c, len(c)) for c in columns), strict=True)
        ]


def client_batches(
    local: LocalWork, sizes: Ints, seed: int, assignments: Sequence[Assignment]
) -> list[ClientBatch]:
    """The work of these assignments, cut into batches; ``sizes`` are those of all clients."""
    clients = np.array([f.client for f in assignments], dtype=np.int64)
    versions = np.array([f.version for f in assignments], dtype=np.int64)
    occurrences = np.array([f.occurrence for f in assignments], dtype=np.int64)
    streams = keys(seed, "work", versions, clients, occurrences)
    cut = cut_rows(local.oracle, local.solver, sizes[clients], versions)
    return [ClientBatch(rows, clients[rows], versions[rows], streams[rows]) for rows in cut]


@dataclass
class Gathered:
    """Collects the answers of batches in the order of the assignments.

    Where updates travel as they are, batches write them straight into one stack.
    """

    local: LocalWork
    batches: Sequence[ClientBatch]
    stack: Stack | None

    @classmethod
    def of(
        cls, local: LocalWork, batches: Sequence[ClientBatch], order: WorkOrder, spare: Stack | None
    ) -> Gathered:
        """An empty collection; ``spare`` is used as the stack, where it fits."""
        if not local.wire.direct:
            return cls(local, batches, None)
        like = next(iter(order.models.values()))
        shape = (len(order.assignments), len(like))
        if spare is None or spare.shape != shape or spare.dtype != like.dtype:
            spare = like.new_empty(shape)
        return cls(local, batches, spare)

    def place(self, batch: ClientBatch) -> Stack | None:
        """Where a batch may write its updates; None where it must make room itself."""
        return None if self.stack is None or batch.span is None else self.stack[batch.span]

    def put(self, batch: ClientBatch, done: Arrivals) -> None:
        """Copy the updates of a batch that did not write them in place."""
        if self.stack is not None:
            self.stack[torch.from_numpy(batch.rows)] = done.payload[UPDATE]

    def joined(self, done: Sequence[Arrivals]) -> Arrivals:
        """What all batches brought, in the order of the assignments."""
        if self.stack is not None:  # the updates stand in the stack already
            done = [replace(part, payload={}) for part in done]
        back = np.argsort(np.concatenate([batch.rows for batch in self.batches]))
        arrivals: Arrivals = rows_of(Arrivals.join(done), back)
        return arrivals if self.stack is None else arrivals.with_payload({UPDATE: self.stack})


def cut_rows(oracle: Oracle, solver: Solver, sizes: Ints, versions: Ints) -> list[Ints]:
    """Rows that work together: one rule, one batch width, similar numbers of steps, most first.

    The rule changes with the model version only where the learning rate does or the solver has a
    memory.

    Args:
        oracle: says how many clients to put into one call.
        solver: says how each of them steps.
        sizes: samples of each row's client, (m,).
        versions: the model version that each row works on, (m,).
    """
    widths = batch_widths(sizes, solver.batch_size)
    rules = versions
    if memory_of(solver) is None:
        rates = {int(v): solver.rate(int(v)) for v in np.unique(versions)}
        rules = np.array([rates[int(v)] for v in versions])
    order = np.lexsort((-solver.steps_for(sizes), widths, rules))
    same = (np.diff(rules[order]) == 0) & (np.diff(widths[order]) == 0)
    chunks: list[Ints] = []
    for run in np.split(order, np.flatnonzero(~same) + 1):
        if len(run):
            parts = _parts(len(run), oracle, solver.batch_size, int(widths[run[0]]))
            chunks += np.array_split(run, parts)
    return chunks


def _parts(rows: int, oracle: Oracle, batch_size: int | None, width: int) -> int:
    """Into how many equal chunks so many rows are cut: few for speed, more where that keeps a
    worker from waiting.
    """
    least = -(-rows // oracle.rows(batch_size))
    if not oracle.stacked:
        return max(least, min(rows, PIECES))
    return 2 if least == 1 and rows > 1 and rows * width * oracle.layout.size >= LONG else least


def _refused(clients: Ints, version: int, error: Exception) -> UpdateRefused:
    who = f"client {clients[0]}" if len(clients) == 1 else f"clients {clients.tolist()}"
    few = "more than 1 value per channel" in str(error)
    hint = (
        "batch norm needs batches of two or more: choose a batch_size that leaves no single sample"
        if few
        else ""
    )
    return UpdateRefused(f"round {version}: the local work of {who} failed: {error}", hint)
