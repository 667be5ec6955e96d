"""Clients count by how many others are like them."""

from __future__ import annotations

from typing import Any

import numpy as np

from poise.core.parts import part
from poise.core.types import Floats, Setting


@part("weighting", "adjacency")
class Adjacency:
    """``c_i = omega_i a_i / p_i`` with a_i = degree_i / sum of degrees of the similarity graph.

    With everyone at work c_i = a_i; with an unbiased sampler the mean of c_i is a_i. Clients that resemble many others
    count more, outliers less.

    Source: C section 4.3, Algorithm 2.

    >>> Adjacency().coefficients(np.array([0.5]), importance=np.array([0.25]), adjacency=np.array([0.2]))
    array([0.4])
    """

    needs = frozenset({"adjacency"})

    def fit(self, setting: Setting) -> None:
        """Needs a similarity graph."""
        setting.neighbours()

    def coefficients(self, base: Floats, **reports: Any) -> Floats:
        """Base weights with the degree in the place of the importance."""
        weights, degree = np.asarray(base, dtype=np.float64), reports.get("adjacency")
        if degree is None:
            return weights
        p = np.asarray(reports["importance"], dtype=np.float64)
        return np.asarray(weights * np.divide(degree, p, out=np.zeros_like(p), where=p > 0))
