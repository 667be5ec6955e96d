"""Aggregators against independent references, by hand, and in every order of the clients."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from poise.aggregators import Median, TrimmedMean, WeightedSum, columns
from poise.core.equation import combine
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.traits import AggregatorTraits, traits_of

SHARES = [Fraction(1, 4), Fraction(1, 10), Fraction(1, 3), Fraction(49, 100)]
ROBUST = [Median(), TrimmedMean(0.1), TrimmedMean(0.3)]


@st.composite
def cohorts(draw: Any, largest: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Updates with ties, and whole weights, some of them 0, not all."""
    rows = draw(st.integers(1, largest))
    value = st.integers(-4, 4) | st.floats(-1e3, 1e3, width=32)
    values = [[float(draw(value)) for _ in range(3)] for _ in range(rows)]
    weights = draw(
        st.lists(st.integers(0, 5), min_size=rows, max_size=rows).filter(any)
    )
    return np.array(values) + 0.0, np.array(weights, dtype=np.float64)


def exact_trimmed_mean(
    values: np.ndarray, weights: np.ndarray, share: Fraction
) -> Fraction:
    """The definition, in exact numbers: each client has an interval of the weight."""
    total = sum(Fraction(w) for w in weights)
    low, high = share * total, (1 - share) * total
    mass, at = Fraction(0), Fraction(0)
    for value, weight in sorted(zip(values, weights, strict=True)):
        inside = min(at + Fraction(weight), high) - max(at, low)
        mass += max(inside, Fraction(0)) * Fraction(value)
        at += Fraction(weight)
    return mass / (high - low)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(cohort=cohorts())
def test_whole_weights_give_the_median_of_repeated_rows(
    dtype: Any, cohort: Any
) -> None:
    values, weights = cohort
    repeated = np.repeat(values, weights.astype(int), axis=0)
    found = Median().combine(torch.from_numpy(values).to(dtype), weights / 8)
    wanted = np.median(repeated, axis=0) * weights.sum() / 8
    assert found.numpy() == pytest.approx(wanted, rel=1e-6, abs=1e-30)


@pytest.mark.parametrize("share", SHARES, ids=str)
@given(cohort=cohorts())
def test_trimmed_mean_is_its_definition(share: Fraction, cohort: Any) -> None:
    values, weights = cohort
    wanted = [float(exact_trimmed_mean(column, weights, share)) for column in values.T]
    scale = np.abs(values).max() * weights.sum()
    for dtype, digits in ((torch.float32, 1e-6), (torch.float64, 1e-11)):
        found = TrimmedMean(float(share)).combine(
            torch.from_numpy(values).to(dtype), weights
        )
        assert found.numpy() == pytest.approx(
            np.array(wanted) * weights.sum(), abs=digits * scale
        )


