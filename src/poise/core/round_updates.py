"""Everything the server knows of the updates that arrived for one aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core.arrivals import changed, rows_of
from poise.core.errors import PoiseError, UpdatesUnknown, require, suggest
from poise.core.threads import WARM, MapWorkers, in_turn, row_blocks, rows_per_block
from poise.core.types import Contribution, Floats, Ints
from poise.core.vectors import Stack, Vector

Found = TypeVar("Found")

# squared distances below this share of what they are the rest of are taken from the rows themselves
NEAR = 0.05
COLUMNS = (
    2**15
)  # entries of a row that are added up in its own precision; the rest of the sum is in double

OLD_NAMES = {"sizes": "samples", "identical": "identical_weights", "seen": "participations"}
"""How `RoundUpdates.of_columns` also calls some columns."""


NO_COLUMN = {
    "stack",
    "client_state",
    "reasons",
    "round",
    "trainable",
    "reached",
    "models",
    "map_workers",
}
"""Arguments of `RoundUpdates.of_columns` that stay as they are; all others become arrays."""


def _shared(**options: Any) -> Any:
    """A field that is one value for the whole round, not a column with one row per update."""
    return field(metadata={"shared": True}, **options)


@dataclass(frozen=True, eq=False)
class RoundUpdates:
    """The updates of one aggregation, one row each, with what the server knows of their clients.

    Weightings, aggregators' callers, probes and solvers' algorithm_state read this value and
    nothing else. Facts that take a pass over the updates (`products`, `lengths`, `gram`, …) are
    computed when they are first asked for.

    Args:
        round: n, the number of the aggregation.
        clients: client numbers, (m,).
        versions: the model version that each worked on, (m,); ``round - versions`` is the
            staleness.
        occurrences: 0 for a client's first piece of work on a version, 1 for its second, …
        base_weights: omega_i of the sampler.
        importance: p_i.
        stack: the updates, after - before, (m, d): trainable entries first, then buffers.
        trainable: how many entries of an update gradients move.
        norms: lengths of the whole rows of ``stack``.
        samples: n_i.
        steps: local steps made.
        rates: learning rate of each client's local steps.
        loss_before: reported loss before the work; None unless a part needs it.
        loss_after: likewise after the work.
        lowest_loss: the lowest loss that each client has reported so far; inf for a new one.
        participations: in how many aggregations each client took part, this one included.
        identical_weights: the clock's weights that ignore times.
        balance: the clock's d_i/p_i; None unless the weighting needs it.
        adjacency: importance by degree in the similarity graph; None unless the weighting needs it.
        client_state: what each client keeps from now on, by name.
        reasons: why a row must not be used, "" where it may; empty where all may.
        reached: the best value of each metric so far.
        models: the model versions that clients received.
        map_workers: maps over the run's workers.
    """

    clients: Ints
    versions: Ints
    occurrences: Ints
    base_weights: Floats
    importance: Floats
    stack: Stack
    norms: Floats
    samples: Ints
    steps: Ints
    rates: Floats
    loss_before: Floats | None = None
    loss_after: Floats | None = None
    lowest_loss: Floats | None = None
    participations: Ints | None = None
    identical_weights: Floats | None = None
    balance: Floats | None = None
    adjacency: Floats | None = None
    client_state: Mapping[str, Stack] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    round: int = _shared(default=0)
    trainable: int = _shared(default=0)
    reached: Mapping[str, float] = _shared(default_factory=dict)
    models: Mapping[int, Vector] = _shared(default_factory=dict)
    map_workers: MapWorkers = _shared(default=in_turn)
    _weights: Floats | None = None
    _direction: Vector | None = _shared(default=None)
    _linear: bool = _shared(default=True)
    _given: bool = _shared(default=True)

    def __len__(self) -> int:
        return len(self.clients)

    @classmethod
    def of_columns(cls, base_weights: ArrayLike, **columns: Any) -> RoundUpdates:
        """A round of which only some columns are given; the others are neutral.

        >>> RoundUpdates.of_columns([0.5, 0.5], loss_before=[1.0, 2.0]).clients
        array([0, 1])
        """
        base = np.asarray(base_weights, dtype=np.float64)
        given = {OLD_NAMES.get(name, name): value for name, value in columns.items()}
        known = set(cls.__dataclass_fields__)
        for name in given:
            require(name in known, f"updates have no column {name!r}", suggest(name, known))
        for name in set(given) - NO_COLUMN:
            given[name] = None if given[name] is None else np.asarray(given[name])
        rows = len(base)
        ones = np.ones(rows, dtype=np.int64)
        stack = given.get("stack", torch.zeros((rows, 0)))
        neutral: dict[str, Any] = {
            "clients": np.arange(rows),
            "versions": np.full(rows, given.get("round") or 0),
            "occurrences": 0 * ones,
            "importance": base,
            "stack": stack,
            "norms": np.full(rows, np.nan),
            "samples": ones,
            "steps": ones,
            "rates": np.ones(rows),
            "trainable": stack.shape[1],
        }
        return cls(base_weights=base, _given="stack" in given, **{**neutral, **given})

    def columns(self) -> dict[str, Any]:
        """The columns by the names that they had in poise 0.1."""
        old = {new: name for name, new in OLD_NAMES.items()}
        names = (
            "clients",
            "versions",
            "importance",
            "norms",
            "samples",
            "loss_before",
            "loss_after",
            "lowest_loss",
            "participations",
            "identical_weights",
            "balance",
            "adjacency",
            "round",
            "reached",
        )
        return {old.get(name, name): vars(self)[name] for name in names}

    def rows(self, rows: Ints) -> RoundUpdates:
        """Some of the rows, in this order."""
        if len(rows) == len(self) and bool((rows == np.arange(len(rows))).all()):
            return self
        return rows_of(self, rows)

    def combined(self, weights: Floats, direction: Vector, linear: bool = True) -> RoundUpdates:
        """The same updates, with the coefficients that were applied and the direction that they
        gave.

        ``linear``: whether the direction is their weighted sum.
        """
        after = changed(self, _weights=weights, _direction=direction, _linear=linear)
        vars(after).update({name: vars(self)[name] for name in ("gram",) if name in vars(self)})
        return after

    @property
    def weights(self) -> Floats:
        """The coefficients applied, (m,)."""
        if self._weights is None:
            raise PoiseError(f"round {self.round}: the updates have not been weighed yet")
        return self._weights

    @property
    def direction(self) -> Vector:
        """The aggregated direction of the trainable entries, (trainable,)."""
        if self._direction is None:
            raise PoiseError(f"round {self.round}: the updates have not been combined yet")
        return self._direction[: self.trainable]

    @cached_property
    def weighted_sum(self) -> Vector:
        """``D = sum_i omega_i Delta_i`` of the trainable entries, whatever the aggregator made of
        them.
        """
        from poise.core import equation

        return self.direction if self._linear else equation.combine(self.weights, self.deltas)

    @property
    def deltas(self) -> Stack:
        """The trainable entries of the updates, (m, trainable)."""
        if not self._given:
            raise UpdatesUnknown(
                "the updates themselves are not given, only columns about them", "give stack="
            )
        return self.stack[:, : self.trainable]

    @property
    def staleness(self) -> Ints:
        """By how many aggregations each client's model was old, (m,)."""
        return np.asarray(self.round - self.versions)

    def contributions(self) -> tuple[Contribution, ...]:
        """What each update contributed, as the ledger keeps it."""
        missing = [None] * len(self)
        columns = (
            self.clients,
            self.versions,
            self.occurrences,
            self.base_weights,
            self.weights,
            self.norms,
            self.samples,
            self.steps,
            self.loss_before,
            self.loss_after,
        )
        rows = zip(*(missing if c is None else c.tolist() for c in columns), strict=True)
        return tuple(Contribution(*row) for row in rows)

    # ------------------------------------------------------------------------------- facts that
    # take a pass

    @cached_property
    def gram(self) -> Floats:
        """``Delta_i . Delta_j``, (m, m); blocks of columns are added up in double precision."""
        total, deltas = torch.zeros((len(self), len(self)), dtype=torch.float64), self.deltas
        for span in _spans(self.trainable):
            block = deltas[:, span]
            total += (block @ block.T).cpu()
        return np.asarray(total.numpy())

    @property
    def distances(self) -> Floats:
        """``|Delta_i - Delta_j|``, (m, m)."""
        squares = np.diag(self.gram)
        apart = squares[:, None] + squares[None, :] - 2 * self.gram
        return np.asarray(np.sqrt(np.maximum(apart, 0.0)))

    @cached_property
    def products(self) -> tuple[Floats, Floats]:
        """``Delta_i . D`` and ``|Delta_i|`` of every row."""
        return self._pass(lambda rows: None)[1]

    def map_row_blocks(self, at: Callable[[Stack], Found]) -> list[Found]:
        """What a function finds in blocks of rows, in the order of the rows.

        The same pass computes `products`, where nobody has asked for them yet: reading the rows is
        what takes the time.
        """
        found, vars(self)["products"] = self._pass(at)
        return found

    def _pass(self, look: Callable[[Stack], Found]) -> tuple[list[Found], tuple[Floats, Floats]]:
        known, total = vars(self).get("products"), self.weighted_sum

        def of(block: Stack) -> tuple[Found, list[Stack]]:
            few = (
                () if known else row_blocks(block, WARM)
            )  # still in the cache when the lengths are taken
            return look(block), [torch.stack([_products(r, total), _lengths(r)]) for r in few]

        seen = self.map_workers(of, row_blocks(self.deltas))
        if known is None:
            along, lengths = torch.cat([p for _, both in seen for p in both], dim=1).cpu().numpy()
            known = along, lengths
        return [found for found, _ in seen], known

    @cached_property
    def from_centre(self) -> Floats:
        """``|Delta_i - C|`` of every row, ``C = D/O`` with O the sum of the coefficients; nan where
        that is 0.

        ``|Delta_i|^2 - 2 Delta_i . C + |C|^2`` needs no further pass. Where it would cancel, the
        difference is taken.
        """
        total = float(self.weights.sum())
        if total == 0:
            return np.full(len(self), np.nan)
        centre = self.weighted_sum / total
        along, lengths = self.products
        whole = lengths**2 + float(_lengths(centre[None])) ** 2
        squares = whole - 2 * along / total
        found = np.sqrt(np.maximum(squares, 0.0))
        near = np.flatnonzero(~(squares > NEAR * whole))
        if len(near):
            few = rows_per_block(self.deltas)
            blocks = [torch.from_numpy(near[k : k + few]) for k in range(0, len(near), few)]
            taken = self.map_workers(lambda rows: _lengths(self.deltas[rows] - centre), blocks)
            found[near] = torch.cat(taken).cpu().numpy()
        return np.asarray(found)


def _products(rows: Stack, vector: Vector) -> Vector:
    """``row . vector`` of every row, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for span in _spans(len(vector)):
        total += rows[:, span] @ vector[span]
    return total


def _lengths(rows: Stack) -> Vector:
    """The length of every row, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for span in _spans(rows.shape[1]):
        total += torch.linalg.vector_norm(rows[:, span], dim=1).double().square_()
    return total.sqrt_()


def _spans(size: int) -> list[slice]:
    return [slice(a, a + COLUMNS) for a in range(0, size, COLUMNS)]
