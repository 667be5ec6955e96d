"""L and mu of the clients' losses."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np
import torch

from poise.core.rng import torch_generator
from poise.core.vectors import Stack, Vector
from poise.tasks.client_gradients import Clients, cost
from poise.tasks.curvature import hessian_scale

ITERATIONS = 15
MOST = 6e7  # multiplications of one Hessian-vector product
GRAM = 2e9  # multiplications for the largest singular values of the clients' data


@dataclass(frozen=True)
class Constant:
    """An estimated number with its interval and method; nan if unknown."""

    value: float
    low: float
    high: float
    method: str

    @property
    def known(self) -> bool:
        """Whether the value is known."""
        return isfinite(self.value)

    def __str__(self) -> str:
        if not self.known:
            return f"unknown ({self.method})"
        interval = ""
        if self.low != self.high:
            high = "…" if self.high == inf else f"{self.high:.3g}"
            interval = f" [{self.low:.3g}, {high}]"
        return f"{self.value:.4g}{interval} ({self.method})"


@dataclass(frozen=True)
class CurvatureEstimate:
    """L and mu as constants, and a bound of L for each client."""

    smoothness: Constant
    convexity: Constant
    each: torch.Tensor  # (m,)


def curvature_of(
    clients: Clients, points: list[Vector], kind: str | None, decay: float
) -> CurvatureEstimate:
    """L by power iteration at these points, or a global bound if known; and mu."""
    sampled = _within_budget(clients)
    if sampled is None:
        unknown = Constant(nan, nan, nan, "a Hessian of this model takes too long")
        return CurvatureEstimate(unknown, unknown, torch.ones(len(clients.numbers)))
    at = (
        torch.stack([largest_eigenvalues(sampled, w) for w in points]).max(dim=0).values
    )
    largest = float(at.max())
    models = "1 model" if len(points) == 1 else f"{len(points)} models"
    where = f"power iteration on Hessian-vector products at {models}"
    if kind == "quadratic":
        least = float(
            (largest - largest_eigenvalues(sampled, points[0], shift=largest)).min()
        )
        how = f"{where}; the Hessian is constant"
        return CurvatureEstimate(
            Constant(largest, largest, largest, how),
            Constant(least, least, least, how),
            at,
        )
    if kind == "logistic":
        each = linear_bounds(clients) + decay
        most = max(float(each.max()), largest)
        count = len(clients.numbers)
        how = f"bound of |X|²/n + decay of {count} clients; lower end by {where}"
        mu = Constant(0.0, 0.0, 0.0, "convex, but not strongly: no weight decay")
        if decay > 0:
            mu = Constant(decay, decay, largest, "weight decay of the solver")
        return CurvatureEstimate(Constant(most, largest, most, how), mu, each)
    unknown = Constant(nan, nan, nan, "the task does not declare convexity")
    how = f"{where}, {len(sampled.numbers)} clients; it may be larger at other models"
    return CurvatureEstimate(Constant(largest, largest, inf, how), unknown, at)


def _within_budget(clients: Clients) -> Clients | None:
    """As many clients and samples as the budget allows; None if it allows too few."""
    room = MOST / cost(clients.oracle)
    if clients.samples <= room:
        return clients
    if room < 32:
        return None
    per = int(np.clip(room / len(clients.numbers), 16, 256))
    count = int(np.clip(room / per, 1, len(clients.numbers)))
    picked = clients.numbers[
        np.linspace(0, len(clients.numbers) - 1, count).astype(int)
    ]
    return Clients.open(clients.oracle, picked, clients.decay, most=per)


def largest_eigenvalues(
    clients: Clients, theta: Vector, shift: float = 0.0
) -> torch.Tensor:
    """The largest |eigenvalue| of each client's Hessian or ``shift - Hessian``, (m,).

    ``H v`` is the difference of two gradients along v. Power iteration gives a lower
    bound, which improves with the iterations.
    """
    trainable = clients.oracle.layout.trainable
    rows = clients.same(theta)
    direction = torch.randn(
        (len(rows), trainable),
        generator=torch_generator(0, "explain direction"),
        dtype=torch.float64,
    ).to(rows)
    direction /= direction.norm(dim=1, keepdim=True)
    reach = 1e-4 * max(1.0, float(theta[:trainable].norm()))
    eigenvalues = torch.zeros(len(rows), dtype=torch.float64)
    iterations = ITERATIONS
    if not clients.oracle.batches:  # gradients without samples are cheap
        iterations = 200
    for _ in range(iterations):
        product = _gradient_difference(clients, rows, reach * direction) / reach
        if shift:
            product = shift * direction - product
        before = eigenvalues
        eigenvalues = product.norm(dim=1).double()
        direction = product / product.norm(dim=1, keepdim=True).clamp(min=1e-300)
        if bool((eigenvalues - before).abs().max() <= 1e-9 * eigenvalues.max()):
            break
    return eigenvalues


def _gradient_difference(clients: Clients, rows: Stack, step: Stack) -> Stack:
    """Half the difference of the gradients one step ahead and one step back."""
    ahead = rows.clone()
    back = rows.clone()
    ahead[:, : step.shape[1]] += step
    back[:, : step.shape[1]] -= step
    return (clients.gradients(ahead) - clients.gradients(back)) / 2


def linear_bounds(clients: Clients) -> torch.Tensor:
    """``c |[X_i, 1]|^2 / n_i`` per client, (m,), with c of `hessian_scale`.

    The norm is the largest singular value, or the Frobenius norm if that takes too
    long.
    """
    bounds = []
    outputs = max(clients.data.shards.samples.classes, 1)
    scale = hessian_scale(clients.oracle.convex, outputs)  # type: ignore[attr-defined]
    room = GRAM / max(len(clients.positions), 1)
    for positions in clients.positions:
        x = clients.data.take(positions)[0].reshape(len(positions), -1).double()
        x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
        n, f = x.shape
        if n * f * min(n, f) <= room:
            if n < f:  # the same eigenvalues in a smaller matrix
                x = x.T
            top = float(torch.linalg.eigvalsh(x.T @ x)[-1])
        else:
            top = float(x.square().sum())
        bounds.append(scale * top / n)
    return torch.tensor(bounds, dtype=torch.float64)
