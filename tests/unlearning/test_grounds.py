"""Certificates depend on the traits that parts declare, not on the names of classes."""

from __future__ import annotations

from dataclasses import replace
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise import (
    aggregators,
    channels,
    clocks,
    personal,
    samplers,
    servers,
    solvers,
    weightings,
)
from poise.attacks import FreeRider
from poise.core.curvature import Curvature
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.parts import build, describe, part
from poise.core.protocols import StepRule
from poise.core.traits import SamplerTraits, ServerTraits, SolverTraits
from poise.engine.plan import Parts
from poise.privacy.budget import Budget
from poise.solvers.base import LocalSGD
from poise.unlearning import privacy_spent
from poise.unlearning.conditions import Conditions
from poise.unlearning.methods import grounds_for
from poise.unlearning.privacy_accounting import Mechanism, mechanism, releases
from poise.unlearning.proof import Grounds, grounds, private_grounds
from poise.unlearning.retraining import for_clients

FED = poise.quadratics(
    np.random.default_rng(3).normal(size=(6, 4)), sizes=[1, 2, 3, 4, 5, 5]
)
P = FED.importance
PLAIN = Parts(
    solver=solvers.SGD(0.1, steps=2),
    sampler=samplers.Full(),
    clock=clocks.Synchronous(),
    weighting=weightings.Proportional(),
    server=servers.Add(),
    aggregator=aggregators.WeightedSum(),
    channel=channels.Plain(),
)
PRIVATE = replace(PLAIN, weighting=weightings.Clipped(0.4), server=servers.Noisy(0.3))


SMOOTH = Curvature("quadratic", smoothness=1.0, convexity=1.0, exact=True)
PLAINLY = Conditions(SMOOTH, rate=0.1)


def ground(
    parts: Parts, budget: Budget | None = None, conditions: Conditions = PLAINLY
) -> Grounds:
    return grounds(parts, False, budget or Budget(), conditions=conditions)


def gaps(**parts: Any) -> str:
    return "; ".join(ground(replace(PLAIN, **parts)).gaps)


def private_gaps(**parts: Any) -> str:
    return "; ".join(private_grounds(replace(PRIVATE, **parts), False).gaps)


def own(kind: type) -> Any:
    """A class of one's own under the name of a class of poise, which declares nothing."""
    copied = {
        k: v
        for k, v in vars(kind).items()
        if k not in ("traits", "__dict__", "__weakref__")
    }
    return type(kind.__name__, kind.__mro__[1:], copied)


def test_the_theorem_holds_for_plain_parts() -> None:
    assert gaps() == private_gaps() == ""
    assert ground(PLAIN).assumed == ()
    assert gaps(weighting=weightings.Adjacency()) == "", "it reads no updates"


def test_grounds_name_no_buffers_unless_told() -> None:
    assert not Grounds("a theorem", assumed=(), gaps=()).buffers
    for buffers in (False, True):
        assert grounds(PLAIN, buffers, Budget(), conditions=PLAINLY).buffers == buffers
        assert private_grounds(PRIVATE, buffers).buffers == buffers


# solvers ------------------------------------------------------------------------------------------


@part("solver", "tests-own-sgd")
class SGD(LocalSGD):
    """A user's own class under the name of poise's."""


@part("solver", "tests-hasty")
class Hasty(solvers.SGD):
    """Replaces the step."""

    def rule(self, start: Any, version: int) -> StepRule:
        return StepRule(2 * self.rate(version))


@part("solver", "tests-gentle")
class Gentle(solvers.SGD):
    """Another default, and a helper."""

    weight_decay: float = 0.01

    def halved(self) -> Gentle:
        return replace(self, lr=self.lr / 2)


@part("solver", "tests-declared")
class Declared(LocalSGD):
    """A user's own class that says what it promises."""

    @property
    def traits(self) -> SolverTraits:
        return self.traits_with(
            SolverTraits(gradient_steps=True, sends_only_updates=True)
        )


def unlearned(solver: Any) -> Any:
    run = poise.train(FED, FED.task, solver, rounds=4, keep="all")
    return poise.unlearn(
        run, [2], federation=FED, task=FED.task, min_rounds=1, max_rounds=2, target=0.0
    )


