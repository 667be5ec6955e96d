"""The Newton scrub: one step towards the optimum without the unlearned clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from poise.core.errors import IncompatibleParts, require
from poise.core.federations import FederationLike, TaskLike
from poise.core.traits import SolverTraits, traits_of
from poise.core.types import Floats
from poise.core.vectors import Vector
from poise.results import Run
from poise.tasks.client_gradients import Clients, double
from poise.unlearning.request import checked_clients
from poise.unlearning.retraining import composition_of, federation_without

REACH = 1e-4
"""How far apart two gradients are whose difference is a Hessian-vector product."""


@dataclass(frozen=True, eq=False)
class Scrubbed:
    """A model after the Newton scrub; without any guarantee.

    Args:
        model: the scrubbed model, (d,), in the number type of the run.
        gradient_before: length of the remaining clients' gradient at the run's model.
        gradient_after: the same at the scrubbed model; 0 at their optimum.
        iterations: Hessian-vector products that the step took.
    """

    model: Floats
    gradient_before: float
    gradient_after: float
    iterations: int


def newton_scrub(
    run: Run,
    clients: Sequence[int],
    federation: FederationLike | None = None,
    task: TaskLike | None = None,
    *,
    damping: float = 0.0,
    iterations: int = 200,
) -> Scrubbed:
    """Return ``theta - H_k^-1(theta) grad f_k(theta)`` on the remaining clients' data.

    f_k is the mean loss of the remaining clients by importance, with the solver's
    weight decay, and H_k its Hessian. For quadratic losses the result is the optimum
    without the clients, from any model; for others it is near the optimum only where
    the loss is nearly quadratic. This is a baseline: poise gives no certificate for it.
    It reads the data of all remaining clients, and the products with H_k would tell the
    server much about them in a real federation.

    Args:
        run: the training; the step starts from its newest model.
        clients: the clients to unlearn, by number.
        federation: required if the run was made with data given as Python objects.
        task: required if the run was made with a task given as a Python object.
        damping: a number to add to the diagonal of H_k, where it is singular or has
            negative directions.
        iterations: most steps of the conjugate gradients that solve the linear system.

    >>> import poise
    >>> quad = poise.quadratics([[0.0], [4.0], [11.0]])
    >>> sgd = poise.solvers.SGD(lr=0.1, steps=1)
    >>> run = poise.train(quad, quad.task, sgd, rounds=3)
    >>> newton_scrub(run, [2], quad, quad.task).model.round(5).tolist()
    [2.0]

    Source: [Fraboni 2023, eq. 5.2].
    """
    require(damping >= 0, f"damping must be 0 or more, not {damping}", where="damping")
    require(
        iterations >= 1,
        f"iterations must be at least 1, not {iterations}",
        where="iterations",
    )
    whole = composition_of(run, federation, task)
    removed = checked_clients(clients, whole.federation.clients, ())
    remaining = federation_without(whole.federation, removed)
    oracle = double(whole.task).bind(remaining, "cpu")
    if oracle.layout.trainable != oracle.layout.size:
        raise IncompatibleParts(
            "newton_scrub: the model has buffers such as batch-norm statistics, which "
            "have no gradient",
            "use method='fine-tune' of poise.unlearn, or a model without them",
        )
    decay = traits_of(whole.parts.solver, SolverTraits).weight_decay
    everyone = Clients.open(oracle, np.arange(remaining.clients), decay)
    shares = torch.from_numpy(np.array(remaining.importance, dtype=np.float64))
    theta = torch.from_numpy(np.array(run.model, dtype=np.float64))

    def gradient(at: Vector) -> Vector:
        return shares @ everyone.gradients(everyone.same(at))

    def hessian(direction: Vector) -> Vector:
        length = float(direction.norm())
        if length == 0:
            return torch.zeros_like(direction)
        step = direction * (REACH * max(1.0, float(theta.norm())) / length)
        difference = gradient(theta + step) - gradient(theta - step)
        product = difference * (length / (2 * float(step.norm())))
        return product + damping * direction

    now = gradient(theta)
    step, used = conjugate_gradients(hessian, now, iterations)
    scrubbed = theta - step
    return Scrubbed(
        scrubbed.numpy().astype(run.model.dtype),
        gradient_before=float(now.norm()),
        gradient_after=float(gradient(scrubbed).norm()),
        iterations=used,
    )


def conjugate_gradients(
    product: Callable[[Vector], Vector],
    right: Vector,
    iterations: int,
    tolerance: float = 1e-9,
) -> tuple[Vector, int]:
    """Solve ``A x = right`` for a positive definite A, given by its products.

    Returns x and the number of products; stops at a residual of ``tolerance`` times the
    right side.

    >>> matrix = torch.tensor([[2.0, 0.0], [0.0, 5.0]], dtype=torch.float64)
    >>> x, used = conjugate_gradients(matrix.mv, torch.tensor([2.0, 5.0], dtype=torch.float64), 9)
    >>> x.round(decimals=9).tolist(), used
    ([1.0, 1.0], 2)
    """
    x = torch.zeros_like(right)
    residual = right.clone()
    direction = residual.clone()
    square = float(residual @ residual)
    enough = tolerance**2 * square
    used = 0
    while square > enough and used < iterations:
        image = product(direction)
        used += 1
        bend = float(direction @ image)
        if bend <= 0:
            raise IncompatibleParts(
                "newton_scrub: the Hessian of the remaining clients has a direction "
                "without positive curvature, so the loss has no single optimum nearby",
                "give damping=, for example 0.01",
                where=("damping",),
            )
        length = square / bend
        x = x + length * direction
        residual = residual - length * image
        before = square
        square = float(residual @ residual)
        direction = residual + (square / before) * direction
    return x, used
