"""Nothing is averaged unseen: every update and report is checked on arrival."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poise.core.errors import IncompatibleParts, UpdateRefused
from poise.core.types import Flight, Floats, Ints, Refusal, Step, Updates
from poise.core.vectors import Vector


def refusals(updates: Updates, flights: Sequence[Flight], theta: Vector) -> tuple[Refusal, ...]:
    """The updates that must not be averaged in, with the reason for each."""
    if updates.deltas.shape != (len(flights), len(theta)) or updates.deltas.dtype != theta.dtype:
        shape = f"{tuple(updates.deltas.shape)} {updates.deltas.dtype}"
        wanted = f"({len(flights)}, {len(theta)}) {theta.dtype}"
        return tuple(
            Refusal(f.client, f.version, f"updates of shape {shape} instead of {wanted}", f.occurrence) for f in flights
        )
    reasons = {row: why for row, why in enumerate(updates.reasons) if why}
    values = {
        "an update": updates.norms,
        "a loss before work": updates.loss_before,
        "a loss after work": updates.loss_after,
    }
    for what, column in values.items():
        if column is not None:
            for row in np.flatnonzero(~np.isfinite(column)).tolist():
                reasons.setdefault(row, f"{what} that is not finite ({column[row]})")
    return tuple(
        Refusal(flights[r].client, flights[r].version, why, flights[r].occurrence) for r, why in sorted(reasons.items())
    )


def late(step: Step) -> tuple[Refusal, ...]:
    """Those who were asked for an aggregation and did not answer in time: its record names them."""
    return tuple(Refusal(f.client, f.version, "nothing in time", f.occurrence) for f in step.late)


def without(flights: Sequence[Flight], refused: Sequence[Refusal]) -> Ints:
    """The rows that were not refused."""
    bad = {(r.version, r.client, r.occurrence) for r in refused}
    return np.array([k for k, f in enumerate(flights) if f.key not in bad], dtype=np.int64)


def check_coefficients(omega: Floats, clients: Ints, round: int) -> None:
    """Coefficients must be finite numbers, one per row."""
    if omega.shape != clients.shape:
        raise IncompatibleParts(
            f"round {round}: the weighting gave {omega.shape} coefficients for {clients.shape} clients"
        )
    bad = np.flatnonzero(~np.isfinite(omega))
    if len(bad):
        who, value = clients[bad[0]], omega[bad[0]]
        raise UpdateRefused(f"round {round}: the coefficient of client {who} is not finite ({value})")
