"""Check every update, report, coefficient and direction before it is used."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, UpdateRefused
from poise.core.history import History
from poise.core.protocols import Aggregator
from poise.core.round_updates import RoundUpdates
from poise.core.types import Floats, Ints, Refusal, Step
from poise.core.vectors import Vector

LOSS_RATIO = 1e12
"""No honest loss is so many times as large as the median loss of its cohort."""

ROUNDING = 1e-6
"""How far rounding may bring a loss below the lowest value of the loss."""

LARGEST = sys.float_info.max
"""JSON and Python have larger integers, which no float can hold."""

FEWEST = 3
"""Clients that a median needs, so that one client cannot choose it."""


@dataclass(frozen=True)
class Limits:
    """What the server believes of an update.

    Args:
        lowest_loss: the lowest value of the task's loss; None if unknown.
        max_ratio: longest update, as a multiple of the median length in its cohort;
            inf for any length. A cohort of one or two clients is compared with the
            last updates of the other clients, too. Losses may be ``max_ratio ** 2``
            times the median.
    """

    lowest_loss: float | None = None
    max_ratio: float = math.inf

    @property
    def loss_ratio(self) -> float:
        """Largest loss, as a multiple of the median loss of the cohort (1 at least)."""
        return min(LOSS_RATIO, self.max_ratio**2)

    @property
    def compares(self) -> bool:
        """Whether the length of an update is limited."""
        return self.max_ratio < math.inf


def length_error(norm: float, max_norm: float = math.inf) -> str:
    """What is wrong with the length of an update; the end of "client 3 sent …"."""
    if not math.isfinite(norm):
        return f"an update that is not finite ({norm})"
    if norm > max_norm:
        return f"an update of length {norm:.6g}, longer than {max_norm:g}"
    return ""


def is_finite_number(value: object) -> TypeGuard[float | int]:
    """Whether something that a client sent is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return False
    return abs(value) <= LARGEST  # false for nan


def validated(
    updates: RoundUpdates,
    theta: Vector,
    drop: bool,
    limits: Limits = Limits(),
    history: History | None = None,
) -> tuple[RoundUpdates, tuple[Refusal, ...]]:
    """Return the good updates, and a refusal for each of the others.

    Raises at the first bad update, unless ``drop`` is true. ``history`` holds the
    clients' last updates.
    """
    refused = refusals(updates, theta, limits, history)
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


def refusals(
    updates: RoundUpdates,
    theta: Vector,
    limits: Limits = Limits(),
    history: History | None = None,
) -> tuple[Refusal, ...]:
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
        past = history or History()
        for row, reason in _unbelievable(updates, theta, limits, history=past):
            reasons.setdefault(row, reason)
    return tuple(
        _refusal(updates, row, reason) for row, reason in sorted(reasons.items())
    )


def _unbelievable(
    updates: RoundUpdates, theta: Vector, limits: Limits, history: History
) -> Iterator[tuple[int, str]]:
    """Yield the rows with a length or a loss that cannot be, with the reason for each."""
    for row in np.flatnonzero(~np.isfinite(updates.norms)).tolist():
        yield row, length_error(float(updates.norms[row]))
    if limits.compares:
        yield from _too_long(updates, theta, limits.max_ratio, history=history)
    largest = torch.finfo(theta.dtype).max
    losses = {
        "a loss before work": updates.loss_before,
        "a loss after work": updates.loss_after,
    }
    for name, column in losses.items():
        if column is None:
            continue
        for row in np.flatnonzero(~np.isfinite(column)).tolist():
            yield row, f"{name} that is not finite ({column[row]})"
        known = np.abs(column)
        if limits.compares:
            known = np.append(known, np.abs(_losses_of_others(updates, history)))
        median = max(1.0, _lower_median(known))
        yield from _impossible(
            name, column, limits=limits, median=median, largest=largest
        )


def _impossible(
    name: str, losses: Floats, limits: Limits, median: float, largest: float
) -> Iterator[tuple[int, str]]:
    """Yield the rows whose loss the task's loss or the other clients rule out.

    ``largest`` is the largest number in which the clients compute.
    """
    if limits.lowest_loss is not None:
        for row in np.flatnonzero(losses < limits.lowest_loss - ROUNDING).tolist():
            lowest = f"this loss is never below {limits.lowest_loss:g}"
            yield row, f"{name} of {losses[row]:g}, but {lowest}"
    sizes = np.abs(losses)
    for row in np.flatnonzero(sizes > largest).tolist():
        yield row, f"{name} of {losses[row]:g}, beyond the largest number, {largest:g}"
    for row in np.flatnonzero(sizes > limits.loss_ratio * median).tolist():
        ratio = f"more than {limits.loss_ratio:g} times the median loss of its cohort"
        yield row, f"{name} of {losses[row]:g}, {ratio}"


def _losses_of_others(updates: RoundUpdates, history: History) -> Floats:
    """Return the last losses of other clients, if the cohort is too small for a median."""
    present = set(updates.clients.tolist())
    if len(present) >= FEWEST:
        return np.zeros(0)
    return np.array(
        [loss for c, loss in history.last_loss.items() if c not in present],
        dtype=np.float64,
    )


def _too_long(
    updates: RoundUpdates, theta: Vector, max_ratio: float, history: History
) -> Iterator[tuple[int, str]]:
    """Yield the rows whose update is too long for its cohort, or for the model.

    A client with more local steps than the median client may be longer by that factor.
    A median needs three clients that moved; with fewer, only an update that is
    ``max_ratio ** 2`` times as long as the model (1 at least) is too long.
    """
    norms = np.asarray(updates.norms, dtype=np.float64)
    moving = np.isfinite(norms) & (norms > 0)
    lengths, steps = _compared(updates, np.flatnonzero(moving), history)
    if len(lengths) < FEWEST:
        model = max(1.0, float(torch.linalg.vector_norm(theta.double())))
        longest = np.full(len(norms), max_ratio**2 * model)
    else:
        median_steps = max(1.0, float(np.median(steps)))
        more_steps = np.maximum(1.0, updates.steps / median_steps)
        longest = max_ratio * float(np.median(lengths)) * more_steps
    for row in np.flatnonzero(moving & (norms > longest)).tolist():
        limit = f"longer than {longest[row]:.6g} (max_ratio = {max_ratio:g})"
        yield row, f"an update of length {norms[row]:.6g}, {limit}"


def _compared(
    updates: RoundUpdates, rows: Ints, history: History
) -> tuple[Floats, Floats]:
    """Return the length and the steps of one update per client that moved.

    They are the rows ``rows`` of this cohort. If these are of too few clients, the last
    accepted update of each other client is added: one per client, so that no client
    gains a majority by being fast.
    """
    clients, first = np.unique(updates.clients[rows], return_index=True)
    lengths = np.asarray(updates.norms, dtype=np.float64)[rows][first]
    steps = np.asarray(updates.steps, dtype=np.float64)[rows][first]
    if len(clients) >= FEWEST:
        return lengths, steps
    present = set(updates.clients.tolist())
    others = [c for c, n in history.last_norm.items() if n > 0 and c not in present]
    others_lengths = [history.last_norm[c] for c in others]
    others_steps = [history.last_steps.get(c, 0) for c in others]
    return np.append(lengths, others_lengths), np.append(steps, others_steps)


def _lower_median(values: Floats) -> float:
    """Return the median of the finite values, the lower one of two; 0 without any."""
    finite = np.sort(values[np.isfinite(values)])
    if len(finite) == 0:
        return 0.0
    return float(finite[(len(finite) - 1) // 2])


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
