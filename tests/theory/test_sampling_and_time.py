"""Bounds of sampling and of asynchronous learning against real runs and timelines."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poise
from parameters import thorough_except
from poise import theory
from poise.clocks import Asynchronous, FixedWindow, Synchronous
from poise.core.errors import PoiseError
from poise.samplers import MD, ClusteredBySize, Full, Poisson, Uniform
from poise.solvers import SGD
from poise.weightings import Identical, TimeBased
from theory.simulated import SEEDS, Quadratic, below

OPTIMA = np.array(
    [[2.0, 0.0], [0.0, 1.5], [-1.0, -0.5], [0.5, -1.0], [1.0, 1.0], [-2.0, 0.5]]
)
SIZES = [1, 2, 3, 4, 4, 6]
P = np.array(SIZES) / 20
CURVATURE = 0.7


# [Fraboni 2023, ch. 2] ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampler",
    thorough_except([Poisson(3)], [Full(), Poisson(3), ClusteredBySize(3)]),
    ids=lambda s: s.name,
)
def test_sampling_terms_bound_the_gradient_of_real_runs(sampler: Any) -> None:
    """Theorem 2.1 with the constants of its proof; MD, uniform and binomial sampling are simulated
    in test_bounds.

    Curvatures are equal, so that |grad L_i|^2 <= 2 |grad L|^2 + k2.
    """
    steps = 3
    fed = poise.quadratics(OPTIMA, curvature=CURVATURE, sizes=SIZES)
    rounds, b2 = 30, 2.0
    k2 = 2 * CURVATURE**2 * float(np.square(OPTIMA - P @ OPTIMA).sum(axis=1).max())
    statistics = sampler.statistics(P)
    rate = min(
        0.9 / (CURVATURE * steps * np.sqrt(2 * (2 * b2 + 1))),
        1 / (3.01 * CURVATURE * steps * b2),
    )
    if statistics.gamma:
        rate = min(rate, 1 / (3.01 * CURVATURE * statistics.gamma * steps * b2))
    means = []
    for seed in range(SEEDS):
        run = poise.train(
            fed,
            fed.task,
            SGD(lr=rate, steps=steps),
            sampler=sampler,
            rounds=rounds,
            seed=seed,
            keep="all",
            evaluate_every=rounds,
        )
        models = np.array([run.models(n) for n in range(rounds)])
        means.append(np.square(CURVATURE * (models - P @ OPTIMA)).sum(axis=1).mean())
    gap = CURVATURE / 2 * float(np.square(P @ OPTIMA).sum())
    problem = theory.Problem(CURVATURE, CURVATURE, 0.0, gap=gap, importance=P)
    bound = theory.sampling_bound(
        problem, statistics, steps, rounds, rate, dissimilarity=(b2, k2)
    )
    assert [a.text for a in bound.assumptions if a.holds is False] == []
    assert below(np.array(means), bound.total)


def test_the_sampling_term_is_what_the_theorem_says() -> None:
    """By hand, for MD: gamma = 1/m, Sigma = (1 - sum p^2)/m."""
    problem = theory.Problem(2.0, noise=0.5, gap=1.0, importance=P)
    bound = theory.sampling_bound(
        problem, MD(4).statistics(P), 3, 10, 0.001, 2.0, (1.0, 0.25)
    )
    scale = 1 / (1 - 1.5 * 2 * 0.002 * 0.25 * 3)
    sigma = (1 - P @ P) / 4
    assert bound["start"] == pytest.approx(scale * 4 / (0.002 * 3 * 10))
    assert bound["noise"] == pytest.approx(
        scale * 2 * 2 * 0.002 * (sigma + P @ P) * 0.5
    )
    assert bound["sampling"] == pytest.approx(
        scale * 0.002 * 2 * 0.25 * (3 * 2 * 0.5 + 6 * 3 * 0.25)
    )


@given(st.lists(st.integers(1, 30), min_size=2, max_size=12), st.data())
def test_corollary_2_1(sizes: list[int], data: st.DataObject) -> None:
    """Sum p^2 <= 1/(N - m + 1) exactly where both Sigma and gamma of uniform sampling are at most
    MD's."""
    m = data.draw(st.integers(1, len(sizes)))
    p = np.array(sizes) / sum(sizes)
    squares = sum(Fraction(n, sum(sizes)) ** 2 for n in sizes)
    uniform, md = Uniform(m).statistics(p), MD(m).statistics(p)
    better = uniform.sigma <= md.sigma + 1e-12 and uniform.gamma <= md.gamma + 1e-12
    left, right = theory.uniform_beats_md(p, m)
    assert left == pytest.approx(float(squares))
    assert (squares <= Fraction(1, len(sizes) - m + 1)) == better
    assert right == pytest.approx(1 / (len(sizes) - m + 1))


