"""Rows of updates, from answers that were examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from poise.backends.letters import Letter
from poise.backends.replies import Asked
from poise.core.types import Updates
from poise.core.vectors import Stack, Vector

HELD = "held"
"""Under this name the server keeps, for each client, after which version's work the state on its node counts."""

NOTHING = -1  # no work of the client has counted yet

Answer: TypeAlias = tuple[int, Asked, Letter | str, str]
"""Which piece of the letter, what was asked, the reply, and why it must not be used ("": it may)."""


@dataclass
class Table:
    """Rows of updates, entered one by one."""

    deltas: Stack
    columns: dict[str, np.ndarray]
    reasons: list[str]

    @classmethod
    def empty(cls, rows: int, like: Vector, reports: frozenset[str]) -> Table:
        """Nothing is entered yet."""
        whole = {"samples": np.zeros(rows, dtype=np.int64), "steps": np.zeros(rows, dtype=np.int64)}
        losses = {name: np.full(rows, np.nan) for name in sorted(reports)}
        return cls(like.new_zeros((rows, len(like))), {**whole, **losses}, [""] * rows)

    def enter(self, row: int, piece: int, asked: Asked, reply: Letter | str, reason: str) -> None:
        """One piece of an answer; where it must not be used, the row holds nothing but the reason."""
        self.reasons[row] = reason
        self.columns["samples"][row], self.columns["steps"][row] = asked.samples, asked.steps
        if reason or isinstance(reply, str):
            return
        self.deltas[row] = reply.parcels[str(piece)].vector()
        for name in asked.reports:
            self.columns[name][row] = reply.facts[name][piece]

    def updates(self, versions: Sequence[int] | None = None) -> Updates:
        """All rows; where clients keep state on their nodes, with the ``versions`` after whose work it counts."""
        norms = torch.linalg.vector_norm(self.deltas, dim=1).double().numpy()
        columns: dict[str, Any] = {"loss_before": None, "loss_after": None, **self.columns}
        own = {} if versions is None else {HELD: torch.tensor([[v] for v in versions], dtype=torch.int64)}
        return Updates(self.deltas, norms, **columns, own=own, reasons=tuple(self.reasons) if any(self.reasons) else ())
