"""Odd doubles: if a part were bypassed, the run would not move the way these make it move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import poise
from poise.clocks import Synchronous
from poise.core.durations import as_durations
from poise.core.protocols import StepRule
from poise.core.round_updates import RoundUpdates
from poise.core.types import (
    Assignment,
    AttackerView,
    Cohort,
    ForgedUpdate,
    InFlight,
    Record,
    Setting,
    Step,
)
from poise.samplers import Uniform
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing import SampleFederation

QUAD = poise.quadratics([[1.0, 0.0], [0.0, 3.0], [-2.0, 1.0]], sizes=[1, 2, 1])
SOLVER = SGD(lr=0.5, steps=1)


class Fits:
    """Accepts every setting."""

    def fit(self, setting: Setting) -> None: ...


@dataclass(frozen=True)
class PlusOneWeighting(Fits):
    slot: ClassVar[str] = "weighting"
    name: ClassVar[str] = "plus-one"
    needs: ClassVar[frozenset[str]] = frozenset({"loss_after"})

    def coefficients(self, updates: RoundUpdates) -> np.ndarray:
        assert updates.loss_after is not None, "a report that is needed arrives"
        assert updates.loss_after.shape == updates.base_weights.shape
        assert updates.loss_before is None, (
            "a report that is not needed is not computed"
        )
        return updates.base_weights + 1


@dataclass(frozen=True)
class PlusOneServer(Fits):
    slot: ClassVar[str] = "server"
    name: ClassVar[str] = "plus-one"

    def init(self, theta: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return {"calls": torch.zeros(1)}

    def apply(
        self,
        theta: torch.Tensor,
        direction: torch.Tensor,
        state: Mapping[str, torch.Tensor],
    ) -> Any:
        return theta + direction + 1, {"calls": state["calls"] + 1}


@dataclass(frozen=True)
class AlwaysZero(Fits):
    slot: ClassVar[str] = "sampler"
    name: ClassVar[str] = "always-zero"
    needs: ClassVar[frozenset[str]] = frozenset()

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        return Cohort(np.array([0]), np.array([1.0]))


@dataclass(frozen=True)
class Nobody(Fits):
    slot: ClassVar[str] = "sampler"
    name: ClassVar[str] = "nobody"
    needs: ClassVar[frozenset[str]] = frozenset()

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        return Cohort(np.array([], dtype=np.int64), np.array([]))


@dataclass(frozen=True)
class Idle(Fits):
    slot: ClassVar[str] = "solver"
    name: ClassVar[str] = "idle"
    batch_size: ClassVar[int | None] = None

    def steps_for(self, sizes: np.ndarray) -> np.ndarray:
        return np.ones(len(sizes), dtype=np.int64)

    def rule(self, start: torch.Tensor, version: int) -> StepRule:
        return StepRule(0.0)

    def rate(self, version: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Slow(Fits):
    slot: ClassVar[str] = "clock"
    name: ClassVar[str] = "slow"
    waits: ClassVar[bool] = True

    def identical_weights(self, base: np.ndarray, clients: int) -> np.ndarray:
        return base

    def times(self, clients: int) -> Any:
        return Synchronous().times(clients)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        step, after = Synchronous().advance(in_flight, started, index)
        return Step(index, step.time + 100, step.assignments), InFlight(after.now + 100)


@dataclass(frozen=True)
class Shout(Fits):
    slot: ClassVar[str] = "attack"
    name: ClassVar[str] = "shout"
    clients: ClassVar[tuple[int, ...]] = (1,)

    works: ClassVar[bool] = False

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        assert seen.client == 1
        assert seen.work is None
        return ForgedUpdate(torch.full_like(seen.received, 7.0))


def train(solver: Any = SOLVER, rounds: int = 1, **options: Any) -> Any:
    return poise.train(QUAD, QUAD.task, solver, rounds=rounds, **options)


DELTAS = 0.5 * QUAD.optima  # one step of rate 0.5 from w = 0


def test_the_weighting_is_used() -> None:
    run = train(weighting=PlusOneWeighting())
    assert np.allclose(run.weights[0], QUAD.importance + 1)
    assert np.allclose(run.model, (QUAD.importance + 1) @ DELTAS)
    assert np.isfinite(run.contributions["loss_after"]).all()
    assert np.isnan(run.contributions["loss_before"]).all()


def test_the_server_is_used_and_its_state_goes_round() -> None:
    assert np.allclose(
        train(server=PlusOneServer()).model, QUAD.importance @ DELTAS + 1
    )
    run = train(Idle(), rounds=3, server=PlusOneServer())
    assert np.allclose(run.model, 3.0)


def test_the_sampler_is_used() -> None:
    run = train(sampler=AlwaysZero(), rounds=2)
    assert run.weights.tolist() == [[1.0, 0.0, 0.0]] * 2
    assert np.allclose(run.model, 0.75 * QUAD.optima[0])


@dataclass(frozen=True)
class ZeroTwice(Fits):
    slot: ClassVar[str] = "sampler"
    name: ClassVar[str] = "zero-twice"
    needs: ClassVar[frozenset[str]] = frozenset()

    def draw(
        self, setting: Setting, rng: np.random.Generator, round: int, past: Any
    ) -> Cohort:
        return Cohort(np.array([0, 1, 0]), np.array([0.25, 0.5, 0.25]))


def test_a_client_drawn_twice_works_twice_on_batches_of_its_own() -> None:
    fed = SampleFederation.random([12, 4], seed=1)
    run = poise.train(
        fed, Task("logistic"), SGD(lr=0.1, steps=2, batch_size=3), ZeroTwice(), rounds=2
    )
    assert run.weights.tolist() == [[0.5, 0.5]] * 2
    first = run.contributions[:3]
    assert first["client"].tolist() == [0, 1, 0]
    assert first["occurrence"].tolist() == [0, 0, 1]
    assert first["norm"][0] != first["norm"][2]


def test_a_round_without_clients_changes_nothing() -> None:
    run = train(sampler=Nobody(), rounds=2)
    assert np.array_equal(run.model, [0.0, 0.0])
    assert run.weights.sum() == 0


def test_the_solver_is_used() -> None:
    run = train(Idle(), rounds=2)
    assert np.array_equal(run.model, [0.0, 0.0])
    assert (run.contributions["norm"] == 0).all()


def test_the_clock_is_used() -> None:
    assert train(clock=Slow(), rounds=3).times.tolist() == [101.0, 202.0, 303.0]
    assert train(clock=Slow(), rounds=None, time=250.0).rounds == 2


@dataclass(frozen=True)
class FirstComeFirstServed(Fits):
    """Aggregates whenever anybody arrives; the others stay in the air."""

    slot: ClassVar[str] = "clock"
    name: ClassVar[str] = "first-come"
    waits: ClassVar[bool] = False

    def identical_weights(self, base: np.ndarray, clients: int) -> np.ndarray:
        return base

    def times(self, clients: int) -> Any:
        return as_durations([1.0, 2.2, 3.5], clients)

    def advance(
        self, in_flight: InFlight, started: Sequence[Assignment], index: int
    ) -> tuple[Step, InFlight]:
        first, *rest = sorted((*in_flight.assignments, *started))
        return Step(index, first.finish, (first,)), InFlight(first.finish, tuple(rest))


def test_stale_work_counts_from_the_version_it_began_with() -> None:
    """Against a simulation by hand: each client holds the model it was given until it answers."""
    tau, rounds = [1.0, 2.2, 3.5], 12
    run = train(clock=FirstComeFirstServed(), rounds=rounds, keep="all")
    theta, given, version = np.zeros(2), [np.zeros(2)] * 3, [0, 0, 0]
    ready, expected = list(tau), []
    for n in range(rounds):
        i = int(np.argmin(ready))
        expected.append((i, version[i], ready[i]))
        theta = theta + QUAD.importance[i] * 0.5 * (QUAD.optima[i] - given[i])
        assert np.allclose(run.models(n + 1), theta, atol=1e-14), f"aggregation {n}"
        given[i], version[i], ready[i] = theta, n + 1, ready[i] + tau[i]
    found = run.contributions
    assert list(
        zip(
            found["client"].tolist(),
            found["version"].tolist(),
            run.times.tolist(),
            strict=True,
        )
    ) == [(i, v, pytest.approx(t)) for i, v, t in expected]
    assert max(n - v for n, (_, v, _) in enumerate(expected)) >= 2, (
        "there was staleness to get wrong"
    )


def test_the_attack_is_used() -> None:
    sent = DELTAS.copy()
    sent[1] = 7.0
    run = train(attacks=[Shout()])
    assert np.allclose(run.model, QUAD.importance @ sent)
    assert run.contributions["norm"][1] == pytest.approx(np.sqrt(2) * 7)


def test_callbacks_see_every_record_once() -> None:
    seen: list[Record] = []
    counts = [0, 0]

    def count(record: Record) -> None:
        counts[0] += 1

    run = train(rounds=4, callbacks=[seen.append, count])
    assert [r.index for r in seen] == [0, 1, 2, 3]
    assert counts == [4, 0]
    assert [c.coefficient for c in seen[0].contributions] == run.weights[0].tolist()


def test_stop_ends_the_run_cleanly() -> None:
    seen: list[Record] = []
    run = train(rounds=50, callbacks=[seen.append], stop=lambda: len(seen) >= 3)
    assert run.rounds == 3
    assert run.meta["status"] == "stopped"


@pytest.mark.parametrize("path", [None, "rows"])
def test_one_seed_one_run(path: Any) -> None:
    fed = SampleFederation.random([7, 4, 10, 5, 6], seed=1)
    task = Task("mlp", {"hidden": 5}, path=path)
    solver = SGD(lr=0.1, epochs=1, batch_size=4)
    digests = [
        poise.train(fed, task, solver, Uniform(3), rounds=3, seed=s).digest
        for s in (0, 0, 1)
    ]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_a_plain_object_that_follows_the_protocol_is_enough() -> None:
    class Plain:
        needs = frozenset[str]()

        def fit(self, setting: Setting) -> None: ...

        def coefficients(self, updates: RoundUpdates) -> np.ndarray:
            return 2 * updates.base_weights

    run = train(weighting=Plain())
    assert np.allclose(run.weights[0], 2 * QUAD.importance)


def test_a_weighting_with_the_old_signature_still_works() -> None:
    class Old:
        needs = frozenset({"loss_after"})

        def fit(self, setting: Setting) -> None: ...

        def coefficients(self, base: np.ndarray, **reports: Any) -> np.ndarray:
            assert reports["loss_after"].shape == base.shape
            assert reports["loss_before"] is None
            assert {
                "sizes",
                "clients",
                "versions",
                "round",
                "importance",
                "seen",
            } <= reports.keys()
            return 2 * base

    with pytest.warns(FutureWarning, match=r"Old\.coefficients"):
        run = train(weighting=Old())
    assert np.allclose(run.weights[0], 2 * QUAD.importance)


@dataclass(frozen=True)
class Bad(Fits):
    value: float
    slot: ClassVar[str] = "weighting"
    name: ClassVar[str] = "bad"
    needs: ClassVar[frozenset[str]] = frozenset()

    def coefficients(self, updates: RoundUpdates) -> np.ndarray:
        return updates.base_weights * self.value


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_coefficients_that_are_not_finite_are_refused_before_they_are_applied(
    value: float,
) -> None:
    with pytest.raises(poise.PoiseError, match="finite"):
        train(weighting=Bad(value))


def test_what_a_run_hands_out_is_a_copy() -> None:
    run = train(rounds=2)
    held = run.model.copy()
    with suppress(ValueError):  # read-only is as good
        run.model[:] = 99.0
    assert np.array_equal(run.model, held), "editing run.model edited the ledger"


def test_wrong_budgets_are_refused() -> None:
    for wrong in (
        {"rounds": 0},
        {"rounds": 2.5},
        {"time": -1.0},
        {"time": float("nan")},
        {"seed": -1},
        {"seed": 0.5},
    ):
        with pytest.raises(poise.PoiseError):
            poise.train(QUAD, QUAD.task, SOLVER, **wrong)  # type: ignore[arg-type]


def test_a_part_of_another_slot_is_refused_by_name() -> None:
    with pytest.raises(
        poise.PoiseError, match="Uniform belongs in the slot sampler, not in"
    ):
        train(weighting=Uniform(1))
    with pytest.raises(poise.PoiseError, match="make one"):
        train(sampler=Uniform)
    with pytest.raises(poise.PoiseError, match="m = 4"):
        train(sampler=Uniform(4))


def test_scores_of_a_run() -> None:
    fed = SampleFederation.random([12, 4], seed=1)
    run = poise.train(
        fed, Task("logistic"), SGD(lr=0.5, epochs=2, batch_size=3), rounds=8
    )
    accuracy = run.metric("accuracy")
    target = float(np.median(accuracy))
    assert run.rounds_to(target) == next(
        n for n, a in enumerate(accuracy, start=1) if a >= target
    )
    assert run.rounds_to(1.01) is None
    changes = np.diff(accuracy)
    if changes.mean():
        assert run.smoothness() == pytest.approx(changes.std() / abs(changes.mean()))
    with pytest.raises(poise.PoiseError, match="accuracy"):
        run.metric("acuracy")
