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
    fading_variance,
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


@pytest.mark.parametrize(
    ("riders", "declared"), [(0.0, ()), (200.0, (200.0,)), (600.0, (450.0, 150.0))]
)
def test_the_variance_of_fading_noise_against_monte_carlo(
    riders: float, declared: tuple[float, ...]
) -> None:
    """20,000 copies: the variances of 8 rounds within intervals of 99.9 % for all 24 together.

    That is z = 4.1 for each: 0.001/24 in both tails.
    """
    rng = np.random.default_rng(11)
    rounds, copies = 8, 20_000
    fading = rng.uniform(0.1, 1.0, (rounds, 3))
    phi = rng.uniform(0.1, 0.6, (rounds, max(len(declared), 1)))
    n = FAIR.samples.sum() + riders
    zeta, other = rng.standard_normal((2, rounds, copies, 3))
    noise = rng.standard_normal((rounds, copies, len(declared)))
    extra = noise @ (np.array(declared) / n * phi[:, : len(declared)])[:, :, None]
    start, nobody = np.zeros(copies), np.zeros((rounds, copies))
    fair = play(FAIR, OPTIMA, 0.0, fading[:, None] * zeta, start, nobody)
    beside = play(FAIR, OPTIMA, riders, fading[:, None] * other, start, extra[..., 0])
    found = (beside - fair).var(axis=1)
    exact = fading_variance(FAIR, riders, fading, phi, declared)
    assert exact[0] == found[0] == 0.0
    interval = 4.1 * exact * np.sqrt(2 / copies)
    assert (np.abs(found - exact) <= interval).all()
    constant = fading_variance(FAIR, riders, np.ones(rounds), phi, declared)
    assert (np.abs(found - constant) > interval)[1:].all(), "the fading is seen"


@pytest.mark.parametrize("phi", [(), (0.5,), (0.5, 1.0)])
def test_constant_noise_leads_to_the_asymptotic_variance(
    phi: tuple[float, ...],
) -> None:
    rounds = 400
    constant = np.tile(phi, (rounds, 1)) if phi else 0.0
    found = fading_variance(FAIR, 200.0, np.ones(rounds), constant)
    assert found[-1] == pytest.approx(asymptotic_variance(FAIR, 200.0, phi), rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_noise_like_a_power_of_t_gives_a_variance_like_its_square(gamma: float) -> None:
    """Corollary 6.2 with phi(t) = sigma t^-gamma: V_t t^(2 gamma) tends to the asymptotic variance
    of noise that stays."""
    fading = np.arange(1.0, 20_001) ** -gamma
    found = fading_variance(FAIR, 200.0, fading, 0.5 * fading)
    scaled = found[-1] * 20_000 ** (2 * gamma)
    assert scaled == pytest.approx(asymptotic_variance(FAIR, 200.0, (0.5,)), rel=1e-2)
    assert found[-1] < found[100] < found[10]


def test_fading_needs_a_value_for_every_round() -> None:
    with pytest.raises(PoiseError, match="a value for every round"):
        fading_variance(FAIR, 50.0)
    with pytest.raises(PoiseError, match="3 rounds of fading, but 2 of phi"):
        fading_variance(FAIR, 50.0, np.ones(3), np.ones(2))


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
