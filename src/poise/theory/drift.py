"""How far local models drift apart in a round [Buttaci 2024, Lemmas 4.1 to 4.5].

The bounds hold in expectation, for gradients with a mean square norm of at most G^2.
"""

from __future__ import annotations

from poise.core.errors import require


def local_deviation(steps: int, rate: float, gradient: float) -> float:
    """``E |w_i - theta|^2 <= rate^2 E^2 G^2``: how far a client moves in a round.

    It holds for FedAvg, and for FedProx with rate * alpha <= 1.

    Args:
        steps: E, local steps so far.
        rate: the learning rate of the round.
        gradient: G^2.

    >>> local_deviation(steps=4, rate=0.5, gradient=4.0)
    16.0

    Source: [Buttaci 2024, Lemma 4.1].
    """
    return rate**2 * steps**2 * gradient


def client_drift(steps: int, rate: float, gradient: float) -> float:
    """``E |w_i - w_|^2 <= 4 rate^2 E^2 G^2``: a client's model and the clients' mean.

    It holds for FedAvg, and for FedProx with rate * alpha <= 1.

    Args:
        steps: E, local steps so far.
        rate: the learning rate of the round.
        gradient: G^2.

    >>> client_drift(steps=4, rate=0.5, gradient=4.0)
    64.0

    Source: [Buttaci 2024, Lemma 4.2].
    """
    return 4 * local_deviation(steps, rate, gradient)


def neighbour_drift(steps: int, previous: float, gradient: float) -> float:
    """``E |u_i - u_j|^2 <= 4 previous^2 E^2 G^2``: two clients' neighbour means.

    Args:
        steps: E, local steps per round.
        previous: the learning rate of the round before; 0 in the first round.
        gradient: G^2.

    >>> neighbour_drift(steps=10, previous=0.0, gradient=4.0)
    0.0

    Source: [Buttaci 2024, Lemma 4.4].
    """
    return 4 * local_deviation(steps, previous, gradient)


def perturbed_drift(
    beta: float,
    steps: int,
    rate: float,
    gradient: float,
    previous: float | None = None,
    printed: bool = False,
) -> float:
    """``E |w_ - w~_i|^2``: the perturbed gradient's point, and the mean.

    Here ``w~_i = beta w_i + (1 - beta) u_i``. At most ``E^2 G^2 (4 beta rate^2 +
    (1 - beta)(2 rate^2 + 8 previous^2))``, by Jensen's inequality and Lemmas 4.1 and
    4.2. The paper's bound, ``4 rate^2 E^2 G^2 (4 + (1 - beta)^2 + 8 (previous/rate)^2
    (1 - 1/beta)^2)``, grows without limit as beta falls; the drift does not.

    Args:
        beta: the share of the client's own model, in (0, 1].
        steps: E, local steps so far.
        rate: the learning rate of the round.
        gradient: G^2.
        previous: that of the round before, by default the same; 0 in the first round.
        printed: the paper's bound.

    >>> perturbed_drift(0.5, 4, 0.5, 4.0)
    112.0
    >>> perturbed_drift(0.5, 4, 0.5, 4.0, printed=True)
    784.0

    Source: [Buttaci 2024, Lemma 4.5].
    """
    require(0 < beta <= 1, f"beta must be in (0, 1], not {beta}")
    before = rate if previous is None else previous
    here = local_deviation(steps, rate, gradient)
    there = local_deviation(steps, before, gradient)
    if printed:
        return 4 * here * (4 + (1 - beta) ** 2) + 32 * there * (1 - 1 / beta) ** 2
    return 4 * beta * here + (1 - beta) * (2 * here + 8 * there)
