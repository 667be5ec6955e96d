"""``sigma="plan"``: choose the noise with the smallest expected cost from a declared grid.

More noise lets a request restart later, but a noisier model needs more rounds to reach
the target again. For every sigma of the grid, the plan looks at the models from which
requests of single clients would restart, adds noise, and measures their score. The
training itself tells how many rounds lie between that score and the target.

The choice depends on the sensitivities of all clients, not on the clients of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from poise.core.errors import InvalidOption
from poise.core.types import Floats, Ints
from poise.core.vectors import Vector
from poise.privacy.budget import Budget
from poise.unlearning.histories import Histories
from poise.unlearning.noise import perturbed

POINTS = 16
"""Models of the training that are measured for its curve."""

RESTARTS = 5
"""Restart models that are measured for each sigma."""


@dataclass(frozen=True)
class TrainingCurve:
    """The score of the training after some of its rounds; better is larger."""

    rounds: Ints
    scores: Floats

    def round_of(self, score: float) -> float:
        """Return the round at which the training had reached a score.

        >>> curve = TrainingCurve(np.array([0, 10, 20]), np.array([0.1, 0.5, 0.9]))
        >>> curve.round_of(0.3), curve.round_of(0.0), curve.round_of(2.0)
        (5.0, 0.0, 20.0)
        """
        best = np.maximum.accumulate(self.scores)
        return float(np.interp(score, best, self.rounds))


def planned_sigma(
    histories: Histories,
    budget: Budget,
    *,
    sigmas: Sequence[float],
    score: Callable[[Vector], float],
    target: float,
) -> float:
    """Return the sigma of the grid whose requests need the fewest rounds on average.

    Args:
        histories: the training and its branches; later requests keep the sigma of the
            first.
        budget: epsilon, delta, and how sensitivities are counted.
        sigmas: the grid.
        score: measures a model; larger is better.
        target: the score at which retraining ends.
    """
    for branch in histories.finished:
        if branch.request.method == "sifu":
            return branch.request.budget.sigma
    if not sigmas:
        raise InvalidOption(
            "sigma = 'plan': the training declared no noise levels to choose from",
            "declare them before training, for example [unlearning] sigmas = [0.02, 0.05, 0.1]",
            where=("sigma",),
        )
    curve = _training_curve(histories, score)
    goal = curve.round_of(target)
    costs = {
        sigma: _expected_rounds(
            histories, replace(budget, sigma=sigma), curve=curve, goal=goal, score=score
        )
        for sigma in sorted(sigmas)
    }
    return min(costs, key=lambda sigma: costs[sigma])


def _training_curve(
    histories: Histories, score: Callable[[Vector], float]
) -> TrainingCurve:
    """Measure the training after some of its rounds."""
    kept = np.array(histories.root.kept)
    chosen = kept[np.unique(np.linspace(0, len(kept) - 1, POINTS).astype(int))]
    scores = [
        score(torch.from_numpy(histories.root.models(n))) for n in chosen.tolist()
    ]
    return TrainingCurve(chosen, np.array(scores))


def _expected_rounds(
    histories: Histories,
    budget: Budget,
    *,
    curve: TrainingCurve,
    goal: float,
    score: Callable[[Vector], float],
) -> float:
    """Return the mean number of rounds that requests of single clients would need."""
    root = histories.root
    within = histories.psi(0, budget) <= budget.limit
    kept = np.array(root.kept)
    latest = [int(kept[within[kept, c]].max()) for c in range(root.clients)]
    shares = np.linspace(0, 1, RESTARTS)
    restarts, counts = np.unique(
        np.quantile(latest, shares, method="nearest"), return_counts=True
    )
    rounds = []
    for n in restarts.astype(int).tolist():
        start = perturbed(
            torch.from_numpy(root.models(n)),
            budget.sigma,
            seed=int(root.meta["seed"]),
            index=0,
            trainable=root.trainable,
        )
        rounds.append(max(0.0, goal - curve.round_of(score(start))))
    return float(np.average(rounds, weights=counts))
