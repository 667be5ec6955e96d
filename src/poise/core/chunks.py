"""Which pieces of local work are done together.

How work is cut depends on the work alone, never on who does it: so results do not depend on workers or machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
        with _named(self.clients, version):
            return local_work(
                oracle, solver, start, self.clients, version, self.streams, reports, out, memories, personal
            )


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
    size = oracle.rows(solver.batch_size)
    same = (np.diff(rules[order]) == 0) & (np.diff(widths[order]) == 0)
    cuts = np.flatnonzero(~same) + 1
    return [
        part
        for run in np.split(order, cuts) if len(run)
        for part in np.array_split(run, _parts(len(run), size, int(widths[run[0]]) * oracle.layout.size))
    ]  # fmt: skip


def _parts(rows: int, size: int, cost: int) -> int:
    """Into how many equal chunks of at most ``size`` rows some rows are cut; two where one would do but takes long.

    >>> _parts(100, 32, 10**6), _parts(45, 32, 10**6), _parts(20, 32, 10**6), _parts(20, 32, 10**3)
    (4, 2, 2, 1)
    """
    least = -(-rows // size)
    return 2 if least == 1 and size > 1 and rows > 1 and rows * cost >= LONG else least


@contextmanager
def _named(clients: Ints, version: int) -> Iterator[None]:
    """Errors that PyTorch raises inside local work say whose work it was."""
    try:
        yield
    except PoiseError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        who = f"client {clients[0]}" if len(clients) == 1 else f"clients {clients.tolist()}"
        few = "more than 1 value per channel" in str(error)
        hint = (
            "batch norm needs batches of two or more: choose a batch_size that leaves no single sample" if few else ""
        )
        raise UpdateRefused(f"round {version}: the local work of {who} failed: {error}", hint) from error
