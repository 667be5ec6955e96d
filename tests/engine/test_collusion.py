"""Attacks that collude: what their clients see together, and what stays hidden from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.attacks.base import fit_clients
from poise.core.traits import AttackTraits
from poise.core.types import AttackerView, ForgedUpdate, Setting
from poise.solvers import SGD

QUAD = poise.quadratics([[float(i)] for i in range(6)])
# one step from 0 ends at each client's optimum: the update of client i is i
SOLVER = SGD(lr=1.0, steps=1)


@dataclass(frozen=True)
class Together:
    """Every accomplice sends the mean of what all of them would have sent."""

    clients: tuple[int, ...] = (1, 3, 5)
    seen: list[AttackerView] = field(default_factory=list, compare=False, repr=False)

    works = True

    def fit(self, setting: Setting) -> None:
        fit_clients("Together", self.clients, setting)

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        self.seen.append(seen)
        updates = [view.work for view in seen.accomplices if view.work is not None]
        return ForgedUpdate(
            torch.stack(updates).mean(dim=0),
            keep={"count": torch.tensor([float(len(updates))])},
        )


@dataclass(frozen=True)
class Opposed(Together):
    """Every accomplice sends the opposite of what honest clients sent."""

    traits = AttackTraits(omniscient=True)

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        assert seen.honest is not None
        return ForgedUpdate(-seen.honest.mean(dim=0))


def test_accomplices_see_each_other_and_nobody_else() -> None:
    attack = Together()
    run = poise.train(QUAD, QUAD.task, SOLVER, rounds=1, attacks=[attack])
    assert run.model == pytest.approx([(0 + 2 + 4 + 3 * 3.0) / 6])
    assert [view.client for view in attack.seen] == [1, 3, 5]
    for view in attack.seen:
        assert [a.client for a in view.accomplices] == [1, 3, 5]
        assert [float(a.work[0]) for a in view.accomplices if a.work is not None] == [
            1.0,
            3.0,
            5.0,
        ]
        assert view.honest is None


def test_each_keeps_its_own_notes() -> None:
    attack = Together()
    poise.train(QUAD, QUAD.task, SOLVER, rounds=2, attacks=[attack])
    assert [view.kept for view in attack.seen[:3]] == [{}, {}, {}]
    for view in attack.seen[3:]:
        assert {c.client: float(c.kept["count"]) for c in view.accomplices} == {
            1: 3.0,
            3: 3.0,
            5: 3.0,
        }


def test_two_attacks_do_not_share_what_they_see() -> None:
    first, second = Together((1, 3)), Together((5,))
    poise.train(QUAD, QUAD.task, SOLVER, rounds=1, attacks=[first, second])
    assert {a.client for view in first.seen for a in view.accomplices} == {1, 3}
    assert {a.client for view in second.seen for a in view.accomplices} == {5}


def test_an_omniscient_attack_sees_honest_updates_and_the_report_says_so(
    tmp_path: Any,
) -> None:
    run = poise.train(
        QUAD, QUAD.task, SOLVER, rounds=1, attacks=[Opposed()], out=tmp_path / "run"
    )
    assert run.model == pytest.approx([(0 + 2 + 4 - 3 * 2.0) / 6])
    from poise.analysis.reports.groups import group_runs
    from poise.analysis.reports.sections import headline

    text = headline("attacked", group_runs([run]))
    assert "Attacks that saw the updates of honest clients: Opposed." in text
    fair = poise.train(QUAD, QUAD.task, SOLVER, rounds=1, attacks=[Together()])
    assert "saw the updates" not in headline("attacked", group_runs([fair]))


def test_the_contract_holds_an_attack_to_what_it_declares() -> None:
    poise.testing.check_attack(Together())
    poise.testing.check_attack(Opposed())

    class Spy(Opposed):
        """Declares nothing and reads its neighbours' memory."""

        traits = AttackTraits()

        def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
            assert seen.honest is None
            return ForgedUpdate(torch.zeros_like(seen.received))

    poise.testing.check_attack(Spy())


