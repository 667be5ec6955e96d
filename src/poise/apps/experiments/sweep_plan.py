"""The plan of a sweep: all configurations, checked before any of them runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poise import engine
from poise.config.experiment import Experiment
from poise.config.sweep_axes import Configuration, configured, inline_table
from poise.config.sweep_options import SweepOptions
from poise.core.directions import first_metric
from poise.core.errors import (
    IncompatibleParts,
    InvalidOption,
    errors_at,
    require,
    suggest,
)
from poise.core.federations import FederationLike
from poise.core.slots import RUN_SLOTS
from poise.core.traits import TaskTraits, traits_of
from poise.training import check, compose, federation_in, use_code

MOST_RUNS = 100_000
"""The largest number of runs of one sweep."""

MOST_NAMES = 3
"""The largest number of configurations that are named beside a problem."""


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep runs.

    Args:
        experiment: the experiment that every configuration changes.
        options: the options, with the seeds and the metric that the sweep uses.
        configurations: all configurations, in order.
        lower_is_better: whether small values of the metric are good.
        rounds: the rounds of each configuration, by name; None if a time ends its runs.
    """

    experiment: Experiment
    options: SweepOptions
    configurations: tuple[Configuration, ...]
    lower_is_better: bool
    rounds: Mapping[str, int | None]

    @property
    def metric(self) -> str:
        """The metric that ranks configurations."""
        assert self.options.metric is not None
        return self.options.metric

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.configurations) * len(self.options.seeds)

    def experiment_of(self, name: str) -> Experiment:
        """Return the experiment of a configuration."""
        settings = next(c.settings for c in self.configurations if c.name == name)
        return configured(self.experiment, settings)

    def document(self) -> dict[str, Any]:
        """Return the plan as the sweep folder keeps it."""
        return {
            "experiment": plain_tables(self.experiment),
            "options": self.options.document(),
            "configurations": [
                {"name": c.name, "settings": dict(c.settings)}
                for c in self.configurations
            ],
            "lower is better": self.lower_is_better,
            "rounds": dict(self.rounds),
        }


@dataclass(frozen=True)
class _Checked:
    """What a check found out about a configuration that is right."""

    plan: engine.Plan
    lower: Callable[[str], bool]


def plan_sweep(
    experiment: Experiment,
    options: SweepOptions,
    progress: Callable[[], None] = lambda: None,
) -> SweepPlan:
    """Check every configuration with its first seed; raise one error with all problems.

    ``progress`` is called after every checked configuration.
    """
    with experiment.located(), errors_at("sweep"):
        configurations = options.configurations
    seeds = options.seeds or tuple(experiment.seeds)
    require(
        len(configurations) * len(seeds) <= MOST_RUNS,
        f"{len(configurations)} configurations with {len(seeds)} seeds are more than "
        f"{MOST_RUNS:,} runs",
        "name fewer values",
    )
    checked = _check_all(experiment, configurations, seed=seeds[0], progress=progress)
    with experiment.located(), errors_at("sweep"):
        metric = _metric(options.metric, checked)
        _check_rungs(options.rungs, checked)
    return SweepPlan(
        experiment,
        replace(options, seeds=seeds, metric=metric),
        configurations,
        lower_is_better=next(iter(checked.values())).lower(metric),
        rounds={name: found.plan.rounds for name, found in checked.items()},
    )


def _check_all(
    experiment: Experiment,
    configurations: Sequence[Configuration],
    *,
    seed: int,
    progress: Callable[[], None],
) -> dict[str, _Checked]:
    """Check every configuration; raise one error that names all problems."""
    use_code(experiment)
    federations: dict[str, FederationLike] = {}
    checked: dict[str, _Checked] = {}
    problems: dict[str, list[str]] = {}
    for configuration in configurations:
        try:
            made = configured(experiment, configuration.settings)
            checked[configuration.name] = _check(made, seed, federations)
        except (InvalidOption, IncompatibleParts) as error:
            problems.setdefault(str(error), []).append(configuration.name)
        progress()
    if problems:
        wrong = sum(map(len, problems.values()))
        lines = [f"  {_first(names)}: {problem}" for problem, names in problems.items()]
        raise InvalidOption(
            f"{wrong} of {len(configurations)} configurations are wrong; none has run:\n"
            + "\n".join(lines),
            _whole_parts(experiment, configurations)
            or "mend or leave out these values",
        )
    return checked


def _first(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are.

    >>> _first(["a", "b"]), _first(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    shown = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        return f"{shown} and {len(names) - MOST_NAMES} more"
    return shown


def _whole_parts(
    experiment: Experiment, configurations: Sequence[Configuration]
) -> str:
    """Return a hint if a sweep over names of parts leaves out the options of the file."""
    for slot in RUN_SLOTS:
        options = {k: v for k, v in experiment.table(slot).items() if k != "name"}
        values = [c.settings.get(f"{slot}.name") for c in configurations]
        names = list(dict.fromkeys(value for value in values if value is not None))
        if options and names:
            tables = [inline_table({"name": name, **options}) for name in names]
            return (
                f"the options of [{slot}] belong to the part of the file; name them for "
                f'each part: --over "{slot}={",".join(tables)}"'
            )
    return ""


def _check(
    experiment: Experiment, seed: int, federations: dict[str, FederationLike]
) -> _Checked:
    """Check one configuration; configurations with equal [data] share a federation."""
    key = json.dumps(experiment.table("data"), sort_keys=True, default=str)
    if key not in federations:
        federations.clear()  # one data set in memory
        federations[key] = federation_in(experiment, seed)
    composition = compose(experiment, seed, federations[key])
    with experiment.located():
        plan = check(composition)
    directions = traits_of(composition.task, TaskTraits).directions
    return _Checked(plan, directions.lower_is_better)


def _metric(given: str | None, checked: Mapping[str, _Checked]) -> str:
    """Return the metric that ranks configurations; all of them must measure it."""
    measured = frozenset.intersection(*(c.plan.metrics for c in checked.values()))
    metric = given or first_metric(measured)
    if not metric:
        raise InvalidOption(
            "the configurations have no metric in common",
            'add one under [run], for example metrics = ["train_loss"]',
            where=("metric",),
        )
    if metric not in measured:
        raise InvalidOption(
            f"not every configuration measures {metric}",
            suggest(metric, measured),
            where=("metric",),
        )
    if metric.startswith("client_"):
        raise InvalidOption(
            f"{metric} has one value per client", "use train_loss", where=("metric",)
        )
    return metric


def _check_rungs(rungs: Sequence[int], checked: Mapping[str, _Checked]) -> None:
    """Raise for a rung that a configuration does not reach, or does not measure."""
    for name, found in checked.items():
        for rung in rungs:
            plan = found.plan
            if plan.rounds is None or rung >= plan.rounds:
                raise InvalidOption(
                    f"rung {rung} is not before the last round of {name}",
                    f"[run] rounds must be above {rung}",
                    where=("rungs",),
                )
            if rung % plan.evaluate_every:
                raise InvalidOption(
                    f"rung {rung}: {name} measures every {plan.evaluate_every} rounds only",
                    f"use multiples of {plan.evaluate_every}",
                    where=("rungs",),
                )


def plain_tables(experiment: Experiment) -> dict[str, Any]:
    """Return the tables of an experiment without those that no run needs."""
    return {
        name: table
        for name, table in experiment.tables.items()
        if name not in ("sweep", "expected")
    }


__all__ = ["SweepPlan", "plain_tables", "plan_sweep"]
