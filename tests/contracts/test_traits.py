"""Traits: who keeps a promise, who loses it, and suites that catch a part that lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from poise import testing
from poise.clocks import Buffered, Synchronous
from poise.core.capabilities import Coins
from poise.core.parts import SLOTS, parts_of
from poise.core.protocols import StepRule
from poise.core.traits import (
    ClockTraits,
    SamplerTraits,
    ServerTraits,
    SolverTraits,
    Tilt,
    WeightingTraits,
    still_holds,
    traits_of,
    undeclared,
)
from poise.core.types import Cohort
from poise.samplers import MD, Binomial, Full, Optimal, Poisson, PowerOfChoice, Uniform
from poise.servers import Add, Momentum, Noisy
from poise.solvers import SGD, FedDyn, Prox
from poise.weightings import Clipped, Max, Proportional

KINDS: dict[str, type] = {
    "solver": SolverTraits,
    "sampler": SamplerTraits,
    "clock": ClockTraits,
    "weighting": WeightingTraits,
    "server": ServerTraits,
}


@pytest.mark.parametrize("slot", KINDS)
def test_every_part_declares_its_traits(slot: str) -> None:
    assert slot in SLOTS
    for name, cls in parts_of(slot).items():
        if cls.__module__.startswith("poise."):
            assert "traits" in vars(cls), f"{name} inherits its traits or has none"


# who keeps a promise ------------------------------------------------------------------------------


class Documented(SGD):
    """SGD, with other words and a helper."""

    def halved(self) -> Documented:
        return replace(self, lr=self.lr / 2)


@dataclass(frozen=True)
class Decayed(SGD):
    """Another default."""

    weight_decay: float = 0.3


def replacing(name: str) -> type:
    """A subclass of SGD that replaces one member by another of the same effect."""
    was = next(vars(base)[name] for base in SGD.__mro__ if name in vars(base))
    other: Any = (
        property(lambda self: was.fget(self))
        if isinstance(was, property)
        else lambda *given: was(*given)
    )
    return type(f"Replaces{name.title()}", (SGD,), {name: other})


def test_a_subclass_that_replaces_nothing_keeps_the_promise() -> None:
    assert traits_of(Documented(0.1, steps=1), SolverTraits).plain_gradient
    decayed = traits_of(Decayed(0.1, steps=1), SolverTraits)
    assert decayed.plain_gradient
    assert decayed.weight_decay == 0.3


@pytest.mark.parametrize("name", ["rule", "terms", "memory", "rate", "steps_for"])
def test_a_subclass_that_replaces_a_member_loses_the_promise(name: str) -> None:
    one = replacing(name)(0.1, steps=1)
    assert traits_of(one, SolverTraits) == SolverTraits()
    assert name in undeclared(one, SolverTraits)
    assert "SGD" in undeclared(one, SolverTraits)


def test_a_subclass_may_declare_again_what_still_holds() -> None:
    class Uneven(SGD):
        traits = SGD.traits

        def steps_for(self, sizes: np.ndarray) -> np.ndarray:
            return np.asarray(sizes, dtype=np.int64)

    assert traits_of(Uneven(0.1, steps=1), SolverTraits).plain_gradient


def test_a_mixin_and_an_instance_can_replace_a_member_too() -> None:
    class Doubles:
        def rate(self, version: int) -> float:
            return 2.0

    class Mixed(Doubles, SGD):
        pass

    assert "rate" in undeclared(Mixed(0.1, steps=1), SolverTraits)
    patched = SGD(0.1, steps=1)
    object.__setattr__(patched, "rate", lambda version: 2.0)
    assert "rate" in undeclared(patched, SolverTraits)


def test_traits_of_another_slot_are_no_traits() -> None:
    @dataclass(frozen=True)
    class Confused:
        traits: ClassVar[ServerTraits] = ServerTraits(adds=True)

    assert traits_of(Confused(), SolverTraits) == SolverTraits()
    assert "SolverTraits" in undeclared(Confused(), SolverTraits)


def test_promises_follow_options() -> None:
    assert not traits_of(SGD(0.1, steps=1, momentum=0.5), SolverTraits).plain_gradient
    assert not traits_of(SGD(0.1, steps=1, clip=1.0), SolverTraits).plain_gradient
    assert not traits_of(SGD(0.1, steps=1, decay=0.9), SolverTraits).constant_rate
    assert traits_of(Prox(0.2, lr=0.1, steps=1), SolverTraits).pull == 0.2
    assert not traits_of(FedDyn(0.2, lr=0.1, steps=1), SolverTraits).sends_only_updates
    assert traits_of(Noisy(0.5, Add(0.3)), ServerTraits) == ServerTraits(
        True, True, 0.3, 0.5
    )
    assert not traits_of(Noisy(0.5, Momentum()), ServerTraits).adds
    assert traits_of(PowerOfChoice(2, d=3), SamplerTraits).favours_losses
    assert traits_of(Synchronous(), ClockTraits).one_version
    assert not traits_of(Synchronous(), ClockTraits).leaves_clients_behind
    assert traits_of(Synchronous(deadline=1.0), ClockTraits).leaves_clients_behind
    assert not traits_of(Buffered(2), ClockTraits).one_version
    assert traits_of(Clipped(0.5), WeightingTraits).shortens_to == 0.5
    assert traits_of(Optimal(2), SamplerTraits).data_dependent


def test_a_capability_is_lost_with_what_it_speaks_of() -> None:
    class Odd(Poisson):
        def draw(self, *arguments: Any) -> Cohort:
            return super().draw(*arguments)

    assert still_holds(Poisson(1), "coins")
    assert not still_holds(Odd(1), "coins")
    assert not still_holds(Odd(1), "statistics")
    assert not still_holds(SGD(0.1, steps=1), "coins")


# suites that catch a lie --------------------------------------------------------------------------


class NotEveryone(Uniform):
    traits = SamplerTraits(selects_everyone=True, data_dependent=False)


class Nosy(Optimal):
    traits = SamplerTraits(data_dependent=False)


class Twice(MD):
    traits = SamplerTraits(data_dependent=False)


class Together(Uniform):
    traits = SamplerTraits(independent=True, data_dependent=False)


class WrongChances(Binomial):
    traits = SamplerTraits(independent=True, data_dependent=False)

    def coins(self, importance: np.ndarray) -> Coins:
        right = super().coins(importance)
        return Coins(right.chances * 1.2, right.weights)


class WrongWeights(Binomial):
    traits = SamplerTraits(independent=True, data_dependent=False)

    def coins(self, importance: np.ndarray) -> Coins:
        right = super().coins(importance)
        return Coins(right.chances, right.weights / 2)


@pytest.mark.parametrize(
    ("sampler", "clause"),
    [
        (NotEveryone(3), "selects_everyone"),
        (Nosy(3), "not data_dependent"),
        (Twice(8, independent_draws=True), "drawn twice"),
        (Together(3), "declared independent"),
        (WrongChances(3), "chance of each coin"),
        (WrongWeights(3), "counts its weight"),
    ],
)
def test_samplers_that_lie_are_caught(sampler: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_sampler(sampler)


PLAIN = SolverTraits(gradient_steps=True)


class Hasty(SGD):
    traits = PLAIN

    def rule(self, start: torch.Tensor, version: int) -> StepRule:
        return StepRule(
            self.rate(version), (lambda gradients, weights: gradients.sign(),)
        )


class Elsewhere(SGD):
    traits = PLAIN

    def rule(self, start: torch.Tensor, version: int) -> StepRule:
        return StepRule(self.rate(version), (), lambda weights: weights / 2)


class Silent(SGD):
    """Says nothing of its weight decay."""

    traits = PLAIN


class Slowing(SGD):
    traits = SolverTraits(gradient_steps=True, constant_rate=True)


class Halfway(SGD):
    traits = SolverTraits(ignores_start=True)


class Remembering(FedDyn):
    traits = SolverTraits(sends_only_updates=True)


@pytest.mark.parametrize(
    ("solver", "clause"),
    [
        (Hasty(0.1, steps=2), "declared plain_gradient: a step"),
        (Elsewhere(0.1, steps=2), "client's own model"),
        (Silent(0.1, steps=2, weight_decay=0.5), "declared plain_gradient: a step"),
        (Slowing(0.1, steps=2, decay=0.5), "constant_rate"),
        (Halfway(0.5, steps=1), "ignores_start"),
        (Remembering(0.1, lr=0.1, steps=2), "sends_only_updates"),
    ],
)
def test_solvers_that_lie_are_caught(solver: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_solver(solver, fixed_point=False)


class Heavy(Momentum):
    traits = ServerTraits(adds=True, rate=1.0)


class Forgetful(Momentum):
    traits = ServerTraits(stateless=True)


class Quiet(Noisy):
    traits = ServerTraits(adds=True, rate=1.0, noise=0.01)


@pytest.mark.parametrize(
    ("server", "clause"),
    [
        (Heavy(), "declared adds"),
        (Forgetful(), "declared stateless"),
        (Quiet(0.001), "declared standard deviation"),
    ],
)
def test_servers_that_lie_are_caught(server: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_server(server, rests=False)


class Favouring(Max):
    traits = WeightingTraits(proportional=True, reads_updates=False)


class Measuring(Clipped):
    traits = WeightingTraits(reads_updates=False)


class Upside(Proportional):
    needs: ClassVar[Any] = frozenset({"loss_before"})
    traits = WeightingTraits(larger_losses_count_more=True, tilt=Tilt("loss", "none"))

    def coefficients(self, updates: Any) -> np.ndarray:
        return 1 / (1 + updates.loss_before)


@pytest.mark.parametrize(
    ("weighting", "clause"),
    [
        (Favouring(1), "declared proportional"),
        (Measuring(0.01), "not to read updates"),
        (Upside(), "larger losses count more"),
    ],
)
def test_weightings_that_lie_are_caught(weighting: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_weighting(weighting)


class Fresh(Buffered):
    traits = ClockTraits(one_version=True)


class Patient(Buffered):
    traits = ClockTraits(leaves_clients_behind=False)


@pytest.mark.parametrize(
    ("clock", "clause"),
    [(Fresh(2, "F80"), "one_version"), (Patient(2, "F80"), "nobody behind")],
)
def test_clocks_that_lie_are_caught(clock: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        testing.check_clock(clock)


def test_honest_subclasses_pass() -> None:
    class Everyone(Full):
        """Full, with another name."""

    testing.check_sampler(Everyone())
    testing.check_solver(Documented(0.1, steps=2))
