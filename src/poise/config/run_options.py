"""The options of a run: for `poise.train`, the table [run] and ``poise run``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from poise.core.end_rules import Condition
from poise.core.errors import InvalidOption, require
from poise.core.options import check_keys, check_options, option, options_of

Keep = Literal["all", "unlearnable", "last"]
BadUpdates = Literal["stop", "drop"]
AuditAction = Literal["warn", "quarantine"]

DEFAULT_ROUNDS = 100
"""The number of aggregations of `poise.train` without rounds and time."""

MOST_ROUNDS = 10**9
"""The largest number of rounds that a ledger can name."""

END_RULES = ("stop_when", "patience", "patience_metric", "max_bytes", "max_seconds")
"""The options that can end a run before its last round."""


@dataclass(frozen=True)
class RunOptions:
    """How long a run lasts, what it measures, and what it keeps."""

    rounds: int | None = option(
        None,
        "number of aggregations; 100 if ``time`` is not given either.",
        least=1,
    )
    time: float | None = option(None, "budget of simulated time.", above=0)
    seed: int = option(
        0, "of every draw; the same seed gives the same run.", least=0, key="seeds"
    )
    evaluate_every: int = option(
        1, "measure after every so many aggregations, and after the last.", least=1
    )
    metrics: tuple[str, ...] = option(
        (),
        'metrics beside the held-out ones, e.g. ``"client_loss"``.',
        example='["client_loss"]',
    )
    keep: Keep = option(
        "last", 'which models to keep: ``"all"``, ``"unlearnable"``, ``"last"``.'
    )
    bad_updates: BadUpdates = option(
        "stop",
        '``"stop"`` at an update that is not finite, or ``"drop"`` it and go on.',
    )
    backend: Any = option("local", "where work is executed, by name or as a part.")
    start: str | None = option(
        None, "the hash of the initial model; the task's own initial model by default."
    )
    keep_updates: bool = option(
        False,
        "keep every update of every round, to aggregate again without some clients "
        "(``fed-accum``, ``exact``).",
    )
    audit: AuditAction | None = option(
        None,
        'look for free-riders after every round, and ``"warn"`` or ``"quarantine"``. Quarantine '
        "sets their weight to 0 and scales the other weights to the same total. Both raise a "
        "warning and record an event.",
    )
    stop_when: str | None = option(
        None,
        "end the run after the first measurement that meets this condition, e.g. "
        '``"accuracy >= 0.9"``.',
        example='"accuracy >= 0.9"',
    )
    patience: int | None = option(
        None,
        "end the run after so many measurements in a row without a better value.",
        least=1,
    )
    patience_metric: str | None = option(
        None,
        "the metric of ``patience``; accuracy if the run measures it, or else a loss.",
    )
    max_bytes: int | None = option(
        None,
        "end the run after the round in which clients and server have sent so many bytes.",
        least=1,
    )
    max_seconds: float | None = option(
        None,
        "end the run once its rounds have taken so many seconds. Seconds are measured, so "
        "this end is not reproducible.",
        above=0,
    )

    def __post_init__(self) -> None:
        if self.rounds is None and self.time is None:
            object.__setattr__(self, "rounds", DEFAULT_ROUNDS)
        check_options(self)
        require(
            self.rounds is None or self.rounds <= MOST_ROUNDS,
            f"rounds = {self.rounds} is more than {MOST_ROUNDS:,}",
            where="rounds",
        )
        if self.stop_when is not None:
            Condition.parse(self.stop_when)
        require(
            self.patience_metric is None or self.patience is not None,
            "patience_metric needs patience",
            "give patience = 10, or leave patience_metric out",
            where="patience_metric",
        )

    @classmethod
    def of(cls, table: Mapping[str, Any], seed: int | None = None) -> RunOptions:
        """Return the options of one seed from a table [run]; by default the first."""
        check_keys(table, RUN_KEYS, "[run]")
        given = dict(table)
        seeds = seeds_in(table)
        given.pop("seeds", None)
        if given.get("rounds") is None and given.get("time") is None:
            raise InvalidOption("the run has no end", "give rounds or time under [run]")
        if seed is None:
            seed = seeds[0]
        return cls(**given, seed=seed)

    def table(self) -> dict[str, Any]:
        """Return the table [run], without options that are None or False."""
        table: dict[str, Any] = {}
        values = vars(self)
        for name, declared in options_of(type(self)).items():
            value = values[name]
            if name == "seed":
                table[declared.key] = [value]
            elif isinstance(value, tuple):
                table[declared.key] = list(value)
            elif value is not None and value is not False:
                table[declared.key] = value
        return table


RUN_KEYS = tuple(declared.key for declared in options_of(RunOptions).values())
"""The keys of the table [run]."""


def seeds_in(table: Mapping[str, Any]) -> list[int]:
    """Return the seeds of a table [run]; seed 0 by default."""
    seeds = table.get("seeds", [0])
    whole = isinstance(seeds, list) and all(
        type(seed) is int and seed >= 0 for seed in seeds
    )
    if not whole or not seeds:
        raise InvalidOption(
            "seeds must be a list of whole numbers, for example [0, 1, 2]",
            where=("seeds",),
        )
    if len(set(seeds)) < len(seeds):
        raise InvalidOption(
            "seeds contains a seed twice, which would repeat the run",
            "name every seed once",
            where=("seeds",),
        )
    return list(seeds)


MOST_SEEDS = 10_000
"""The longest range of seeds of one command."""


def parse_seeds(text: str) -> list[int]:
    """Parse a list or a range of seeds.

    >>> parse_seeds("0..2"), parse_seeds("1,5")
    ([0, 1, 2], [1, 5])
    """
    if match := re.fullmatch(r"(\d{1,18})\.\.(\d{1,18})", text):
        first, last = map(int, match.groups())
        if last - first >= MOST_SEEDS:
            raise InvalidOption(
                f"--seeds {text} is {last - first + 1} runs",
                f"name at most {MOST_SEEDS} seeds",
            )
        if first <= last:
            return list(range(first, last + 1))
    elif re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        seeds = [int(s) for s in text.split(",")]
        if len(set(seeds)) == len(seeds):
            return seeds
    raise InvalidOption(
        f"--seeds {text!r} is not a list of seeds", "write 0..4 or 0,2,5"
    )
