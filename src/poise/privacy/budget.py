"""`Budget`: the guarantee of an unlearning request, and the noise that it may add."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any, Literal, cast

from poise.core.errors import IncompatibleParts, require
from poise.core.options import check_keys, check_options, option, options_of
from poise.core.traits import ServerTraits, SolverTraits, traits_of
from poise.privacy.gaussian import Calibration, check_budget, sensitivity_budget

if TYPE_CHECKING:
    from poise.core.curvature import Curvature
    from poise.core.protocols import Server, Solver
    from poise.core.sensitivity import Psi
    from poise.core.types import Floats

Participation = Literal["conservative", "optimistic"]


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta), the noise that achieves it, and how sensitivities are counted.

    The fields are the keys of the table [unlearning]. If ``strong_convexity`` gives mu,
    sensitivities fade by ``1 - eta (lambda + mu)`` with every local step [Fraboni 2023,
    eq. 5.11], as far as the server follows its clients.

    >>> round(Budget(epsilon=10, delta=0.01, sigma=0.05).limit, 4)
    0.1428
    """

    epsilon: float = option(
        10.0, "epsilon of the guarantee.", above=0, inherits=True, label="epsilon"
    )
    delta: float = option(
        0.01, "delta of the guarantee.", above=0, below=1, inherits=True, label="delta"
    )
    sigma: float = option(
        0.05,
        "standard deviation of the noise (``last`` computes its own, ``dp`` added its noise during "
        "training).",
        least=0,
        inherits=True,
        label="Noise sigma",
    )
    calibration: Calibration = option(
        "analytic",
        "of the Gaussian mechanism, ``analytic`` or ``classical`` (for epsilon < 1).",
        inherits=True,
        advanced=True,
    )
    participation: Participation = option(
        "conservative",
        "how partial participation counts: ``conservative`` renormalises inside the recorded "
        "cohort; ``optimistic`` takes ``p_c/(1 - p_c)`` for any cohort, which is smaller and no "
        "bound.",
        inherits=True,
        advanced=True,
    )
    strong_convexity: float | None = option(
        None,
        "mu of the clients' losses, where it is known.",
        least=0,
        inherits=True,
        advanced=True,
        example="unknown",
    )

    def __post_init__(self) -> None:
        check_options(self)
        # behind __init__
        check_budget(
            self.sigma, self.epsilon, self.delta, self.calibration, stacklevel=4
        )

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Budget:
        """Return the budget of a table [unlearning]."""
        check_keys(table, options_of(cls), "[unlearning]")
        return cls(**table)

    @property
    def limit(self) -> float:
        """Psi*, the largest sensitivity that the noise hides."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the budget already warned
            return sensitivity_budget(
                self.sigma, self.epsilon, self.delta, self.calibration
            )

    def table(self) -> dict[str, Any]:
        """Return the table [unlearning]."""
        return {
            name: value for name, value in asdict(self).items() if value is not None
        }

    def contraction(self, solver: Solver, curvature: Curvature | None = None) -> float:
        """Return the contraction of one local step: ``1 - eta (lambda + mu)``, or 1.

        Without ``strong_convexity``, the weight decay lambda of plain SGD contracts
        where the losses are known to be convex and ``eta (L + lambda) <= 1``. Raises if
        ``strong_convexity`` is given and the corollary does not hold for this solver.
        """
        traits = traits_of(solver, SolverTraits)
        plain = traits.plain_gradient and not traits.pull and traits.constant_rate
        if self.strong_convexity is None:
            if not plain or curvature is None:
                return 1.0
            rate = solver.rate(0)
            if not curvature.allows(rate, traits):
                return 1.0
            return float(1 - rate * traits.weight_decay)
        if not plain:
            raise IncompatibleParts(
                "strong_convexity: sensitivities fade by a known factor under plain SGD, not under "
                f"{solver!r}",
                "leave strong_convexity out",
            )
        factor = 1 - solver.rate(0) * (traits.weight_decay + self.strong_convexity)
        if not 0 <= factor < 1:
            raise IncompatibleParts(
                f"strong_convexity: 1 - eta (lambda + mu) = {factor:g} is no contraction",
                "choose eta (lambda + mu) above 0 and at most 1",
            )
        return float(factor)

    def tracker(
        self,
        solver: Solver,
        server: Server,
        importance: Floats,
        curvature: Curvature | None = None,
    ) -> Psi:
        """Return an empty tracker of sensitivities, with the rules of this budget."""
        # not at the top: the options do not need NumPy
        from poise.core.sensitivity import (
            Psi,
        )

        rate = traits_of(server, ServerTraits).rate
        return Psi(
            decay=self.contraction(solver, curvature),
            importance=importance if self.participation == "optimistic" else None,
            lr=1.0 if rate is None else rate,
            groups=self.groups,
            one_hessian=curvature is not None and curvature.exact,
        )

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups whose sensitivity training measures; none unless declared."""
        return ()


@dataclass(frozen=True)
class UnlearningPlan(Budget):
    """The table [unlearning]: the budget of later requests, and measurements for them.

    Args:
        measured_groups: clients that may be unlearned together, such as the owners of
            one class. Training measures the sensitivity of each group exactly.
        sigmas: noise levels that ``sigma="plan"`` may choose from.

    >>> UnlearningPlan.of({"sigma": 0.1, "groups": [[3, 1], [4, 5]]}).groups
    ((1, 3), (4, 5))
    """

    measured_groups: tuple[tuple[int, ...], ...] = ()
    sigmas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = tuple(_group(index, g) for index, g in enumerate(self.measured_groups))
        object.__setattr__(self, "measured_groups", groups)
        for sigma in self.sigmas:
            number = isinstance(sigma, int | float) and not isinstance(sigma, bool)
            require(
                number and 0 < sigma < inf,
                f"sigmas must be numbers above 0, not {sigma!r}",
                where="sigmas",
            )
        object.__setattr__(self, "sigmas", tuple(map(float, self.sigmas)))

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups whose sensitivity training measures."""
        return self.measured_groups

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> UnlearningPlan:
        """Return the plan of a table [unlearning]."""
        check_keys(table, [*options_of(Budget), "groups", "sigmas"], "[unlearning]")
        rest = dict(table)
        groups = rest.pop("groups", ())
        return cls(**rest, measured_groups=groups)

    def table(self) -> dict[str, Any]:
        """Return the table [unlearning]."""
        rest = super().table()
        groups = rest.pop("measured_groups")
        sigmas = rest.pop("sigmas")
        if groups:
            rest["groups"] = [list(group) for group in groups]
        if sigmas:
            rest["sigmas"] = list(sigmas)
        return rest

    @property
    def budget(self) -> Budget:
        """The budget without the measurements."""
        values = vars(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plan already warned
            return Budget(**{f.name: values[f.name] for f in fields(Budget)})


def _group(index: int, group: object) -> tuple[int, ...]:
    """Return a declared group, sorted; raise if it is no list of different clients."""
    listed = isinstance(group, list | tuple) and len(group) > 0
    require(
        listed and all(type(c) is int and c >= 0 for c in cast("list[Any]", group)),
        f"[unlearning] groups: group {index} is {group!r}, not a list of clients",
        "for example groups = [[0, 1, 2], [7, 8]]",
        where="groups",
    )
    members = cast("list[int]", group)
    require(
        len(set(members)) == len(members),
        f"[unlearning] groups: group {index} names a client twice: {members}",
        where="groups",
    )
    return tuple(sorted(members))
