"""Exp-alpha: clients that improve a lot on their own data count less."""

from __future__ import annotations

from math import isfinite
from typing import Any, Literal

import numpy as np

from poise.core.errors import InvalidOption, require
from poise.core.parts import part
from poise.core.types import Floats, Setting
from poise.core.weights import finite, renormalised


@part("weighting", "exp")
class Exp:
    """``c_i ~ omega_i exp(s_i (loss_after - loss_before) / alpha)``, summing to one; ``s_i = m n_i / sum_S n_j``.

    A large improvement means that the client's data is far from what the others have: small weight. alpha -> infinity
    gives the (renormalised) base weights. For equal sizes s_i = 1, and all of B's experiments have equal sizes.

    Args:
        alpha: how mild the weighting is, > 0; 0.2 in B.
        scale: ``size`` is Corollary 1.1; ``none`` has s_i = 1 whatever the sizes, as eq. 3 and Algorithm 1 are printed.

    Source: B eq. 3, Corollary 1.1, Algorithm 1.

    >>> Exp(0.5).coefficients(np.array([0.5, 0.5]), loss_before=np.array([2.0, 2.0]), loss_after=np.array([1.0, 1.0]))
    array([0.5, 0.5])
    """

    alpha: float
    scale: Literal["size", "none"] = "size"

    needs = frozenset({"loss_before", "loss_after"})

    def __post_init__(self) -> None:
        require(self.alpha > 0 and isfinite(self.alpha), f"Exp: alpha must be above 0, not {self.alpha}")

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """Base weights times the exponential of the scaled change of the loss."""
        clients, rows = reports.get("clients"), len(base)
        before = finite("loss_before", reports.get("loss_before"), rows, clients)
        after = finite("loss_after", reports.get("loss_after"), rows, clients)
        scaled = _relative_sizes(reports.get("sizes") if self.scale == "size" else None, rows)
        return renormalised(np.asarray(base, dtype=np.float64), scaled * (after - before) / self.alpha)


def _relative_sizes(sizes: Any, rows: int) -> Floats:
    """n_i over the mean size of the cohort; 1 where sizes are not given."""
    if sizes is None:
        return np.ones(rows)
    n = np.asarray(sizes, dtype=np.float64)
    if n.shape != (rows,) or (rows and not (n > 0).all()):
        raise InvalidOption(f"Exp: sizes must be above 0, one per client, not {n.tolist()}")
    return np.asarray(n / n.mean(), dtype=np.float64) if rows else n
