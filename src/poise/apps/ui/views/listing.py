"""Runs as lines of a list: state, recipe, progress, scores, and what the seeds of an experiment say
together.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel

from poise.analysis.reports.estimates import estimate
from poise.analysis.reports.groups import identity_of
from poise.analysis.reports.numbers import with_interval
from poise.analysis.reports.rows import PREFERRED
from poise.analysis.reports.tables import finite
from poise.analysis.reports.wording import brief, phrase
from poise.core.slots import DEFAULTS, RUN_SLOTS
from poise.ledger.summary import RunSummary

PARTS = (*RUN_SLOTS, "attacks")
"""The slots that make a recipe."""

UNSAID = ("aggregator", "channel")
"""Slots that are left out of a recipe where they have their default, as in every run of older
versions."""

BRANCHES = "unlearning"
"""The folder in a run's in which requests to forget keep their branches, as
`poise.unlearning.histories` names it."""


class Interval(BaseModel):
    """A mean over the seeds of an experiment, with its 95 % interval where there are several."""

    mean: float | None
    low: float | None
    high: float | None
    n: int
    text: str


class RunLine(BaseModel):
    """One run of the list."""

    name: str
    state: Literal["running", "done", "stopped", "failed", "damaged"]
    trouble: str
    experiment: str
    branch_of: str | None
    recipe: dict[str, str]
    data: str
    clients: int | None
    seed: int | None
    rounds: int
    planned: int | None
    progress: float | None
    eta: float | None
    progress_words: str
    scores: dict[str, float | None]
    over_seeds: dict[str, Interval]
    tags: list[str]
    changed: datetime


def lines(looked: Mapping[str, RunSummary], tags: Mapping[str, Sequence[str]]) -> list[RunLine]:
    """A line for every run; runs of one experiment share their intervals."""
    found = [_line(name, seen, list(tags.get(name, ()))) for name, seen in looked.items()]
    together: dict[str, list[RunLine]] = {}
    for line in found:
        together.setdefault(line.experiment, []).append(line)
    for group in together.values():
        shared = _intervals(group)
        for line in group:
            line.over_seeds = shared
    return found


def line_of(name: str, seen: RunSummary, tags: Sequence[str] = ()) -> RunLine:
    """The line of one run by itself."""
    return lines({name: seen}, {name: tags})[0]


def main_score(names: Sequence[str]) -> str | None:
    """The score that comes first: accuracy, else a loss, else any."""
    return next((name for name in (*PREFERRED, *names) if name in names), None)


def _line(name: str, seen: RunSummary, tags: list[str]) -> RunLine:
    tables, trouble = _parsed(seen)
    plan = tables.get("run", {})
    planned = plan.get("rounds") if isinstance(plan.get("rounds"), int) else None
    progress, eta = _progress(seen, planned, plan.get("time"))
    early = seen.state == "done" and seen.rounds < (planned or 0)  # it reached what it was for
    parent, inside, _ = name.rpartition(f"/{BRANCHES}/")
    return RunLine(
        name=name,
        state=seen.state,
        trouble=trouble,
        experiment=_key(name, tables, seen.meta),
        branch_of=parent if inside else None,
        recipe=_recipe(tables),
        data=phrase(tables["data"]) if "data" in tables else "given in Python",
        clients=_whole(seen.meta.get("clients")),
        seed=_whole(seen.meta.get("seed")),
        rounds=seen.rounds,
        planned=planned,
        progress=progress,
        eta=eta,
        progress_words=_words(seen.rounds, None if early else planned, eta),
        scores={k: finite(v) for k, v in (seen.scores or {}).items()},
        over_seeds={},
        tags=tags,
        changed=datetime.fromtimestamp(seen.changed, UTC),
    )


def _parsed(seen: RunSummary) -> tuple[dict[str, Any], str]:
    try:
        return tomllib.loads(seen.experiment), seen.trouble
    except tomllib.TOMLDecodeError as error:
        return {}, seen.trouble or f"its experiment file is not TOML: {error}"


def _progress(
    seen: RunSummary, rounds: int | None, time: float | None
) -> tuple[float | None, float | None]:
    """How much of what was planned is done (by rounds or by simulated time), and how many seconds
    the rest may take.
    """
    shares, left = [], []
    if rounds:
        shares.append(seen.rounds / rounds)
        left.append((rounds - seen.rounds) * seen.pace)
    if time:
        shares.append(seen.time / time)
        left += [(time - seen.time) / seen.speed * seen.pace] if seen.speed > 0 else []
    if not shares:
        return None, None
    if seen.state == "done":
        return 1.0, None
    known = seen.state == "running" and seen.pace > 0 and bool(left)
    return min(max(shares), 1.0), max(min(left), 0.0) if known else None


def _recipe(tables: dict[str, Any]) -> dict[str, str]:
    """The parts of a run in a few words, by slot."""
    recipe = {}
    for slot in PARTS:
        table = tables.get(slot)
        usual = slot in UNSAID and table == {"name": DEFAULTS[slot]}
        if table and not usual:
            recipe[slot] = brief(table)
    return recipe


def _words(rounds: int, planned: int | None, eta: float | None) -> str:
    """Progress in words.

    >>> _words(3, 10, 75.0), _words(5, None, None)
    ('3 of 10 rounds, about 1 min left', '5 rounds')
    """
    done = f"{rounds:,} of {planned:,} rounds" if planned else f"{rounds:,} rounds"
    return done if eta is None else f"{done}, about {duration(eta)} left"


def duration(seconds: float) -> str:
    """A time span as people say it.

    >>> duration(0.4), duration(42.0), duration(75.0), duration(9000.0), duration(2e5)
    ('1 s', '42 s', '1 min', '2.5 h', '2.3 days')
    """
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86_400 else f"{seconds / 86_400:.1f} days"


def _intervals(group: Sequence[RunLine]) -> dict[str, Interval]:
    """Every score over the runs of an experiment; over those that are done, where some are and
    others not yet.
    """
    found = {}
    counted = [line for line in group if line.state == "done"] or group
    for score in dict.fromkeys(name for line in counted for name in line.scores):
        values = [v for line in counted if (v := line.scores.get(score)) is not None]
        if values:
            e = estimate(values)
            found[score] = Interval(
                mean=e.mean, low=e.low, high=e.high, n=e.n, text=with_interval(e.mean, e.half_width)
            )
    return found


def _key(name: str, tables: Mapping[str, Any], meta: Mapping[str, str]) -> str:
    """The same for runs of one experiment; a run that cannot be read is an experiment of its
    own.
    """
    if not tables or "clients" not in meta or f"/{BRANCHES}/" in name:
        return hashlib.sha256(name.encode()).hexdigest()[:12]
    same = json.dumps(identity_of(tables, meta), sort_keys=True, default=str)
    return hashlib.sha256(same.encode()).hexdigest()[:12]


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
