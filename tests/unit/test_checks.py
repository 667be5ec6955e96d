"""Nothing is averaged unseen: what is refused, by name and with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from poise.core.checks import refusals, without
from poise.core.types import Flight, Updates

THETA = torch.zeros(3)
FLIGHTS = [Flight(1.0, 4, 2), Flight(1.0, 7, 2), Flight(1.0, 4, 2, occurrence=1)]


def updates(deltas: torch.Tensor | None = None) -> Updates:
    rows = torch.ones(3, 3) if deltas is None else deltas
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy()
    return Updates(rows, norms, np.ones(3, dtype=int), np.ones(3, dtype=int))


def test_good_updates_pass() -> None:
    assert refusals(updates(), FLIGHTS, THETA) == ()
    assert without(FLIGHTS, ()).tolist() == [0, 1, 2]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_is_refused_by_client(bad: float) -> None:
    rows = torch.ones(3, 3)
    rows[1, 2] = bad
    (refusal,) = refusals(updates(rows), FLIGHTS, THETA)
    assert (refusal.client, refusal.version) == (7, 2)
    assert "not finite" in refusal.reason
    assert without(FLIGHTS, (refusal,)).tolist() == [0, 2]


@pytest.mark.parametrize("report", ["loss_before", "loss_after"])
def test_a_report_that_is_not_finite_is_refused(report: str) -> None:
    given = replace(updates(), **{report: np.array([0.1, np.nan, 0.2])})
    (refusal,) = refusals(given, FLIGHTS, THETA)
    assert refusal.client == 7
    assert report.split("_")[1] in refusal.reason


def test_wrong_shape_or_type_refuses_everyone() -> None:
    for wrong in (torch.ones(3, 2), torch.ones(2, 3), torch.ones(3, 3, dtype=torch.float64)):
        found = refusals(replace(updates(), deltas=wrong), FLIGHTS, THETA)
        assert [r.client for r in found] == [4, 7, 4]
        assert "instead of (3, 3)" in found[0].reason


def test_one_bad_occurrence_does_not_take_the_other_with_it() -> None:
    rows = torch.ones(3, 3)
    rows[2] = float("nan")
    found = refusals(updates(rows), FLIGHTS, THETA)
    assert without(FLIGHTS, found).tolist() == [0, 1]


def test_rows_of_updates() -> None:
    given = replace(updates(torch.arange(9.0).view(3, 3)), loss_before=np.array([1.0, 2.0, 3.0]))
    some = given.rows(np.array([2, 0]))
    assert some.deltas.tolist() == [[6.0, 7.0, 8.0], [0.0, 1.0, 2.0]]
    assert some.loss_before is not None
    assert some.loss_before.tolist() == [3.0, 1.0]
    assert some.loss_after is None
    assert given.rows(np.array([], dtype=np.int64)).deltas.shape == (0, 3)
