"""The contract of aggregators."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from poise.core.equation import combine
from poise.core.protocols import Aggregator
from poise.core.rng import generator
from poise.core.traits import AggregatorTraits, traits_of
from poise.core.types import Floats, Setting
from poise.core.vectors import Stack, Vector
from poise.testing.clauses import fits, holds, quietly, setting_of

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
"""Tolerated error of a direction, as a share of O times the largest entry."""


@dataclass(frozen=True)
class _Round:
    """The updates of a round and their coefficients."""

    deltas: Stack
    weights: Floats

    def direction(self, aggregator: Aggregator) -> Vector:
        """Return the direction that the aggregator computes."""
        call = partial(aggregator.combine, self.deltas, self.weights)
        return quietly(call, aggregator, f"combines {len(self.weights)} rows")

    def differs(self, direction: Vector, wanted: Vector) -> float:
        """Return the largest difference, as a multiple of this round's tolerance."""
        scale = float(self.weights.sum()) * float(self.deltas.abs().max())
        return (
            float((direction - wanted).abs().max())
            / scale
            / TOLERANCE[self.deltas.dtype]
        )


def check_aggregator(
    aggregator: Aggregator, setting: Setting | None = None, *, seed: int = 0
) -> None:
    """Check the contract of aggregators.

    Clauses: a finite direction of the type and length of the updates, the same at every
    call; nothing that was given is modified; permuting the rows changes nothing; rows
    of weight 0 count nothing; weights times a give the direction times a; one row gives
    its weight times the row, and equal rows give the sum of the weights times the row;
    no rows, or weights that are all 0, give 0; where ``traits.linear`` is declared, the
    direction is the weighted sum.

    Args:
        aggregator: the aggregator.
        setting: the setting that it must accept; eight clients by default.
        seed: of the random updates and weights.
    """
    fits(aggregator, setting or setting_of())
    rng = generator(seed, "aggregator")
    for dtype in (torch.float32, torch.float64):
        for rows in (1, 2, 6, 7):
            deltas = torch.from_numpy(rng.standard_normal((rows, 5))).to(dtype)
            deltas[:, 1] = deltas[:, 1].round()  # a column with ties
            given = _Round(deltas, rng.random(rows) + 0.1)
            _well_formed(aggregator, given)
            _ignores_order(aggregator, given)
            _ignores_zeros(aggregator, given)
            _scales(aggregator, given)
            _averages(aggregator, given)
            _is_linear_if_declared(aggregator, given)
        _survives_nothing(aggregator, torch.ones(3, 5, dtype=dtype))


def _well_formed(aggregator: Aggregator, given: _Round) -> None:
    deltas = given.deltas.clone()
    weights = given.weights.copy()
    direction = given.direction(aggregator)
    shape = tuple(direction.shape)
    holds(
        shape == deltas.shape[1:],
        aggregator,
        "a direction has the length of an update",
        shape,
    )
    holds(
        direction.dtype == deltas.dtype,
        aggregator,
        "a direction has the type of the updates",
    )
    holds(
        bool(torch.isfinite(direction).all()),
        aggregator,
        "a direction is finite",
        direction,
    )
    holds(torch.equal(given.deltas, deltas), aggregator, "the updates are not modified")
    holds(
        np.array_equal(given.weights, weights),
        aggregator,
        "the weights are not modified",
    )
    again = given.direction(aggregator)
    holds(torch.equal(direction, again), aggregator, "same updates, same direction")
    direction.add_(1.0)
    holds(
        torch.equal(given.deltas, deltas),
        aggregator,
        "a direction is not a view of an update",
    )


def _ignores_order(aggregator: Aggregator, given: _Round) -> None:
    permuted = _Round(given.deltas.roll(1, dims=0), np.roll(given.weights, 1))
    off = given.differs(permuted.direction(aggregator), given.direction(aggregator))
    holds(off <= 1, aggregator, "permuting rows changes nothing")


def _ignores_zeros(aggregator: Aggregator, given: _Round) -> None:
    row = torch.full_like(given.deltas[:1], 9.0)
    more = _Round(torch.cat([given.deltas, row]), np.append(given.weights, 0.0))
    off = given.differs(more.direction(aggregator), given.direction(aggregator))
    holds(off <= 1, aggregator, "rows of weight 0 count nothing")


def _scales(aggregator: Aggregator, given: _Round) -> None:
    wanted = given.direction(aggregator)
    for factor in (0.3, 4.0):
        scaled = _Round(given.deltas, factor * given.weights)
        off = given.differs(scaled.direction(aggregator) / factor, wanted)
        holds(
            off <= 1,
            aggregator,
            "the direction scales with the weights",
            f"times {factor}",
        )


def _averages(aggregator: Aggregator, given: _Round) -> None:
    for rows in sorted({1, len(given.deltas)}):
        same = _Round(given.deltas[:1].expand(rows, -1).clone(), given.weights[:rows])
        wanted = float(same.weights.sum()) * same.deltas[0]
        off = same.differs(same.direction(aggregator), wanted)
        clause = "equal rows give the sum of the weights times the row"
        holds(off <= 1, aggregator, clause, f"{rows} rows")


def _is_linear_if_declared(aggregator: Aggregator, given: _Round) -> None:
    if traits_of(aggregator, AggregatorTraits).linear:
        off = given.differs(
            given.direction(aggregator), combine(given.weights, given.deltas)
        )
        holds(off <= 1, aggregator, "declared linear: it is the weighted sum")


def _survives_nothing(aggregator: Aggregator, deltas: Stack) -> None:
    nobody = _Round(deltas[:0], np.zeros(0))
    direction = nobody.direction(aggregator)
    holds(
        _is_zero(direction, deltas[0]),
        aggregator,
        "no rows give a direction of 0",
        direction,
    )
    weightless = _Round(deltas, np.zeros(len(deltas)))
    direction = weightless.direction(aggregator)
    holds(
        _is_zero(direction, deltas[0]),
        aggregator,
        "weights of 0 give a direction of 0",
        direction,
    )


def _is_zero(direction: Vector, like: Vector) -> bool:
    return torch.equal(direction, torch.zeros_like(like))
