"""Check every update, report, coefficient and direction before it is used."""

from __future__ import annotations

import math

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, UpdateRefused
from poise.core.protocols import Aggregator
from poise.core.round_updates import RoundUpdates
from poise.core.types import Floats, Ints, Refusal, Step
from poise.core.vectors import Vector


def validated(
    updates: RoundUpdates, theta: Vector, drop: bool
) -> tuple[RoundUpdates, tuple[Refusal, ...]]:
    """Return the good updates, and a refusal for each of the others.

    Raises at the first bad update, unless ``drop`` is true.
    """
    refused = refusals(updates, theta)
    if not refused:
        return updates, refused
    if not drop:
        raise UpdateRefused(
            f"round {updates.round}: client {refused[0].client} sent {refused[0].reason}",
            "lower the learning rate or clip gradients (clip=); bad_updates='drop' goes on without "
            "such clients",
        )
    bad_keys = {(r.version, r.client, r.occurrence) for r in refused}
    keys = zip(
        updates.versions.tolist(),
        updates.clients.tolist(),
        updates.occurrences.tolist(),
        strict=True,
    )
    good_rows = [row for row, key in enumerate(keys) if key not in bad_keys]
    return updates.rows(np.array(good_rows, dtype=np.int64)), refused


def refusals(updates: RoundUpdates, theta: Vector) -> tuple[Refusal, ...]:
    """Return a refusal, with its reason, for each update that must not be used."""
    expected_shape = (len(updates), len(theta))
    reasons: dict[int, str] = {}
    if updates.stack.shape != expected_shape or updates.stack.dtype != theta.dtype:
        shape = f"{tuple(updates.stack.shape)} {updates.stack.dtype}"
        expected = f"{expected_shape} {theta.dtype}"
        reason = f"updates of shape {shape} instead of {expected}"
        reasons = dict.fromkeys(range(len(updates)), reason)
    else:
        reasons = {row: reason for row, reason in enumerate(updates.reasons) if reason}
        for row, reason in _not_finite(updates):
            reasons.setdefault(row, reason)
    return tuple(
        _refusal(updates, row, reason) for row, reason in sorted(reasons.items())
    )


def _not_finite(updates: RoundUpdates) -> list[tuple[int, str]]:
    """Return the rows with a value that is not finite, with the reason for each."""
    columns = {
        "an update": updates.norms,
        "a loss before work": updates.loss_before,
        "a loss after work": updates.loss_after,
    }
    reasons = []
    for name, column in columns.items():
        if column is None:
            continue
        for row in np.flatnonzero(~np.isfinite(column)).tolist():
            reasons.append((row, f"{name} that is not finite ({column[row]})"))
    return reasons


def _refusal(updates: RoundUpdates, row: int, reason: str) -> Refusal:
    return Refusal(
        client=int(updates.clients[row]),
        version=int(updates.versions[row]),
        reason=reason,
        occurrence=int(updates.occurrences[row]),
    )


def check_direction(
    direction: Vector, theta: Vector, aggregator: Aggregator, round: int
) -> None:
    """Raise unless the direction is finite, with the model's shape and type."""
    name = type(aggregator).__name__
    shape = type(direction).__name__
    fits = False
    if isinstance(direction, torch.Tensor):
        shape = f"{tuple(direction.shape)} {direction.dtype}"
        fits = direction.shape == theta.shape and direction.dtype == theta.dtype
    if not fits:
        model = f"({len(theta)},) {theta.dtype}"
        raise IncompatibleParts(
            f"{name}: the direction of round {round} is {shape}, the model {model}",
            "return a tensor like one row of the updates",
            where=("aggregator",),
        )
    # A sum with a nan or an infinity is not finite, so most rounds need this sum only.
    sum_is_finite = math.isfinite(float(direction.sum()))
    if not sum_is_finite and not bool(torch.isfinite(direction).all()):
        raise UpdateRefused(
            f"round {round}: the direction of {name} is not finite",
            "lower the learning rate",
        )


def late(step: Step) -> tuple[Refusal, ...]:
    """Return a refusal for each client that did not answer in time, for the record."""
    return tuple(
        Refusal(a.client, a.version, reason="nothing in time", occurrence=a.occurrence)
        for a in step.late
    )


def check_coefficients(weights: Floats, clients: Ints, round: int) -> None:
    """Raise unless there is one finite coefficient per client."""
    if weights.shape != clients.shape:
        raise IncompatibleParts(
            f"round {round}: the weighting gave {weights.shape} coefficients for {clients.shape} "
            "clients",
            "return one coefficient per update",
            where=("weighting",),
        )
    bad_rows = np.flatnonzero(~np.isfinite(weights))
    if len(bad_rows):
        row = bad_rows[0]
        raise UpdateRefused(
            f"round {round}: the coefficient of client {clients[row]} is not finite "
            f"({weights[row]})"
        )
