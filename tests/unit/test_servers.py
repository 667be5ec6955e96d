"""Server optimisers against torch.optim and against the published update written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poise.servers import Adagrad, Adam, Add, Momentum, Yogi

GRADIENTS = torch.from_numpy(np.random.default_rng(3).normal(size=(12, 5)))


def trajectory(server) -> torch.Tensor:
    theta = torch.ones(5, dtype=torch.float64)
    state = server.init(theta)
    points = []
    for gradient in GRADIENTS:
        theta, state = server.apply(theta, -gradient, state)
        points.append(theta)
    return torch.stack(points)


def of_torch(make) -> torch.Tensor:
    theta = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimiser = make([theta])
    points = []
    for gradient in GRADIENTS:
        theta.grad = gradient.clone()
        optimiser.step()
        points.append(theta.detach().clone())
    return torch.stack(points)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_that_of_torch(nesterov: bool) -> None:
    ours = trajectory(Momentum(lr=0.1, beta=0.9, nesterov=nesterov))
    theirs = of_torch(
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=nesterov)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_momentum_without_momentum_is_add() -> None:
    assert torch.equal(trajectory(Momentum(lr=0.3, beta=0.0)), trajectory(Add(lr=0.3)))


def test_adagrad_is_that_of_torch() -> None:
    tau = 1e-3
    theirs = of_torch(
        lambda p: torch.optim.Adagrad(
            p, lr=0.1, initial_accumulator_value=tau**2, eps=tau
        )
    )
    torch.testing.assert_close(
        trajectory(Adagrad(lr=0.1, tau=tau)), theirs, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_adam_and_yogi_are_the_published_updates(name: str) -> None:
    lr, b1, b2, tau = 0.05, 0.9, 0.99, 1e-3
    theta, m, v, points = np.ones(5), np.zeros(5), np.full(5, tau**2), []
    for gradient in GRADIENTS.numpy():
        delta = -gradient  # [Reddi 2021, Alg. 2]: the pseudo-gradient points downhill
        m = b1 * m + (1 - b1) * delta
        change = delta**2 - v if name == "adam" else delta**2 * np.sign(delta**2 - v)
        v = v + (1 - b2) * change
        theta = theta + lr * m / (np.sqrt(v) + tau)
        points.append(theta)
    ours = trajectory((Adam if name == "adam" else Yogi)(lr, b1, b2, tau))
    np.testing.assert_allclose(ours.numpy(), np.array(points), rtol=1e-10)
