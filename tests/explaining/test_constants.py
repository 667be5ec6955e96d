"""Constants of a problem, against dense linear algebra and other solvers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import poise
from poise.analysis.explain import curvature, sample_gradients
from poise.analysis.explain.constants import constants
from poise.analysis.explain.convex import minimise
from poise.analysis.explain.curvature import largest_eigenvalues, linear_bounds
from poise.tasks.client_gradients import Clients

DECAY = 0.05
FED = poise.federation(
    "digits", partition="dirichlet", alpha=0.5, clients=5, samples=300, seed=2
)
TASK = poise.task("logistic", dtype="float64")


def softmax_loss(
    w: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[float, np.ndarray]:
    """Cross-entropy with penalty of a linear model, and its gradient; written out, for SciPy."""
    weights, bias = w[:640].reshape(10, 64), w[640:]
    scores = x @ weights.T + bias
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    error = chances.copy()
    error[rows, y] -= 1
    error /= len(y)
    loss = -np.log(chances[rows, y]).mean() + DECAY / 2 * w @ w
    return float(loss), np.concatenate(
        [(error.T @ x).ravel(), error.sum(axis=0)]
    ) + DECAY * w


def arrays() -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (x.reshape(len(x), -1).astype(float), y)
        for x, y in (FED.client(i) for i in range(5))
    ]


def test_logistic_constants_against_scipy() -> None:
    """Gamma, the distance and the gap by another solver on a loss that is written out."""
    found, p, data = (
        constants(FED, TASK, weight_decay=DECAY, batch_size=16),
        FED.importance,
        arrays(),
    )

    def together(w: np.ndarray) -> tuple[float, np.ndarray]:
        parts = [softmax_loss(w, x, y) for x, y in data]
        return float(p @ [v for v, _ in parts]), np.asarray(
            p @ np.array([g for _, g in parts])
        )

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    best = minimize(
        together, np.zeros(650), jac=True, method="L-BFGS-B", options=options
    )
    own = [
        minimize(
            softmax_loss,
            np.zeros(650),
            args=d,
            jac=True,
            method="L-BFGS-B",
            options=options,
        )
        for d in data
    ]
    start = TASK.bind(FED).initial(0).numpy()
    gamma = best.fun - p @ [r.fun for r in own]
    assert found.heterogeneity.value == pytest.approx(gamma, rel=1e-5)
    assert found.heterogeneity.low - 1e-9 <= gamma <= found.heterogeneity.high + 1e-9
    assert found.distance.value == pytest.approx(
        float(np.square(start - best.x).sum()), rel=1e-4
    )
    assert found.gap.value == pytest.approx(together(start)[0] - best.fun, rel=1e-6)
    assert (found.convexity.value, found.noise.value > 0) == (DECAY, True)


@pytest.mark.thorough
def test_power_iteration_and_its_bound_against_dense_eigenvalues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L_i at a model by the eigenvalues of the whole Hessian, which is the difference of gradients
    along every axis.

    Fifteen iterations come from below; a thousand arrive.
    """
    oracle = TASK.bind(FED)
    clients = Clients.open(oracle, np.arange(5), DECAY)
    theta = oracle.initial(3)
    few, bounds = largest_eigenvalues(clients, theta), linear_bounds(clients) + DECAY
    monkeypatch.setattr(curvature, "ITERATIONS", 1000)
    powers = largest_eigenvalues(clients, theta)
    for i, (x, y) in enumerate(arrays()[:2]):
        w, step = theta.numpy(), 1e-5
        columns = [
            (softmax_loss(w + step * e, x, y)[1] - softmax_loss(w - step * e, x, y)[1])
            / (2 * step)
            for e in np.eye(650)
        ]
        top = float(np.linalg.eigvalsh(np.array(columns))[-1])
        assert float(powers[i]) == pytest.approx(top, rel=1e-6)
        assert float(few[i]) <= top * (1 + 1e-6)
        assert top <= float(bounds[i])
        whole = np.hstack([x, np.ones((len(x), 1))])
        assert float(bounds[i]) == pytest.approx(
            np.linalg.norm(whole, 2) ** 2 / (2 * len(x)) + DECAY, rel=1e-9
        )


