"""The free-rider model of [Fraboni 2023, ch. 6] against simulations of its process."""

from __future__ import annotations

import numpy as np
import pytest

from poise.core.errors import PoiseError
from poise.theory.free_riders import (
    FairClients,
    asymptotic_variance,
    contraction,
    difference,
    ornstein_uhlenbeck,
    printed_variance,
)

OPTIMA = np.array([-1.0, 0.5, 2.0])
FAIR = FairClients(
    np.array([40.0, 60.0, 100.0]), np.array([0.5, 0.3, 0.7]), np.array([0.2, 0.1, 0.3])
)


def play(
    fair: FairClients,
    optima: np.ndarray,
    riders: float,
    zeta: np.ndarray,
    start: np.ndarray,
    disguise: np.ndarray,
) -> np.ndarray:
    """The process itself, round by round: zeta is (T, copies, J), disguise (T, copies); models (T +
    1, copies)."""
    n = fair.samples.sum() + riders
    models = [start]
    for noise, extra in zip(zeta, disguise, strict=True):
        now = models[-1]
        answers = fair.eta * now[:, None] + (1 - fair.eta) * optima + fair.rho * noise
        models.append(answers @ (fair.samples / n) + riders / n * now + extra)
    return np.array(models)


@pytest.mark.parametrize("riders", [0.0, 50.0, 200.0, 1800.0])
@pytest.mark.parametrize("phi", [0.0, 0.4])
def test_the_recursion_of_theorem_6_1_is_the_process_exactly(
    riders: float, phi: float
) -> None:
    rng = np.random.default_rng(0)
    zeta, other = rng.standard_normal((2, 30, 1, 3))
    disguise = riders / (200 + riders) * phi * rng.standard_normal((30, 1))
    fair = play(FAIR, OPTIMA, 0.0, zeta, np.ones(1), np.zeros((30, 1)))
    with_riders = play(FAIR, OPTIMA, riders, other, np.ones(1), disguise)
    found = difference(
        FAIR, OPTIMA, riders, fair[:-1, 0], zeta[:, 0], other[:, 0], disguise[:, 0]
    )
    np.testing.assert_allclose(found, (with_riders - fair)[:, 0], rtol=0, atol=1e-13)


def simulated(
    fair: FairClients,
    riders: float,
    phi: tuple[float, ...],
    rounds: int,
    copies: int = 20_000,
) -> np.ndarray:
    """theta~ - theta after many rounds of independent copies."""
    rng = np.random.default_rng(7)
    n = fair.samples.sum() + riders
    share = riders / n / max(len(phi), 1)
    with_riders = fair_only = np.zeros(copies)
    for _ in range(rounds):
        zeta, other = rng.standard_normal((2, 1, copies, len(fair.samples)))
        extra = sum(
            (share * p * rng.standard_normal(copies) for p in phi), np.zeros(copies)
        )
        fair_only = play(fair, OPTIMA, 0.0, zeta, fair_only, np.zeros((1, copies)))[-1]
        with_riders = play(fair, OPTIMA, riders, other, with_riders, extra[None])[-1]
    return with_riders - fair_only


@pytest.mark.parametrize(
    ("riders", "phi"),
    [(50.0, ()), (200.0, ()), (600.0, ()), (200.0, (0.5,)), (200.0, (0.5, 1.0))],
)
def test_mean_and_variance_against_monte_carlo(
    riders: float, phi: tuple[float, ...]
) -> None:
    """20,000 independent Gaussian copies: mean and variance within their 99.9 % intervals (z =
    3.29)."""
    h = contraction(FAIR, riders)
    rounds = int(
        np.ceil(np.log(1e-4) / np.log(h))
    )  # what is left of the start is below the intervals
    found = simulated(FAIR, riders, phi, rounds)
    variance = asymptotic_variance(FAIR, riders, phi)
    assert abs(found.mean()) < 3.29 * np.sqrt(variance / len(found))
    assert abs(found.var() - variance) < 3.29 * variance * np.sqrt(2 / len(found))
    printed = printed_variance(FAIR, riders, phi)
    assert abs(found.var() - printed) > 3.29 * printed * np.sqrt(2 / len(found)), (
        "the printed one is another number"
    )


def test_the_two_variances_agree_without_free_riders() -> None:
    assert asymptotic_variance(FAIR) == pytest.approx(printed_variance(FAIR), rel=1e-14)


def test_the_exact_variance_falls_and_the_printed_one_rises() -> None:
    riders = np.array([0.0, 100.0, 400.0, 1600.0, 6400.0])
    exact = np.array([asymptotic_variance(FAIR, r) for r in riders])
    printed = np.array([printed_variance(FAIR, r) for r in riders])
    assert (np.diff(exact) < 0).all()
    assert (np.diff(printed[1:]) > 0).all()
    alone = float(((FAIR.shares * FAIR.rho) ** 2).sum()) / (1 - contraction(FAIR) ** 2)
    assert exact[-1] > alone, "what is left is the variance of the fair run"


def test_fedprox_against_a_finely_cut_diffusion() -> None:
    """Euler-Maruyama of eq. E.71 with 4,000 steps: mean and variance of the answer within 99.9
    %."""
    lr, r, mu, epochs, size, batch, sigma, star, start = (
        0.01,
        1.5,
        0.8,
        5.0,
        100.0,
        10.0,
        2.0,
        1.0,
        -2.0,
    )
    fair = ornstein_uhlenbeck(
        [size], lr=lr, curvature=r, epochs=epochs, batch_size=batch, noise=sigma, mu=mu
    )
    rng, steps, copies = np.random.default_rng(3), 4000, 20_000
    du = epochs * size / batch / steps
    theta = np.full(copies, start)
    for _ in range(steps):
        drift = -lr * (r * (theta - star) + mu * (theta - start))
        theta = (
            theta
            + drift * du
            + lr / np.sqrt(batch) * sigma * np.sqrt(du) * rng.standard_normal(copies)
        )
    mean, deviation = (
        float(fair.eta[0]) * start + (1 - float(fair.eta[0])) * star,
        float(fair.rho[0]),
    )
    cut = lr * (r + mu) * du  # the scheme's own error is of this relative size
    assert abs(theta.mean() - mean) < 3.29 * deviation / np.sqrt(copies) + cut * abs(
        start - star
    )
    assert abs(theta.var() / deviation**2 - 1) < 3.29 * np.sqrt(2 / copies) + cut


def test_fedprox_without_pull_is_fedavg_and_the_pull_lowers_the_noise() -> None:
    options = {
        "lr": 0.01,
        "curvature": 1.0,
        "epochs": 2,
        "batch_size": 10,
        "noise": 1.0,
    }
    plain = ornstein_uhlenbeck([50.0, 80.0], **options)
    np.testing.assert_allclose(
        plain.eta, np.exp(-0.01 * 2 * np.array([50.0, 80.0]) / 10), rtol=1e-14
    )
    pulled = ornstein_uhlenbeck([50.0, 80.0], mu=2.0, **options)
    assert (pulled.rho < plain.rho).all()
    assert (pulled.eta > plain.eta).all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PoiseError, match="eta"):
        FairClients([1.0], [1.0], [0.1])
    with pytest.raises(PoiseError, match="declare"):
        contraction(FAIR, -1.0)
    with pytest.raises(PoiseError, match="declared sizes"):
        asymptotic_variance(FAIR, 10.0, phi=(1.0, 2.0), declared=(5.0,))
