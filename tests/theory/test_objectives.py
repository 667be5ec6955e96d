"""Distances between objectives, and how much local work moves a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poise
from poise import theory
from poise.core.errors import PoiseError
from poise.solvers import SGD, Prox

WEIGHTS = st.lists(st.floats(0.01, 1), min_size=2, max_size=8)


@given(WEIGHTS, st.randoms(use_true_random=False))
def test_chi_squared_is_a_distance_from_the_objective(
    weights: list[float], random: object
) -> None:
    p = theory.normalised(weights)
    assert theory.chi_squared(p, p) == pytest.approx(0.0, abs=1e-15)
    assert theory.chi_squared(p, 7 * p) == pytest.approx(
        0.0, abs=1e-14
    )  # only proportions matter
    q = theory.normalised(p[::-1])
    found = theory.chi_squared(p, q)
    assert found == pytest.approx(
        float((p**2 / q).sum() - 1), rel=1e-9, abs=1e-12
    )  # the other form of the same
    assert found >= 4 * theory.total_variation(p, q) ** 2 - 1e-12  # Cauchy-Schwarz


def test_a_client_that_is_never_heard_is_infinitely_far() -> None:
    assert theory.chi_squared([0.5, 0.5], [1.0, 0.0]) == np.inf
    with pytest.raises(PoiseError, match="not all 0"):
        theory.normalised([0.0, 0.0])


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_local_progress_with_momentum(steps: int, momentum: float) -> None:
    """A model far from its optimum sees a constant gradient: it moves by lr * a * gradient."""
    far, lr = 1e9, 1e-6
    fed = poise.quadratics([[far]])
    run = poise.train(
        fed, fed.task, SGD(lr=lr, steps=steps, momentum=momentum), rounds=1
    )
    assert run.model[0] / (lr * far) == pytest.approx(
        theory.local_progress(np.array([steps]), momentum=momentum)[0], rel=1e-4
    )


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_local_progress_with_a_pull(steps: int) -> None:
    """FedProx, with a pull far above the curvature."""
    far, lr, mu = 1e9, 1e-3, 200.0
    fed = poise.quadratics([[far]], curvature=1e-6)
    run = poise.train(fed, fed.task, Prox(mu, lr=lr, steps=steps), rounds=1)
    assert run.model[0] / (lr * far * 1e-6) == pytest.approx(
        theory.local_progress(np.array([steps]), pull=lr * mu)[0], rel=1e-6
    )


def test_terms_have_names() -> None:
    found = theory.fedprox_bound(
        theory.Problem(1.0, 0.5, 0.1, 1.0, 0.2, gap=1.0, importance=np.ones(2) / 2),
        0.1,
        2,
        3,
    )
    assert found.total == pytest.approx(sum(found.as_data()["terms"].values()))
    assert found["start"] == found.values["start"]
    with pytest.raises(PoiseError, match="did you mean 'noise'"):
        found["nosie"]
