"""What dishonest clients send instead of their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from poise.core.memory import Named
from poise.core.protocols import Attack
from poise.core.types import Flight, Seen, Updates
from poise.core.vectors import Vector

KEPT = "attack/"
"""How the names begin under which a dishonest client keeps what it put aside."""


def attacked(
    updates: Updates, flights: Sequence[Flight], models: Mapping[int, Vector], attacks: Sequence[Attack], seed: int,
    own: Mapping[int, Named] | None = None, trainable: int | None = None,
) -> tuple[Updates, dict[int, Named]]:  # fmt: skip
    """Replace the rows of dishonest clients by what they send, and say what these put aside; others stay as they are.

    ``own`` is what every client keeps between its rounds. One client at a time is asked, and it is handed nothing but
    what is its own. A client in several attacks sends what the last of them says.
    """
    kept: dict[int, Named] = {}
    for attack in attacks:
        mine = [k for k, f in enumerate(flights) if f.client in set(attack.clients)]
        if mine:
            updates = _replaced(updates, flights, mine, models, attack, seed, own or {}, trainable, kept)
    return updates, kept


def _replaced(
    updates: Updates, flights: Sequence[Flight], mine: Sequence[int], models: Mapping[int, Vector], attack: Attack,
    seed: int, own: Mapping[int, Named], trainable: int | None, kept: dict[int, Named],
) -> Updates:  # fmt: skip
    """The rows ``mine``, as this attack sends them."""
    deltas, norms = updates.deltas.clone(), updates.norms.copy()
    told = (updates.loss_before, updates.loss_after)
    losses = [None if column is None or attack.works else column.copy() for column in told]
    for k in mine:
        f = flights[k]
        received = models[f.version]
        aside = {n.removeprefix(KEPT): v for n, v in own.get(f.client, {}).items() if n.startswith(KEPT)}
        work = updates.deltas[k].clone() if attack.works else None
        size = len(received) if trainable is None else trainable
        sent = attack.answer(Seen(f.client, f.version, f.occurrence, received.clone(), size, aside, work), seed)
        deltas[k] = sent.update
        norms[k] = float(torch.linalg.vector_norm(deltas[k]).double())
        kept[f.client] = {KEPT + name: v for name, v in sent.keep.items()}
        for column in losses:
            if column is not None:
                column[k] = sent.loss
    before, after = (old if new is None else new for old, new in zip(told, losses, strict=True))
    return replace(updates, deltas=deltas, norms=norms, loss_before=before, loss_after=after)