def spread_of_draws(rows: np.ndarray, gradients: np.ndarray) -> float:
    """E |mean of the m drawn gradients - their mean|^2, over all N^m draws, one from every row."""
    m, count = rows.shape
    exact = rows.mean(axis=0) @ gradients
    found = 0.0
    for drawn in product(range(count), repeat=m):
        chance = np.prod([rows[k, i] for k, i in enumerate(drawn)])
        found += chance * np.square(gradients[list(drawn)].mean(axis=0) - exact).sum()
    return float(found)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_the_spread_of_sampled_gradients_is_that_of_all_draws(m: int) -> None:
    """Eq. B.9 and B.16 against every possible draw."""
    gradients = CURVATURE * (np.array([0.3, -0.2]) - OPTIMA)
    md = theory.md_gradient_variance(P, gradients, m)
    assert md == pytest.approx(spread_of_draws(np.tile(P, (m, 1)), gradients))
    rows = np.asarray(ClusteredBySize(m).distributions(np.array(SIZES)))
    clustered = theory.clustered_gradient_variance(rows, gradients)
    assert clustered == pytest.approx(spread_of_draws(rows, gradients))
    assert clustered <= md * (1 + 1e-12)
    if m > 1:
        assert clustered < md


def test_clusters_of_different_clients_can_be_no_better_than_md() -> None:
    """Below eq. B.18 the paper has equality only for equal clients or MD sampling; here neither."""
    gradients = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    rows = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    assert theory.clustered_gradient_variance(rows, gradients) == pytest.approx(
        theory.md_gradient_variance(np.full(4, 0.25), gradients, 2)
    )
    paired = rows[:, [0, 2, 1, 3]]  # clients with equal gradients in one cluster
    assert theory.clustered_gradient_variance(paired, gradients) == 0.0
    with pytest.raises(PoiseError, match="sum to 1"):
        theory.clustered_gradient_variance([[0.5, 0.4]], gradients[:2])


# [Fraboni 2023, ch. 4]: the schedule --------------------------------------------------------------

TIMES = st.lists(st.integers(1, 6), min_size=2, max_size=4)
CLOCKS = {
    "synchronous": lambda dt: Synchronous(),
    "asynchronous": lambda dt: Asynchronous(),
    "fixed-window": lambda dt: FixedWindow(dt),
}


@settings(max_examples=30)
@given(TIMES, st.sampled_from(sorted(CLOCKS)), st.integers(1, 7))
def test_window_staleness_and_counts_are_those_of_the_timeline(
    times: list[int], scheme: Any, dt: int
) -> None:
    tau = np.array(times) / 2
    clock = CLOCKS[scheme](dt / 2)
    period = theory.window(scheme, tau, dt / 2)
    steps = list(clock.timeline(tau, aggregations=int(3 * period)))
    who = [tuple(s.clients.tolist()) for s in steps]
    length = int(period)
    assert who[:length] == who[length : 2 * length] == who[2 * length :]
    assert all(who[k:] != who[:-k] for k in range(1, length))  # and no sooner
    oldest = max(int((s.index - s.versions).max(initial=0)) for s in steps)
    assert oldest <= theory.staleness(scheme, tau, dt / 2)
    if scheme == "fixed-window":
        assert oldest == theory.staleness(scheme, tau, dt / 2)
    counts = np.bincount(
        np.concatenate([s.clients for s in steps]), minlength=len(tau)
    ) / len(steps)
    assert np.allclose(counts, theory.participation(scheme, tau, dt / 2), rtol=1e-12)
    assert theory.aggregations(scheme, tau, 9.0, dt / 2) == len(
        list(clock.timeline(tau, time=9.0))
    )


def test_times_without_a_common_measure_never_repeat() -> None:
    assert theory.window("asynchronous", [1.0, np.pi]) == np.inf
    assert theory.window("asynchronous", [1.0, 0.1]) == 11.0


# [Fraboni 2023, ch. 4]: the bound -----------------------------------------------------------------

TAU = np.array([1.0, 0.75, 0.5, 0.25, 0.5, 1.0])