def test_rows_of_updates_keep_what_belongs_to_them() -> None:
    """`RoundUpdates.rows` takes every column and leaves what is shared."""
    from poise.core.round_updates import RoundUpdates

    updates = RoundUpdates.of_columns(
        [0.1, 0.2, 0.7],
        clients=[4, 5, 6],
        stack=torch.eye(3),
        loss_before=[1.0, 2.0, 3.0],
        round=9,
        reached={"a": 1.0},
    )
    selected = updates.rows(np.array([2, 0]))
    assert selected.clients.tolist() == [6, 4]
    assert selected.base_weights.tolist() == [0.7, 0.1]
    assert selected.loss_before is not None
    assert selected.loss_before.tolist() == [3.0, 1.0]
    assert selected.stack.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert (selected.round, selected.reached, selected.trainable) == (9, {"a": 1.0}, 3)
    with pytest.raises(poise.PoiseError, match="no coefficients yet"):
        _ = selected.weights


def test_gram_and_distances_against_numpy() -> None:
    from poise.core.round_updates import RoundUpdates

    rows = np.random.default_rng(0).standard_normal(
        (5, 70_000)
    )  # more than one block of columns
    updates = RoundUpdates.of_columns(np.ones(5) / 5, stack=torch.from_numpy(rows))
    assert np.allclose(updates.gram, rows @ rows.T, rtol=1e-12)
    wanted = np.linalg.norm(rows[:, None] - rows[None, :], axis=2)
    assert np.allclose(updates.distances, wanted, rtol=1e-9)


@dataclass(frozen=True)
class Forgets(Together):
    """Client 1 keeps notes in rounds 0 and 1, and none later; the others always keep notes."""

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        self.seen.append(seen)
        keep = {"version": torch.tensor([float(seen.version)])}
        if seen.client == 1 and seen.version > 1:
            keep = {}
        noted = sum(float(v.sum()) for v in seen.kept.values())
        return ForgedUpdate(torch.full_like(seen.received, 1.0 + noted), keep=keep)


@pytest.mark.parametrize(
    "clients", [(1, 3, 5), (1,)], ids=["others keep", "nobody keeps"]
)
def test_an_attacker_that_puts_nothing_aside_has_nothing_left(
    clients: tuple[int, ...], tmp_path: Any
) -> None:
    def train(**more: Any) -> Any:
        return poise.train(
            QUAD, QUAD.task, SOLVER, rounds=6, attacks=[Forgets(clients)], **more
        )

    attack = Forgets(clients)
    whole = poise.train(QUAD, QUAD.task, SOLVER, rounds=6, attacks=[attack])
    assert all(
        "version" not in view.kept
        for view in attack.seen
        if view.client == 1 and view.version > 2
    )
    rounds: list[Any] = []
    train(
        out=tmp_path / "part", callbacks=[rounds.append], stop=lambda: len(rounds) >= 4
    ).close()
    from poise.config.run_options import RunOptions
    from poise.training import composed, resume_run

    composition = composed(
        QUAD,
        QUAD.task,
        {"solver": SOLVER},
        RunOptions(rounds=6),
        attacks=[Forgets(clients)],
    )
    resumed = resume_run(composition, tmp_path / "part")
    assert resumed.digest == whole.digest


def test_forged_updates_go_through_channel_and_stay_out_of_personal_layers() -> None:
    fed = poise.federation("digits", clients=4, samples=80)
    rider = poise.attacks.FreeRider((1,), "disguised", sigma=1.0, gamma=0.0)
    options: Any = {"rounds": 3, "attacks": [rider], "keep_updates": True}
    solver = SGD(lr=0.1, steps=1, batch_size=8)
    sparse = poise.train(
        fed,
        poise.task("logistic"),
        solver,
        channel=poise.channels.TopK(0.01),
        **options,
    )
    assert {int(k) for n in range(3) for k in (sparse.updates(n) != 0).sum(axis=1)} == {
        7
    }
    task = poise.task("mlp", hidden=4)
    personal = poise.train(
        fed, task, solver, personal=poise.personal.Layers("3"), **options
    )
    positions = personal.array("personal")
    assert (personal.updates(2)[1] != 0).any()
    assert not personal.updates(2)[:, positions].any()
