"""One weighting after another."""

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
    """Hybrids: each stage lasts until a round or until an accuracy was reached; the last stage
    lasts for ever.

    A whole number is a round (the stage is used in rounds before it), a number between 0 and 1 is
    an accuracy (the stage is used until the best accuracy measured so far is at least that). A
    stage that has ended does not come back.

    Args:
        stages: ``[(until, weighting), …]``; ``until`` of the last stage is None or inf.

    Source: A sections 3.2, 4.7 (FedSoftBetterAvg = soft-min, then proportional from round 20 on).
    """

    stages: Sequence[Any]

    def __post_init__(self) -> None:
        require(len(self.stages) > 0, "Switch: there is no stage", where="stages")
        whole = [
            (inf if s[0] is None else s[0], s[1])
            for s in self.stages
            if isinstance(s, tuple) and len(s) == 2
        ]
        require(
            len(whole) == len(self.stages),
            "Switch: every stage is a pair (until, weighting)",
            where="stages",
        )
        for until, weighting in whole:
            require(
                is_part(weighting) and weighting.slot == "weighting",
                f"Switch: {weighting!r} is not a weighting",
                where="stages",
            )
            number = isinstance(until, int | float) and not isinstance(until, bool)
            known = number and (
                until == inf or (isinstance(until, int) and until >= 1) or 0 < until < 1
            )
            require(
                known,
                f"Switch: until = {until!r}",
                "a round (1, 2, …), an accuracy between 0 and 1, or None",
                where="stages",
            )
        require(
            whole[-1][0] == inf,
            "Switch: the last stage must last for ever",
            "give it until = None",
            where="stages",
        )
        require(
            all(u != inf for u, _ in whole[:-1]),
            "Switch: only the last stage may last for ever",
            where="stages",
        )
        object.__setattr__(self, "stages", tuple(whole))

    @property
    def needs(self) -> frozenset[str]:
        """What any stage needs."""
        return frozenset().union(*(w.needs for _, w in self.stages))

    @property
    def traits(self) -> WeightingTraits:
        """What all stages have in common."""
        reads = any(traits_of(w, WeightingTraits).reads_updates for _, w in self.stages)
        return WeightingTraits(reads_updates=reads)

    @property
    def finally_used(self) -> Weighting:
        """The last stage."""
        last: Weighting = self.stages[-1][1]
        return last

    def for_clients(self, stay: Sequence[int]) -> Self:
        """Every stage for the clients that stay."""
        return replace(self, stages=tuple((until, inner_for(w, stay)) for until, w in self.stages))

    def fit(self, setting: Setting) -> None:
        """Every stage must fit."""
        for _, weighting in self.stages:
            weighting.fit(setting)

    @by_columns
    def coefficients(self, updates: RoundUpdates) -> Floats:
        """Those of the stage that this round belongs to."""
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
