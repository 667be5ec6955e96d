"""Local SGD in NumPy on problems with known constants, to measure what the bounds bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from poise.theory import Problem

SEEDS = 20
SIGMAS = 5.0  # confidence of the measured means, in standard errors: 1 false alarm in 3.5 million


@dataclass(frozen=True)
class Quadratic:
    """F_i(w) = c_i/2 |w - o_i|^2, with Gaussian noise of total variance ``noise`` on every
    gradient."""

    optima: np.ndarray  # (N, d)
    curvature: np.ndarray  # (N,)
    importance: np.ndarray  # (N,)
    noise: float = 0.0

    @property
    def floors(self) -> np.ndarray:
        """F_i*."""
        return np.zeros(len(self.importance))

    @property
    def smoothness(self) -> float:
        return float(self.curvature.max())

    @property
    def convexity(self) -> float:
        return float(self.curvature.min())

    @property
    def best(self) -> np.ndarray:
        weights = self.importance * self.curvature
        return np.asarray(weights @ self.optima / weights.sum())

    def losses(self, w: np.ndarray) -> np.ndarray:
        """F_i at models (..., d), (..., N)."""
        gaps = np.square(w[..., None, :] - self.optima).sum(axis=-1)
        return np.asarray(self.curvature / 2 * gaps)

    def gap(self, w: np.ndarray) -> np.ndarray:
        return np.asarray((self.losses(w) - self.losses(self.best)) @ self.importance)

    def gradients(self, w: np.ndarray) -> np.ndarray:
        """The gradients of every client at its own model, (S, N, d)."""
        return np.asarray(self.curvature[:, None] * (w - self.optima))

    def problem(self, gradient: float) -> Problem:
        return _problem(self, gradient)


def _problem(task: Any, gradient: float) -> Problem:
    """The constants of a strongly convex task that starts at 0."""
    start = np.zeros(task.optima.shape[1])
    gamma = float((task.losses(task.best) - task.floors) @ task.importance)
    return Problem(
        task.smoothness,
        task.convexity,
        task.noise,
        gradient,
        gamma,
        float(np.square(task.best).sum()),
        float(task.gap(start)),
        task.importance,
    )


@dataclass(frozen=True)
class Logistic:
    """F_i(w) = mean_k log(1 + exp(-y_k x_k w)) + decay/2 |w|^2, with Gaussian noise on every
    gradient.

    L = max_i |X_i|^2/(4 n_i) + decay and mu = decay exactly; optima by Newton's method.
    """

    x: np.ndarray  # (N, n, d), with the signs of the labels multiplied in
    importance: np.ndarray
    decay: float
    noise: float = 0.0

    @classmethod
    def drawn(cls, noise: float, decay: float = 0.4, seed: int = 0) -> Logistic:
        """Four clients that would draw the boundary otherwise."""
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(4, 30, 3)) * np.array([1.0, 0.7, 0.5])
        labels = np.sign(
            np.einsum("ikd,id->ik", x, rng.normal(size=(4, 3)))
            + 0.3 * rng.normal(size=(4, 30))
        )
        return cls(x * labels[..., None], np.array([0.1, 0.2, 0.3, 0.4]), decay, noise)

    @property
    def optima(self) -> np.ndarray:
        return np.array([self._solved(np.eye(4)[i]) for i in range(4)])

    @property
    def smoothness(self) -> float:
        return (
            float(max(np.linalg.norm(x, 2) ** 2 / (4 * len(x)) for x in self.x))
            + self.decay
        )

    @property
    def convexity(self) -> float:
        return self.decay

    @property
    def best(self) -> np.ndarray:
        return self._solved(self.importance)

    @property
    def floors(self) -> np.ndarray:
        return np.array([self.losses(w)[i] for i, w in enumerate(self.optima)])

    def _solved(self, weights: np.ndarray) -> np.ndarray:
        w = np.zeros(3)
        for _ in range(50):
            miss = 1 / (1 + np.exp(self.x @ w))
            slope = (
                -np.einsum("i,ik,ikd->d", weights, miss, self.x) / 30 + self.decay * w
            )
            bend = (
                np.einsum(
                    "i,ik,ikd,ike->de", weights, miss * (1 - miss), self.x, self.x
                )
                / 30
            )
            w = w - np.linalg.solve(bend + self.decay * np.eye(3), slope)
        return w

    def losses(self, w: np.ndarray) -> np.ndarray:
        margins = np.einsum("ikd,...d->...ik", self.x, w)
        return np.asarray(
            np.logaddexp(0, -margins).mean(axis=-1)
            + self.decay / 2 * np.square(w).sum(axis=-1)[..., None]
        )

    def gap(self, w: np.ndarray) -> np.ndarray:
        return np.asarray((self.losses(w) - self.losses(self.best)) @ self.importance)

    def gradients(self, w: np.ndarray) -> np.ndarray:
        miss = 1 / (1 + np.exp(np.einsum("ikd,sid->sik", self.x, w)))
        return np.asarray(
            -np.einsum("sik,ikd->sid", miss, self.x) / 30 + self.decay * w
        )

    def problem(self, gradient: float) -> Problem:
        return _problem(self, gradient)


@dataclass(frozen=True)
class Waves:
    """F_i(w) = sum_j 1 - cos(w_j - o_ij): smooth with L = 1, not convex, at least 0."""

    optima: np.ndarray
    importance: np.ndarray
    noise: float = 0.0

    def losses(self, w: np.ndarray) -> np.ndarray:
        return np.asarray((1 - np.cos(w[..., None, :] - self.optima)).sum(axis=-1))

    def gradients(self, w: np.ndarray) -> np.ndarray:
        return np.asarray(np.sin(w - self.optima))

    def problem(self, gradient: float) -> Problem:
        start = float(self.losses(np.zeros(self.optima.shape[1])) @ self.importance)
        return Problem(
            1.0,
            noise=self.noise,
            gradient=gradient,
            gap=start,
            importance=self.importance,
        )


@dataclass
class Trace:
    """What a simulation went through."""

    models: np.ndarray  # (R + 1, S, d)
    weights: np.ndarray  # (R, S, N)
    largest_gradient: float  # E |g_i|^2 at its largest
    squared: np.ndarray  # (R, E, S): |grad f|^2 at the mean of the local models


def simulate(
    task: Any,
    rounds: int,
    steps: int,
    rate: Callable[[int, int], float],
    *,
    alpha: float = 0.0,
    beta: float = 1.0,
    near: np.ndarray | None = None,
    weigh: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    seed: int = 0,
) -> Trace:
    """Rounds of E local steps with ``rate(round, step)``, FedProx's pull ``alpha``, the perturbed
    gradient ``beta``.

    ``near`` is p_ij of the perturbed gradient, ``weigh(before, after)`` makes weights (S, N) from
    the losses (S, N).
    """
    rng = np.random.default_rng(seed)
    n, d = len(task.importance), task.optima.shape[1]
    p = task.importance if near is None else near.sum(axis=1)
    theta = np.zeros((SEEDS, d))
    last = np.zeros((SEEDS, n, d))
    found, used, squared, largest = [theta], [], [], 0.0
    for t in range(rounds):
        w = np.repeat(theta[:, None], n, axis=1)
        u = w if near is None else np.einsum("ij,sjd->sid", near / p[:, None], last)
        inside = []
        for k in range(steps):
            inside.append(
                np.square(
                    np.einsum(
                        "n,snd->sd",
                        p,
                        task.gradients(np.repeat((p @ w)[:, None], n, axis=1)),
                    )
                )
            )
            exact = task.gradients(beta * w + (1 - beta) * u)
            largest = max(
                largest, float(np.square(exact).sum(axis=-1).max()) + task.noise
            )
            g = exact + rng.normal(size=w.shape) * np.sqrt(task.noise / d)
            w = w - rate(t, k) * (g + alpha * (w - theta[:, None]))
        before = task.losses(theta)
        after = np.stack([task.losses(w[:, i])[:, i] for i in range(n)], axis=1)
        weights = np.tile(p, (SEEDS, 1)) if weigh is None else weigh(before, after)
        last = w
        theta = theta + np.einsum("sn,snd->sd", weights, w - theta[:, None])
        found.append(theta)
        used.append(weights)
        squared.append(np.sum(inside, axis=-1))
    return Trace(np.array(found), np.array(used), largest, np.array(squared))


def below(measured: np.ndarray, bound: float) -> bool:
    """Whether the mean over seeds lies below the bound, with `SIGMAS` standard errors to spare."""
    values = np.asarray(measured)
    return bool(
        values.mean() + SIGMAS * values.std(ddof=1) / np.sqrt(len(values)) <= bound
    )


def soft(
    temperature: float, p: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """FedSoftMax with floor 0, or FedSoftMin for a temperature below 0."""

    def weigh(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        raised = p * np.exp((before - before.max(axis=1, keepdims=True)) / temperature)
        if temperature < 0:
            raised = p * np.exp(
                (before - before.min(axis=1, keepdims=True)) / temperature
            )
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    return weigh


def exp_alpha(
    alpha: float, p: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Exp-alpha with s_i = 1."""

    def weigh(before: np.ndarray, after: np.ndarray) -> np.ndarray:
        raised = p * np.exp((after - before) / alpha)
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    return weigh
