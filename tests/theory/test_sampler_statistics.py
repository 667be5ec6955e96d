"""Closed-form statistics against exact enumeration of every possible cohort."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise.core.history import History
from poise.core.types import Setting
from poise.samplers import Full, Uniform


def importance_of(sizes: list[int]) -> np.ndarray:
    return np.array(sizes) / sum(sizes)


def moments(p: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact mean and covariance of uniform sampling without replacement, over all C(N, m)
    cohorts."""
    n = len(p)
    rows = []
    for cohort in combinations(range(n), m):
        omega = np.zeros(n)
        omega[list(cohort)] = p[list(cohort)] * n / m
        rows.append(omega)
    values = np.array(rows)
    centred = values - values.mean(axis=0)
    return values.mean(axis=0), centred.T @ centred / len(values)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_uniform_statistics_are_exact(sizes: list[int], data: st.DataObject) -> None:
    p = importance_of(sizes)
    m = data.draw(st.integers(1, len(sizes)))
    mean, covariance = moments(p, m)
    s = Uniform(m).statistics(p)
    assert np.allclose(s.mean, mean, atol=1e-14)
    assert np.allclose(s.covariance, covariance, atol=1e-13)
    assert np.isclose(s.sum_variance, covariance.sum(), atol=1e-12)
    assert np.isclose(s.sigma, np.trace(covariance), atol=1e-13)
    assert np.isclose(s.gamma, s.sigma + s.alpha * (p @ p), atol=1e-13)
    assert s.expected_clients == m


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_everyone_is_the_limit_of_uniform(sizes: list[int]) -> None:
    p = importance_of(sizes)
    full, uniform = Full().statistics(p), Uniform(len(p)).statistics(p)
    assert np.allclose(full.covariance, 0)
    assert np.allclose(uniform.covariance, 0, atol=1e-15)
    assert np.isclose(uniform.sum_variance, full.sum_variance, atol=1e-12)
    assert full.expected_clients == uniform.expected_clients


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_every_cohort_is_equally_likely(m: int) -> None:
    """5 sigma for each of the C(5, m) cohorts; the seed is fixed."""
    setting = Setting(5, np.ones(5, dtype=int), np.full(5, 0.2))
    rng, draws, seen = np.random.default_rng(0), 20_000, dict[Any, int]()
    for n in range(draws):
        cohort = tuple(Uniform(m).draw(setting, rng, n, History()).clients.tolist())
        seen[cohort] = seen.get(cohort, 0) + 1
    cohorts = list(combinations(range(5), m))
    q = 1 / len(cohorts)
    assert set(seen) <= set(cohorts)
    assert all(
        abs(seen[c] / draws - q) <= 5 * np.sqrt(q * (1 - q) / draws) for c in cohorts
    )


def test_more_clients_than_there_are_have_no_statistics() -> None:
    from poise.core.errors import PoiseError

    with pytest.raises(PoiseError):
        Uniform(5).statistics(np.array([0.5, 0.5]))
