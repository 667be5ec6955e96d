"""What dishonest clients send instead of their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from poise.core.algorithm_state import NamedVectors
from poise.core.errors import IncompatibleParts
from poise.core.protocols import Attack
from poise.core.round_updates import RoundUpdates
from poise.core.traits import AttackTraits, traits_of
from poise.core.types import AttackerView, Floats, ForgedUpdate, Ints
from poise.core.vectors import Stack

NOTES = "attack/"
"""How the names begin under which a dishonest client keeps what it put aside."""


def attacked(
    updates: RoundUpdates, attacks: Sequence[Attack], seed: int, own: Mapping[int, NamedVectors]
) -> tuple[RoundUpdates, dict[int, NamedVectors]]:
    """Replace the rows of dishonest clients by what they send, and say what these put aside; others
    stay as they are.

    ``own`` is what every client keeps between its rounds. An attack sees what its own clients see,
    all together. A client in several attacks sends what the last of them says.
    """
    notes: dict[int, NamedVectors] = {}
    for attack in attacks:
        mine = np.flatnonzero(np.isin(updates.clients, list(attack.clients)))
        if len(mine):
            forged = _forged(updates, attack, mine, seed, own)
            updates = _replaced(updates, attack, mine, forged)
            for row, sent in zip(mine.tolist(), forged, strict=True):
                notes[int(updates.clients[row])] = {
                    NOTES + name: v for name, v in sent.keep.items()
                }
    return updates, notes


def _forged(
    updates: RoundUpdates, attack: Attack, mine: Ints, seed: int, own: Mapping[int, NamedVectors]
) -> list[ForgedUpdate]:
    """What each of the attack's clients sends."""
    alone = [_view(updates, row, attack.works, own) for row in mine.tolist()]
    honest = _honest(updates, mine) if traits_of(attack, AttackTraits).omniscient else None
    views = [replace(view, accomplices=tuple(alone), honest=honest) for view in alone]
    forged = [attack.answer(view, seed) for view in views]
    for sent in forged:
        if not isinstance(sent, ForgedUpdate):
            raise IncompatibleParts(
                (
                    f"{type(attack).__name__}: answer returned {type(sent).__name__}, not a "
                    "ForgedUpdate"
                ),
                "return ForgedUpdate(update)",
                where=("attacks",),
            )
    return forged


def _view(
    updates: RoundUpdates, row: int, works: bool, own: Mapping[int, NamedVectors]
) -> AttackerView:
    """What one client has itself."""
    client, version = int(updates.clients[row]), int(updates.versions[row])
    aside = {
        n.removeprefix(NOTES): v for n, v in own.get(client, {}).items() if n.startswith(NOTES)
    }
    return AttackerView(
        client=client,
        version=version,
        occurrence=int(updates.occurrences[row]),
        received=updates.models[version].clone(),
        trainable=updates.trainable,
        kept=aside,
        work=updates.stack[row].clone() if works else None,
    )


def _honest(updates: RoundUpdates, mine: Ints) -> Stack:
    """The updates of everybody else."""
    others = np.setdiff1d(np.arange(len(updates)), mine)
    return updates.stack[torch.from_numpy(others)]


def _replaced(
    updates: RoundUpdates, attack: Attack, mine: Ints, forged: Sequence[ForgedUpdate]
) -> RoundUpdates:
    """The rows ``mine``, as this attack sends them; clients that do their work report its
    losses.
    """
    stack, norms = updates.stack.clone(), updates.norms.copy()
    for row, sent in zip(mine.tolist(), forged, strict=True):
        if sent.update.shape != stack[row].shape:
            who = f"{type(attack).__name__}: client {updates.clients[row]}"
            raise IncompatibleParts(
                (
                    f"{who} sends an update of shape {tuple(sent.update.shape)} instead of "
                    f"({stack.shape[1]},)"
                ),
                "return an update like AttackerView.received",
                where=("attacks",),
            )
        stack[row] = sent.update
        norms[row] = float(torch.linalg.vector_norm(stack[row]).double())
    updates = replace(updates, stack=stack, norms=norms)
    if attack.works:
        return updates
    before, after = (_claimed(c, mine, forged) for c in (updates.loss_before, updates.loss_after))
    return replace(updates, loss_before=before, loss_after=after)


def _claimed(losses: Floats | None, mine: Ints, forged: Sequence[ForgedUpdate]) -> Floats | None:
    """Reported losses, with what dishonest clients claim."""
    if losses is None:
        return None
    claimed = losses.copy()
    claimed[mine] = [sent.loss for sent in forged]
    return claimed
