"""Groups of runs that differ only in their seed, labelled by how the groups differ."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from poise.core.errors import InvalidOption, LedgerError
from poise.core.slots import DEFAULTS
from poise.core.types import Floats, Ints
from poise.results import Run
from poise.results.words import brief

SEEDS = {"run": ("seed", "seeds"), "data": ("seed",)}
"""Keys of an experiment file that select a random sample of the same experiment."""


SAMPLES = ("label", "target", "test", "options")
"""Options of data that select other samples of a source, or another target."""


@dataclass(frozen=True)
class Group:
    """Runs of one experiment, one per seed.

    Args:
        label: a short text that tells the group from the others.
        runs: the runs, at least one.
        description: how the group differs, if the label does not say it.
    """

    label: str
    runs: tuple[Run, ...]
    description: str = ""

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidOption(f"the group {self.label!r} has no runs")

    @cached_property
    def experiment(self) -> dict[str, Any]:
        """The tables of the experiment file, without seeds."""
        return without_seeds(tables(self.runs[0]))

    @cached_property
    def data(self) -> str:
        """The data that the runs learn from; see `data_of`."""
        return data_of(identity(self.runs[0]))

    @cached_property
    def measured(self) -> dict[str, list[tuple[Run, Ints, Floats]]]:
        """What `curves` has read of each metric: runs, aggregations and values."""
        return {}

    @cached_property
    def seeds(self) -> tuple[str, ...]:
        """The seed of each run, with the seed of the data if they vary separately."""
        seeds = [run.meta.get("seed", "?") for run in self.runs]
        data_seeds = [
            str(tables(run).get("data", {}).get("seed", "?")) for run in self.runs
        ]
        if len(set(data_seeds)) > 1 and seeds != data_seeds:
            pairs = zip(seeds, data_seeds, strict=True)
            return tuple(f"{seed} (data {data_seed})" for seed, data_seed in pairs)
        return tuple(seeds)

    @property
    def rounds(self) -> int:
        """Aggregations of the longest run."""
        return max(run.rounds for run in self.runs)

    @property
    def metrics(self) -> list[str]:
        """Metrics of at least one run; accuracy first, then loss."""
        names = {name for run in self.runs for name in run.metrics}
        return sorted(names, key=lambda n: (n != "accuracy", n != "loss", n))


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Group runs of the same experiment, in the order given, and label the groups.

    Two runs belong together if their experiment files are equal apart from the seed. If
    the data are Python objects, the data must be equal too. Duplicate runs count once.
    """
    runs_by_experiment: dict[str, list[Run]] = {}
    known: set[tuple[str, ...]] = set()
    for run in runs:
        key = json.dumps(identity(run), sort_keys=True, default=str)
        content = str(id(run))
        if run.rounds:
            content = run.digest
        fingerprint = (key, run.experiment, run.meta.get("seed", ""), content)
        if fingerprint not in known:
            known.add(fingerprint)
            runs_by_experiment.setdefault(key, []).append(run)
    members = []
    for group in runs_by_experiment.values():
        members.append(sorted(group, key=lambda run: int(run.meta.get("seed", 0))))
    names = labels_by_data([identity(group[0]) for group in members])
    return [
        Group(name, tuple(group)) for name, group in zip(names, members, strict=True)
    ]


def tables(run: Run) -> Mapping[str, Any]:
    """The experiment file of a run, parsed."""
    where = run.path or "the run in memory"
    try:
        return _parsed(run.experiment)
    except KeyError as error:
        raise LedgerError(f"the ledger of {where} has no experiment file") from error
    except OSError as error:
        raise LedgerError(
            f"cannot read the experiment file of {where}: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LedgerError(
            f"the experiment file of {where} is not TOML: {error}"
        ) from error


@lru_cache(maxsize=256)
def _parsed(text: str) -> dict[str, Any]:
    """The tables of an experiment file, which nobody changes."""
    return tomllib.loads(text)


