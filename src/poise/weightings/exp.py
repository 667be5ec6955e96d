"""`Exp`: clients that improve a lot on their own data count less (Exp-alpha)."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Literal

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.parts import part
from poise.core.traits import Tilt, WeightingTraits
from poise.core.types import Floats, Setting
from poise.core.weights import (
    by_columns,
    capped,
    check_cap,
    finite_losses,
    renormalised,
)

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "exp")
class Exp:
    """``c_i ~ omega_i exp(s_i (loss_after - loss_before) / alpha)``, summing to one.

    ``s_i = m n_i / sum_S n_j``, n_i the size of client i. A large improvement means
    that the client's data differs from that of the others, so its weight is small.
    alpha -> infinity gives the (renormalised) base weights. For equal sizes s_i = 1,
    and all experiments of [Exp-α 2023] have equal sizes.

    Args:
        alpha: how mild the weighting is, above 0; 0.2 in [Exp-α 2023].
        scale: ``size`` is Corollary 1.1; ``none`` has s_i = 1 for all sizes, as eq. 3
            and Algorithm 1 are printed.
        cap: the largest share of the weight of one client, as in `Max`.

    Source: [Exp-α 2023, eq. 3, Cor. 1.1, Alg. 1].

    >>> before = np.array([2.0, 2.0])
    >>> after = np.array([1.0, 1.0])
    >>> Exp(0.5).coefficients(np.array([0.5, 0.5]), loss_before=before, loss_after=after)
    array([0.5, 0.5])
    """

    alpha: float
    scale: Literal["size", "none"] = "size"
    cap: float | None = None

    needs = frozenset({"loss_before", "loss_after"})

    @property
    def traits(self) -> WeightingTraits:
        """Declare the exponential of the improvement, if nothing caps the weights."""
        tilt = Tilt("improvement", "alpha") if self.cap is None else None
        return WeightingTraits(
            reads_updates=False,
            continuous=True,
            tilt=tilt,
            favours="improve most on their own data count less",
        )

    def __post_init__(self) -> None:
        require(
            self.alpha > 0 and isfinite(self.alpha),
            f"Exp: alpha must be above 0, not {self.alpha}",
            where="alpha",
        )
        check_cap("Exp", self.cap)

    def fit(self, setting: Setting) -> None:
        """Accept every setting."""

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the base weights times the exponential of the scaled loss change."""
        before = finite_losses("loss_before", updates)
        change = finite_losses("loss_after", updates) - before
        scale = np.ones(len(updates))
        if self.scale == "size":
            scale = _relative_sizes(updates)
        weights = renormalised(updates.base_weights, scale * change / self.alpha)
        return capped(weights, updates.base_weights, self.cap)


def _relative_sizes(updates: RoundUpdates) -> Floats:
    """Return n_i over the mean size of the cohort."""
    n = np.asarray(updates.samples, dtype=np.float64)
    if n.shape != (len(updates),) or (len(n) and not (n > 0).all()):
        raise InvalidOption(
            f"Exp: sizes must be above 0, one per client, not {n.tolist()}"
        )
    if len(n) == 0:
        return n
    return np.asarray(n / n.mean(), dtype=np.float64)
