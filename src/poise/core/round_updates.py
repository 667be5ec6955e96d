"""`RoundUpdates`: the server's facts about the updates of one aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core import spill
from poise.core.arrivals import changed, rows_of
from poise.core.errors import InvalidOption, PoiseError, UpdatesUnknown, suggest
from poise.core.threads import WARM, MapWorkers, in_turn, row_blocks, rows_per_block
from poise.core.types import Contribution, Floats, Ints
from poise.core.vectors import Stack, Vector

Result = TypeVar("Result")

NEAR = 0.05
"""Below this share of |Delta_i|^2 + |C|^2, subtract vectors before squaring."""

COLUMNS = 2**15
"""Entries that are summed in the row's precision; blocks are summed in double."""

OLD_NAMES = {
    "sizes": "samples",
    "identical": "identical_weights",
    "seen": "participations",
}
"""Names of columns in poise 0.1, which `RoundUpdates.of_columns` still accepts."""

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
"""Arguments of `RoundUpdates.of_columns` that stay as they are; others: arrays."""


def _shared(**options: Any) -> Any:
    """Declare a field with one value for the whole round, not one row per update."""
    return field(metadata={"shared": True}, **options)


@dataclass(frozen=True, eq=False)
class RoundUpdates:
    """The updates of one aggregation, one row each, with facts about their clients.

    Weightings, aggregators, probes and solvers' memories read this value only. Facts
    that need a pass over the updates (`gram`, `products`, `from_centre`, …) are
    computed at first use and cached.

    Args:
        round: n, the number of the aggregation.
        clients: client numbers, (m,).
        versions: the model version that each client worked on, (m,);
            ``round - versions`` is the staleness.
        occurrences: 0 for a client's first assignment on a version, 1 for its second, …
        base_weights: omega_i of the sampler.
        importance: p_i.
        stack: the updates, after - before, (m, d): trainable entries first, then
            buffers.
        trainable: the number of trainable entries of an update.
        norms: lengths of the whole rows of ``stack``.
        samples: n_i.
        steps: local steps that each client made.
        rates: learning rate of each client's local steps.
        loss_before: reported loss before the work; None unless a part needs it.
        loss_after: likewise after the work.
        lowest_loss: the lowest loss that each client has reported so far; inf for a new
            client.
        participations: in how many aggregations each client took part, including this
            one.
        identical_weights: the clock's weights, which ignore times.
        balance: the clock's d_i/p_i; None unless the weighting needs it.
        adjacency: importance by degree in the similarity graph; None unless the
            weighting needs it.
        client_state: the vectors that each client keeps from now on, by name.
        reasons: why the server must refuse a row, "" for a good row; empty if all are
            good.
        reached: the best value of each metric so far.
        models: the models that clients received, by version.
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
    _has_stack: bool = _shared(default=True)

    def __len__(self) -> int:
        return len(self.clients)

    @classmethod
    def of_columns(cls, base_weights: ArrayLike, **columns: Any) -> RoundUpdates:
        """Return a round from some columns; the other columns get neutral values.

        >>> RoundUpdates.of_columns([0.5, 0.5], loss_before=[1.0, 2.0]).clients
        array([0, 1])
        """
        base = np.asarray(base_weights, dtype=np.float64)
        given = {OLD_NAMES.get(name, name): value for name, value in columns.items()}
        known = set(cls.__dataclass_fields__)
        for name in given:
            if name not in known:
                raise InvalidOption(
                    f"updates have no column {name!r}", suggest(name, known)
                )
        for name in set(given) - NO_COLUMN:
            if given[name] is not None:
                given[name] = np.asarray(given[name])
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
        return cls(
            base_weights=base, _has_stack="stack" in given, **{**neutral, **given}
        )

    def columns(self) -> dict[str, Any]:
        """Return the columns under their names in poise 0.1."""
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
        """Return the selected rows, in this order."""
        if len(rows) == len(self) and bool((rows == np.arange(len(rows))).all()):
            return self
        return rows_of(self, rows)

    def combined(
        self, weights: Floats, direction: Vector, linear: bool = True
    ) -> RoundUpdates:
        """Return the same updates with the applied coefficients and the direction.

        ``linear``: whether the direction is the weighted sum of the updates.
        """
        after = changed(self, _weights=weights, _direction=direction, _linear=linear)
        if "gram" in vars(
            self
        ):  # the cached products do not depend on the coefficients
            vars(after)["gram"] = vars(self)["gram"]
        return after

    @property
    def weights(self) -> Floats:
        """The applied coefficients, (m,)."""
        if self._weights is None:
            raise PoiseError(
                f"round {self.round}: the updates have no coefficients yet"
            )
        return self._weights

    @property
    def direction(self) -> Vector:
        """The aggregated direction of the trainable entries, (trainable,)."""
        if self._direction is None:
            raise PoiseError(f"round {self.round}: the updates have no direction yet")
        return self._direction[: self.trainable]

    @cached_property
    def weighted_sum(self) -> Vector:
        """``D = sum_i omega_i Delta_i`` of trainable entries, for any aggregator."""
        from poise.core import equation

        if self._linear:
            return self.direction
        return equation.combine(self.weights, self.deltas)

    @property
    def deltas(self) -> Stack:
        """The trainable entries of the updates, (m, trainable)."""
        if not self._has_stack:
            raise UpdatesUnknown(
                "the updates themselves are not given, only columns about them",
                "give stack=",
            )
        return self.stack[:, : self.trainable]

    @property
    def staleness(self) -> Ints:
        """How many aggregations old each client's model was, (m,)."""
        return np.asarray(self.round - self.versions)

    def local_model(self, row: int) -> Vector:
        """Return a client's model after its work: the one it received plus its update."""
        return self.models[int(self.versions[row])] + self.stack[row]

    def contributions(self) -> tuple[Contribution, ...]:
        """Return the contribution of each update, as the ledger keeps it."""
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
        lists = [missing if column is None else column.tolist() for column in columns]
        return tuple(Contribution(*row) for row in zip(*lists, strict=True))

    # facts that need a pass over the updates
    # ------------------------------------------------------

    @cached_property
    def gram(self) -> Floats:
        """``Delta_i . Delta_j``, (m, m); sums over blocks in double precision."""
        deltas = self.deltas
        total = torch.zeros((len(self), len(self)), dtype=torch.float64)
        for span in _spans(self.trainable):
            block = deltas[:, span]
            total += (block @ block.T).cpu()
            spill.release(block)
        return np.asarray(total.numpy())

    @property
    def distances(self) -> Floats:
        """``|Delta_i - Delta_j|``, (m, m)."""
        squares = np.diag(self.gram)
        squared_distances = squares[:, None] + squares[None, :] - 2 * self.gram
        return np.asarray(np.sqrt(np.maximum(squared_distances, 0.0)))

    @cached_property
    def products(self) -> tuple[Floats, Floats]:
        """``Delta_i . D`` and ``|Delta_i|`` of every row."""
        return self._pass(lambda rows: None)[1]

    def map_row_blocks(self, function: Callable[[Stack], Result]) -> list[Result]:
        """Map a function over blocks of rows, in the order of the rows.

        The same pass also computes `products`, unless they are cached: reading the rows
        takes most of the time.
        """
        results, vars(self)["products"] = self._pass(function)
        return results

    def _pass(
        self, function: Callable[[Stack], Result]
    ) -> tuple[list[Result], tuple[Floats, Floats]]:
        """Read all rows once; return the function's results and the `products`."""
        products = vars(self).get("products")
        total = self.weighted_sum

        def read(block: Stack) -> tuple[Result, list[Stack]]:
            result = function(block)
            pairs: list[Stack] = []
            if products is None:
                # the second read finds them in the cache
                for rows in row_blocks(block, WARM):
                    pairs.append(torch.stack([_products(rows, total), _lengths(rows)]))
            spill.release(block)
            return result, pairs

        answers = self.map_workers(read, row_blocks(self.deltas))
        results = [result for result, _ in answers]
        if products is not None:
            return results, products
        pairs = [pair for _, block_pairs in answers for pair in block_pairs]
        along, lengths = torch.cat(pairs, dim=1).cpu().numpy()
        return results, (along, lengths)

    @cached_property
    def from_centre(self) -> Floats:
        """``|Delta_i - C|`` per row, with ``C = D/O``, O the sum of coefficients.

        nan if O is 0. ``|Delta_i|^2 - 2 Delta_i . C + |C|^2`` needs no further pass;
        rows for which it would cancel are computed from the difference.
        """
        total = float(self.weights.sum())
        if total == 0:
            return np.full(len(self), np.nan)
        centre = self.weighted_sum / total
        along, lengths = self.products
        whole = lengths**2 + float(_lengths(centre[None])) ** 2
        squares = whole - 2 * along / total
        distances = np.sqrt(np.maximum(squares, 0.0))
        near = np.flatnonzero(~(squares > NEAR * whole))
        if len(near):
            size = rows_per_block(self.deltas)
            blocks = [
                torch.from_numpy(near[k : k + size]) for k in range(0, len(near), size)
            ]
            exact = self.map_workers(
                lambda rows: _lengths(self.deltas[rows] - centre), blocks
            )
            distances[near] = torch.cat(exact).cpu().numpy()
        return np.asarray(distances)


def _products(rows: Stack, vector: Vector) -> Vector:
    """Return ``row . vector`` of every row, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for span in _spans(len(vector)):
        total += rows[:, span] @ vector[span]
    return total


def _lengths(rows: Stack) -> Vector:
    """Return the length of every row, in double precision."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for span in _spans(rows.shape[1]):
        total += torch.linalg.vector_norm(rows[:, span], dim=1).double().square_()
    return total.sqrt_()


def _spans(size: int) -> list[slice]:
    """Cut a row of this size into blocks of `COLUMNS` entries."""
    return [slice(a, a + COLUMNS) for a in range(0, size, COLUMNS)]
