"""Nothing is averaged unseen: what is refused, by name and with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from poise.core.round_updates import RoundUpdates
from poise.engine.validation import refusals, validated

THETA = torch.zeros(3)


def updates(deltas: torch.Tensor | None = None) -> RoundUpdates:
    rows = torch.ones(3, 3) if deltas is None else deltas
    norms = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy()
    return RoundUpdates.of_columns(
        np.ones(3) / 3,
        clients=[4, 7, 4],
        versions=[2, 2, 2],
        occurrences=[0, 0, 1],
        stack=rows,
        norms=norms,
        round=2,
    )


def left(given: RoundUpdates) -> list[tuple[int, int]]:
    """Client and occurrence of the rows that are not refused."""
    kept, _ = validated(given, THETA, drop=True)
    return list(zip(kept.clients.tolist(), kept.occurrences.tolist(), strict=True))


def test_good_updates_pass() -> None:
    good = updates()
    assert refusals(good, THETA) == ()
    assert validated(good, THETA, drop=False) == (good, ())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_update_that_is_not_finite_is_refused_by_client(bad: float) -> None:
    rows = torch.ones(3, 3)
    rows[1, 2] = bad
    (refusal,) = refusals(updates(rows), THETA)
    assert (refusal.client, refusal.version) == (7, 2)
    assert "not finite" in refusal.reason
    assert left(updates(rows)) == [(4, 0), (4, 1)]


@pytest.mark.parametrize("report", ["loss_before", "loss_after"])
def test_a_report_that_is_not_finite_is_refused(report: str) -> None:
    given = replace(updates(), **{report: np.array([0.1, np.nan, 0.2])})
    (refusal,) = refusals(given, THETA)
    assert refusal.client == 7
    assert report.split("_")[1] in refusal.reason


def test_wrong_shape_or_type_refuses_everyone() -> None:
    for wrong in (
        torch.ones(3, 2),
        torch.ones(2, 3),
        torch.ones(3, 3, dtype=torch.float64),
    ):
        found = refusals(replace(updates(), stack=wrong), THETA)
        assert [r.client for r in found] == [4, 7, 4]
        assert "instead of (3, 3)" in found[0].reason


def test_one_bad_occurrence_does_not_take_the_other_with_it() -> None:
    rows = torch.ones(3, 3)
    rows[2] = float("nan")
    assert left(updates(rows)) == [(4, 0), (7, 0)]


def test_rows_of_updates() -> None:
    given = replace(
        updates(torch.arange(9.0).view(3, 3)), loss_before=np.array([1.0, 2.0, 3.0])
    )
    some = given.rows(np.array([2, 0]))
    assert some.deltas.tolist() == [[6.0, 7.0, 8.0], [0.0, 1.0, 2.0]]
    assert some.loss_before is not None
    assert some.loss_before.tolist() == [3.0, 1.0]
    assert some.loss_after is None
    assert given.rows(np.array([], dtype=np.int64)).deltas.shape == (0, 3)
