"""Weights that make up for how often each client answers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import Floats, Setting


@part("weighting", "time-based")
class TimeBased:
    """``c_i = d_i``, the weight with which the clock's scheme is unbiased: slow clients count more per answer.

    With times that are given, d_i is the clock's closed form for its durations. Estimated, ``c_i = p_i (n + 1)/k_i``
    after k_i answers of client i in n + 1 aggregations: the long-run share of aggregations that it takes part in, as
    the server sees it.

    Args:
        times: ``given`` (the clock's durations are right) or ``estimated`` from the answers so far.

    Source: E section 4.4, eq. 4.36 and 4.40.

    >>> TimeBased().coefficients(np.array([0.5]), balance=np.array([3.0]))
    array([1.5])
    """

    times: Literal["given", "estimated"] = "given"

    @property
    def needs(self) -> frozenset[str]:
        """The clock's d_i, where times are given."""
        return frozenset({"balance"}) if self.times == "given" else frozenset()

    def fit(self, setting: Setting) -> None:
        """Fits every federation; whether the clock and the sampler fit is checked when a run is composed."""

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """Base weights times d_i/p_i; or importance over the share of aggregations so far."""
        weights = np.asarray(base, dtype=np.float64)
        if self.times == "given":
            balance = reports.get("balance")
            return weights if balance is None else np.asarray(weights * balance)
        seen, importance = reports.get("seen"), reports.get("importance")
        if seen is None or importance is None:
            return weights
        require(bool((np.asarray(seen) > 0).all()), "TimeBased: a client that answers has answered at least once")
        clients = reports.get("clients")
        rows = np.ones(len(weights))
        if clients is not None and len(weights):  # whoever worked twice shares one weight
            _, which, counts = np.unique(clients, return_inverse=True, return_counts=True)
            rows = np.asarray(counts[which], dtype=np.float64)
        return np.asarray(importance * (reports["round"] + 1) / (seen * rows), dtype=np.float64)
