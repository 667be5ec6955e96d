"""What the bound on a client's influence rests on, and where it has no proof.

Theorem 5.1 of E speaks of FedAvg: everyone starts from the newest model, does plain (stochastic)
gradient steps, and the server adds the average. A run that does something else may still be
unlearned, but as a heuristic, and the certificate says so. A part is taken at its word: what it
does not declare among its traits is not proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

ASSUMED = (
    (
        "every client's loss is quadratic, with a positive semi-definite Hessian, between the models "
        "compared (E Ass. 5.1)"
    ),
    "the learning rate is at most 1/L, with L the largest curvature of a client's loss (E D.2)",
    (
        "the guarantee is for each forgotten client by itself, not for all of them together (E eq. "
        "5.16)"
    ),
)


@dataclass(frozen=True)
class Grounds:
    """What a guarantee rests on: ``theorem``, what is ``assumed``, and ``gaps`` in the proof for
    this run.
    """

    theorem: str
    assumed: tuple[str, ...]
    gaps: tuple[str, ...]
    buffers: bool = False


def grounds(parts: Parts, buffers: bool, budget: Budget) -> Grounds:
    """Hold a composition's parts against the theorem."""
    gaps = [
        *_of_solver(parts.solver),
        *_of_server(parts.server),
        *_of_clock(parts.clock),
        *_of_weighting(parts.weighting),
        *_of_the_sum(parts),
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
        gaps.append("clients keep entries of the model to themselves; the theorem has one model")
    if parts.attacks:
        gaps.append("attacks: what dishonest clients send is no gradient step")
    if budget.calibration == "classical" and budget.epsilon >= 1:
        gaps.append(
            f"calibration='classical' is proved for epsilon < 1, not for {budget.epsilon:g}"
        )
    theorem = "E Theorem 5.1" if budget.strong_convexity is None else "E Corollary 5.1"
    return Grounds(theorem, tuple(_assumed(parts, budget)), tuple(gaps), buffers)


def _assumed(parts: Parts, budget: Budget) -> list[str]:
    """What nobody can check, for these parts."""
    assumed = [*ASSUMED]
    if not traits_of(parts.sampler, SamplerTraits).selects_everyone:
        assumed.append(

                "without the client, the same others would have been drawn and weighed in the same "
                "proportions"

        )
    weights = traits_of(parts.weighting, WeightingTraits)
    if not weights.proportional or weights.reads_updates:
        assumed.append(
            "without the client, the coefficients of the others would have kept their proportions"
        )
    if budget.strong_convexity is not None:
        assumed.append(f"every client's loss is {budget.strong_convexity:g}-strongly convex")
    return assumed


def _of_solver(solver: Solver) -> list[str]:
    name, traits = type(solver).__name__, traits_of(solver, SolverTraits)
    if why := undeclared(solver, SolverTraits):
        return [f"{why}: the proof is for solvers that declare plain gradient steps"]
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
        gaps.append(f"{name}: a clipped gradient is no gradient of a quadratic")
    return gaps


def _of_server(server: Server) -> list[str]:
    """Noise is the same with and without a client."""
    name, traits = type(server).__name__, traits_of(server, ServerTraits)
    if why := undeclared(server, ServerTraits):
        return [f"{why}: the theorem's server adds the direction to the model"]
    if not traits.stateless:
        return [
            (
                f"{name}: the server's own state carries a client's influence on; the theorem has no "
                "such state"
            )
        ]
    if not traits.adds or traits.rate is None:
        return [f"{name}: the theorem's server adds the direction to the model"]
    if traits.rate > 1:
        return [
            (
                f"{name}: with lr = {traits.rate:g} above 1 a round may expand what the proof needs "
                "to contract"
            )
        ]
    return []


def _of_clock(clock: Clock) -> list[str]:
    if traits_of(clock, ClockTraits).one_version:
        return []
    found = undeclared(clock, ClockTraits) or type(clock).__name__
    return [f"{found}: clients work on models of different age; the theorem has one model"]


def _of_weighting(weighting: Weighting) -> list[str]:
    if not traits_of(weighting, WeightingTraits).reads_updates:
        return []
    if why := undeclared(weighting, WeightingTraits):
        return [f"{why}: its coefficients may depend on the updates themselves"]
    return [
        (
            f"{type(weighting).__name__}: an update that was shortened is no gradient step of a "
            "quadratic"
        )
    ]


def _of_the_sum(parts: Parts) -> list[str]:
    """The theorem has a weighted sum of the updates that clients made."""
    gaps = []
    if not traits_of(parts.aggregator, AggregatorTraits).linear:
        found = undeclared(parts.aggregator, AggregatorTraits) or type(parts.aggregator).__name__
        gaps.append(f"{found}: the direction is no weighted sum of the updates")
    if not traits_of(parts.channel, ChannelTraits).identity:
        found = undeclared(parts.channel, ChannelTraits) or type(parts.channel).__name__
        gaps.append(f"{found}: updates do not arrive as clients made them")
    return gaps


PRIVATE = (
    "the noise is not known to whoever sees the models: the run's seed is kept secret",
    "models are published, not the ledger: norms, losses and metrics carry no noise",
    "when training and retraining ended was not decided by the forgotten client's data",
    "the guarantee is for each forgotten client by itself, not for all of them together",
)


def private_grounds(parts: Parts, buffers: bool) -> Grounds:
    """What a guarantee by clipping and noise rests on: that nothing else gets out."""
    gaps = []
    if not traits_of(parts.solver, SolverTraits).sends_only_updates:
        found = undeclared(parts.solver, SolverTraits) or type(parts.solver).__name__
        gaps.append(
            f"{found}: what clients and server tell each other beside updates carries no noise"
        )
    if traits_of(parts.sampler, SamplerTraits).data_dependent:
        found = undeclared(parts.sampler, SamplerTraits) or type(parts.sampler).__name__
        gaps.append(f"{found}: who is drawn may depend on the clients' data, and carries no noise")
    if not traits_of(parts.clock, ClockTraits).one_version:
        found = undeclared(parts.clock, ClockTraits) or type(parts.clock).__name__
        gaps.append(f"{found}: how long clients take may depend on their data")
    elif traits_of(parts.clock, ClockTraits).leaves_clients_behind:
        gaps.append(
            f"{type(parts.clock).__name__}: who answers in time may depend on the clients' data"
        )
    if buffers:
        gaps.append("the model has batch-norm statistics, which are averaged without noise")
    gaps += _of_the_sum(parts)
    return Grounds(
        "Gaussian mechanism in every round, composed over all rounds", PRIVATE, tuple(gaps), buffers
    )


def refuse(gaps: Sequence[str], heuristic: bool) -> None:
    """Raise where the bound has no proof, unless the user takes it as a heuristic."""
    if gaps and not heuristic:
        raise IncompatibleParts(
            "no guarantee can be given for this run: " + "; ".join(gaps),
            "heuristic=True (--heuristic) goes on, and the certificate says what is not proved",
        )
