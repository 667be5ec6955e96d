"""`Max` and `Min`: only the clients with the largest or smallest losses count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from poise.core.parts import part
from poise.core.traits import WeightingTraits
from poise.core.types import Floats, Setting
from poise.core.weights import (
    REPORTS_OF_LOSS,
    Floor,
    LossOf,
    by_columns,
    capped,
    check_cap,
    check_floor,
    check_k,
    extreme,
    floors_for,
    loss_gaps,
)

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@dataclass(frozen=True)
class _Extreme:
    """``c_i = 1/k`` for the k clients with the largest ``sign (F_i - F_i*)``."""

    k: int | float = 1
    floor: Floor = 0.0
    cap: float | None = None
    loss: LossOf = "before"

    sign = 1.0

    def __post_init__(self) -> None:
        check_k(type(self).__name__, self.k)
        check_floor(type(self).__name__, self.floor)
        check_cap(type(self).__name__, self.cap)

    @property
    def needs(self) -> frozenset[str]:
        """The losses that clients report."""
        return REPORTS_OF_LOSS[self.loss]

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return the weighting with the floors of the clients that stay."""
        return replace(self, floor=floors_for(self.floor, stay))

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return equal weights for the k extreme losses."""
        gaps = loss_gaps(self.floor, updates, self.loss)
        weights = extreme(self.sign * gaps, self.k)
        return capped(weights, updates.base_weights, self.cap)


@part("weighting", "max")
class Max(_Extreme):
    """``c_i = 1/k`` for the k clients with the largest ``F_i - F_i*``; ties share.

    Published as FedWorse(k) and FedMax(k).

    Args:
        k: how many clients count: a whole number, or a share of the cohort between 0
            and 1.
        floor: F_i*, the smallest loss a client can have: a number (0 for
            cross-entropy), ``"running_min"`` (the client's lowest loss so far), or one
            number per client.
        cap: the largest share of the weight that one client can get, whatever loss it
            reports; the others share the rest by their base weights. None for no cap.
        loss: F_i, the client's loss ``"before"`` its local work, that of its model
            ``"after"`` the work, or their ``"mean"``, close to the mean loss while it
            trained. The bounds of the papers are about ``"before"``.

    Source: [Mansour 2022, §3.1], [Mansour 2023, §2.3].

    >>> import numpy as np
    >>> Max(k=1).coefficients(np.array([0.5, 0.5]), loss_before=np.array([1.0, 2.0]))
    array([0., 1.])
    """

    @property
    def traits(self) -> WeightingTraits:
        """Declare that larger losses count more, if nothing caps their weight."""
        return WeightingTraits(
            reads_updates=False,
            larger_losses_count_more=self.cap is None and self.loss == "before",
            favours="have larger losses count more",
        )


@part("weighting", "min")
class Min(_Extreme):
    """``c_i = 1/k`` for the k clients with the smallest ``F_i - F_i*``; ties share.

    Published as FedBetter(k).

    Args:
        k: how many clients count, as in `Max`.
        floor: F_i*, as in `Max`.
        cap: the largest share of the weight of one client, as in `Max`.
        loss: F_i, as in `Max`.

    Source: [Mansour 2022, §3.1].

    >>> import numpy as np
    >>> Min(k=1).coefficients(np.array([0.5, 0.5]), loss_before=np.array([1.0, 2.0]))
    array([1., 0.])
    """

    sign = -1.0
    traits = WeightingTraits(
        reads_updates=False, favours="have smaller losses count more"
    )