@pytest.mark.parametrize(
    "weighting",
    thorough_except([TimeBased()], [TimeBased(), Identical()]),
    ids=lambda w: type(w).__name__,
)
@pytest.mark.parametrize(
    "clock",
    [Asynchronous(TAU), FixedWindow(0.5, TAU), Synchronous(TAU)],
    ids=lambda c: c.name,
)
def test_old_answers_cost_at_most_what_theorem_4_3_says(
    clock: Any, weighting: Any
) -> None:
    """Everything in the bound is counted on the timeline; measured is the mean loss of the
    objective minimised."""
    fed = poise.quadratics(OPTIMA, curvature=CURVATURE)
    p, M = fed.importance, 6
    scheme, dt = clock.name, getattr(clock, "dt", None)
    period = int(theory.window(scheme, TAU, dt))
    d = (
        clock.unbiased_weights(None, p)
        if isinstance(weighting, TimeBased)
        else clock.identical_weights(p, M)
    )
    steps = list(clock.timeline(aggregations=period, clients=M))
    heard = np.zeros((period, M))
    for s in steps:
        heard[s.index, s.clients] = d[s.clients]
    q = heard.mean(axis=0)
    late = theory.staleness(scheme, TAU, dt)
    sums = heard.sum(axis=1)
    rate = (
        1
        / (48 * CURVATURE)
        * min(1.0, 1 / (3 * max(1.0, sums.max()) ** 2 * (late + 1)))
    )
    count = period * (1200 // period)
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=rate, steps=1),
        clock=clock,
        weighting=weighting,
        rounds=count,
        keep="all",
        evaluate_every=count,
    )
    models = np.array([run.models(n) for n in range(count)])
    best = q @ OPTIMA / q.sum()
    measured = float(
        (CURVATURE / 2 * q.sum() * np.square(models - best).sum(axis=1)).mean()
    )

    def loss(weights: np.ndarray, w: np.ndarray) -> float:
        return float(CURVATURE / 2 * weights @ np.square(w - OPTIMA).sum(axis=1))

    residual = float(
        np.mean(
            [
                loss(h, best) - loss(h, h @ OPTIMA / h.sum()) if h.sum() else 0.0
                for h in heard
            ]
        )
    )
    variance = float(q @ np.square(CURVATURE * (best - OPTIMA)).sum(axis=1))
    steepest = max(
        float(np.square(CURVATURE * (models - o)).sum(axis=1).max()) for o in OPTIMA
    )
    alone = scheme == "asynchronous"
    bound = theory.asynchronous_bound(
        theory.Problem(
            CURVATURE,
            CURVATURE,
            gradient=steepest,
            distance=float(np.square(best).sum()),
        ),
        1,
        count,
        rate,
        staleness=late,
        window=period,
        covariance=0 if alone else 1,
        excess=float(d.max()) if alone else 0.0,
        residual=residual,
        variance=variance,
        largest=float(heard.max()),
        sum_of_weights=float(sums.max()),
    )
    assert bound.holds is not False
    assert 0 < measured <= bound.total


@given(
    st.lists(st.floats(0.05, 1), min_size=6, max_size=6),
    st.floats(-3, 3),
    st.floats(-3, 3),
)
def test_the_gradient_asked_for_is_bounded_through_chi_squared(
    weights: list[float], x: float, y: float
) -> None:
    """Theorem 4.2 at every point, for every objective: an inequality without randomness."""
    q, w = theory.normalised(weights), np.array([x, y])
    task = Quadratic(OPTIMA, np.full(6, CURVATURE), P)
    surrogate = Quadratic(OPTIMA, np.full(6, CURVATURE), q)
    asked = float(np.square(CURVATURE * (w - task.best)).sum())
    bound = theory.surrogate_gap(
        theory.Problem(CURVATURE),
        theory.chi_squared(P, q),
        float(surrogate.losses(surrogate.best) @ q),
        float(surrogate.gap(w)),
    )
    assert asked <= bound.total * (1 + 1e-9) + 1e-12


def test_fedfix_terms_by_hand_and_the_best_window() -> None:
    """Eq. 4.42 written out, and its least value over tau_max/k by hand."""
    tau, time, steps = [1.0, 0.6, 0.2], 50.0, 4

    def by_hand(dt: float) -> float:
        n, late = int(time / dt + 1e-9), int(np.ceil(1.0 / dt - 1e-9))
        counts = [int(np.ceil(t / dt - 1e-9)) for t in tau]
        root = 1 / np.sqrt(steps * n)
        window = np.lcm.reduce(counts)
        return float(
            2 * root
            + 3 / n * (0.3 + 0.5)
            + (root + steps / n * late**2) * (0.3 + late * 0.5 / 3)
            + steps * root * (window - 1)
        )

    constants = {"distance": 2.0, "residual": 0.3, "variance": 0.5}
    for k in range(1, 6):
        assert theory.fedfix_terms(
            tau, 1 / k, time, steps, **constants
        ).total == pytest.approx(by_hand(1 / k))
    best = min((1 / k for k in range(1, 11)), key=by_hand)
    assert theory.best_window(tau, time, steps, **constants) == pytest.approx(best)
