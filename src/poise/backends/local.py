"""Work in this process, on one thread per core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from poise.core.batches import batch_widths
from poise.core.errors import PoiseError, UpdateRefused, require
from poise.core.memory import PERSONAL, Memories, memory_of
from poise.core.parts import part
from poise.core.protocols import Oracle, Solver
from poise.core.rng import keys
from poise.core.types import REPORTED, Flight, Ints, Updates
from poise.core.vectors import Stack, Vector
from poise.core.work import local_work


@part("backend", "local")
class Local:
    """Simulate in this process.

    The cohort is cut into chunks of clients; worker threads take one chunk each, with one thread
    inside PyTorch, so that results do not depend on the number of workers.

    Args:
        workers: worker threads; None for one per core that this process may use.
        device: where models and gradients live, e.g. ``"cpu"`` or ``"cuda:0"``.
    """

    workers: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        require(self.workers is None or self.workers >= 1, f"Local: workers must be at least 1, not {self.workers}")

    def open(
        self, oracle: Oracle, solver: Solver, sizes: Ints, seed: int, personal: torch.Tensor | None = None
    ) -> LocalWorkers:
        """Start the workers for a federation with these client sizes."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = self.workers or (cores if self.device == "cpu" else 1)
        return LocalWorkers(oracle, solver, sizes, seed, workers, personal)


@dataclass
class LocalWorkers:
    """Running worker threads."""

    oracle: Oracle
    solver: Solver
    sizes: Ints
    seed: int
    workers: int
    personal: torch.Tensor | None = None
    _pool: ThreadPoolExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.workers, "poise")

    def work(
        self,
        models: Mapping[int, Vector],
        flights: Sequence[Flight],
        reports: frozenset[str],
        spare: Stack | None = None,
        memories: Memories | None = None,
    ) -> Updates:
        """Do these pieces of work, each from the model version it names."""
        clients, versions, occurrences = (
            np.array([getattr(f, name) for f in flights], dtype=np.int64)
            for name in ("client", "version", "occurrence")
        )
        streams = keys(self.seed, "work", versions, clients, occurrences)
        first = next(iter(models.values()))
        fits = spare is not None and spare.shape == (len(flights), len(first)) and spare.dtype == first.dtype
        deltas = spare if fits and spare is not None else first.new_empty((len(flights), len(first)))

        chunks = self._chunks(clients, versions)

        def do(rows: Ints) -> Updates:
            version = int(versions[rows[0]])
            alone = bool((versions[rows] == version).all())
            start = (
                models[version].expand(len(rows), -1)
                if alone
                else torch.stack([models[int(v)] for v in versions[rows]])
            )
            own = _contiguous(rows)
            place = deltas[rows[0] : rows[-1] + 1] if own else None
            with _named(clients[rows], version):
                done = local_work(
                    self.oracle, self.solver, start, clients[rows], version, streams[rows], reports, place,
                    memories, self.personal,
                )  # fmt: skip
            if not own:
                deltas[torch.from_numpy(rows)] = done.deltas
            return done

        done = Updates.join(self.spread(do, chunks), deltas)
        back = np.argsort(np.concatenate(chunks))
        columns: dict[str, Any] = {name: None if (c := getattr(done, name)) is None else c[back] for name in REPORTED}
        order = torch.from_numpy(back)
        return Updates(deltas, **columns, own={name: kept[order] for name, kept in done.own.items()})

    def _chunks(self, clients: Ints, versions: Ints) -> list[Ints]:
        """Rows that work together: one rule, one batch width, similar numbers of steps, most first.

        The rule changes with the model version only where the learning rate does or the solver has a memory.
        """
        sizes = self.sizes[clients]
        widths = batch_widths(sizes, self.solver.batch_size)
        rules = versions
        if memory_of(self.solver) is None:
            rates = {int(v): self.solver.rate(int(v)) for v in np.unique(versions)}
            rules = np.array([rates[int(v)] for v in versions])
        order = np.lexsort((-self.solver.steps_for(sizes), widths, rules))
        size = self.oracle.rows(self.solver.batch_size)
        same = (np.diff(rules[order]) == 0) & (np.diff(widths[order]) == 0)
        cuts = np.flatnonzero(~same) + 1
        return [part for run in np.split(order, cuts) for part in np.array_split(run, _parts(len(run), size))]

    def measure(self, theta: Vector, names: frozenset[str], memories: Memories | None = None) -> dict[str, Any]:
        """Metrics of a model; with personal layers, of each client's own version of it."""
        if self.personal is None or memories is None:
            return self.oracle.measure(theta, names, self.spread)
        return self.oracle.measure(theta, names, self.spread, _Personal(self.personal, memories))

    def spread(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Map over the workers; results in order."""

        def alone(item: Any) -> Any:
            torch.set_num_threads(1)  # in every task: PyTorch forgets a thread's setting when another changes its own
            return function(item)

        todo = list(items)
        if len(todo) == 1:  # one piece needs no other thread: handing it over costs more than a small one takes
            return [alone(todo[0])]
        return list(self._pool.map(alone, todo))

    def close(self) -> None:
        """Stop the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class _Personal:
    """Each client's own version of a model."""

    positions: torch.Tensor
    memories: Memories

    def __call__(self, theta: Vector, client: int) -> Vector:
        own = self.memories.own.get(client, {}).get(PERSONAL)
        if own is None:
            return theta
        mine = theta.clone()
        mine[self.positions] = own.to(theta)
        return mine


def _parts(rows: int, size: int) -> int:
    """Into how many equal chunks of at most ``size`` rows some rows are cut; two where one would do but is long.

    It depends on the rows alone, never on the workers: so does what is computed.

    >>> _parts(100, 32), _parts(45, 32), _parts(20, 32), _parts(5, 32)
    (4, 2, 2, 1)
    """
    least = max(-(-rows // size), 1)
    return 2 if least == 1 and size > 1 and rows >= LONG else least


LONG = 16  # rows that are worth a second worker


def _contiguous(rows: Ints) -> bool:
    return bool((np.diff(rows) == 1).all())


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
