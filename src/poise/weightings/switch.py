"""`Switch`: one weighting after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Self

from poise.core.errors import require
from poise.core.parts import is_part, part
from poise.core.protocols import Weighting
from poise.core.traits import WeightingTraits, traits_of
from poise.core.types import Floats, Setting
from poise.core.weights import by_columns, weigh
from poise.weightings.renumbering import inner_for

if TYPE_CHECKING:
    from poise.core.round_updates import RoundUpdates


@part("weighting", "switch")
class Switch:
    """Use one weighting per stage, each until a given round or accuracy.

    A whole number ``until`` is a round: the stage covers the rounds before it. A number
    between 0 and 1 is an accuracy: the stage ends when the best accuracy measured so
    far reaches it. A stage that has ended does not come back. The last stage has no
    end.

    Args:
        stages: ``[(until, weighting), …]``; ``until`` of the last stage is None or inf.

    Source: [Mansour 2022, §3.2, §4.7] (FedSoftBetterAvg = soft-min, then proportional
    from round 20 on).

    >>> import numpy as np
    >>> from poise.weightings import Max, Proportional
    >>> switch = Switch([(20, Max(1)), (None, Proportional())])
    >>> losses = np.array([1.0, 2.0])
    >>> switch.coefficients(np.array([0.5, 0.5]), loss_before=losses, round=19)
    array([0., 1.])
    >>> switch.coefficients(np.array([0.5, 0.5]), loss_before=losses, round=20)
    array([0.5, 0.5])
    """

    stages: Sequence[Any]

    def __post_init__(self) -> None:
        require(len(self.stages) > 0, "Switch: there is no stage", where="stages")
        stages = []
        for stage in self.stages:
            require(
                isinstance(stage, tuple) and len(stage) == 2,
                "Switch: every stage is a pair (until, weighting)",
                where="stages",
            )
            until, weighting = stage
            if until is None:
                until = inf
            stages.append((until, weighting))
        for until, weighting in stages:
            require(
                is_part(weighting) and weighting.slot == "weighting",
                f"Switch: {weighting!r} is not a weighting",
                where="stages",
            )
            require(
                _is_end(until),
                f"Switch: until = {until!r} is neither a round nor an accuracy",
                "give a round (1, 2, …), an accuracy between 0 and 1, or None",
                where="stages",
            )
        require(
            stages[-1][0] == inf,
            "Switch: the last stage must not end",
            "give it until = None",
            where="stages",
        )
        require(
            all(until != inf for until, _ in stages[:-1]),
            "Switch: only the last stage may have no end",
            "give the other stages a round or an accuracy",
            where="stages",
        )
        object.__setattr__(self, "stages", tuple(stages))

    @property
    def needs(self) -> frozenset[str]:
        """The reports that any stage needs."""
        return frozenset().union(*(w.needs for _, w in self.stages))

    @property
    def traits(self) -> WeightingTraits:
        """Declare whether any stage reads the updates or makes up for local steps."""
        stages = [traits_of(w, WeightingTraits) for _, w in self.stages]
        return WeightingTraits(
            reads_updates=any(stage.reads_updates for stage in stages),
            per_step=any(stage.per_step for stage in stages),
        )

    @property
    def finally_used(self) -> Weighting:
        """The last stage."""
        last: Weighting = self.stages[-1][1]
        return last

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Return every stage for the clients that stay."""
        return replace(
            self, stages=tuple((until, inner_for(w, stay)) for until, w in self.stages)
        )

    def fit(self, setting: Setting) -> None:
        """Refuse settings that any stage refuses."""
        for _, weighting in self.stages:
            weighting.fit(setting)

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Return the coefficients of the stage of this round."""
        return weigh(self._stage(updates), updates)

    def _stage(self, updates: RoundUpdates) -> Any:
        for until, weighting in self.stages:
            if isinstance(until, int):
                over = updates.round >= until
            else:
                over = updates.reached.get("accuracy", 0.0) >= until
            if not over:
                return weighting
        return self.stages[-1][1]


def _is_end(until: object) -> bool:
    """Whether ``until`` is a round from 1 on, an accuracy between 0 and 1, or inf."""
    if isinstance(until, bool) or not isinstance(until, int | float):
        return False
    if isinstance(until, int):
        return until >= 1
    return until == inf or 0 < until < 1
