"""Rows of answers that were examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from poise.backends.flower.messages import NodeMessage
from poise.backends.flower.reply_checks import Asked, PayloadForm
from poise.core.arrivals import Arrivals
from poise.core.types import HELD

NOTHING = -1  # no work of the client has counted yet

Answer: TypeAlias = tuple[int, Asked, NodeMessage | str, str]
"""Which piece of the letter, what was asked, the reply, and why it must not be used ("": it
may)."""


@dataclass
class Table:
    """Rows of answers, entered one by one."""

    form: PayloadForm
    payload: dict[str, torch.Tensor]
    columns: dict[str, np.ndarray]
    reasons: list[str]

    @classmethod
    def empty(cls, rows: int, form: PayloadForm, reports: frozenset[str]) -> Table:
        """Nothing is entered yet: every row stands for an update that changes nothing."""
        whole = {"samples": np.zeros(rows, dtype=np.int64), "steps": np.zeros(rows, dtype=np.int64)}
        losses = {name: np.full(rows, np.nan) for name in sorted(reports)}
        payload = {
            name: like.expand(rows, *like.shape[1:]).clone() for name, like in form.template.items()
        }
        return cls(form, payload, {**whole, **losses}, [""] * rows)

    def enter(self, row: int, answer: Answer) -> None:
        """One piece of an answer; where it must not be used, the row holds nothing but the
        reason.
        """
        piece, asked, reply, reason = answer
        self.reasons[row] = reason
        self.columns["samples"][row], self.columns["steps"][row] = asked.samples, asked.steps
        if reason or isinstance(reply, str):
            return
        for name, values in self.form.payload(reply, piece).items():
            self.payload[name][row] = values[0]
        for name in asked.reports:
            self.columns[name][row] = reply.facts[name][piece]

    def arrivals(self, versions: Sequence[int] | None = None) -> Arrivals:
        """All rows; where clients keep state on their nodes, with the ``versions`` after whose work
        it counts.
        """
        state = (
            {}
            if versions is None
            else {HELD: torch.tensor([[v] for v in versions], dtype=torch.int64)}
        )
        reasons = tuple(self.reasons) if any(self.reasons) else ()
        columns: dict[str, Any] = dict(self.columns)
        return Arrivals(self.payload, client_state=state, reasons=reasons, **columns)
