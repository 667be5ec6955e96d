"""The lines of the list of runs: state, recipe, progress, scores, means over seeds."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, Field

from poise.analysis.reports.estimates import estimate
from poise.analysis.reports.groups import identity_of
from poise.analysis.reports.numbers import places_apart, with_interval
from poise.analysis.reports.tables import finite
from poise.analysis.reports.wording import phrase
from poise.core.directions import PREFERRED
from poise.core.slots import DEFAULTS, RUN_SLOTS
from poise.ledger.foreign import UNREADABLE, unreadable
from poise.ledger.store import BEGAN, ENDING
from poise.ledger.summary import RunSummary
from poise.results.words import HEADINGS, brief

PARTS = (*RUN_SLOTS, "attacks")
"""The slots of a recipe."""

HIDDEN_DEFAULTS = ("aggregator", "channel")
"""Slots that a recipe shows only if they differ from the default."""

GIVEN_IN_PYTHON = "given in Python"
"""The data of a run whose experiment file has no table ``[data]``."""

BRANCHES = "unlearning"
"""Folder of unlearning branches in a run folder (see `poise.unlearning.histories`)."""


class Interval(BaseModel):
    """A mean over an experiment's seeds, with its 95 % interval for several seeds."""

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
    ending: str
    experiment: str
    branch_of: str | None
    recipe: dict[str, str]
    recipe_words: str = Field(
        "", description="The names of the parts that are not the default."
    )
    data: str
    data_words: str = Field("", description="The source and the partition.")
    clients: int | None
    seed: int | None
    data_seed: int | None = Field(
        default=None, description="The seed of the data, where the file gives one."
    )
    rounds: int
    planned: int | None
    progress: float | None
    eta: float | None
    progress_words: str
    scores: dict[str, float | None]
    over_seeds: dict[str, Interval]
    tags: list[str]
    changed: datetime
    began: datetime | None = Field(
        description="When the run began; null for runs of poise 0.1."
    )
    seconds: float = Field(description="Real time spent on all aggregations.")
    duration: str = Field(description="The same in words; empty before the first.")


def one_per_seed(group: Sequence[RunLine]) -> list[RunLine]:
    """The runs of an experiment without copies: the first of each seed."""
    firsts: dict[tuple[int | None, int | None], RunLine] = {}
    for line in group:
        firsts.setdefault((line.seed, line.data_seed), line)
    return list(firsts.values())


def lines(
    summaries: Mapping[str, RunSummary], tags: Mapping[str, Sequence[str]]
) -> list[RunLine]:
    """A line for every run; runs of one experiment share their means over seeds."""
    all_lines = []
    by_experiment: dict[str, list[RunLine]] = {}
    for name, summary in summaries.items():
        line = _readable_line(name, summary, list(tags.get(name, ())))
        all_lines.append(line)
        by_experiment.setdefault(line.experiment, []).append(line)
    found = {key: _intervals(group) for key, group in by_experiment.items()}
    _write_texts(list(found.values()))
    for key, group in by_experiment.items():
        for line in group:
            line.over_seeds = found[key]
    return all_lines


def _write_texts(intervals: Sequence[Mapping[str, Interval]]) -> None:
    """Write each mean with enough digits to tell it from those of other experiments."""
    for score in dict.fromkeys(name for scores in intervals for name in scores):
        shown = [scores[score] for scores in intervals if score in scores]
        places = min(places_apart(e.mean for e in shown if e.mean is not None), 4)
        for e in shown:
            if e.mean is not None:
                e.text = with_interval(e.mean, _half_width(e), places=places)


def _half_width(e: Interval) -> float | None:
    if e.low is None or e.high is None:
        return None
    return (e.high - e.low) / 2


def line_of(name: str, summary: RunSummary, tags: Sequence[str] = ()) -> RunLine:
    """The line of a single run."""
    return lines({name: summary}, {name: tags})[0]


def main_score(names: Sequence[str]) -> str | None:
    """The first of accuracy, losses and any other score."""
    return next((name for name in (*PREFERRED, *names) if name in names), None)


def _readable_line(name: str, summary: RunSummary, tags: list[str]) -> RunLine:
    """The line of a run; one whose files hold something unexpected counts as damaged."""
    try:
        return _line(name, summary, tags)
    except UNREADABLE as error:
        words = unreadable(name, error).message
        return _line(name, RunSummary("damaged", words, experiment="", meta={}), tags)


def _line(name: str, summary: RunSummary, tags: list[str]) -> RunLine:
    tables, trouble = _parse_experiment(summary)
    plan = tables.get("run", {})
    planned = plan.get("rounds")
    if not isinstance(planned, int):
        planned = None
    progress, eta = _progress(summary, planned, plan.get("time"))
    goal = planned
    if summary.state == "done" and summary.rounds < (planned or 0):  # stopped early
        goal = None
    took = ""
    if summary.seconds > 0:
        took = duration(summary.seconds)
    parent, _, _ = name.rpartition(f"/{BRANCHES}/")
    return RunLine(
        name=name,
        state=summary.state,
        trouble=trouble,
        ending=summary.meta.get(ENDING, ""),
        experiment=_experiment_key(name, tables, summary.meta),
        branch_of=parent or None,
        recipe=_recipe(tables),
        recipe_words=_part_names(tables),
        data=phrase(tables.get("data", GIVEN_IN_PYTHON)),
        data_words=_data_words(tables),
        clients=_parse_int(summary.meta.get("clients")),
        seed=_parse_int(summary.meta.get("seed")),
        data_seed=_data_seed(tables),
        rounds=summary.rounds,
        planned=planned,
        progress=progress,
        eta=eta,
        progress_words=_progress_words(summary.rounds, goal, eta),
        scores={name: finite(value) for name, value in (summary.scores or {}).items()},
        over_seeds={},
        tags=tags,
        changed=datetime.fromtimestamp(summary.changed, UTC),
        began=_parse_time(summary.meta.get(BEGAN)),
        seconds=finite(summary.seconds) or 0.0,
        duration=took,
    )


