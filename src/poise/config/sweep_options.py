"""The options of a sweep: for `poise.sweep`, the table [sweep] and ``poise sweep``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poise.config.run_options import parse_seeds, seeds_in
from poise.config.sweep_axes import Axis, Configuration, axes_of, configurations
from poise.core.errors import InvalidOption, require
from poise.core.options import check_keys, check_options, option, options_of


def parse_rungs(text: str) -> tuple[int, ...]:
    """Return the rounds of a text.

    >>> parse_rungs("10,30")
    (10, 30)
    """
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise InvalidOption(
            f"--rungs {text!r} is not a list of rounds", "write 10,30"
        ) from error


@dataclass(frozen=True)
class SweepOptions:
    """Which configurations a sweep runs, and when it stops the hopeless ones."""

    over: Any = option(
        (),
        "the values of each key of the experiment file to sweep over.",
        example='{"solver.lr": [0.01, 0.1]}',
    )
    zip: bool = option(
        False,
        "combine the first values of all keys, then the second ones, instead of every "
        "combination.",
    )
    seeds: tuple[int, ...] = option(
        (),
        "the seeds of every configuration; by default those of the experiment file.",
        parser=parse_seeds,
        example="0..2 or 0,2,5",
    )
    jobs: int = option(
        1,
        "number of runs at a time, each in a process of its own if more than 1.",
        least=1,
    )
    metric: str | None = option(
        None,
        "the metric that ranks configurations; accuracy if the runs measure it, or else a "
        "loss.",
    )
    rungs: tuple[int, ...] = option(
        (),
        "rounds after which only the best configurations go on.",
        parser=parse_rungs,
        example="10,30",
    )
    eta: int = option(
        3, "at each rung, the best 1/eta of the configurations go on.", least=2
    )

    def __post_init__(self) -> None:
        given = self.over
        if isinstance(given, Mapping):
            object.__setattr__(self, "over", axes_of(given))
        check_options(self)
        require(
            bool(self.over) and all(isinstance(axis, Axis) for axis in self.over),
            "the sweep has no values to sweep over",
            "give --over solver.lr=0.01,0.1, or a table [sweep.over] with solver.lr = [0.01, 0.1]",
            where="over",
        )
        if self.seeds:
            seeds_in({"seeds": list(self.seeds)})
        ascending = all(
            a < b for a, b in zip((0, *self.rungs), self.rungs, strict=False)
        )
        require(
            ascending,
            f"rungs must be rounds in ascending order, not {list(self.rungs)}",
            "for example [10, 30]",
            where="rungs",
        )
        object.__setattr__(self, "over", tuple(self.over))

    @classmethod
    def of(cls, table: Mapping[str, Any], **changes: Any) -> SweepOptions:
        """Return the options of a table [sweep]; ``changes`` take precedence.

        Axes of ``changes`` replace those of the same key and follow the others.
        """
        check_keys(table, SWEEP_KEYS, "[sweep]")
        over = table.get("over", {})
        require(
            isinstance(over, Mapping),
            f"[sweep] over must be a table [sweep.over], not {over!r}",
            "for example [sweep.over] with solver.lr = [0.01, 0.1]",
            where="over",
        )
        axes = {axis.key: axis for axis in axes_of(over)}
        added = changes.pop("over", ())
        if isinstance(added, Mapping):
            added = axes_of(added)
        axes |= {axis.key: axis for axis in added}
        return cls(**{**table, **changes, "over": tuple(axes.values())})

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The configurations, in order."""
        return configurations(self.over, zipped=self.zip)

    def document(self) -> dict[str, Any]:
        """Return the options as the sweep folder keeps them; ``jobs`` changes no result."""
        return {
            "over": [[axis.dotted, list(axis.values)] for axis in self.over],
            "zip": self.zip,
            "seeds": list(self.seeds),
            "metric": self.metric,
            "rungs": list(self.rungs),
            "eta": self.eta,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], jobs: int = 1) -> SweepOptions:
        """Return the options that a sweep folder keeps."""
        over = dict(document["over"])
        rest = {key: document[key] for key in ("zip", "metric", "eta")}
        return cls(
            over=over,
            seeds=tuple(document["seeds"]),
            rungs=tuple(document["rungs"]),
            jobs=jobs,
            **rest,
        )


SWEEP_KEYS = tuple(declared.key for declared in options_of(SweepOptions).values())
"""The keys of the table [sweep]."""
