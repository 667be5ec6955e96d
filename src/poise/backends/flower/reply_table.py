"""A table of checked replies, one row per assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from poise.backends.flower.messages import NodeMessage
from poise.backends.flower.reply_checks import PayloadForm, WorkRequest
from poise.core.arrivals import Arrivals
from poise.core.types import HELD

NO_VERSION = -1  # stands for the version of a client none of whose work has counted yet


class CheckedReply(NamedTuple):
    """The reply to one assignment, and the result of its checks."""

    position: int  # of the assignment in the request
    request: WorkRequest
    reply: NodeMessage | str  # the reply, or why there is none
    reason: str  # why the reply must not be used; empty if it is valid


@dataclass
class ReplyTable:
    """Checked replies as columns; `enter` fills one row."""

    form: PayloadForm
    payload: dict[str, torch.Tensor]
    columns: dict[str, np.ndarray]
    reasons: list[str]

    @classmethod
    def empty(cls, rows: int, form: PayloadForm, reports: frozenset[str]) -> ReplyTable:
        """A table whose rows are zero updates."""
        columns = {
            "samples": np.zeros(rows, dtype=np.int64),
            "steps": np.zeros(rows, dtype=np.int64),
        }
        for name in sorted(reports):
            columns[name] = np.full(rows, np.nan)
        payload = {
            name: template.expand(rows, *template.shape[1:]).clone()
            for name, template in form.template.items()
        }
        return cls(form, payload, columns=columns, reasons=[""] * rows)

    def enter(self, row: int, checked: CheckedReply) -> None:
        """Fill a row; a refused reply leaves a zero update and its reason."""
        request = checked.request
        reply = checked.reply
        self.reasons[row] = checked.reason
        self.columns["samples"][row] = request.samples
        self.columns["steps"][row] = request.steps
        if checked.reason or isinstance(reply, str):
            return
        for name, values in self.form.payload(reply, checked.position).items():
            self.payload[name][row] = values[0]
        for name in request.reports:
            self.columns[name][row] = reply.facts[name][checked.position]

    def arrivals(self, versions: Sequence[int] | None = None) -> Arrivals:
        """All rows; ``versions`` names the state that each node stored, if any."""
        client_state = {}
        if versions is not None:
            client_state[HELD] = torch.tensor(
                [[v] for v in versions], dtype=torch.int64
            )
        reasons: tuple[str, ...] = ()
        if any(self.reasons):
            reasons = tuple(self.reasons)
        columns: dict[str, Any] = dict(self.columns)
        return Arrivals(
            self.payload, client_state=client_state, reasons=reasons, **columns
        )
