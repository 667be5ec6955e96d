"""Runs of one experiment that differ in their seed only, under a label that says what sets them
apart.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from poise.analysis.reports.wording import brief
from poise.core.errors import InvalidOption, LedgerError
from poise.core.slots import DEFAULTS
from poise.ledger import Run

SEEDS = {"run": ("seed", "seeds"), "data": ("seed",)}
"""Keys of an experiment file that make another sample of the same experiment, not another
experiment."""


@dataclass(frozen=True)
class Group:
    """Runs of one experiment, one per seed.

    Args:
        label: what sets the group apart from the others.
        runs: at least one.
    """

    label: str
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidOption(f"the group {self.label!r} has no runs")

    @cached_property
    def experiment(self) -> dict[str, Any]:
        """The tables of the experiment file, without seeds."""
        return without_seeds(tables(self.runs[0]))

    @cached_property
    def seeds(self) -> tuple[str, ...]:
        """What tells the runs apart: the seed of each, with that of the data where it varies
        too.
        """
        own = [
            (run.meta.get("seed", "?"), str(tables(run).get("data", {}).get("seed", "?")))
            for run in self.runs
        ]
        varied = len({data for _, data in own}) > 1 and any(seed != data for seed, data in own)
        return tuple(f"{seed} (data {data})" if varied else seed for seed, data in own)

    @property
    def rounds(self) -> int:
        """Aggregations of the longest run."""
        return max(run.rounds for run in self.runs)

    @property
    def metrics(self) -> list[str]:
        """Metrics that at least one run knows, accuracy first, then losses."""
        names = {name for run in self.runs for name in run.metrics}
        return sorted(names, key=lambda n: (n != "accuracy", n != "loss", n))


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Put runs of the same experiment together, in the order in which they come, and name the
    groups.

    Two runs belong together when their experiment files are equal but for the seed (and, where the
    data are Python objects, when they were the same for both). A run that is given twice counts
    once.
    """
    found: dict[str, list[Run]] = {}
    seen: set[tuple[str, ...]] = set()
    for run in runs:
        key = json.dumps(identity(run), sort_keys=True, default=str)
        once = (
            key,
            run.experiment,
            run.meta.get("seed", ""),
            run.digest if run.rounds else str(id(run)),
        )
        if once not in seen:
            seen.add(once)
            found.setdefault(key, []).append(run)
    members = [sorted(group, key=lambda r: int(r.meta.get("seed", 0))) for group in found.values()]
    names = labels([identity(group[0]) for group in members])
    return [Group(name, tuple(group)) for name, group in zip(names, members, strict=True)]


def tables(run: Run) -> dict[str, Any]:
    """The experiment file of a run, parsed."""
    where = run.path or "the run in memory"
    try:
        return tomllib.loads(run.experiment)
    except KeyError as error:
        raise LedgerError(f"{where} does not say which experiment it is") from error
    except OSError as error:
        raise LedgerError(
            f"cannot read the experiment file of {where}: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LedgerError(f"the experiment file of {where} is not TOML: {error}") from error


def without_seeds(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The same tables, less what only names a random sample.

    >>> without_seeds({"run": {"rounds": 5, "seeds": [3]}, "data": {"source": "digits", "seed": 3}})
    {'run': {'rounds': 5}, 'data': {'source': 'digits'}}
    """
    return {
        key: {k: v for k, v in table.items() if k not in SEEDS.get(key, ())}
        if isinstance(table, Mapping)
        else table
        for key, table in experiment.items()
    }


def identity(run: Run) -> dict[str, Any]:
    """What makes two runs samples of one experiment: its tables, and the data where no table
    describes them.
    """
    return identity_of(tables(run), run.meta)


def identity_of(tables: Mapping[str, Any], meta: Mapping[str, str]) -> dict[str, Any]:
    """The same, of the tables of a run and its facts."""
    usual = {
        slot: {"name": name} for slot, name in DEFAULTS.items() if slot not in tables
    }  # older ledgers lack some
    experiment = without_seeds({**usual, **tables})
    if "data" in experiment:
        return experiment
    digest = {"federation": meta["federation"][:8]} if "federation" in meta else {}
    return {"data": {"clients": int(meta["clients"]), **digest}, **experiment}


def labels(experiments: list[dict[str, Any]]) -> list[str]:
    """A short name for each experiment, made of what differs between them; no two are equal.

    >>> some = {"sampler": {"name": "uniform", "m": 5}, "weighting": {"name": "proportional"}}
    >>> labels([some, some | {"sampler": {"name": "full"}}])
    ['sampler=uniform(m=5)', 'sampler=full']
    >>> labels([some])
    ['uniform(m=5), proportional']
    """
    if len(experiments) == 1:
        solver, *named = (
            experiments[0].get(slot, {}) for slot in ("solver", "sampler", "weighting")
        )
        words = [str(solver.get("name", "")), *map(brief, named)]
        return [", ".join(filter(None, words)) or "run"]
    sections = list(dict.fromkeys(key for e in experiments for key in e))
    differing = [s for s in sections if any(e.get(s) != experiments[0].get(s) for e in experiments)]
    names = [
        ", ".join(filter(None, (_part(s, e, experiments) for s in differing))) or "default"
        for e in experiments
    ]
    return _distinct(names)


def _part(section: str, experiment: dict[str, Any], experiments: list[dict[str, Any]]) -> str:
    """What one section adds to a label: ``sampler=uniform(m=5)``, ``alpha=0.3, clients=10``,
    ``attacks=none``.
    """
    table = experiment.get(section)
    if not isinstance(table, Mapping):
        return f"{section}={brief(table)}" if table else f"{section}=none"
    others = [e.get(section) for e in experiments]
    differs = {
        k: v
        for k, v in table.items()
        if any(not isinstance(o, Mapping) or o.get(k) != v for o in others)
    }
    heading = next((key for key in ("name", "model") if key in table), None)
    if heading is not None:
        return f"{section}={brief({heading: table[heading], **differs})}"
    return ", ".join(f"{key}={brief(value)}" for key, value in differs.items())


def _distinct(names: list[str]) -> list[str]:
    """Number the names that would otherwise be equal.

    >>> _distinct(["a", "b", "a", "a (2)"])
    ['a', 'b', 'a (3)', 'a (2)']
    """
    taken, count, result = set(names), Counter[str](), []
    for name in names:
        count[name] += 1
        own, k = name, 2
        while count[name] > 1 and own in taken:
            own, k = f"{name} ({k})", k + 1
        taken.add(own)
        result.append(own)
    return result
