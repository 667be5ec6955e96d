"""The contract of attacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.protocols import Attack
from poise.core.round_updates import RoundUpdates
from poise.core.traits import AttackTraits, traits_of
from poise.core.types import Setting
from poise.engine.attacks import attacked
from poise.testing.clauses import fits, holds, refused, setting_of


def check_attack(
    attack: Attack, setting: Setting | None = None, *, seed: int = 0
) -> None:
    """Check the contract of attacks.

    Clauses: only rows of dishonest clients change; the given updates and models are not
    modified; forged updates are finite and have the model's shape and type; replay is
    identical; forged updates do not depend on honest updates unless the attack declares
    ``omniscient``; a federation without these clients is refused.
    """
    where = setting or setting_of()
    fits(attack, where)
    bad = sorted({int(c) for c in attack.clients})
    holds(bad, attack, "names its clients")
    for dtype in (torch.float32, torch.float64):
        _only_its_rows(attack, where, bad=bad, dtype=dtype, seed=seed)
    too_small = Setting(0, np.zeros(0, int), np.zeros(0))
    if bad[-1]:
        too_small = setting_of(tuple([3] * bad[-1]))
    with refused(
        attack,
        "clients that do not exist are refused",
        IncompatibleParts,
        InvalidOption,
    ):
        attack.fit(too_small)


def _only_its_rows(
    attack: Attack, setting: Setting, bad: list[int], dtype: torch.dtype, seed: int
) -> None:
    n = setting.clients
    d = 6
    source = torch.Generator().manual_seed(seed)
    models = {v: torch.randn(d, generator=source).to(dtype) for v in range(4)}
    good = [i for i in range(n) if i not in bad]
    own: dict[int, Any] = {}
    for turn in range(
        2
    ):  # in the second round, the clients have their notes of the first
        stack = torch.randn(n, d, generator=source).to(dtype)
        honest = RoundUpdates.of_columns(
            setting.importance,
            stack=stack,
            versions=[2 * turn + i % 2 for i in range(n)],
            norms=torch.linalg.vector_norm(stack, dim=1).double().numpy(),
            models=models,
        )
        held = stack.clone()
        before = {v: m.clone() for v, m in models.items()}
        sent, notes = attacked(honest, [attack], seed, own)
        holds(torch.equal(stack, held), attack, "the updates given are not modified")
        holds(
            all(torch.equal(models[v], before[v]) for v in models),
            attack,
            "the models given are not modified",
        )
        holds(
            torch.equal(sent.stack[good], stack[good]),
            attack,
            "honest rows stay as they are",
        )
        holds(
            np.array_equal(sent.norms[good], honest.norms[good]),
            attack,
            "honest norms stay as they are",
        )
        holds(
            sent.stack.shape == stack.shape and sent.stack.dtype == dtype,
            attack,
            "shape and type are kept",
        )
        holds(bool(torch.isfinite(sent.stack).all()), attack, "what is sent is finite")
        holds(
            set(notes) <= set(bad), attack, "only its own clients put something aside"
        )
        again, _ = attacked(honest, [attack], seed, own)
        holds(torch.equal(sent.stack, again.stack), attack, "replay is identical")
        if not traits_of(attack, AttackTraits).omniscient:
            _knows_its_own_only(attack, honest, sent, seed, own)
        own = {c: dict(named) for c, named in notes.items()}


def _knows_its_own_only(
    attack: Attack,
    honest: RoundUpdates,
    sent: RoundUpdates,
    seed: int,
    own: dict[int, Any],
) -> None:
    """Check that forged updates do not depend on the updates of honest clients."""
    bad = np.isin(honest.clients, list(attack.clients))
    others = torch.where(
        torch.from_numpy(bad)[:, None], honest.stack, torch.zeros_like(honest.stack)
    )
    notes = {i: own[i] for i in attack.clients if i in own}
    alone, _ = attacked(replace(honest, stack=others), [attack], seed, notes)
    same = torch.equal(alone.stack[bad], sent.stack[bad])
    holds(same, attack, "an attack that is not omniscient does not see honest updates")
