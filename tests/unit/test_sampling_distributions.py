"""[Fraboni 2023, Alg. 2 and 3] in whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poise.core.errors import PoiseError
from poise.core.row_distances import RowDistances
from poise.core.sampling_distributions import (
    SamplingDistributions,
    cohort,
    distributions_by_group,
    distributions_by_size,
    units_of,
    whole_units,
)
from poise.core.statistics import WeightStatistics
from poise.core.types import Setting
from poise.samplers import MD, ClusteredBySimilarity, ClusteredBySize
from poise.samplers.clustered_by_similarity import subtrees

SIZES = st.lists(st.integers(0, 10**6), min_size=1, max_size=40).filter(
    lambda s: sum(s) > 0
)


def exact(urns: SamplingDistributions, sizes: list[int], m: int) -> np.ndarray:
    """Whole units whose rows and columns have the sums that they must have."""
    counts = urns.units(len(sizes)).toarray()
    assert counts.dtype == np.int64
    assert counts.sum(axis=1).tolist() == [sum(sizes)] * m
    assert counts.sum(axis=0).tolist() == [m * n for n in sizes]
    assert (counts >= 0).all()
    return counts


@given(SIZES, st.integers(1, 50))
def test_algorithm_2_is_exact(sizes: list[int], m: int) -> None:
    counts = exact(distributions_by_size(np.array(sizes), m), sizes, m)
    assert (counts > 0).sum() <= len(sizes) + m - 1  # sparse: a cut splits one client


@given(
    SIZES,
    st.data(),
    st.sampled_from(["random", "equal", "colinear", "zero", "some zero"]),
)
def test_algorithm_3_is_exact_whatever_the_gradients(
    sizes: list[int], data: st.DataObject, kind: str
) -> None:
    m = data.draw(st.sampled_from(sorted({1, 2, 7, len(sizes), len(sizes) + 3})))
    measure = data.draw(st.sampled_from(["arccos", "L2", "L1"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n = len(sizes)
    rows = {
        "random": rng.normal(size=(n, 4)),
        "equal": np.ones((n, 4)),
        "zero": np.zeros((n, 4)),
        "colinear": rng.normal(size=(n, 1)) * np.ones(4),
        "some zero": rng.normal(size=(n, 4)) * rng.integers(0, 2, (n, 1)),
    }[kind]
    sampler = ClusteredBySimilarity(m, measure=measure)
    units = np.array(sizes)
    distances = RowDistances(sampler.similarity(rows, n), measure)
    distances.changed(range(n))
    distances.refresh()
    groups = subtrees(units, distances, m)
    room = sum(sizes)
    rest = (m * units) % room
    assert (
        sorted(i for g in groups for i in g) == np.flatnonzero(rest).tolist()
    )  # everyone who takes part, once
    assert all(rest[g].sum() <= room for g in groups)
    exact(distributions_by_group(units, groups, m), sizes, m)


@given(SIZES, st.data())
def test_packing_keeps_the_sums_with_any_groups(
    sizes: list[int], data: st.DataObject
) -> None:
    labels = np.array(
        data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    )
    m = data.draw(st.integers(1, 12))
    exact(
        distributions_by_group(
            np.array(sizes), [np.flatnonzero(labels == g) for g in range(6)], m
        ),
        sizes,
        m,
    )


def test_algorithm_2_by_hand() -> None:
    """Sizes 1, 4, 3 and m = 2: the line is client 1 (8 units), client 2 (6), client 0 (2), cut at
    8."""
    assert distributions_by_size(np.array([1, 4, 3]), 2).units(
        3
    ).toarray().tolist() == [
        [0, 8, 0],
        [2, 0, 6],
    ]


def test_algorithm_3_by_hand() -> None:
    """Six equal clients, m = 3, M = 6: of {0, 1}, {2}, {3}, {4, 5} the pairs and {2} open urns; 3
    fills the last."""
    groups = [np.array(g) for g in ([0, 1], [2], [3], [4, 5])]
    counts = (
        distributions_by_group(np.ones(6, dtype=np.int64), groups, 3).units(6).toarray()
    )
    assert counts.tolist() == [
        [3, 3, 0, 0, 0, 0],
        [0, 0, 0, 0, 3, 3],
        [0, 0, 3, 3, 0, 0],
    ]


def test_a_client_above_one_mth_has_urns_of_its_own() -> None:
    """Sizes 7, 1, 2 and m = 2: client 0 has 14 of 20 units, fills one urn of 10, and 4 go on."""
    counts = (
        distributions_by_group(
            np.array([7, 1, 2]), [np.array([0, 1]), np.array([2])], 2
        )
        .units(3)
        .toarray()
    )
    assert counts.tolist() == [[10, 0, 0], [4, 2, 4]]


def test_equal_clients_that_divide_are_drawn_once_each() -> None:
    """[Fraboni 2023, §3.6]: 100 equal clients, m = 10: every round has exactly 10 clients."""
    s = ClusteredBySize(10).statistics(np.full(100, 0.01))
    assert s.expected_clients == pytest.approx(10, abs=1e-12)
    rng = np.random.default_rng(0)
    urns = distributions_by_size(np.full(100, 500), 10)
    assert all(len(cohort(urns.draw(rng), False).clients) == 10 for _ in range(200))


def test_identical_urns_are_md() -> None:
    """Clustered sampling with r_k = p for every k is MD sampling [Fraboni 2023, §3.3.1]."""
    sizes, m = np.array([5, 1, 3]), 4
    urns = SamplingDistributions(
        np.tile(np.arange(3), m), np.cumsum(np.tile(sizes, m)), int(sizes.sum())
    )
    got, md = urns.statistics(3), MD(m).statistics(sizes / 9)
    for name in (
        "mean",
        "variance",
        "covariance",
        "sum_variance",
        "expected_clients",
        "sigma",
        "gamma",
    ):
        assert np.allclose(getattr(got, name), getattr(md, name), atol=1e-14), name


def test_a_gradient_that_is_not_finite_is_refused_by_client() -> None:
    with pytest.raises(PoiseError, match="client 2"):
        ClusteredBySimilarity(2).distributions([1, 1, 1], [[1.0], [2.0], [np.nan]])


@pytest.mark.parametrize("sizes", [[1, -1], [0, 0], [0.5, 1], [[1]], []])
def test_sizes_that_are_none_are_refused(sizes: list[float]) -> None:
    with pytest.raises(PoiseError, match="size"):
        ClusteredBySize(2).distributions(sizes)


def test_importance_that_is_not_size_takes_its_place() -> None:
    equal = Setting(4, np.array([9, 1, 1, 1]), np.full(4, 0.25))
    assert units_of(equal, 2).tolist() == [1, 1, 1, 1]
    odd = np.array([np.pi, np.e, 1.0])
    units = whole_units(odd, 10)
    assert np.allclose(units / units.sum(), odd / odd.sum(), rtol=1e-12)


def test_independent_draws_are_rows_of_their_own() -> None:
    once, each = cohort(np.array([4, 2, 4]), False), cohort(np.array([4, 2, 4]), True)
    assert (once.clients.tolist(), once.weights.tolist()) == ([2, 4], [1 / 3, 2 / 3])
    assert (each.clients.tolist(), each.weights.tolist()) == ([2, 4, 4], [1 / 3] * 3)


def test_a_scheme_without_alpha_has_gamma_from_its_overlap() -> None:
    s = WeightStatistics(
        np.array([0.5, 0.5]),
        np.array([0.1, 0.2]),
        None,
        0.0,
        1.0,
        overlap=np.array([0.3, 0.0]),
    )
    assert s.gamma == pytest.approx(0.6)