def without_seeds(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of an experiment without its seeds.

    >>> without_seeds({"run": {"rounds": 5, "seeds": [3]}, "data": {"source": "digits", "seed": 3}})
    {'run': {'rounds': 5}, 'data': {'source': 'digits'}}
    """
    kept: dict[str, Any] = {}
    for section, table in experiment.items():
        kept[section] = table
        if isinstance(table, Mapping):
            seeds = SEEDS.get(section, ())
            kept[section] = {
                key: value for key, value in table.items() if key not in seeds
            }
    return kept


def identity(run: Run) -> dict[str, Any]:
    """The tables that an experiment's runs share, with a digest for Python data."""
    return identity_of(tables(run), run.meta)


def identity_of(tables: Mapping[str, Any], meta: Mapping[str, str]) -> dict[str, Any]:
    """The `identity` of a run, from its experiment tables and its metadata."""
    # older ledgers lack some slots
    defaults = {
        slot: {"name": name} for slot, name in DEFAULTS.items() if slot not in tables
    }
    experiment = without_seeds({**defaults, **tables})
    if "data" in experiment:
        return experiment
    data: dict[str, Any] = {"clients": int(meta["clients"])}
    if "federation" in meta:
        data["federation"] = meta["federation"][:8]
    return {"data": data, **experiment}


def data_of(identity: Mapping[str, Any]) -> str:
    """The data of an experiment in a few words; equal texts stand for comparable scores.

    Clients may hold other parts of the same data. Data from Python are comparable only
    if they are the same federation.

    >>> data_of({"data": {"source": "digits", "clients": 5}})
    'digits'
    >>> data_of({"data": {"clients": 5, "federation": "3fa2c81b"}})
    'data 3fa2c81b'
    """
    table = identity.get("data")
    if not isinstance(table, Mapping):
        return ""
    if "source" not in table:
        digest = table.get("federation")
        if digest is None:
            return ""
        return f"data {digest}"
    chosen = {key: table[key] for key in SAMPLES if key in table}
    options = brief(chosen)  # in brackets; empty without options
    return f"{table['source']}{options}"


def labels_by_data(experiments: Sequence[dict[str, Any]]) -> list[str]:
    """The `labels` among the experiments with the same data, after the data's name.

    >>> some, other = {"data": {"source": "digits"}}, {"data": {"source": "mnist"}}
    >>> full = {"sampler": {"name": "full"}}
    >>> labels_by_data([some, some | full, other | full])
    ['digits: sampler=none', 'digits: sampler=full', 'mnist: full']
    >>> labels_by_data([some, some | full])
    ['sampler=none', 'sampler=full']
    """
    members = members_by_data(experiments)
    if len(members) == 1:
        return labels(list(experiments))
    names = [""] * len(experiments)
    for data, same in members.items():
        told = labels([experiments[k] for k in same])
        for k, name in zip(same, told, strict=True):
            names[k] = f"{data or 'other data'}: {name}"
    return names


def members_by_data(experiments: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """The positions of the experiments with the same data, by `data_of`."""
    members: dict[str, list[int]] = {}
    for k, experiment in enumerate(experiments):
        members.setdefault(data_of(experiment), []).append(k)
    return members


def telling_parts(experiments: list[dict[str, Any]]) -> list[str]:
    """The parts of each label that are enough to tell it from the others.

    The part that fewest others share comes first. Empty for a single experiment.

    >>> base = {"sampler": {"name": "full"}, "weighting": {"name": "exp"}}
    >>> other = base | {"sampler": {"name": "md"}}
    >>> telling_parts([base, other, other | {"weighting": {"name": "sum"}}])
    ['sampler=full', 'sampler=md, weighting=exp', 'weighting=sum']
    """
    parts = _parts(experiments)
    return _distinct([", ".join(_telling(parts, k)) for k in range(len(parts))])


def _telling(parts: list[list[str]], number: int) -> list[str]:
    """The parts of one experiment that none of the others has together."""
    others = [set(p) for p in parts if set(p) != set(parts[number])]
    chosen: list[str] = []
    for _ in parts[number]:
        left = [part for part in parts[number] if part not in chosen]
        shared = {part: sum(part in other for other in others) for part in left}
        rarest = min(left, key=lambda part: (shared[part], len(part)))
        if shared[rarest] < len(others):
            chosen.append(rarest)
            others = [other for other in others if rarest in other]
    return chosen


def labels(experiments: list[dict[str, Any]]) -> list[str]:
    """A short, unique label for each experiment, from its differences to the others.

    >>> base = {"sampler": {"name": "uniform", "m": 5}, "weighting": {"name": "proportional"}}
    >>> labels([base, base | {"sampler": {"name": "full"}}])
    ['sampler=uniform(m=5)', 'sampler=full']
    >>> labels([base])
    ['uniform(m=5), proportional']
    """
    if len(experiments) == 1:
        solver, *named = (
            experiments[0].get(slot, {}) for slot in ("solver", "sampler", "weighting")
        )
        words = [str(solver.get("name", "")), *map(brief, named)]
        return [", ".join(filter(None, words)) or "run"]
    return _distinct([", ".join(parts) or "default" for parts in _parts(experiments)])


def _parts(experiments: list[dict[str, Any]]) -> list[list[str]]:
    """The parts of each label: what some experiments do not share."""
    sections = list(dict.fromkeys(key for e in experiments for key in e))
    differing = [
        s
        for s in sections
        if any(e.get(s) != experiments[0].get(s) for e in experiments)
    ]
    found = []
    for experiment in experiments:
        parts = [
            part
            for section in differing
            for part in _label_parts(section, experiment, experiments)
        ]
        found.append(parts)
    return found


def _label_parts(
    section: str, experiment: dict[str, Any], experiments: list[dict[str, Any]]
) -> list[str]:
    """A label's parts for a section, e.g. ``sampler=uniform(m=5)``, ``attacks=none``."""
    table = experiment.get(section)
    if not isinstance(table, Mapping):
        if table:
            return [f"{section}={brief(table)}"]
        return [f"{section}=none"]
    others = [e.get(section) for e in experiments]
    differs = {
        k: v
        for k, v in table.items()
        if any(not isinstance(o, Mapping) or o.get(k) != v for o in others)
    }
    heading = next((key for key in ("name", "model") if key in table), None)
    if heading is not None:
        return [f"{section}={brief({heading: table[heading], **differs})}"]
    return [f"{key}={brief(value)}" for key, value in differs.items()]


def _distinct(names: list[str]) -> list[str]:
    """Number duplicate names.

    >>> _distinct(["a", "b", "a", "a (2)"])
    ['a', 'b', 'a (3)', 'a (2)']
    """
    taken = set(names)
    count: Counter[str] = Counter()
    result = []
    for name in names:
        count[name] += 1
        unique = name
        number = 2
        while count[name] > 1 and unique in taken:
            unique = f"{name} ({number})"
            number += 1
        taken.add(unique)
        result.append(unique)
    return result
