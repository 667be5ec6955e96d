"""The models that each retention rule keeps, by hand and by property."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.support import opened, run_into, small
from ledger.doubles import composition
from poise.core.errors import InvalidOption
from poise.core.types import Assignment, Contribution, InFlight, Record
from poise.ledger.retention import Retention
from poise.training import begin, resume
from poise.unlearning import Budget, sensitivity


def record(n: int, clients: tuple[int, ...], flying: tuple[int, ...] = ()) -> Record:
    """Aggregation n of these clients, with work on these versions still under way."""
    made = tuple(Contribution(c, n, 0, 0.5, 0.5, 1.0, 10, 1) for c in clients)
    return Record(
        n,
        float(n),
        made,
        {},
        0,
        0,
        InFlight(float(n), tuple(Assignment(99.0, 9, v) for v in flying)),
    )


def kept(rule: Retention, records: list[Record]) -> set[int]:
    """What is left after these records."""
    held = {0}
    for one in records:
        held = (held | {one.index + 1}) - set(rule.surplus(one))
    return held


def test_all_keeps_every_model() -> None:
    assert kept(Retention("all"), [record(n, (0,)) for n in range(6)]) == set(range(7))


def test_last_keeps_the_first_and_the_newest_two() -> None:
    assert kept(Retention("last"), [record(n, (0,)) for n in range(6)]) == {0, 5, 6}


def test_versions_that_somebody_works_on_stay() -> None:
    records = [record(0, (0,)), *(record(n, (0,), flying=(1,)) for n in range(1, 5))]
    assert kept(Retention("last"), records) == {0, 1, 4, 5}
    assert kept(Retention("last"), [*records, record(5, (0, 9))]) == {0, 5, 6}


def test_unlearnable_keeps_the_model_before_each_first_contribution() -> None:
    """Clients 0 and 1 join at once, 2 in aggregation 3, 3 in aggregation 5."""
    cohorts = [(0, 1), (1,), (0,), (0, 2), (1, 2), (3,), (0, 3), (1, 3)]
    assert kept(
        Retention("unlearnable"), [record(n, c) for n, c in enumerate(cohorts)]
    ) == {
        0,
        3,
        5,
        7,
        8,
    }


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=20))
def test_unlearnable_keeps_what_forgetting_any_client_can_start_from(
    cohorts: list[set[int]],
) -> None:
    held = kept(
        Retention("unlearnable"),
        [record(n, tuple(sorted(c))) for n, c in enumerate(cohorts)],
    )
    for client in set().union(*cohorts):
        first = next(n for n, cohort in enumerate(cohorts) if client in cohort)
        assert first in held, (
            f"the model after {first} aggregations is the last that client {client} had not touched"
        )
    assert {0, len(cohorts)} <= held


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"did you mean 'all'\?"):
        Retention("al")  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", ["all", "last", "unlearnable"])
def test_what_is_on_disk_follows_the_rule(keep: str, tmp_path: Path) -> None:
    path = run_into(small(rounds=8, keep=f'"{keep}"'), tmp_path)
    with opened(path) as run:
        within = sensitivity(run) <= Budget().limit
        restarts = {int(np.flatnonzero(within[:, i])[-1]) for i in range(run.clients)}
        expected = {
            "all": set(range(9)),
            "last": {0, 7, 8},
            "unlearnable": {0, 7, 8} | restarts,
        }[keep]
        assert set(run.kept) == expected
        for n in run.kept:
            assert run.models(n).shape == run.model.shape
        assert {p.name for p in (path / "models").iterdir()} == {
            f"{n:08d}.safetensors" for n in expected
        }


def test_the_rule_is_remembered_over_a_resume(tmp_path: Path) -> None:
    """Stopped and taken up in several pieces, the same models are kept."""
    text = small(rounds=9, keep='"unlearnable"')
    whole = run_into(text, tmp_path / "whole")
    pieces = run_into(text, tmp_path / "pieces", stop_after=2)
    for _ in range(3):
        seen: list[Record] = []
        resume(
            pieces, callbacks=[seen.append], stop=lambda seen=seen: len(seen) >= 2
        ).close()  # type: ignore[misc]
    resume(pieces).close()
    with opened(whole) as a, opened(pieces) as b:
        assert a.kept == b.kept


def test_states_of_the_server_are_kept_for_two_rounds(tmp_path: Path) -> None:
    begin(composition(rounds=6), tmp_path / "run").close()
    states = sorted(
        p.name for p in (tmp_path / "run" / "models").glob("*.state.safetensors")
    )
    assert states == ["00000005.state.safetensors", "00000006.state.safetensors"]
