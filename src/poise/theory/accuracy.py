"""How many rounds a bound needs to fall below an accuracy [Buttaci 2024, §4.4]."""

from __future__ import annotations

from collections.abc import Callable

from poise.core.errors import require
from poise.theory.terms import Assumption, Problem, Terms

MOST = 2**60
"""More rounds than this count as never."""


def least_rounds(bound: Callable[[int], Terms], accuracy: float) -> int:
    """The least number of rounds after which a falling bound is at most ``accuracy``.

    Args:
        bound: the bound after a number of rounds; it must not rise.
        accuracy: the value to reach.

    >>> from poise.theory import fedprox_stationary
    >>> import numpy as np
    >>> p = Problem(1.0, noise=0.0, gradient=0.0, gap=2.0, importance=np.array([1.0]))
    >>> least_rounds(lambda rounds: fedprox_stationary(p, 0.0, 4, rounds), 0.5)
    256

    Source: T_eps in [Buttaci 2024, §4.4], without O(.).
    """
    late = 1
    while bound(late).total > accuracy:
        late *= 2
        require(
            late <= MOST,
            f"the bound does not fall to {accuracy:g}",
            "give a larger accuracy, or a bound that vanishes",
        )
    early = late // 2
    while late - early > 1:
        middle = (early + late) // 2
        if bound(middle).total > accuracy:
            early = middle
        else:
            late = middle
    return late


def fedprox_rounds(
    problem: Problem, alpha: float, steps: int, accuracy: float
) -> Terms:
    """Rounds of FedProx until E |grad f|^2 <= eps, at the fixed rate, without convexity.

    Each term is the number of rounds after which one part of `fedprox_stationary` is
    eps: 64 La^2 D^2/(E eps^2), L^2 S^2 sigma^4/(La^2 E eps^2), alpha^2 E^3 G^4/(La^2
    eps^2), 2 L^2 E G^2/(La^2 eps) and (alpha^2 L sqrt(E) G^2/(16 La^3 eps))^(2/3). The
    sum of all parts is eps after at most 25 times the largest term; `least_rounds`
    finds the exact number.

    Args:
        problem: L, sigma^2, G^2, gap, importance.
        alpha: strength of the pull; 0 is FedAvg, without the third and the last term.
        steps: E, local steps per round.
        accuracy: eps.

    >>> import numpy as np
    >>> p = Problem(1.0, noise=0.0, gradient=0.0, gap=2.0, importance=np.array([1.0]))
    >>> fedprox_rounds(p, 0.0, 4, 0.5)["start"]
    256.0

    Source: [Buttaci 2024, §4.4], case I of Theorem 4.3.
    """
    L = problem.smoothness
    pulled = alpha + L
    G2 = problem.gradient
    noise = problem.squares * problem.noise
    late = alpha**2 * L * steps**0.5 * G2 / (16 * pulled**3 * accuracy)
    values = {
        "start": 64 * pulled**2 * problem.gap**2 / (steps * accuracy**2),
        "noise": L**2 * noise**2 / (pulled**2 * steps * accuracy**2),
        "pull": alpha**2 * steps**3 * G2**2 / (pulled**2 * accuracy**2),
        "drift": 2 * L**2 * steps * G2 / (pulled**2 * accuracy),
        "late pull": late ** (2 / 3),
    }
    return Terms(
        "rounds of FedProx to an accuracy",
        source="[Buttaci 2024, §4.4]",
        values=values,
        assumptions=(
            problem.bounded(),
            Assumption("all clients take part, with weights p"),
            Assumption("learning rate 1/(2 (α + L) √(T E))"),
        ),
        sharp=False,
    )


def perturbed_rounds(
    problem: Problem, beta: float, steps: int, accuracy: float
) -> Terms:
    """Rounds until E |grad f|^2 <= eps for the perturbed gradient, without convexity.

    Each term is the number of rounds after which one part of `perturbed_stationary` is
    eps: 16 L^2 D^2/(E eps^2), S^2 sigma^4/(4 E eps^2) and E G^2/eps (4 + (1 - beta)^2 +
    8 (1 - 1/beta)^2). The sum of all parts is eps after at most 9 times the largest
    term; `least_rounds` finds the exact number.

    Args:
        problem: L, sigma^2, G^2, gap, importance.
        beta: the share of the client's own model, in (0, 1].
        steps: E, local steps per round.
        accuracy: eps.

    >>> import numpy as np
    >>> p = Problem(1.0, noise=0.0, gradient=0.0, gap=2.0, importance=np.array([1.0]))
    >>> perturbed_rounds(p, 0.5, 4, 0.5)["start"]
    64.0

    Source: [Buttaci 2024, §4.4], case I of Theorem 4.6.
    """
    require(0 < beta <= 1, f"beta must be in (0, 1], not {beta}")
    noise = problem.squares * problem.noise
    apart = 4 + (1 - beta) ** 2 + 8 * (1 - 1 / beta) ** 2
    start = 16 * problem.smoothness**2 * problem.gap**2
    values = {
        "start": start / (steps * accuracy**2),
        "noise": noise**2 / (4 * steps * accuracy**2),
        "drift": steps * problem.gradient * apart / accuracy,
    }
    return Terms(
        "rounds of the perturbed gradient to an accuracy",
        source="[Buttaci 2024, §4.4]",
        values=values,
        assumptions=(
            problem.bounded(),
            Assumption("all clients take part, with the weights of the graph"),
            Assumption("learning rate 1/(2 L √(T E))"),
        ),
        sharp=False,
    )
