"""Bounds after a time T, by hand and by their special cases."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from poise import theory
from poise.core.errors import InvalidOption
from poise.samplers import MD, ClusteredBySize, Full, Uniform

CONSTANTS = {"distance": 3.0, "residual": 0.7, "variance": 0.4}


def test_the_terms_of_both_schemes_by_hand() -> None:
    """tau = (1, 1/2), T = 20, K = 4: N = 20 and 20 + 40 = 60; W = 3; h = 2."""
    together = theory.fedavg_terms([1.0, 0.5], 20, 4, distance=3.0, variance=0.4)
    assert together.values == pytest.approx(
        {"start": 3 / sqrt(80), "local work": 0.06, "gradients": 0.2 / sqrt(80)}
    )
    alone = theory.asynchronous_terms([1.0, 0.5], 20, 4, **CONSTANTS)
    assert alone.values == pytest.approx(
        {
            "start": 3 / sqrt(240),
            "local work": 0.02,
            "gradients": 2.2 / sqrt(240),
            "staleness": 8 * 4 / 60 * 4 * 1.1,
            "window": 4 * 2 / sqrt(240),
        }
    )


def test_one_window_as_long_as_the_slowest_client_adds_only_its_residual() -> None:
    """FedFix with dt = tau_max is synchronous; eq. 4.42 then bounds eq. 4.33 from above."""
    tau = [1.0, 0.5, 0.2]
    fixed = theory.fedfix_terms(tau, 1.0, 50.0, 3, **CONSTANTS)
    plain = theory.fedavg_terms(tau, 50.0, 3, distance=3.0, variance=0.4)
    assert fixed["start"] == plain["start"]
    assert fixed["window"] == 0
    without = theory.fedfix_terms(tau, 1.0, 50.0, 3, **{**CONSTANTS, "residual": 0.0})
    assert without["local work"] == pytest.approx(plain["local work"])
    assert without["staleness"] == pytest.approx(
        plain["gradients"] * (1 + 3 / sqrt(150) * 3)
    )


def test_start_falls_faster_without_waiting_and_staleness_grows_with_clients() -> None:
    tau = np.linspace(0.2, 1.0, 10)
    alone = theory.asynchronous_terms(tau, 100.0, 5)
    assert alone["start"] < theory.fedavg_terms(tau, 100.0, 5)["start"]
    # N grows with M as well, so twice the clients mean twice the staleness
    twice = theory.asynchronous_terms(np.concatenate([tau, tau]), 100.0, 5)
    assert twice["staleness"] == pytest.approx(2 * alone["staleness"])


def test_no_rate_lets_windows_as_long_as_the_run_converge() -> None:
    low, high = theory.converging_rates(0.2, 0.3)
    assert (low, high) == (0.3, 1.0)
    # the four quantities of the proof vanish inside, and one of them not outside
    for c, vanishes in ((0.65, True), (0.25, False), (1.05, False)):
        quantities = [-c + 0.2, c - 1, 0.3 - c, -c]
        assert (max(quantities) < 0) == vanishes == (low < c < high)
    assert theory.converging_rates(1.0, 0.0) == (1.0, 1.0)
    with pytest.raises(InvalidOption, match="exponents from 0 on"):
        theory.converging_rates(-0.1, 0.0)


def test_a_time_without_an_aggregation_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no aggregation within"):
        theory.fedavg_terms([2.0, 1.0], 1.0, 3)


def test_the_cost_of_a_window_grows_with_the_local_steps() -> None:
    """A client with loss B theta counts in the first of W rounds only, while K steps a round push
    theta up by h B each.

    Its mean loss over the window is h K B^2 (W-1)/2 above the loss that counted: more than the
    printed term of eq. 4.38 and 4.42, (W-1) h B^2, and less than that of Theorem 4.3.
    """
    steps, W, count, B = 8, 5, 15, 1.0
    h = 1 / sqrt(steps * count)
    losses = B * h * B * np.arange(W * steps).reshape(W, steps)  # at theta^(n, k)
    apart = (losses - losses[0]).mean()
    assert apart == pytest.approx(h * steps * B**2 * (W - 1) / 2)
    tau = [1.0, 0.25]  # four and one of W = 5, 15 aggregations after T = 3
    found = theory.asynchronous_terms(tau, 3.0, steps)
    assert theory.window("asynchronous", tau) == W
    printed = theory.asynchronous_terms(tau, 3.0, steps, printed=True)
    assert printed["window"] < apart <= found["window"]
    assert found["window"] == pytest.approx(h * steps * (W - 1))
    # FedFix with windows of 1, 1 and 2 aggregations: W = 2, N = 15
    fixed = theory.fedfix_terms([0.2, 0.2, 0.4], 0.2, 3.0, steps)
    assert fixed["window"] == pytest.approx(h * steps)
    short = theory.fedfix_terms([0.2, 0.2, 0.4], 0.2, 3.0, steps, printed=True)
    assert short["window"] == pytest.approx(h)
    both = theory.asynchronous_bound(
        theory.Problem(1.0, gradient=B**2, distance=1.0),
        steps,
        count,
        h,
        staleness=1,
        window=W,
        covariance=0,
        excess=1.0,
        residual=0.0,
        variance=0.0,
        largest=1.0,
    )
    assert both["window"] == pytest.approx(found["window"])


@pytest.mark.parametrize("m", [1, 3, 5])
def test_the_terms_of_sampling_are_those_of_the_appendix(m: int) -> None:
    """Eq. C.72 by hand, with the alpha and beta of uniform and MD sampling, M = 5."""
    p = np.full(5, 0.2)
    constants = {"distance": 3.0, "variance": 0.4}
    h = 2.0 * 0.01
    alphas = {"md": 1 - 1 / m, "uniform": 5 * (m - 1) / (m * 4)}
    betas = {"md": 1 / m, "uniform": (5 - m) / (m * 4)}
    for name, sampler in (("md", MD(m)), ("uniform", Uniform(m))):
        found = theory.sampled_terms(
            sampler.statistics(p), 4, 50, 0.01, 2.0, **constants
        )
        by_hand = {
            "start": 3 / (h * 4 * 50),
            "together": alphas[name] * h * 0.4 / 5,
            "local work": 0.01**2 * 9 * 0.4,
            "alone": betas[name] * h * 0.4,
        }
        assert found.values == pytest.approx(by_hand)


def test_beta_is_the_largest_excess_of_the_second_moments() -> None:
    """Against the draws themselves: E[omega_i^2] <= alpha p_i^2 + beta p_i, with equality once."""
    p, m = np.array([0.1, 0.2, 0.3, 0.4]), 2
    draws = [np.bincount([i, j], minlength=4) / m for i in range(4) for j in range(4)]
    chance = np.array([p[i] * p[j] for i in range(4) for j in range(4)])
    moments = np.einsum("k,ki,kj->ij", chance, np.array(draws), np.array(draws))
    terms = theory.sampled_terms(MD(m).statistics(p), 1, 1, 1.0)
    beta, alpha = terms["alone"], terms["together"] / p.max()
    off = ~np.eye(4, dtype=bool)
    assert np.allclose(moments[off], alpha * np.outer(p, p)[off])
    left = np.diag(moments) - alpha * p**2 - beta * p
    assert left.max() == pytest.approx(0.0, abs=1e-12)
    # Uniform(2): omega_i = 2 p_i in half of the draws, alpha = 2/3
    uniform = theory.sampled_terms(Uniform(m).statistics(p), 1, 1, 1.0)
    assert uniform["alone"] == pytest.approx(2 * 0.4 - 2 / 3 * 0.4)


def test_all_clients_and_one_round_windows_are_fedavg() -> None:
    tau, steps = np.ones(5), 4
    plain = theory.fedavg_terms(tau, 60.0, steps, distance=3.0, variance=0.4)
    narrow = theory.criterion_terms(5, 1, steps, 60, distance=3.0, variance=0.4)
    assert narrow["window"] == 0
    assert {k: narrow[k] for k in plain.values} == pytest.approx(dict(plain.values))
    everyone = theory.sampled_terms(
        Full().statistics(np.full(5, 0.2)),
        steps,
        60,
        1 / sqrt(240),
        distance=3.0,
        variance=0.4,
    )
    assert everyone["start"] == pytest.approx(plain["start"])
    assert everyone["together"] == pytest.approx(plain["gradients"])
    assert everyone["alone"] == 0
    # (K-1)^2/(K N) = (K-1)/N (K-1)/K
    assert everyone["local work"] == pytest.approx(plain["local work"] * 3 / 4)
    wide = theory.criterion_terms(5, 7, steps, 60, distance=3.0, variance=0.4)
    assert wide["window"] == pytest.approx(6 * sqrt(4 / 60))


def test_a_sampler_without_one_covariance_is_refused() -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4])
    with pytest.raises(InvalidOption, match="no constant alpha"):
        theory.sampled_terms(ClusteredBySize(2).statistics(p), 1, 10, 0.1)
    with pytest.raises(InvalidOption, match="a window of 0"):
        theory.criterion_terms(5, 0, 1, 10)