@pytest.mark.parametrize("batch_size", [1, 16])
def test_noise_of_batches_without_replacement(
    batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every sample of every client looked at, sigma^2 and G^2 are those of drawn batches, at 5
    standard errors."""
    monkeypatch.setattr(sample_gradients, "PER_CLIENT", 10**6)
    monkeypatch.setattr(sample_gradients, "SINGLE", 1e15)
    found = constants(FED, TASK, weight_decay=DECAY, batch_size=batch_size)
    assert found.optimum is not None
    rng, noises, norms = np.random.default_rng(0), [], []
    for w in (TASK.bind(FED).initial(0).numpy(), found.optimum.numpy()):
        for x, y in arrays():
            exact = softmax_loss(w, x, y)[1]
            batches = (
                rng.choice(len(y), min(batch_size, len(y)), replace=False)
                for _ in range(1500)
            )
            drawn = np.array([softmax_loss(w, x[k], y[k])[1] for k in batches])
            for kind, values in ((noises, drawn - exact), (norms, drawn)):
                squares = np.square(values).sum(axis=1)
                kind.append(
                    (
                        float(squares.mean()),
                        5 * float(squares.std()) / np.sqrt(len(squares)),
                    )
                )
    for constant, measured in ((found.noise, noises), (found.gradient, norms)):
        assert all(
            constant.value >= mean - error for mean, error in measured
        )  # the largest of all
        assert any(constant.value <= mean + error for mean, error in measured)


def test_few_samples_give_an_interval_around_the_whole() -> None:
    """Steps over all data have no noise; of 24 samples per client the largest is at least some
    client's."""
    assert constants(FED, TASK, weight_decay=DECAY).noise.value == 0
    found = constants(FED, TASK, weight_decay=DECAY, batch_size=4)
    assert found.noise.low < found.noise.value < found.noise.high
    assert "24 samples of 5 clients" in found.noise.method


def test_quadratics_are_exact() -> None:
    optima, bent = (
        np.array([[0.0, 1.0], [4.0, 2.0], [1.0, -3.0]]),
        np.array([1.0, 3.0, 0.25]),
    )
    fed = poise.quadratics(optima, curvature=bent, sizes=[1, 2, 5])
    found, weights = poise.theory.constants(fed, fed.task), fed.importance * bent
    best = weights @ optima / weights.sum()
    assert found.smoothness.value == pytest.approx(3.0, rel=1e-6)
    assert found.convexity.value == pytest.approx(0.25, rel=1e-6)
    assert found.heterogeneity.value == pytest.approx(
        float(weights / 2 @ np.square(best - optima).sum(axis=1)), rel=1e-9
    )
    assert found.distance.value == pytest.approx(float(best @ best), rel=1e-9)
    assert found.noise.value == 0
    steepest = [
        np.square(bent[:, None] * (w - optima)).sum(axis=1).max()
        for w in (np.zeros(2), best)
    ]
    assert found.gradient.value == pytest.approx(max(steepest), rel=1e-9)


def test_models_that_are_not_convex_have_unknowns() -> None:
    found = constants(FED, poise.task("mlp", hidden=6), batch_size=8)
    assert not found.convexity.known
    assert not found.heterogeneity.known
    assert "the task does not declare convexity" in str(found.convexity)
    assert found.smoothness.value > 0
    assert found.smoothness.high == np.inf
    heavy = constants(
        FED, poise.task("mlp", hidden=60, path="rows"), batch_size=8
    )  # as if it were a convolution
    assert not heavy.smoothness.known


def test_minimise_reaches_the_optimum_of_every_row() -> None:
    a = torch.tensor([[1.0, 100.0], [3.0, 0.5]], dtype=torch.float64)
    b = torch.tensor([[1.0, -2.0], [0.0, 5.0]], dtype=torch.float64)
    step = 1 / a.max(dim=1, keepdim=True).values
    assert torch.allclose(
        minimise(lambda w: a * (w - b), torch.zeros(2, 2).double(), step, 200),
        b,
        atol=1e-9,
    )


def test_l_of_least_squares_is_twice_the_second_moment() -> None:
    """Loss (w x + b - y)^2 of x = 1, 3: Hessian 2 X'X/n."""
    x, y = np.array([[1.0], [3.0]]), np.array([0.5, 1.5])
    fed = poise.federation((x, y), [[0, 1]], test_share=0.0)
    known = constants(fed, poise.task("logistic", dtype="float64"))
    rows = np.array([[1.0, 1.0], [3.0, 1.0]])
    top = np.linalg.eigvalsh(2 * rows.T @ rows / 2)[-1]
    assert known.smoothness.value == pytest.approx(top, rel=1e-9)