def test_a_class_called_sgd_is_refused_a_certificate() -> None:
    with pytest.raises(IncompatibleParts, match="SGD declares no traits"):
        unlearned(SGD(lr=0.1, steps=2))


def test_a_subclass_that_replaces_the_step_is_refused_a_certificate() -> None:
    with pytest.raises(IncompatibleParts, match="Hasty replaces rule of SGD"):
        unlearned(Hasty(0.1, steps=2))


@pytest.mark.parametrize("solver", [Gentle(0.1, steps=2), Declared(lr=0.1, steps=2)])
def test_who_keeps_or_declares_the_promise_is_certified(solver: Any) -> None:
    certificate = unlearned(solver).certificate
    assert certificate["guarantee"]["promised"]
    assert certificate["grounds"]["not proved"] == []


def test_a_subclass_that_no_file_can_name_is_not_taken_for_its_parent() -> None:
    class Doubled(solvers.SGD):
        def rule(self, start: Any, version: int) -> StepRule:
            return StepRule(2 * self.rate(version))

    assert describe(Doubled(0.1, steps=2))["name"].endswith("Doubled")
    with pytest.raises(InvalidOption, match=r"Doubled.*poise cannot make it again"):
        unlearned(Doubled(0.1, steps=2))


def test_a_subclass_that_changes_nothing_is_recorded_as_its_parent() -> None:
    class Renamed(solvers.SGD):
        """SGD."""

    renamed = Renamed(0.1, steps=2)
    assert build("solver", describe(renamed)) == solvers.SGD(0.1, steps=2)


def test_a_lower_case_class_of_ones_own_is_not_taken_for_a_part() -> None:
    sgd = type("sgd", (), {})()
    with pytest.raises(InvalidOption, match="poise cannot make it again"):
        build("solver", describe(sgd))


@pytest.mark.parametrize("member", ["rule", "terms", "memory", "rate", "steps_for"])
def test_whatever_the_proof_rests_on_may_not_be_replaced(member: str) -> None:
    was = getattr_static(LocalSGD, member)
    other: Any = (
        property(lambda self: was.fget(self))
        if isinstance(was, property)
        else lambda *given: was(*given)
    )
    changed = type("Changed", (solvers.SGD,), {member: other})
    assert f"Changed replaces {member} of SGD" in gaps(solver=changed(0.1, steps=2))
    assert f"Changed replaces {member} of SGD" in private_gaps(
        solver=changed(0.1, steps=2)
    )


def test_a_corollary_is_for_solvers_that_declare_it() -> None:
    strong = Budget(strong_convexity=0.5)
    assert strong.contraction(solvers.SGD(0.1, steps=1)) == strong.contraction(
        Declared(lr=0.1, steps=1)
    )
    for solver in (
        SGD(lr=0.1, steps=1),
        Hasty(0.1, steps=1),
        solvers.Prox(0.1, lr=0.1, steps=1),
    ):
        with pytest.raises(IncompatibleParts, match="plain SGD"):
            strong.contraction(solver)


# the other slots ----------------------------------------------------------------------------------


def test_an_own_sampler_gets_no_amplification() -> None:
    mine = own(samplers.Poisson)(2)
    assert mechanism(replace(PRIVATE, sampler=samplers.Poisson(2))).amplified
    assert not mechanism(replace(PRIVATE, sampler=mine)).amplified
    assert "Poisson declares no traits" in private_gaps(sampler=mine)
    found = ground(replace(PLAIN, sampler=own(samplers.Full)()))
    assert any("same others would have been drawn" in a for a in found.assumed)


@pytest.mark.parametrize("independent", [True, False])
@pytest.mark.parametrize("data_dependent", [True, False])
def test_only_independent_draws_that_ignore_the_data_amplify(
    independent: bool, data_dependent: bool
) -> None:
    class Coins:
        traits = SamplerTraits(independent=independent, data_dependent=data_dependent)
        coins = samplers.Poisson.coins

    found = Mechanism(0.4, sigma=0.3, sampler=Coins())  # type: ignore[arg-type]
    assert found.amplified == (independent and not data_dependent)


