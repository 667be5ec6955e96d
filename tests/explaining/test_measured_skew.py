"""What a run's weights mean for the bounds: by hand, for two clients and three rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poise.analysis.explain.measured_skew import measured_skew
from poise.theory import Problem

P = np.array([0.5, 0.5])
WEIGHTS = np.array([[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]])
FACTS: dict[str, Any] = {
    "versions": np.array([0, 2]),
    "losses": np.array([[2.0, 5.0], [3.0, 2.0]]),
    "at_optimum": np.array([1.5, 3.0]),
    "floors": np.array([1.0, 1.0]),
}


def test_skews_ranges_speed_and_error_by_hand() -> None:
    """Gaps of the losses: (1, 4) and (2, 1) at the models of rounds 0 and 2, (0.5, 2) at w*."""
    found = measured_skew(P, WEIGHTS, **FACTS)
    assert found is not None
    assert found.skews == pytest.approx([3.4 / 2.5, 1.4 / 1.5])
    assert found.lowest == pytest.approx(1.4 / 1.5)
    assert found.at_optimum == pytest.approx([1.7 / 1.25, 1.0, 1.4 / 1.25])
    assert found.highest == pytest.approx(1.36)
    assert found.kappa == pytest.approx((0.4, 1.6))
    assert found.omega == pytest.approx(1.4)
    assert found.gamma == pytest.approx(1.7)
    assert found.largest.tolist() == [0.2, 0.8]


def test_the_bounds_that_follow_by_hand() -> None:
    """One step at the rate 0.1: L = 2, mu = 1/2, sigma^2 = 1, G^2 = 3, Gamma = 1.25, E = 1,
    |w0 - w*|^2 = 4; times L/2 = 1."""
    found = measured_skew(P, WEIGHTS, **FACTS)
    assert found is not None
    problem = Problem(2.0, 0.5, 1.0, 3.0, 1.25, 4.0)
    bounds = {b.name: b.values for b in found.bounds(problem, 1, 1, 0.1)}
    name = "loss gap with {}, measured {}"
    skews = {"range": (0.4, 1.6), "skew": (1.4 / 1.5, 1.36)}
    for which, (low, high) in skews.items():
        by_hand = {
            "start": 4 * (1 - 0.05 * (1 + 3 / 8 * low)),
            "drift": 0.96,
            "noise": 0.01,
            "heterogeneity": 0.06 * low * 2 * 1.25,
            "error": 0.2 * 1.25 * (high - low),
        }
        assert bounds[name.format("skewed weights", which)] == pytest.approx(by_hand)
    for which, omega in (("range", 0.4 * 1.25), ("Ω and Γ", 1.4)):
        by_hand = {
            "start": 4 * 0.95,
            "noise": 0.01 * 0.68,
            "drift": 0.0,
            "speed": 0.12 * omega,
            "error": 0.2 * (1.7 - omega),
        }
        title = name.format("weights that vary over time", which)
        assert bounds[title] == pytest.approx(by_hand)
    # T rounds of E local steps are E T steps
    twice = found.bounds(problem, 3, 2, 0.1)[2].values["start"]
    assert twice == pytest.approx(4 * 0.95**6)


def test_weights_that_do_not_sum_to_one_and_equal_clients_have_no_skew() -> None:
    assert measured_skew(P, 0.9 * WEIGHTS, **FACTS) is None
    equal = {**FACTS, "at_optimum": FACTS["floors"]}
    assert measured_skew(P, WEIGHTS, **equal) is None
    none = {**FACTS, "versions": np.zeros(0), "losses": np.zeros((0, 2))}
    assert measured_skew(P, WEIGHTS, **none) is None