@given(rows=st.integers(1, 30), cut=st.integers(0, 14), seed=st.integers(0, 99))
def test_equal_weights_give_the_trimmed_mean_of_scipy(
    rows: int, cut: int, seed: int
) -> None:
    cut = min(cut, (rows - 1) // 2)
    values = np.random.default_rng(seed).standard_normal((rows, 4))
    share = cut / rows  # a whole number of rows at each end
    found = TrimmedMean(share).combine(torch.from_numpy(values), np.full(rows, 0.1))
    wanted = trim_mean(values, share + 1e-9, axis=0)  # SciPy rounds down
    assert found.numpy() == pytest.approx(wanted * 0.1 * rows, rel=1e-9, abs=1e-12)


@given(rows=st.integers(1, 40), weight=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_equal_weights_give_the_median_of_numpy(
    rows: int, weight: float, seed: int
) -> None:
    values = np.random.default_rng(seed).standard_normal((rows, 5))
    found = Median().combine(torch.from_numpy(values), np.full(rows, weight))
    assert found.numpy() == pytest.approx(
        np.median(values, axis=0) * rows * weight, rel=1e-13
    )


def test_decimal_weights_meet_in_the_middle() -> None:
    updates = torch.tensor([[1.0], [2.0], [4.0]])
    assert 0.1 + 0.2 != 0.3
    assert Median().combine(updates, np.array([0.1, 0.2, 0.3])).item() == pytest.approx(
        0.6 * 3
    )


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=st.integers(0, 10_000))
def test_the_order_of_clients_changes_no_bit(
    aggregator: Any, dtype: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, 12))
    values = torch.from_numpy(rng.standard_normal((rows, 6))).to(dtype)
    values[:, :3] = (
        values[:, :3].round() * 0.1
    )  # ties between rows of different weight, and -0.0
    weights = rng.choice([0.0, 0.1, 0.1, 0.7, 1 / 3], rows)
    order = rng.permutation(rows)
    found = aggregator.combine(values, weights)
    permuted = aggregator.combine(values[torch.from_numpy(order)], weights[order])
    assert found.numpy().tobytes() == permuted.numpy().tobytes()


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", [1, 7, 20, 64])
def test_blocks_change_no_bit(
    aggregator: Any,
    dtype: Any,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(7, 23, generator=generator, dtype=dtype)
    weights = np.linspace(0.0, 1.0, 7)
    found = aggregator.combine(values, weights)
    monkeypatch.setattr(columns, "BLOCK", block)
    assert torch.equal(aggregator.combine(values, weights), found)


def test_many_columns_and_slices_of_a_stack() -> None:
    values = torch.randn(
        9, columns.BLOCK // 4, generator=torch.Generator().manual_seed(1)
    )
    weights = np.full(9, 1.0)
    wanted = np.median(values.numpy(), axis=0) * np.float32(9)
    assert np.array_equal(Median().combine(values, weights).numpy(), wanted)
    part = values[1:, 5:-5]
    copied = Median().combine(part.clone(), weights[1:])
    assert torch.equal(Median().combine(part, weights[1:]), copied)


@given(st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=20))
def test_sorting_by_key_is_a_stable_sort(row: list[float]) -> None:
    values = torch.tensor([row]) + 0.0
    wanted = torch.sort(values, dim=1, stable=True)
    found, ranks = columns._sorted_by_key(values)
    assert torch.equal(found, wanted.values)
    assert torch.equal(ranks, wanted.indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_cut_off_is_the_weighted_sum_bit_for_bit(dtype: Any) -> None:
    values = torch.randn(
        13, 1001, generator=torch.Generator().manual_seed(2), dtype=dtype
    )
    weights = np.random.default_rng(0).standard_normal(13)
    wanted = combine(weights, values)
    assert torch.equal(WeightedSum().combine(values, weights), wanted)
    assert torch.equal(TrimmedMean(0).combine(values, weights), wanted)


def test_what_is_declared() -> None:
    linear = [WeightedSum(), TrimmedMean(0), TrimmedMean(0.1), Median()]
    promised = [traits_of(aggregator, AggregatorTraits).linear for aggregator in linear]
    assert promised == [True, True, False, False]


@pytest.mark.parametrize("aggregator", [Median(), TrimmedMean(0.1)], ids=repr)
@pytest.mark.parametrize("rows", [10, 20, 70, 990])
def test_rounding_lets_no_outlier_in(aggregator: Any, rows: int) -> None:
    values = torch.zeros(rows, 1)
    values[: rows // 10] = 3e38
    for weights in (np.full(rows, 0.1), np.full(rows, 1 / rows), np.full(rows, 1 / 3)):
        assert aggregator.combine(values, weights).item() == 0.0
        assert aggregator.combine(-values, weights).item() == 0.0


def test_large_values_do_not_overflow() -> None:
    values = torch.full((3, 2), 3e38)
    assert Median().combine(values, np.full(3, 1 / 3))[0].item() == pytest.approx(3e38)
    assert TrimmedMean(0.2).combine(values, np.full(3, 1 / 3))[
        0
    ].item() == pytest.approx(3e38)


@pytest.mark.parametrize("share", [0.4999, 0.5 - 1e-9, 0.5 - 1e-16])
def test_shares_near_a_half_approach_the_median(share: float) -> None:
    values = torch.randn(
        11, 50, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    weights = np.full(11, 0.2)
    found = TrimmedMean(share).combine(values, weights)
    assert torch.allclose(found, Median().combine(values, weights), rtol=1e-6)


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
def test_negative_coefficients_are_refused(aggregator: Any) -> None:
    name = type(aggregator).__name__
    wanted = rf"{name}: the coefficient of row 1 is negative \(-0.5\)"
    with pytest.raises(IncompatibleParts, match=wanted):
        aggregator.combine(torch.ones(3, 2), np.array([1.0, -0.5, -1.0]))


@pytest.mark.parametrize("share", [-0.1, 0.5, 1.0, float("nan")])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(InvalidOption, match=r"share must be in \[0, 0.5\)"):
        TrimmedMean(share)