@part("sampler", "tests-biased-coins")
class BiasedCoins(samplers.Poisson):
    """Draws its own way, and inherits the coins."""

    def draw(self, *arguments: Any) -> Any:
        return super().draw(*arguments)


def test_a_sampler_that_draws_its_own_way_is_counted_by_the_rounds_that_were() -> None:
    train = {
        "solver": solvers.SGD(0.2, steps=2),
        "weighting": PRIVATE.weighting,
        "server": PRIVATE.server,
    }
    mine = poise.train(FED, FED.task, sampler=BiasedCoins(2), rounds=8, **train)
    plain = poise.train(FED, FED.task, sampler=samplers.Poisson(2), rounds=8, **train)
    assert all(r.chance == 1 for r in releases(mine, 5))
    assert all(r.chance < 1 for r in releases(plain, 5))
    assert privacy_spent(mine, [5])[5] > privacy_spent(plain, [5])[5]


def test_an_own_server_is_refused() -> None:
    assert "Add declares no traits" in gaps(server=own(servers.Add)())
    with pytest.raises(IncompatibleParts, match="not trained with clipping and noise"):
        mechanism(replace(PRIVATE, server=own(servers.Noisy)(0.3)))


def test_an_own_weighting_is_refused() -> None:
    mine = own(weightings.Proportional)()
    assert "Proportional declares no traits" in gaps(weighting=mine)
    found = ground(replace(PLAIN, weighting=mine))
    assert any("kept their proportions" in a for a in found.assumed)
    with pytest.raises(IncompatibleParts, match="not trained with clipping and noise"):
        mechanism(replace(PRIVATE, weighting=own(weightings.Clipped)(0.4)))


def test_an_own_clock_is_refused() -> None:
    class Synchronous:
        waits = True

    class Late(clocks.Synchronous):
        def advance(self, *arguments: Any) -> Any:
            return super().advance(*arguments)

    for mine, why in (
        (Synchronous(), "Synchronous declares no traits"),
        (Late(), "Late replaces advance"),
    ):
        assert why in gaps(clock=mine)
        assert why in private_gaps(clock=mine)


def test_weightings_inside_others_are_asked_too() -> None:
    inside = weightings.Discount(weightings.Clipped(0.5))
    assert "shortened" in gaps(weighting=inside)
    assert "shortened" in gaps(
        weighting=weightings.Switch(
            [(3, weightings.Clipped(1.0)), (None, PLAIN.weighting)]
        )
    )
    assert gaps(weighting=weightings.Discount(weightings.Proportional())) == ""


def test_weights_per_step_are_refused_also_inside_others() -> None:
    """Two clients with paths 1 and 3 and w = 1/2: the coefficients 1 and 1/3 have sum
    4/3. Without the second client the first one has 1, and not 4/3."""
    per_step = weightings.PerStep()
    columns = {"rates": np.ones(2), "steps": np.array([1, 3])}
    both = per_step.coefficients(np.array([0.5, 0.5]), **columns)
    assert both.sum() == pytest.approx(4 / 3)
    one = {name: column[:1] for name, column in columns.items()}
    assert per_step.coefficients(np.array([1.0]), **one).tolist() == [1.0]
    for weighting in (
        per_step,
        weightings.PerStep(path=0.1),
        weightings.Discount(per_step),
        weightings.Anneal(per_step, PLAIN.weighting, over=2),
        weightings.Switch([(3, per_step), (None, PLAIN.weighting)]),
    ):
        assert "have another sum" in gaps(weighting=weighting)


def test_what_is_no_weighted_sum_of_what_clients_made_is_refused() -> None:
    assert "Median: the direction is no weighted sum" in gaps(
        aggregator=aggregators.Median()
    )
    assert "LatestContribution: the direction is no weighted sum" in gaps(
        aggregator=aggregators.LatestContribution()
    )
    assert "TopK: updates do not arrive" in gaps(channel=channels.TopK(0.5))
    assert "TopK: updates do not arrive" in private_gaps(channel=channels.TopK(0.5))
    assert "keep entries of the model" in gaps(personal=personal.BatchNorm())
    assert "WeightedSum declares no traits" in gaps(
        aggregator=own(aggregators.WeightedSum)()
    )
    with pytest.raises(IncompatibleParts, match="Median"):
        mechanism(replace(PRIVATE, aggregator=aggregators.Median()))
    with pytest.raises(IncompatibleParts, match="LatestContribution"):
        mechanism(replace(PRIVATE, aggregator=aggregators.LatestContribution()))


