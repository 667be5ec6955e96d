"""Closed-form statistics of the random samplers against exact enumeration of all draws."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poise.core.errors import PoiseError
from poise.samplers import (
    MD,
    Binomial,
    ClusteredBySimilarity,
    ClusteredBySize,
    Optimal,
    Poisson,
    PowerOfChoice,
    Target,
    Uniform,
)

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)
Outcomes = Iterator[tuple[float, np.ndarray]]  # (probability, omega)


def moments(outcomes: Outcomes) -> tuple[np.ndarray, np.ndarray, float]:
    """Exact mean, covariance and expected number of clients of weighted outcomes."""
    chances, rows = zip(*outcomes, strict=True)
    q, values = np.array(chances), np.array(rows)
    assert np.isclose(q.sum(), 1.0)
    mean = q @ values
    centred = values - mean
    return mean, (centred * q[:, None]).T @ centred, float(q @ (values > 0).sum(axis=1))


def coins(q: np.ndarray, weight: np.ndarray) -> Outcomes:
    """Independent coins: client i works with probability q_i and weight weight_i."""
    for flips in product([0, 1], repeat=len(q)):
        on = np.array(flips)
        yield float(np.prod(np.where(on, q, 1 - q))), on * weight


def draws(r: np.ndarray) -> Outcomes:
    """One client from each row of r, each with weight 1/m."""
    m, n = r.shape
    for chosen in product(range(n), repeat=m):
        chance = float(np.prod([r[k, i] for k, i in enumerate(chosen)]))
        if chance > 0:
            yield chance, np.bincount(chosen, minlength=n) / m


def agrees(s: Any, outcomes: Outcomes) -> None:
    mean, covariance, clients = moments(outcomes)
    assert np.allclose(s.mean, mean, atol=1e-13)
    assert np.allclose(s.covariance, covariance, atol=1e-13)
    assert np.allclose(s.variance, np.diag(covariance), atol=1e-13)
    assert np.isclose(s.sum_variance, covariance.sum(), atol=1e-12)
    assert np.isclose(s.sigma, np.trace(covariance), atol=1e-12)
    assert np.isclose(s.expected_clients, clients, atol=1e-12)


def shares(sizes: list[int]) -> np.ndarray:
    return np.array(sizes) / sum(sizes)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 4))
def test_md(sizes: list[int], m: int) -> None:
    p = shares(sizes)
    s = MD(m).statistics(p)
    agrees(s, draws(np.tile(p, (m, 1))))
    assert np.allclose(s.mean, p)
    assert np.isclose(s.gamma, 1 / m)  # [Fraboni 2023, §2.3]


@given(SIZES, st.data())
def test_binomial(sizes: list[int], data: st.DataObject) -> None:
    p, m = shares(sizes), data.draw(st.integers(1, len(sizes)))
    s = Binomial(m).statistics(p)
    agrees(s, coins(np.full(len(p), m / len(p)), p * len(p) / m))
    assert np.allclose(s.mean, p)


@given(SIZES, st.data())
def test_poisson(sizes: list[int], data: st.DataObject) -> None:
    p = shares(sizes)
    m = data.draw(st.integers(1, max(1, int(1 / p.max()))))
    s = Poisson(m).statistics(p)
    agrees(s, coins(np.minimum(m * p, 1.0), np.full(len(p), 1 / m)))
    assert np.isclose(
        s.sum_variance, 1 / m - p @ p, atol=1e-12
    )  # [Fraboni 2023, App. A.1]


def test_poisson_refuses_a_probability_above_one() -> None:
    with pytest.raises(PoiseError, match="client 1 would work with probability"):
        Poisson(2).statistics(np.array([0.4, 0.6]))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.data())
def test_optimal(sizes: list[int], data: st.DataObject) -> None:
    p = shares(sizes)
    m = data.draw(st.integers(1, len(p)))
    norms = np.array(
        data.draw(st.lists(st.floats(0.1, 9.0), min_size=len(p), max_size=len(p)))
    )
    q = Optimal(m).probabilities(p * norms)
    assert ((q > 0) & (q <= 1)).all()
    assert np.isclose(q.sum(), m)
    s = Optimal(m).statistics(p, norms)
    agrees(s, coins(q, p / q))
    assert np.allclose(s.mean, p)


@settings(max_examples=40)
@given(st.lists(st.floats(0.1, 9.0), min_size=2, max_size=6), st.data())
def test_no_probabilities_do_better_than_the_optimal_ones(
    scores: list[float], data: st.DataObject
) -> None:
    """Q minimises sum u_i^2 / q_i, the variance of the aggregate, among all q in (0, 1] with sum
    m."""
    u = np.array(scores)
    m = data.draw(st.integers(1, len(u)))
    best = Optimal(m).probabilities(u)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    for _ in range(50):
        other = best + rng.normal(0, 0.1, len(u))
        for _ in range(60):  # back to sum m inside (0, 1]
            other = np.clip(other + (m - other.sum()) / len(u), 1e-3, 1.0)
        if np.isclose(other.sum(), m, atol=1e-9):
            assert (u**2 / best).sum() <= (u**2 / other).sum() * (1 + 1e-6)


def test_optimal_by_hand() -> None:
    """U = 1, 1, 6 and m = 2: client 2 alone would get 1.5, so it works for certain and the others
    share one place."""
    assert Optimal(2).probabilities(np.array([1.0, 1.0, 6.0])).tolist() == [
        0.5,
        0.5,
        1.0,
    ]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 4))
def test_clustered_by_size(sizes: list[int], m: int) -> None:
    sampler, p = ClusteredBySize(m), shares(sizes)
    s = sampler.statistics(p)
    agrees(s, draws(sampler.distributions(sizes)))
    assert np.allclose(s.mean, p, atol=1e-12)
    assert np.isclose(s.gamma, 1 / m)  # [Fraboni 2023, Lemma A.4]: that of MD
    assert (s.variance <= MD(m).statistics(p).variance + 1e-13).all()
    assert s.expected_clients >= MD(m).statistics(p).expected_clients - 1e-12


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_clustered_by_similarity(sizes: list[int], m: int, seed: int) -> None:
    sampler, p = ClusteredBySimilarity(m), shares(sizes)
    gradients = np.random.default_rng(seed).normal(size=(len(p), 3))
    s = sampler.statistics(p, gradients)
    r = sampler.distributions(sizes, gradients)
    agrees(s, draws(r))
    assert np.allclose(s.mean, p, atol=1e-12)
    assert (s.variance <= MD(m).statistics(p).variance + 1e-13).all()
    in_cohort, in_md = 1 - np.prod(1 - r, axis=0), 1 - (1 - p) ** m
    assert (in_cohort >= in_md - 1e-12).all()


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 4), st.data()
)
def test_target(sizes: list[int], m: int, data: st.DataObject) -> None:
    groups = data.draw(
        st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes))
    )
    sampler, p = Target(m, groups), shares(sizes)
    agrees(sampler.statistics(p), draws(sampler.distributions(sizes)))
    assert np.allclose(sampler.statistics(p).mean, p, atol=1e-12)


def test_power_of_choice_is_what_enumeration_says() -> None:
    """All ordered draws of d = 3 candidates; the estimate has 5 standard errors of room. It is
    biased."""
    p, losses, m, d = (
        np.array([0.1, 0.2, 0.3, 0.25, 0.15]),
        np.array([0.2, 0.9, 0.1, 0.5, 0.3]),
        2,
        3,
    )

    def outcomes() -> Outcomes:
        for ordered in permutations(range(5), d):
            chance, left = 1.0, 1.0
            for i in ordered:
                chance, left = chance * p[i] / left, left - p[i]
            omega = np.zeros(5)
            omega[sorted(ordered, key=lambda i: -losses[i])[:m]] = 1 / m
            yield chance, omega

    mean, covariance, _ = moments(outcomes())
    count = 40_000
    s = PowerOfChoice(m, d).statistics(p, losses, draws=count)
    assert (
        np.abs(s.mean - mean) <= 5 * np.sqrt(np.diag(covariance) / count) + 1e-12
    ).all()
    assert np.allclose(s.covariance, covariance, atol=5 * 0.25 / np.sqrt(count))
    assert (
        s.mean[1] > 1.5 * p[1] > s.mean[2]
    )  # the highest loss gains, the lowest loses


@given(SIZES, st.data())
def test_uniform_against_md_as_corollary_2_1_says(
    sizes: list[int], data: st.DataObject
) -> None:
    """Sigma_U <= Sigma_MD iff sum p^2 <= 1/(N - m + 1), and then gamma_U <= gamma_MD too."""
    p, m = shares(sizes), data.draw(st.integers(1, len(sizes)))
    uniform, md = Uniform(m).statistics(p), MD(m).statistics(p)
    gap = 1 / (len(p) - m + 1) - float(p @ p)
    assert np.isclose(md.sigma - uniform.sigma, gap * (len(p) - m + 1) / m, atol=1e-12)
    if gap > 1e-12:
        assert uniform.sigma < md.sigma
        assert uniform.gamma <= md.gamma + 1e-12
