"""Replace the updates of dishonest clients by the updates that their attack sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from poise.core import spill
from poise.core.algorithm_state import NamedVectors
from poise.core.errors import IncompatibleParts
from poise.core.protocols import Attack
from poise.core.round_updates import RoundUpdates
from poise.core.traits import AttackTraits, traits_of
from poise.core.types import AttackerView, Floats, ForgedUpdate, Ints
from poise.core.vectors import Stack

NOTES = "attack/"
"""The prefix of the vectors that an attack keeps, in the state of its clients."""


def attacked(
    updates: RoundUpdates,
    attacks: Sequence[Attack],
    seed: int,
    client_state: Mapping[int, NamedVectors],
) -> tuple[RoundUpdates, dict[int, NamedVectors]]:
    """Replace the rows of dishonest clients; return the updates and their notes.

    ``client_state`` holds the vectors of every client from earlier rounds. The clients
    of one attack share what they see. A client of several attacks sends the update of
    the last one.
    """
    notes: dict[int, NamedVectors] = {}
    for attack in attacks:
        rows = np.flatnonzero(np.isin(updates.clients, list(attack.clients)))
        if not len(rows):
            continue
        forged = _forge_updates(
            updates, attack, rows, seed=seed, client_state=client_state
        )
        updates = _with_forged_rows(updates, attack, rows, forged=forged)
        for row, answer in zip(rows.tolist(), forged, strict=True):
            client = int(updates.clients[row])
            notes[client] = {
                NOTES + name: vector for name, vector in answer.keep.items()
            }
    return updates, notes


def _forge_updates(
    updates: RoundUpdates,
    attack: Attack,
    rows: Ints,
    seed: int,
    client_state: Mapping[int, NamedVectors],
) -> list[ForgedUpdate]:
    """Return the answers of the attack's clients."""
    views = [_view(updates, row, attack.works, client_state) for row in rows.tolist()]
    honest = None
    if traits_of(attack, AttackTraits).omniscient:
        honest = _other_updates(updates, rows)
    forged: list[ForgedUpdate] = []
    for view in views:
        view = replace(view, accomplices=tuple(views), honest=honest)
        answer: object = attack.answer(view, seed)
        if not isinstance(answer, ForgedUpdate):
            name = type(attack).__name__
            raise IncompatibleParts(
                f"{name}: answer returned {type(answer).__name__}, not a ForgedUpdate",
                "return ForgedUpdate(update)",
                where=("attacks",),
            )
        forged.append(answer)
    return forged


def _view(
    updates: RoundUpdates,
    row: int,
    works: bool,
    client_state: Mapping[int, NamedVectors],
) -> AttackerView:
    """Return what one client knows itself, without its accomplices."""
    client = int(updates.clients[row])
    version = int(updates.versions[row])
    notes = {
        name.removeprefix(NOTES): vector
        for name, vector in client_state.get(client, {}).items()
        if name.startswith(NOTES)
    }
    return AttackerView(
        client=client,
        version=version,
        occurrence=int(updates.occurrences[row]),
        received=updates.models[version].clone(),
        trainable=updates.trainable,
        kept=notes,
        work=updates.stack[row].clone() if works else None,
    )


def _other_updates(updates: RoundUpdates, rows: Ints) -> Stack:
    """Return the updates of all other rows."""
    others = np.setdiff1d(np.arange(len(updates)), rows)
    return spill.select(updates.stack, torch.from_numpy(others))


def _with_forged_rows(
    updates: RoundUpdates, attack: Attack, rows: Ints, forged: Sequence[ForgedUpdate]
) -> RoundUpdates:
    """Replace rows by forged updates, and the losses of clients that do no work."""
    stack = spill.copied(updates.stack)
    norms = updates.norms.copy()
    for row, answer in zip(rows.tolist(), forged, strict=True):
        if answer.update.shape != stack[row].shape:
            name = type(attack).__name__
            shape = tuple(answer.update.shape)
            raise IncompatibleParts(
                f"{name}: client {updates.clients[row]} sends an update of shape {shape} instead "
                f"of ({stack.shape[1]},)",
                "return an update like AttackerView.received",
                where=("attacks",),
            )
        stack[row] = answer.update
        norms[row] = float(torch.linalg.vector_norm(stack[row]).double())
    updates = replace(updates, stack=stack, norms=norms)
    if attack.works:
        return updates
    before = _with_forged_losses(updates.loss_before, rows, forged)
    after = _with_forged_losses(updates.loss_after, rows, forged)
    return replace(updates, loss_before=before, loss_after=after)


def _with_forged_losses(
    losses: Floats | None, rows: Ints, forged: Sequence[ForgedUpdate]
) -> Floats | None:
    """Replace the reported losses of dishonest clients."""
    if losses is None:
        return None
    reported = losses.copy()
    reported[rows] = [answer.loss for answer in forged]
    return reported
