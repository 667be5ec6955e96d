"""Nothing is averaged unseen: every update and report is checked on arrival."""

from __future__ import annotations

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, UpdateRefused
from poise.core.protocols import Aggregator
from poise.core.round_updates import RoundUpdates
from poise.core.types import Assignment, Floats, Ints, Refusal, Step
from poise.core.vectors import Vector


def validated(
    updates: RoundUpdates, theta: Vector, drop: bool
) -> tuple[RoundUpdates, tuple[Refusal, ...]]:
    """The updates that may be averaged in, and the others with the reason for each.

    Raises at the first bad update unless ``drop`` says to go on without it.
    """
    refused = refusals(updates, theta)
    if refused and not drop:
        raise UpdateRefused(
            f"round {updates.round}: client {refused[0].client} sent {refused[0].reason}",
            (
                "lower the learning rate or clip gradients (clip=); bad_updates='drop' goes on "
                "without such clients"
            ),
        )
    bad = {(r.version, r.client, r.occurrence) for r in refused}
    if not bad:
        return updates, refused
    keys = zip(
        updates.versions.tolist(),
        updates.clients.tolist(),
        updates.occurrences.tolist(),
        strict=True,
    )
    kept = np.array([row for row, key in enumerate(keys) if key not in bad], dtype=np.int64)
    return updates.rows(kept), refused


def refusals(updates: RoundUpdates, theta: Vector) -> tuple[Refusal, ...]:
    """The updates that must not be averaged in, with the reason for each."""
    if updates.stack.shape != (len(updates), len(theta)) or updates.stack.dtype != theta.dtype:
        shape = f"{tuple(updates.stack.shape)} {updates.stack.dtype}"
        wanted = f"({len(updates)}, {len(theta)}) {theta.dtype}"
        reasons = dict.fromkeys(
            range(len(updates)), f"updates of shape {shape} instead of {wanted}"
        )
    else:
        reasons = {row: why for row, why in enumerate(updates.reasons) if why}
        for row, why in _not_finite(updates):
            reasons.setdefault(row, why)
    return tuple(_refusal(updates, row, why) for row, why in sorted(reasons.items()))


def _not_finite(updates: RoundUpdates) -> list[tuple[int, str]]:
    """Rows with a value that is no finite number."""
    columns = {
        "an update": updates.norms,
        "a loss before work": updates.loss_before,
        "a loss after work": updates.loss_after,
    }
    return [
        (row, f"{name} that is not finite ({column[row]})")
        for name, column in columns.items()
        if column is not None
        for row in np.flatnonzero(~np.isfinite(column)).tolist()
    ]


def _refusal(updates: RoundUpdates, row: int, why: str) -> Refusal:
    return Refusal(
        client=int(updates.clients[row]),
        version=int(updates.versions[row]),
        reason=why,
        occurrence=int(updates.occurrences[row]),
    )


def check_direction(direction: Vector, theta: Vector, aggregator: Aggregator, round: int) -> None:
    """A direction must be a vector like the model, of finite numbers."""
    name = type(aggregator).__name__
    vector = isinstance(direction, torch.Tensor)
    if not vector or direction.shape != theta.shape or direction.dtype != theta.dtype:
        shape = (
            f"{tuple(direction.shape)} {direction.dtype}" if vector else type(direction).__name__
        )
        raise IncompatibleParts(
            (
                f"{name}: the direction of round {round} is {shape}, the model ({len(theta)},) "
                f"{theta.dtype}"
            ),
            "return a tensor like one row of the updates",
            where=("aggregator",),
        )
    if not bool(torch.isfinite(direction).all()):
        raise UpdateRefused(
            f"round {round}: the direction that {name} gave is not finite",
            "lower the learning rate",
        )


def late(step: Step) -> tuple[Refusal, ...]:
    """Those who were asked for an aggregation and did not answer in time: its record names them."""
    return tuple(_late(assignment) for assignment in step.late)


def _late(assignment: Assignment) -> Refusal:
    return Refusal(
        assignment.client,
        assignment.version,
        reason="nothing in time",
        occurrence=assignment.occurrence,
    )


def check_coefficients(weights: Floats, clients: Ints, round: int) -> None:
    """Coefficients must be finite numbers, one per row."""
    if weights.shape != clients.shape:
        raise IncompatibleParts(

                f"round {round}: the weighting gave {weights.shape} coefficients for {clients.shape} "
                "clients"

        )
    bad = np.flatnonzero(~np.isfinite(weights))
    if len(bad):
        who, value = clients[bad[0]], weights[bad[0]]
        raise UpdateRefused(
            f"round {round}: the coefficient of client {who} is not finite ({value})"
        )
