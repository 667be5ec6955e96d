"""`Curvature`: bounds of the Hessians of the clients' losses.

A step of length eta contracts the distance of two models only if ``eta L <= 1``. Proofs
therefore need L, and they need it for every client and every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from poise.core.errors import LedgerError
from poise.core.traits import still_holds

if TYPE_CHECKING:
    from poise.core.federations import FederationLike
    from poise.core.protocols import Oracle
    from poise.core.traits import SolverTraits

ConvexKind = Literal["quadratic", "least-squares", "logistic"]

ROUNDING = 1e-6
"""How far ``eta L`` may exceed 1 by rounding: a step contracts up to ``eta L = 2``."""


@dataclass(frozen=True)
class Curvature:
    """``mu <= Hessian <= L`` for the loss of every client on every batch of its data.

    The bounds leave out weight decay and proximal terms, which belong to the solver.

    Args:
        kind: the kind of convex loss.
        smoothness: L, the largest over all clients.
        convexity: mu, the smallest over all clients.
        exact: whether a client's Hessian is one matrix, the same at every model and in
            every local step.
    """

    kind: ConvexKind
    smoothness: float
    convexity: float = 0.0
    exact: bool = False

    def total(self, solver: SolverTraits) -> float:
        """Return ``L + lambda + mu_prox``: L of the function that a local step descends."""
        return self.smoothness + solver.weight_decay + solver.pull

    def allows(self, rate: float, solver: SolverTraits) -> bool:
        """Return whether ``eta (L + lambda + mu_prox) <= 1``, up to rounding."""
        return rate * self.total(solver) <= 1 + ROUNDING

    def facts(self) -> dict[str, Any]:
        """Return the entries of the ledger."""
        return {f"curvature {name}": value for name, value in asdict(self).items()}

    @classmethod
    def recorded(cls, meta: Mapping[str, Any]) -> Curvature | None:
        """Return the curvature in the entries of a ledger; None if there is none."""
        kind = meta.get("curvature kind")
        if kind is None:
            return None
        try:
            exact = {"True": True, "False": False}[str(meta["curvature exact"])]
            smoothness = float(meta["curvature smoothness"])
            convexity = float(meta["curvature convexity"])
        except (KeyError, ValueError) as error:
            raise LedgerError(
                f"the ledger's entries about the curvature cannot be read: {error}",
                "restore the ledger from a backup",
            ) from error
        if kind not in get_args(ConvexKind):
            raise LedgerError(f"the ledger names an unknown kind of loss, {kind!r}")
        return cls(kind, smoothness=smoothness, convexity=convexity, exact=exact)


@runtime_checkable
class HasCurvature(Protocol):
    """An oracle that can bound the curvature of its clients' losses."""

    def curvature(self, batch_size: int | None) -> Curvature | None:
        """Return bounds for batches of this size; None if the losses are not convex."""


@runtime_checkable
class ReportsCurvature(Protocol):
    """A federation whose clients bound the curvature of their own losses."""

    def reported_curvature(
        self, oracle: Oracle, batch_size: int | None
    ) -> Curvature | None:
        """Return bounds for batches of this size; None if a client does not report."""


def curvature_of(
    federation: FederationLike, oracle: Oracle, batch_size: int | None
) -> Curvature | None:
    """Return bounds of the Hessians of all clients; None if they are unknown.

    They are unknown if a subclass of an oracle replaces other members than ``curvature``.
    """
    if isinstance(federation, ReportsCurvature):
        return federation.reported_curvature(oracle, batch_size)
    if isinstance(oracle, HasCurvature) and still_holds(oracle, "curvature"):
        return oracle.curvature(batch_size)
    return None
