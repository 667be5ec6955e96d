"""Which pieces of local work are done together.

How work is cut depends on the work alone, never on who does it: so results do not depend on workers or machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from poise.core.batches import batch_widths
from poise.core.errors import PoiseError, UpdateRefused
from poise.core.memory import Memories, memory_of
from poise.core.protocols import Oracle, Solver
from poise.core.rng import U64, keys
from poise.core.types import REPORTED, Flight, Ints, Updates
from poise.core.vectors import Stack, Vector
from poise.core.work import local_work

LONG = 5_000_000  # rows x samples x parameters of a step that are worth a second worker
PIECES = 16  # at least, where clients of a piece follow each other anyway


@dataclass(frozen=True)
class Piece:
    """Work of some clients that is done together; ``rows`` are their places among the flights asked for."""

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
        self, oracle: Oracle, solver: Solver, models: Mapping[int, Vector], reports: frozenset[str],
        out: Stack | None = None, memories: Memories | None = None, personal: torch.Tensor | None = None,
    ) -> Updates:  # fmt: skip
        """Do it; ``models`` holds the versions, ``out`` is where the changes may go."""
        version = int(self.versions[0])
        start = models[version].expand(len(self.rows), -1)
        if bool((self.versions != version).any()):
            start = torch.stack([models[int(v)] for v in self.versions])
        try:
            return local_work(
                oracle, solver, start, self.clients, version, self.streams, reports, out, memories, personal
            )
        except PoiseError:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError) as error:  # from PyTorch: say whose work it was
            for alone in self.apart() if start.device.type == "cpu" else ():  # a GPU's errors outlast their call
                alone.work(oracle, solver, models, reports, None, memories, personal)
            raise _refused(self.clients, version, error) from error

    def apart(self) -> list[Piece]:
        """A piece for each client, where there are several."""
        each = zip(*(np.split(v, len(v)) for v in (self.rows, self.clients, self.versions, self.streams)), strict=True)
        return [Piece(*one) for one in each] if len(self.rows) > 1 else []


def pieces(oracle: Oracle, solver: Solver, sizes: Ints, seed: int, flights: Sequence[Flight]) -> list[Piece]:
    """The work of these flights, cut into pieces; ``sizes`` are those of all clients."""
    clients, versions, occurrences = (
        np.array([getattr(f, name) for f in flights], dtype=np.int64) for name in ("client", "version", "occurrence")
    )
    streams = keys(seed, "work", versions, clients, occurrences)
    cut = chunked(oracle, solver, sizes[clients], versions)
    return [Piece(rows, clients[rows], versions[rows], streams[rows]) for rows in cut]


def room(spare: Stack | None, rows: int, like: Vector) -> Stack:
    """A place for so many changes of models like this one: ``spare``, where it is one."""
    fits = spare is not None and spare.shape == (rows, len(like)) and spare.dtype == like.dtype
    return spare if fits and spare is not None else like.new_empty((rows, len(like)))


def joined(cut: Sequence[Piece], done: Sequence[Updates], deltas: Stack) -> Updates:
    """What all pieces brought, in the order of the flights; the changes stand in ``deltas`` already."""
    whole = Updates.join(done, deltas)
    back = np.argsort(np.concatenate([piece.rows for piece in cut]))
    columns: dict[str, Any] = {name: None if (c := getattr(whole, name)) is None else c[back] for name in REPORTED}
    order = torch.from_numpy(back)
    return Updates(deltas, **columns, own={name: kept[order] for name, kept in whole.own.items()})


def chunked(oracle: Oracle, solver: Solver, sizes: Ints, versions: Ints) -> list[Ints]:
    """Rows that work together: one rule, one batch width, similar numbers of steps, most first.

    The rule changes with the model version only where the learning rate does or the solver has a memory.

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
    cuts = np.flatnonzero(~same) + 1
    return [
        part
        for run in np.split(order, cuts) if len(run)
        for part in np.array_split(run, _parts(len(run), oracle, solver.batch_size, int(widths[run[0]])))
    ]  # fmt: skip


def _parts(rows: int, oracle: Oracle, batch_size: int | None, width: int) -> int:
    """Into how many equal chunks so many rows are cut: few for speed, more where that keeps a worker from waiting."""
    least = -(-rows // oracle.rows(batch_size))
    if not oracle.stacked:
        return max(least, min(rows, PIECES))
    return 2 if least == 1 and rows > 1 and rows * width * oracle.layout.size >= LONG else least


def _refused(clients: Ints, version: int, error: Exception) -> UpdateRefused:
    who = f"client {clients[0]}" if len(clients) == 1 else f"clients {clients.tolist()}"
    few = "more than 1 value per channel" in str(error)
    hint = "batch norm needs batches of two or more: choose a batch_size that leaves no single sample" if few else ""
    return UpdateRefused(f"round {version}: the local work of {who} failed: {error}", hint)
