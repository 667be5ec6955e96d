"""`poise.audit` and ``poise audit``: suspects, cleared clients and explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from faults.support import call
from poise.attacks import FreeRider, Mimic, Scaled, StaleReplay
from poise.core.errors import InvalidOption
from poise.samplers import Uniform
from poise.servers import Adam
from poise.solvers import SGD
from poise.weightings import SoftMax

FED = poise.federation(
    "digits", "dirichlet", alpha=0.3, clients=16, samples=800, seed=9
)
TASK, SOLVER = poise.task("logistic"), SGD(lr=0.1, steps=4, batch_size=8)
BAD = (1, 6, 11)


def audited(attack: Any, **options: Any) -> Any:
    return poise.audit(
        poise.train(
            FED,
            TASK,
            SOLVER,
            attacks=[attack] if attack else [],
            **{"rounds": 16, **options},
        )
    )


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (FreeRider(BAD), "an empty update in 16 of 16 rounds"),
        (FreeRider(BAD, "disguised", gamma=1.0), "norm follows t^-1.0"),
        (FreeRider(BAD, "disguised", gamma=0.0, scale=3.0), "noise"),
        (StaleReplay(BAD), "a copy of earlier steps in 15 of 16 rounds"),
        (Mimic(BAD), "it sends"),
    ],
    ids=["plain", "disguised", "fixed", "replay", "mimic"],
)
def test_free_riders_are_found_and_described(attack: Any, words: str) -> None:
    found = audited(attack)
    assert found.suspects == list(BAD)
    assert found.auc(BAD) == 1.0
    assert found.by_round.shape == (16, 16)
    np.testing.assert_array_equal(found.by_round[-1], found.scores)
    assert words in found.explain(BAD[0])
    assert "nothing against it" in found.explain(0)


def test_nobody_is_suspected_where_everyone_works() -> None:
    for fed in (
        FED,
        poise.federation("digits", "one-class", clients=16, samples=800, seed=9),
    ):
        run = poise.train(fed, TASK, SOLVER, rounds=16)
        assert poise.audit(run).suspects == []


def test_a_part_of_real_work_is_not_noticed() -> None:
    assert audited(Scaled(BAD, 0.1)).auc(BAD) == pytest.approx(0.5, abs=0.05)


def test_copies_are_seen_through_an_adaptive_server_and_partial_participation() -> None:
    assert audited(StaleReplay(BAD), server=Adam(lr=0.05)).suspects == list(BAD)
    assert audited(StaleReplay(BAD), sampler=Uniform(6), rounds=30).suspects == list(
        BAD
    )


def test_losses_that_were_not_computed() -> None:
    found = audited(FreeRider(BAD), weighting=SoftMax(1.0))
    told = audited(Mimic(BAD, noise=0.0, scale=-1.0), weighting=SoftMax(1.0))
    assert found.suspects == told.suspects == list(BAD)
    reports = next(
        pattern for pattern in told.auditor.patterns if "losses" in pattern.label
    )
    assert (reports.p_values()[list(BAD)] < 1e-20).all()
    assert "losses that were not computed in 15 of 16 reports" in reports.describe(
        BAD[0]
    )


def test_a_client_that_never_took_part_is_not_judged() -> None:
    run = poise.train(FED, TASK, SOLVER, sampler=Uniform(2), rounds=3)
    found = poise.audit(run)
    absent = [i for i in range(16) if i not in set(run.contributions["client"])]
    assert (found.p_values[absent] == 1).all()
    assert np.isnan(found.by_round[:, absent]).all()
    assert "has not taken part" in found.explain(absent[0])


def test_auc_by_hand() -> None:
    found = audited(FreeRider((3,)), rounds=6)
    assert found.auc([3]) == 1.0
    assert found.auc(np.arange(16) == 3) == 1.0
    assert found.auc([0]) == pytest.approx(14 / 15 / 2), "tied with 14, below one"
    with pytest.raises(InvalidOption, match="free-riders and others"):
        found.auc(range(16))
    with pytest.raises(InvalidOption, match="no client 16"):
        found.explain(16)


def test_a_free_rider_among_many_is_found_by_the_command_line(tmp_path: Path) -> None:
    poise.train(
        FED, TASK, SOLVER, rounds=12, attacks=[FreeRider((4,))], out=tmp_path / "run"
    ).close()
    page = tmp_path / "audit.html"
    data = json.loads(call("audit", tmp_path / "run", "--json", "--out", page).out)
    (one,) = data["runs"]
    assert one["suspects"] == [4]
    assert len(one["scores"]) == len(one["p_values"]) == 16
    assert "empty update" in one["why"]["4"]
    text = page.read_text()
    assert "client 4" in text
    assert "Score after each round" in text
    table = call("audit", tmp_path / "run", "--out", page)
    assert table.code == 0
    assert "1 of 16 clients suspected" in table.out
    assert call("audit", tmp_path / "nosuch").code == 1
    assert call("audit", tmp_path / "run", "--alarm", "2").code == 2
