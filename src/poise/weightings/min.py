"""Only the clients with the smallest losses count."""

from __future__ import annotations

from typing import Any

from poise.core.parts import part
from poise.core.types import Floats, Setting
from poise.core.weights import Floor, check_floor, check_k, extreme, finite, gaps


@part("weighting", "min")
class Min:
    """``c_i = 1/k`` for the k clients with the smallest ``F_i - F_i*``; ties share. FedBetter(k).

    Args:
        k: how many clients count: a whole number, or a share of the cohort between 0 and 1.
        floor: F_i*, the least loss a client can have: a number (0 for cross-entropy), ``"running_min"`` (the lowest
            loss seen for that client), or one number per client.

    Source: A section 3.1, D section 2.3.

    >>> import numpy as np
    >>> Min(k=1).coefficients(np.array([0.5, 0.5]), loss_before=np.array([1.0, 2.0]))
    array([1., 0.])
    """

    k: int | float = 1
    floor: Floor = 0.0

    needs = frozenset({"loss_before"})

    def __post_init__(self) -> None:
        check_k("Min", self.k)
        check_floor("Min", self.floor)

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """Equal weight on the k smallest losses."""
        clients = reports.get("clients")
        losses = finite("loss_before", reports.get("loss_before"), len(base), clients)
        values = gaps(self.floor, losses, clients, reports.get("lowest_loss"))
        return extreme(-values, self.k)
