"""Bounds after a time T, by hand and by their special cases."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from poise import theory
from poise.core.errors import InvalidOption

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
            "window": 2 / sqrt(240),
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
