"""Intervals and differences against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from poise.analysis.reports.estimates import (
    estimate,
    paired_difference,
    welch_difference,
)

T2 = 4.30265272974946  # t(0.975) with 2 degrees of freedom
T4 = 2.77644510519779  # with 4


def test_student_interval_of_three_values() -> None:
    e = estimate([0.80, 0.82, 0.87])
    s = math.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2)
    assert e.mean == pytest.approx(0.83)
    assert e.half_width == pytest.approx(T2 * s / math.sqrt(3))
    assert (e.low, e.high) == pytest.approx(
        (0.83 - T2 * s / math.sqrt(3), 0.83 + T2 * s / math.sqrt(3))
    )


@pytest.mark.parametrize("values", [[0.5], [0.5, math.nan], [0.5, math.inf]])
def test_no_interval_where_nothing_can_be_said(values: list[float]) -> None:
    e = estimate(values)
    assert e.low is None
    assert e.high is None
    assert e.half_width is None


def test_pairing_removes_what_the_seeds_share() -> None:
    baseline, values = [0.1, 0.5, 0.9], [0.2, 0.61, 1.0]
    paired, welch = (
        paired_difference(values, baseline),
        welch_difference(values, baseline),
    )
    assert paired.mean == pytest.approx(welch.mean) == pytest.approx(0.31 / 3)
    assert paired.significant is True
    assert welch.significant is False


def test_welch_with_equal_variances_and_numbers_is_student_with_pooled_freedom() -> (
    None
):
    d = welch_difference([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    assert d.half_width == pytest.approx(T4 * math.sqrt(1 / 3 + 1 / 3))
    assert d.mean == -1.0


def test_one_seed_claims_nothing() -> None:
    assert paired_difference([0.9], [0.1]).significant is None
    assert welch_difference([0.9], [0.1, 0.2]).significant is None


def test_equal_values_without_spread() -> None:
    assert welch_difference([2.0, 2.0], [1.0, 1.0]).significant is True
    assert paired_difference([1.0, 1.0], [1.0, 1.0]).significant is False
