"""The contract of attacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from poise.core.attacking import attacked
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.types import Flight, Setting, Updates
from poise.testing.clauses import fits, holds, refused, setting_of


def check_attack(attack: Any, setting: Setting | None = None, *, seed: int = 0) -> None:
    """The contract of attacks.

    Clauses: only rows of dishonest clients change, the updates and models given are not modified, what is sent is
    finite and has the model's shape and type, replay is identical, a row does not depend on the other rows, and a
    federation that does not have these clients is refused.
    """
    where = setting_of() if setting is None else setting
    fits(attack, where)
    bad = sorted({int(c) for c in attack.clients})
    holds(bad, attack, "names its clients")
    for dtype in (torch.float32, torch.float64):
        _only_its_rows(attack, where, bad, dtype, seed)
    with refused(attack, "clients that do not exist are refused", IncompatibleParts, InvalidOption):
        attack.fit(setting_of(tuple([3] * bad[-1])) if bad[-1] else Setting(0, np.zeros(0, int), np.zeros(0)))


def _only_its_rows(attack: Any, setting: Setting, bad: list[int], dtype: torch.dtype, seed: int) -> None:
    n, d = setting.clients, 6
    source = torch.Generator().manual_seed(seed)
    models = {v: torch.randn(d, generator=source).to(dtype) for v in range(4)}
    own: dict[int, Any] = {}
    for turn in range(2):  # in the second, the clients have what they put aside in the first
        flights = [Flight(9.0, i, 2 * turn + i % 2) for i in range(n)]
        deltas = torch.randn(n, d, generator=source).to(dtype)
        honest = Updates(
            deltas, torch.linalg.vector_norm(deltas, dim=1).double().numpy(), setting.sizes, np.ones(n, dtype=int)
        )
        held, before = deltas.clone(), {v: m.clone() for v, m in models.items()}
        sent, kept = attacked(honest, flights, models, [attack], seed, own)
        holds(torch.equal(deltas, held), attack, "the updates given are not modified")
        holds(all(torch.equal(models[v], before[v]) for v in models), attack, "the models given are not modified")
        good = [i for i in range(n) if i not in bad]
        holds(torch.equal(sent.deltas[good], deltas[good]), attack, "honest rows stay as they are")
        holds(np.array_equal(sent.norms[good], honest.norms[good]), attack, "honest norms stay as they are")
        holds(sent.deltas.shape == deltas.shape and sent.deltas.dtype == dtype, attack, "shape and type are kept")
        holds(bool(torch.isfinite(sent.deltas).all()), attack, "what is sent is finite")
        holds(set(kept) <= set(bad), attack, "only its own clients put something aside")
        again, _ = attacked(honest, flights, models, [attack], seed, own)
        holds(torch.equal(sent.deltas, again.deltas), attack, "replay is identical")
        for i in bad:
            others = torch.zeros_like(deltas)
            others[i] = deltas[i]
            alone = attacked(replace(honest, deltas=others), flights, models, [attack], seed, {i: own.get(i, {})})
            same = torch.equal(alone[0].deltas[i], sent.deltas[i])
            holds(same, attack, "a row does not depend on the other rows", i)
        own = {c: dict(named) for c, named in kept.items()}