# when clients leave -------------------------------------------------------------------------------

STAY = [0, 3, 4]
TAU = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


@pytest.mark.parametrize(
    ("slot", "given", "left"),
    [
        ("clock", clocks.Synchronous(TAU), clocks.Synchronous((1.0, 4.0, 5.0))),
        ("clock", clocks.Buffered(2, "F80"), clocks.Buffered(2, "F80")),
        (
            "clock",
            clocks.Asynchronous(clocks.Exponential(TAU)),
            clocks.Asynchronous(clocks.Exponential((1.0, 4.0, 5.0))),
        ),
        (
            "clock",
            clocks.Synchronous(clocks.Trace([(i, 0.0, 1.0 + i) for i in range(6)])),
            clocks.Synchronous(
                clocks.Trace([(0, 0.0, 1.0), (1, 0.0, 4.0), (2, 0.0, 5.0)])
            ),
        ),
        (
            "sampler",
            samplers.Target(2, (0, 1, 2, 3, 4, 5)),
            samplers.Target(2, (0, 3, 4)),
        ),
        ("weighting", weightings.Max(1, TAU), weightings.Max(1, (1.0, 4.0, 5.0))),
        (
            "weighting",
            weightings.SoftMin(1.0, {0: 0.5, 4: 0.7}),
            weightings.SoftMin(1.0, {0: 0.5, 2: 0.7}),
        ),
        (
            "weighting",
            weightings.Clipped(1.0, weightings.Discount(weightings.SoftMax(1.0, TAU))),
            weightings.Clipped(
                1.0, weightings.Discount(weightings.SoftMax(1.0, (1.0, 4.0, 5.0)))
            ),
        ),
        (
            "weighting",
            weightings.Switch([(3, weightings.Min(1, TAU)), (None, PLAIN.weighting)]),
            weightings.Switch(
                [(3, weightings.Min(1, (1.0, 4.0, 5.0))), (None, PLAIN.weighting)]
            ),
        ),
        (
            "weighting",
            weightings.Anneal(weightings.Min(1, TAU), PLAIN.weighting, 3),
            weightings.Anneal(weightings.Min(1, (1.0, 4.0, 5.0)), PLAIN.weighting, 3),
        ),
        ("attacks", (FreeRider((1, 3)), FreeRider((2,))), (FreeRider((1,)),)),
    ],
)
def test_what_was_given_client_by_client_is_renumbered(
    slot: str, given: Any, left: Any
) -> None:
    found = for_clients(replace(PLAIN, **{slot: given}), STAY)
    assert vars(found)[slot] == left