def _parse_experiment(summary: RunSummary) -> tuple[dict[str, Any], str]:
    """The tables of the experiment file, and an error message or an empty text."""
    try:
        return experiment_tables(summary.experiment), summary.trouble
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return {}, summary.trouble or f"the experiment file is not TOML: {error}"


@lru_cache(4096)
def experiment_tables(text: str) -> dict[str, Any]:
    """The tables of an experiment file, which nobody changes."""
    return tomllib.loads(text)


def _progress(
    summary: RunSummary, rounds: int | None, time: float | None
) -> tuple[float | None, float | None]:
    """The finished share (by rounds or simulated time) and the remaining seconds."""
    shares = []
    seconds_left = []
    if rounds:
        shares.append(summary.rounds / rounds)
        seconds_left.append((rounds - summary.rounds) * summary.pace)
    if time:
        shares.append(summary.time / time)
        if summary.speed > 0:
            seconds_left.append((time - summary.time) / summary.speed * summary.pace)
    if not shares:
        return None, None
    if summary.state == "done":
        return 1.0, None
    share = min(max(shares), 1.0)
    if summary.state == "running" and summary.pace > 0 and seconds_left:
        return share, max(min(seconds_left), 0.0)
    return share, None


def _recipe(tables: dict[str, Any]) -> dict[str, str]:
    """The parts of a run in a few words, by slot."""
    recipe = {}
    for slot in PARTS:
        table = tables.get(slot)
        hidden = slot in HIDDEN_DEFAULTS and table == {"name": DEFAULTS[slot]}
        if table and not hidden:
            recipe[slot] = brief(table)
    return recipe


def _part_names(tables: Mapping[str, Any]) -> str:
    """The names of the parts of a recipe that are not the default, without options.

    >>> _part_names({"solver": {"name": "sgd", "lr": 0.1}, "server": {"name": "add"}})
    'sgd'
    """
    names: dict[str, None] = {}
    for slot in PARTS:
        entries = tables.get(slot) or []
        if not isinstance(entries, list):
            entries = [entries]
        for entry in entries:
            name = brief(entry)
            if isinstance(entry, Mapping):
                name = next((str(entry[k]) for k in HEADINGS if k in entry), "")
            if name and name != DEFAULTS.get(slot):
                names[name] = None
    return ", ".join(names)


def _data_words(tables: Mapping[str, Any]) -> str:
    """The source of the data and its partition; the same as `phrase` for other data.

    >>> _data_words({"data": {"source": "digits", "partition": "dirichlet", "alpha": 1}})
    'digits, dirichlet'
    """
    data = tables.get("data", "given in Python")
    if not isinstance(data, Mapping) or "source" not in data:
        return phrase(data)
    named = (data[key] for key in ("source", "partition") if key in data)
    return ", ".join(map(brief, named))


def _progress_words(rounds: int, planned: int | None, eta: float | None) -> str:
    """Progress in words.

    >>> _progress_words(3, 10, 75.0), _progress_words(5, None, None)
    ('3 of 10 rounds, about 1 min left', '5 rounds')
    """
    done = f"{rounds:,} rounds"
    if planned:
        done = f"{rounds:,} of {planned:,} rounds"
    if eta is None:
        return done
    return f"{done}, about {duration(eta)} left"


def duration(seconds: float) -> str:
    """A time span in words.

    >>> duration(0.4), duration(42.0), duration(75.0), duration(9000.0), duration(2e5)
    ('1 s', '42 s', '1 min', '2.5 h', '2.3 days')
    """
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    if seconds < 86_400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def _intervals(group: Sequence[RunLine]) -> dict[str, Interval]:
    """Every score over an experiment's finished runs, or all runs if none finished.

    Copies of a seed count once.
    """
    intervals = {}
    counted = one_per_seed([line for line in group if line.state == "done"] or group)
    for score in dict.fromkeys(name for line in counted for name in line.scores):
        values = [v for line in counted if (v := line.scores.get(score)) is not None]
        if values:
            e = estimate(values)
            text = with_interval(e.mean, e.half_width)  # alone on its page
            intervals[score] = Interval(
                mean=e.mean, low=e.low, high=e.high, n=e.n, text=text
            )
    return intervals


def _experiment_key(
    name: str, tables: Mapping[str, Any], meta: Mapping[str, str]
) -> str:
    """A key common to an experiment's runs; unique for unreadable runs and branches."""
    if not tables or "clients" not in meta or f"/{BRANCHES}/" in name:
        return hashlib.sha256(name.encode()).hexdigest()[:12]
    same = json.dumps(identity_of(tables, meta), sort_keys=True, default=str)
    return hashlib.sha256(same.encode()).hexdigest()[:12]


def _parse_time(text: str | None) -> datetime | None:
    """A recorded time; None for anything else."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        return None
    return time


def _data_seed(tables: Mapping[str, Any]) -> int | None:
    """The seed in the table ``[data]`` of an experiment file."""
    data = tables.get("data")
    seed = None
    if isinstance(data, Mapping):
        seed = data.get("seed")
    if isinstance(seed, int):
        return seed
    return None


def _parse_int(text: str | None) -> int | None:
    if text is not None and text.lstrip("-").isdigit():
        return int(text)
    return None
