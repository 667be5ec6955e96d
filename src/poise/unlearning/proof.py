"""What the bound on a client's influence rests on, and where it has no proof.

Theorem 5.1 of E speaks of FedAvg: everyone starts from the newest model, does plain (stochastic) gradient steps, and
the server adds the average. A run that does something else may still be unlearned, but as a heuristic, and the
certificate says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poise.core.errors import IncompatibleParts
from poise.unlearning.budget import Budget

ASSUMED = (
    "every client's loss is quadratic, with a positive semi-definite Hessian, between the models compared (E Ass. 5.1)",
    "the learning rate is at most 1/L, with L the largest curvature of a client's loss (E D.2)",
    "the guarantee is for each forgotten client by itself, not for all of them together (E eq. 5.16)",
)


@dataclass(frozen=True)
class Grounds:
    """What a guarantee rests on: ``theorem``, what is ``assumed``, and ``gaps`` in the proof for this run."""

    theorem: str
    assumed: tuple[str, ...]
    gaps: tuple[str, ...]
    buffers: bool = False


def grounds(parts: Any, buffers: bool, budget: Budget) -> Grounds:
    """Hold a composition's parts against the theorem."""
    gaps = [*_of_solver(parts.solver), *_of_server(parts.server)]
    if not parts.clock.waits:
        gaps.append(f"{type(parts.clock).__name__}: clients work on models of different age; the theorem has one model")
    if buffers:
        gaps.append("the model has batch-norm statistics, which move without gradients and get no noise")
    if budget.participation == "optimistic":
        gaps.append("participation='optimistic' divides by the whole federation, not by the cohort: no bound")
    if parts.attacks:
        gaps.append("attacks: what dishonest clients send is no gradient step")
    if budget.calibration == "classical" and budget.epsilon >= 1:
        gaps.append(f"calibration='classical' is proved for epsilon < 1, not for {budget.epsilon:g}")
    assumed = [*ASSUMED]
    if not getattr(parts.sampler, "everyone", False):
        assumed.append("without the client, the same others would have been drawn and weighed in the same proportions")
    if type(parts.weighting).__name__ != "Proportional":
        assumed.append("without the client, the coefficients of the others would have kept their proportions")
    if type(parts.weighting).__name__ == "Clipped":
        gaps.append("Clipped: an update that was shortened is no gradient step of a quadratic")
    theorem = "E Theorem 5.1"
    if budget.strong_convexity is not None:
        theorem = "E Corollary 5.1"
        assumed.append(f"every client's loss is {budget.strong_convexity:g}-strongly convex")
    return Grounds(theorem, tuple(assumed), tuple(gaps), buffers)


def _of_solver(solver: Any) -> list[str]:
    name = type(solver).__name__
    gaps = []
    if name not in ("SGD", "Prox"):
        gaps.append(f"{name}: the proof is for plain gradient steps (SGD, and Prox with eta (L + mu) <= 1)")
    if getattr(solver, "momentum", 0):
        gaps.append(f"{name}: with momentum a local step may expand what the proof needs to contract")
    if getattr(solver, "clip", None) is not None:
        gaps.append(f"{name}: a clipped gradient is no gradient of a quadratic")
    return gaps


def _of_server(server: Any) -> list[str]:
    name = type(server).__name__
    if name == "Noisy":  # the same noise with and without a client
        return _of_server(server.of)
    if name != "Add":
        return [f"{name}: the server's own state carries a client's influence on; the theorem has no such state"]
    if server.lr > 1:
        return [f"Add: with lr = {server.lr:g} above 1 a round may expand what the proof needs to contract"]
    return []


PRIVATE = (
    "the noise is not known to whoever sees the models: the run's seed is kept secret",
    "models are published, not the ledger: norms, losses and metrics carry no noise",
    "when training and retraining ended was not decided by the forgotten client's data",
    "the guarantee is for each forgotten client by itself, not for all of them together",
)


def private_grounds(parts: Any, buffers: bool) -> Grounds:
    """What a guarantee by clipping and noise rests on: nothing about the losses, but that nothing else gets out."""
    gaps, solver, sampler = [], type(parts.solver).__name__, type(parts.sampler).__name__
    if solver not in ("SGD", "Prox"):
        gaps.append(f"{solver}: what clients and server tell each other beside updates carries no noise")
    if sampler not in ("Full", "Uniform", "MD", "Binomial", "Poisson", "ClusteredBySize"):
        gaps.append(f"{sampler}: who is drawn may depend on the clients' data, and carries no noise")
    if not parts.clock.waits:
        gaps.append(f"{type(parts.clock).__name__}: how long clients take may depend on their data")
    if buffers:
        gaps.append("the model has batch-norm statistics, which are averaged without noise")
    return Grounds("Gaussian mechanism in every round, composed over all rounds", PRIVATE, tuple(gaps), buffers)


def refuse(gaps: Sequence[str], heuristic: bool) -> None:
    """Raise where the bound has no proof, unless the user takes it as a heuristic."""
    if gaps and not heuristic:
        raise IncompatibleParts(
            "no guarantee can be given for this run: " + "; ".join(gaps),
            "heuristic=True (--heuristic) goes on, and the certificate says what is not proved",
        )
