"""What the server remembers of earlier rounds, for parts that look back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from poise.core.types import Floats, Ints, Record


@dataclass
class History:
    """A fold over the records so far: the same after a resume as in a run that was never stopped."""

    lowest_loss: dict[int, float] = field(default_factory=dict)  # by client, of the losses it reported
    reached: dict[str, float] = field(default_factory=dict)  # the best value of each metric

    @classmethod
    def of(cls, records: Iterable[Record]) -> History:
        """The history that these records leave."""
        history = cls()
        for record in records:
            history.add(record)
        return history

    def add(self, record: Record) -> None:
        """Take in one more round."""
        for c in record.contributions:
            for loss in (c.loss_before, c.loss_after):
                if loss is not None:
                    self.lowest_loss[c.client] = min(loss, self.lowest_loss.get(c.client, np.inf))
        for name, value in record.metrics.items():
            if isinstance(value, float) and not np.isnan(value):
                better = min if name.endswith(("loss", "mae")) else max
                self.reached[name] = better(value, self.reached.get(name, value))

    def lowest(self, clients: Ints) -> Floats:
        """The lowest loss that each of these clients has reported; inf for a new one."""
        return np.array([self.lowest_loss.get(int(c), np.inf) for c in clients], dtype=np.float64)
