"""Invalid updates: the run stops and names the update, or drops it and records that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import poise
from faults.support import call, opened, small
from ledger.doubles import quadratics
from poise.core.errors import UpdateRefused
from poise.core.types import AttackerView, ForgedUpdate, Setting
from poise.solvers import SGD


@dataclass(frozen=True)
class Poison:
    """Some clients send what is no number."""

    slot, name = "attack", "test-poison"
    clients: tuple[int, ...] = (2,)
    value: float = float("nan")
    works: bool = False

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        return ForgedUpdate(torch.full_like(seen.received, self.value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_run_stops_at_an_update_that_is_not_finite(
    value: float, tmp_path: Path
) -> None:
    fed = quadratics()
    with pytest.raises(
        UpdateRefused, match="round 0: client 2 sent an update that is not finite"
    ) as caught:
        poise.train(
            fed,
            fed.task,
            SGD(lr=0.1, steps=1),
            rounds=3,
            attacks=[Poison(value=value)],
            out=tmp_path / "run",
        )
    assert "bad_updates='drop'" in caught.value.hint
    with opened(tmp_path / "run") as run:
        assert (run.rounds, run.meta["status"]) == (0, "failed")


def test_dropped_updates_are_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    fed = quadratics()
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=0.1, steps=1),
        rounds=3,
        attacks=[Poison()],
        bad_updates="drop",
        out=tmp_path / "run",
    )
    assert [(n, client) for n, client, _ in run.refusals] == [(0, 2), (1, 2), (2, 2)]
    assert all("not finite" in reason for _, _, reason in run.refusals)
    assert (run.weights[:, 2] == 0).all()
    assert (run.weights[:, [0, 1, 3]] > 0).all()
    assert np.isfinite(run.model).all()
    run.verify()
    run.close()


def test_a_round_in_which_everyone_is_refused_changes_nothing() -> None:
    fed = quadratics()
    everyone = Poison(clients=(0, 1, 2, 3))
    run = poise.train(
        fed,
        fed.task,
        SGD(lr=0.1, steps=1),
        rounds=2,
        attacks=[everyone],
        bad_updates="drop",
    )
    assert len(run.refusals) == 8
    assert run.model.tobytes() == run.models(0).tobytes()
    assert (run.weights == 0).all()


def test_the_command_line_drops_diverging_clients_too(tmp_path: Path) -> None:
    text = small(rounds=2, bad_updates='"drop"').replace("lr = 0.1", "lr = 1e30")
    (tmp_path / "exp.toml").write_text(text)
    assert (
        call("run", tmp_path / "exp.toml", "--out", tmp_path / "out", "--json").code
        == 0
    )
    with opened(tmp_path / "out" / "seed-0") as run:
        assert len(run.refusals) == 8, "everyone diverges at this rate"
        assert run.rounds == 2


def test_a_run_that_failed_in_the_middle_keeps_what_was_before(tmp_path: Path) -> None:
    """The learning rate is so high that a later round overflows; what came before stays
    readable."""
    fed = quadratics()
    with pytest.raises(UpdateRefused, match=r"round \d+: client \d sent"):
        poise.train(
            fed, fed.task, SGD(lr=1e40, steps=2), rounds=50, out=tmp_path / "run"
        )
    with opened(tmp_path / "run") as run:
        assert 0 < run.rounds < 50
        assert run.meta["status"] == "failed"
        run.verify()
        assert np.isfinite(run.model).all()
