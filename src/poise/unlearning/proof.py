"""The grounds of the bound on a client's influence, and the gaps in its proof for a given run.

[Fraboni 2023, Thm 5.1] is about FedAvg: every client starts from the newest model and
makes plain (stochastic) gradient steps, and the server adds the average. The theorem
assumes quadratic losses. Convex losses do as well [Hardt 2016, Lemma 3.7]:
docs/explanation/forgetting.md has the argument. In both cases, the learning rate must be
at most 1/L, which `conditions` checks.

`poise.unlearn` accepts other runs as a heuristic only, and the certificate says so. The
proof reads the traits that parts declare, and takes an undeclared trait as not proved.

Certificates store the texts of assumptions and gaps, and `poise verify` compares them: a
new text needs a new format of certificates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poise.core.errors import IncompatibleParts
from poise.core.protocols import Clock, Server, Solver, Weighting
from poise.core.traits import (
    AggregatorTraits,
    ChannelTraits,
    ClockTraits,
    SamplerTraits,
    ServerTraits,
    SolverTraits,
    WeightingTraits,
    traits_of,
    undeclared,
)
from poise.engine.plan import Parts
from poise.privacy.budget import Budget
from poise.unlearning.conditions import Conditions

QUADRATIC = (
    "every client's loss is quadratic, with a positive semi-definite Hessian, between "
    "the models compared [Fraboni 2023, Ass. 5.1]"
)
TRUTHFUL = (
    "every node reported the curvature of its loss truthfully, and its updates are the "
    "requested steps on its data"
)


@dataclass(frozen=True)
class Grounds:
    """What a guarantee rests on.

    Args:
        theorem: the theorem that gives the bound.
        assumed: its assumptions that poise cannot check.
        gaps: reasons why the theorem does not cover this run; empty if it does.
        buffers: whether the model has statistics that the optimiser does not train.
        checked: numbers that poise checked, by name.
    """

    theorem: str
    assumed: tuple[str, ...]
    gaps: tuple[str, ...]
    buffers: bool = False
    checked: dict[str, Any] | None = None


def grounds(
    parts: Parts, buffers: bool, budget: Budget, conditions: Conditions
) -> Grounds:
    """Compare a run with the conditions of the theorem."""
    gaps = [
        *_solver_gaps(parts.solver),
        *_curvature_gaps(parts.solver, budget, conditions),
        *_server_gaps(parts.server),
        *_clock_gaps(parts.clock),
        *_weighting_gaps(parts.weighting),
        *_sum_gaps(parts),
    ]
    if buffers:
        gaps.append(
            "the model has batch-norm statistics, which move without gradients and get no noise"
        )
    if budget.participation == "optimistic":
        gaps.append(
            "participation='optimistic' divides by the whole federation, not by the cohort: no "
            "bound"
        )
    if parts.personal is not None:
        gaps.append(
            "clients keep entries of the model to themselves; the theorem has one model"
        )
    if conditions.altered:
        gaps.append(
            "nodes clip updates or add noise to them: such an update is no gradient step"
        )
    if parts.attacks:
        gaps.append("attacks: what dishonest clients send is no gradient step")
    if budget.calibration == "classical" and budget.epsilon >= 1:
        gaps.append(
            f"calibration='classical' is proved for epsilon < 1, not for {budget.epsilon:g}"
        )
    return Grounds(
        _theorem(parts, budget, conditions),
        assumed=tuple(_assumptions(parts, conditions)),
        gaps=tuple(gaps),
        buffers=buffers,
        checked=conditions.checked(parts.solver),
    )


def _theorem(parts: Parts, budget: Budget, conditions: Conditions) -> str:
    """Return the theorem that bounds the influence of a client."""
    theorem = "[Fraboni 2023, Thm 5.1]"
    if budget.contraction(parts.solver, conditions.curvature) < 1:
        theorem = "[Fraboni 2023, Cor. 5.1]"
    if conditions.curvature is None:
        return theorem
    return f"{theorem}, for convex losses by [Hardt 2016, Lemma 3.7]"


def _assumptions(parts: Parts, conditions: Conditions) -> list[str]:
    """Return the assumptions about these parts that poise cannot check."""
    assumed = []
    if conditions.curvature is None:
        assumed.append(QUADRATIC)
    if conditions.on_nodes and conditions.curvature is not None:
        assumed.append(TRUTHFUL)
    draws = traits_of(parts.sampler, SamplerTraits)
    independent = draws.independent and not draws.data_dependent
    if not draws.selects_everyone and not independent:
        assumed.append(
            "without the client, the same others would have been drawn and weighed in the same "
            "proportions"
        )
    clock = traits_of(parts.clock, ClockTraits)
    if clock.one_version and clock.leaves_clients_behind:
        assumed.append(
            "without the client, the same others would have answered in time"
        )
    weights = traits_of(parts.weighting, WeightingTraits)
    if not weights.proportional or weights.reads_updates:
        assumed.append(
            "without the client, the coefficients of the others would have kept their proportions"
        )
    return assumed


def _curvature_gaps(
    solver: Solver, budget: Budget, conditions: Conditions
) -> list[str]:
    """Return the gaps of the learning rate and of the declared strong convexity."""
    known = conditions.curvature
    if known is None and conditions.on_nodes:
        return [
            (
                "L, the largest curvature of a client's loss, is unknown: the task is not "
                "convex, or a node did not report it; the proof needs eta <= 1/L"
            )
        ]
    if known is None:
        return [
            (
                "L, the largest curvature of a client's loss, is unknown for this task: the "
                "proof needs eta <= 1/L"
            )
        ]
    traits = traits_of(solver, SolverTraits)
    gaps = []
    if known.convexity < 0:
        gaps.append(
            f"a client's loss may curve down (mu = {known.convexity:g}): the proof is for "
            "convex losses"
        )
    if not known.allows(conditions.rate, traits):
        gaps.append(
            f"eta = {conditions.rate:g} is above 1/L = {1 / known.total(traits):g}: a local "
            "step may expand what the proof needs to contract"
        )
    if (budget.strong_convexity or 0.0) > max(known.convexity, 0.0) * (1 + 1e-9):
        gaps.append(
            f"strong_convexity = {budget.strong_convexity:g}, but every client's loss is only "
            f"known to be {known.convexity:g}-strongly convex"
        )
    return gaps


def _solver_gaps(solver: Solver) -> list[str]:
    name = type(solver).__name__
    traits = traits_of(solver, SolverTraits)
    if reason := undeclared(solver, SolverTraits):
        return [f"{reason}: the proof is for solvers that declare plain gradient steps"]
    gaps = []
    if not traits.gradient_steps:
        gaps.append(
            f"{name}: the proof is for plain gradient steps (SGD, and Prox with eta (L + mu) <= 1)"
        )
    if traits.momentum:
        gaps.append(
            f"{name}: with momentum a local step may expand what the proof needs to contract"
        )
    if traits.clips:
        gaps.append(f"{name}: a clipped gradient is no gradient step")
    return gaps


def _server_gaps(server: Server) -> list[str]:
    """Return the gaps of a server; noise is none, being the same with and without a client."""
    name = type(server).__name__
    traits = traits_of(server, ServerTraits)
    if reason := undeclared(server, ServerTraits):
        return [f"{reason}: the theorem's server adds the direction to the model"]
    if not traits.stateless:
        return [
            (
                f"{name}: the server's own state carries a client's influence on; the theorem "
                "has no such state"
            )
        ]
    if not traits.adds or traits.rate is None:
        return [f"{name}: the theorem's server adds the direction to the model"]
    if traits.rate > 1:
        return [
            (
                f"{name}: with lr = {traits.rate:g} above 1 a round may expand what the proof "
                "needs to contract"
            )
        ]
    return []


def _clock_gaps(clock: Clock) -> list[str]:
    if traits_of(clock, ClockTraits).one_version:
        return []
    reason = undeclared(clock, ClockTraits) or type(clock).__name__
    return [
        f"{reason}: clients work on models of different age; the theorem has one model"
    ]


def _weighting_gaps(weighting: Weighting) -> list[str]:
    traits = traits_of(weighting, WeightingTraits)
    if traits.per_step:
        return [
            (
                f"{type(weighting).__name__}: without the client, the coefficients of the "
                "others would have another sum"
            )
        ]
    if not traits.reads_updates:
        return []
    if reason := undeclared(weighting, WeightingTraits):
        return [f"{reason}: its coefficients may depend on the updates themselves"]
    return [
        (
            f"{type(weighting).__name__}: an update that was shortened is no gradient step"
        )
    ]


def _sum_gaps(parts: Parts) -> list[str]:
    """Return the gaps of aggregator and channel: the theorem has a weighted sum of the updates."""
    gaps = []
    if not traits_of(parts.aggregator, AggregatorTraits).linear:
        reason = (
            undeclared(parts.aggregator, AggregatorTraits)
            or type(parts.aggregator).__name__
        )
        gaps.append(f"{reason}: the direction is no weighted sum of the updates")
    if not traits_of(parts.channel, ChannelTraits).identity:
        reason = (
            undeclared(parts.channel, ChannelTraits) or type(parts.channel).__name__
        )
        gaps.append(f"{reason}: updates do not arrive as clients made them")
    return gaps


PRIVATE = (
    "the noise is not known to whoever sees the models: the run's seed is kept secret",
    "models are published, not the ledger: norms, losses and metrics carry no noise",
    "when training and retraining ended was not decided by the forgotten client's data",
)


def private_grounds(parts: Parts, buffers: bool) -> Grounds:
    """Return the grounds of a guarantee by clipping and noise: no other data leaves the clients."""
    gaps = []
    if not traits_of(parts.solver, SolverTraits).sends_only_updates:
        reason = undeclared(parts.solver, SolverTraits) or type(parts.solver).__name__
        gaps.append(
            f"{reason}: what clients and server tell each other beside updates carries no noise"
        )
    if traits_of(parts.sampler, SamplerTraits).data_dependent:
        reason = (
            undeclared(parts.sampler, SamplerTraits) or type(parts.sampler).__name__
        )
        gaps.append(
            f"{reason}: who is drawn may depend on the clients' data, and carries no noise"
        )
    if not traits_of(parts.clock, ClockTraits).one_version:
        reason = undeclared(parts.clock, ClockTraits) or type(parts.clock).__name__
        gaps.append(f"{reason}: how long clients take may depend on their data")
    elif traits_of(parts.clock, ClockTraits).leaves_clients_behind:
        gaps.append(
            f"{type(parts.clock).__name__}: who answers in time may depend on the clients' data"
        )
    if buffers:
        gaps.append(
            "the model has batch-norm statistics, which are averaged without noise"
        )
    gaps += _sum_gaps(parts)
    return Grounds(
        "Gaussian mechanism in every round, composed over all rounds",
        assumed=PRIVATE,
        gaps=tuple(gaps),
        buffers=buffers,
    )


def require_proof(gaps: Sequence[str], heuristic: bool) -> None:
    """Raise where the bound has no proof, unless the user accepts a heuristic."""
    if gaps and not heuristic:
        raise IncompatibleParts(
            "poise cannot give a guarantee for this run: " + "; ".join(gaps),
            (
                "set heuristic=True (--heuristic) to continue; the certificate then lists what is "
                "not proved"
            ),
        )