def test_a_trace_in_a_file_is_renumbered(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(
        "client,start,duration\n" + "".join(f"{i},0.0,{1 + i}.0\n" for i in range(6))
    )
    found = clocks.Trace(str(file)).for_clients(STAY)
    assert found == clocks.Trace([(0, 0.0, 1.0), (1, 0.0, 4.0), (2, 0.0, 5.0)])


def test_a_saved_schedule_cannot_be_renumbered() -> None:
    with pytest.raises(IncompatibleParts, match="saved with all clients"):
        for_clients(replace(PLAIN, clock=clocks.Replay("schedule.csv")), STAY)


def test_floors_follow_their_clients_into_the_branch() -> None:
    weighting = weightings.SoftMax(1.0, floor=TAU)
    run = poise.train(
        FED, FED.task, PLAIN.solver, weighting=weighting, rounds=4, keep="all"
    )
    done = poise.unlearn(
        run,
        [1, 2, 5],
        federation=FED,
        task=FED.task,
        min_rounds=1,
        max_rounds=2,
        target=0.0,
    )
    assert "floor = [\n    1.0,\n    4.0,\n    5.0,\n]" in done.run.experiment


# ways around the rule
# ---------------------------------------------------------------------------------


class Tripled(LocalSGD):
    """Steps along three times the gradient."""

    def rule(self, start: Any, version: int) -> Any:
        return StepRule(
            self.rate(version), (lambda gradients, weights: gradients.mul_(3.0),)
        )


def test_a_class_slipped_in_between_by_inheritance_is_noticed() -> None:
    mixed = type("Mixed", (solvers.SGD, Tripled), {})(0.1, steps=2)
    assert "Mixed replaces rule of SGD" in gaps(solver=mixed)
    with pytest.raises(InvalidOption, match="poise cannot make it again"):
        build("solver", describe(mixed))


def test_a_member_that_poise_reads_may_not_be_added() -> None:
    sly = type(
        "Sly",
        (servers.Add,),
        {"seeded": lambda self, seed: servers.Momentum(1.0, beta=0.9)},
    )()
    assert "Sly replaces seeded of Add" in gaps(server=sly)
    assert describe(sly)["name"] != "add"


def test_an_instance_may_not_replace_a_method() -> None:
    server = servers.Add()
    object.__setattr__(
        server, "apply", lambda theta, direction, state: (theta + 5 * direction, state)
    )
    assert "Add replaces apply of Add" in gaps(server=server)
    assert describe(server)["name"] != "add"


def test_a_descriptor_is_not_the_value_of_an_option() -> None:
    class Odd:
        def __get__(self, made: Any, kind: Any = None) -> float:
            return 0.0

        def __set__(self, made: Any, value: Any) -> None: ...

    odd = type("Hidden", (solvers.SGD,), {"momentum": Odd()})(0.1, steps=2)
    assert "Hidden replaces momentum of SGD" in gaps(solver=odd)


def test_the_names_of_poises_parts_are_taken() -> None:
    with pytest.raises(
        InvalidOption, match="the name 'sgd' belongs to poise's solver SGD"
    ):

        @part("solver", "sgd")
        class SGD(LocalSGD):
            """Another one."""

    assert build("solver", {"name": "sgd", "lr": 0.1, "steps": 1}) == solvers.SGD(
        0.1, steps=1
    )


def test_quarantine_is_named_on_certificates() -> None:
    private = grounds_for(
        "dp", PRIVATE, False, Budget(), conditions=PLAINLY, audit="quarantine"
    )
    assert any("audit='quarantine'" in gap for gap in private.gaps)
    assert grounds_for("dp", PRIVATE, False, Budget(), conditions=PLAINLY).gaps == ()
    assumed = grounds_for(
        "sifu", PLAIN, False, Budget(), conditions=PLAINLY, audit="quarantine"
    ).assumed
    assert any("kept out the same others" in words for words in assumed)


@pytest.mark.parametrize(
    ("promised", "proved"),
    [
        (ServerTraits(adds=True, stateless=True, rate=1.0), True),
        (ServerTraits(adds=True, stateless=True, rate=1.5), False),
        (ServerTraits(adds=True, stateless=True, rate=None), False),
        (ServerTraits(adds=False, stateless=True, rate=1.0), False),
        (ServerTraits(adds=True, stateless=False, rate=1.0), False),
    ],
)
def test_every_promise_of_a_server_is_needed(
    promised: ServerTraits, proved: bool
) -> None:
    class Promising(servers.Add):
        traits = promised

        def apply(self, theta: Any, direction: Any, state: Any) -> Any:
            return super().apply(theta, direction, state)

    gaps = ground(replace(PLAIN, server=Promising())).gaps
    assert (not gaps) == proved


# deployments --------------------------------------------------------------------------------------


def test_nodes_are_trusted_with_their_curvature() -> None:
    on_nodes = replace(PLAINLY, on_nodes=True)
    assert ground(PLAIN, conditions=on_nodes).gaps == ()
    (assumed,) = ground(PLAIN, conditions=on_nodes).assumed
    assert "every node reported the curvature of its loss truthfully" in assumed
    unknown = replace(on_nodes, curvature=None)
    (gap,) = ground(PLAIN, conditions=unknown).gaps
    assert "or a node did not report it" in gap
    assert assumed not in ground(PLAIN, conditions=unknown).assumed


def test_altered_updates_are_no_gradient_steps() -> None:
    altered = replace(PLAINLY, on_nodes=True, altered=True)
    (gap,) = ground(PLAIN, conditions=altered).gaps
    assert gap.startswith("nodes clip updates or add noise to them")
