"""How homogeneity and spectrum change when clients become less alike.

The model: the N(N-1)/2 weights -ln mis are independent N(theta, phi^2); they become
N(theta (1-eps), phi^2 (1+delta)). The printed propositions count every pair twice, as
if mis(i, j) and mis(j, i) were independent; the exact forms count it once.
``printed=True`` gives the printed forms.

Source: [Buttaci 2024, §3.3].
"""

from __future__ import annotations

import numpy as np

from poise.core.errors import require
from poise.core.types import Floats


def probability_less_homogeneous(
    theta: float,
    phi: float,
    clients: int,
    eps: float,
    delta: float = 0.0,
    printed: bool = False,
) -> float:
    """P(homogeneity after < before) = Phi( (theta eps / phi) sqrt(N (N - 1) / (2 (2 + delta))) ).

    The printed form has no factor 2 under the root [Buttaci 2024, Prop. 3.2].

    >>> round(probability_less_homogeneous(2.0, 1.0, 10, 0.1), 4)
    0.8286
    """
    from scipy.stats import norm

    _check(phi, clients, delta)
    pairs = clients * (clients - 1) / (1 if printed else 2)
    return float(norm.cdf(theta * eps / phi * np.sqrt(pairs / (2 + delta))))


def squared_deviation_bounds(
    theta: float,
    phi: float,
    clients: int,
    eps: float,
    delta: float = 0.0,
    printed: bool = False,
) -> tuple[float, float]:
    """Bounds of the expected mean of (eigenvalue after - before)^2.

    The mean is over the N - 1 eigenvalues that are not 0. Below: 4 N^2 E[S^2] (Jensen),
    S the change of the homogeneity. Above: E|L' - L|_F^2 / (N - 1) = N^2 eps^2 theta^2
    + 2 N (2 + delta) phi^2, by Hoffman and Wielandt [Hoffman 1953]. The printed upper
    bound [Buttaci 2024, Prop. 3.3] rests on tr(A^2) <= (tr A)^2, which holds for
    positive semi-definite A only.
    """
    _check(phi, clients, delta)
    n = clients
    drift = (eps * theta) ** 2
    noise = (2 + delta) * phi**2
    spread = noise / (n * (n - 1))
    if printed:
        return n**2 * (spread + drift), n**2 * (n - 1) * (spread + drift)
    return n**2 * (2 * spread + drift), n**2 * drift + 2 * n * noise


def absolute_deviation_bounds(
    theta: float,
    phi: float,
    clients: int,
    eps: float,
    delta: float = 0.0,
    printed: bool = False,
) -> tuple[float, float]:
    """Bounds of the expected mean of |eigenvalue after - before|.

    Below: ``2 N E|S|``, S normal with mean ``-eps theta / 2``. Above:
    ``2 N E[sum of the homogeneities] = (2 - eps) theta N``.

    Source: [Buttaci 2024, Prop. 3.4].
    """
    from scipy.stats import norm

    _check(phi, clients, delta)
    n = clients
    count = 4 if printed else 2
    deviation = np.sqrt((2 + delta) * phi**2 / (n * (n - 1) * count))
    a = eps * theta / (2 * deviation)
    folded = eps * theta / 2 * (2 * norm.cdf(a) - 1) + 2 * deviation * norm.pdf(a)
    return float(2 * n * folded), float((2 - eps) * theta * n)


def squared_deviation(before: Floats, after: Floats) -> float:
    """Mean (lambda' - lambda)^2 of ascending spectra, without the first eigenvalue."""
    return float(np.mean((np.asarray(after)[1:] - np.asarray(before)[1:]) ** 2))


def absolute_deviation(before: Floats, after: Floats) -> float:
    """Mean |lambda' - lambda| of ascending spectra, without the first eigenvalue."""
    return float(np.mean(np.abs(np.asarray(after)[1:] - np.asarray(before)[1:])))


def _check(phi: float, clients: int, delta: float) -> None:
    require(phi > 0, f"phi must be above 0, not {phi}")
    require(clients >= 2, f"a graph needs two clients or more, not {clients}")
    require(delta > -1, f"delta must be above -1, not {delta}")
