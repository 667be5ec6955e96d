"""`Sweep`: the results of a sweep, read from its folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from poise.analysis.reports.estimates import Estimate, estimate
from poise.analysis.reports.scores import measured
from poise.apps.experiments.halving import RungDecision
from poise.apps.experiments.sweep_folder import RunProgress, SweepFolder
from poise.core.errors import InvalidOption, suggest
from poise.ledger.store import has_ledger
from poise.results import Run, open_run


def value_at(run: Run, metric: str, rounds: int) -> float:
    """Return the last measured value of a metric within the first rounds; nan for none."""
    numbers, values = measured(run, metric)
    early = values[numbers <= rounds]
    if not len(early):
        return math.nan
    return float(early[-1])


@dataclass(frozen=True)
class SweptConfiguration:
    """One configuration of a sweep, and its runs.

    Args:
        name: what differs from the other configurations; its folder.
        settings: the values of the swept keys.
        seeds: the seeds that have a run.
        progress: how far each of these runs is.
        values: the last measured value of the metric of each run; nan without one, or if
            the run failed.
        stopped: the decision that stopped it; None if it was not stopped.
        complete: whether all of its runs came to their end.
    """

    name: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    progress: tuple[RunProgress, ...]
    values: tuple[float, ...]
    stopped: RungDecision | None
    complete: bool

    @property
    def state(self) -> str:
        """``done``, ``stopped at rung k (round r)``, ``failed`` or ``unfinished``."""
        if self.stopped is not None:
            return f"stopped at rung {self.stopped.rung} (round {self.stopped.round})"
        if any(run.state == "failed" for run in self.progress):
            return "failed"
        if any(run.state == "diverged" for run in self.progress) and self.complete:
            return "diverged"
        if self.complete:
            return "done"
        return "unfinished"

    @property
    def rung(self) -> int | None:
        """The rung at which it was stopped, from 1; None if it was not."""
        if self.stopped is None:
            return None
        return self.stopped.rung

    @property
    def rounds(self) -> int:
        """The rounds of the longest run."""
        return max((run.rounds for run in self.progress), default=0)

    @property
    def estimate(self) -> Estimate | None:
        """Mean and 95 % interval of the metric over the seeds; None without runs."""
        if not self.values:
            return None
        return estimate(self.values)


class Sweep:
    """The results of a sweep, finished or not; reads them from its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = SweepFolder(path)
        self.plan = self._folder.plan()
        self.decisions = tuple(self._folder.decisions())

    @property
    def metric(self) -> str:
        """The metric that ranks configurations."""
        return self.plan.metric

    @cached_property
    def configurations(self) -> tuple[SweptConfiguration, ...]:
        """All configurations, in the order of the plan."""
        stopped = {name: d for d in self.decisions for name in d.stopped}
        return tuple(
            self._configuration(c.name, c.settings, stopped.get(c.name))
            for c in self.plan.configurations
        )

    def _configuration(
        self, name: str, settings: Mapping[str, Any], stopped: RungDecision | None
    ) -> SweptConfiguration:
        """Read the runs of one configuration."""
        seeds = self.plan.options.seeds
        begun = [s for s in seeds if has_ledger(self._folder.run_folder(name, s))]
        progress = [self._folder.progress_of(name, seed) for seed in begun]
        values = []
        for seed in begun:
            run = self.run(name, seed)
            value = math.nan
            failed = run.meta.get("status") == "failed"
            if self.metric in run.metrics and not failed:
                value = value_at(run, self.metric, run.rounds)
            values.append(value)
            run.close()
        return SweptConfiguration(
            name,
            settings,
            seeds=tuple(begun),
            progress=tuple(progress),
            values=tuple(values),
            stopped=stopped,
            complete=len(begun) == len(seeds) and all(run.ended for run in progress),
        )

    def run(self, name: str, seed: int) -> Run:
        """Open the run of a configuration and a seed."""
        return open_run(self._folder.run_folder(name, seed))

    def runs(self, name: str) -> list[Run]:
        """Open all runs of a configuration that have begun."""
        found = next((c for c in self.configurations if c.name == name), None)
        if found is None:
            names = [c.name for c in self.configurations]
            raise InvalidOption(f"no configuration {name!r}", suggest(name, names))
        return [self.run(name, seed) for seed in found.seeds]

    @cached_property
    def ranking(self) -> tuple[SweptConfiguration, ...]:
        """The configurations, best first: complete ones, then by how far they came."""
        return tuple(sorted(self.configurations, key=self._rank))

    def _rank(
        self, configuration: SweptConfiguration
    ) -> tuple[bool, float, bool, float]:
        """Return the key of a sort that puts the best configuration first."""
        estimated = configuration.estimate
        place = 0.0
        finite = estimated is not None and math.isfinite(estimated.mean)
        if finite and estimated is not None:
            sign = 1.0 if self.plan.lower_is_better else -1.0
            place = sign * estimated.mean
        rung = configuration.rung or math.inf
        return not configuration.complete, -rung, not finite, place

    @property
    def best(self) -> SweptConfiguration | None:
        """The best complete configuration; None if none is."""
        first = self.ranking[0]
        estimated = first.estimate
        if first.complete and estimated is not None and math.isfinite(estimated.mean):
            return first
        return None

    @property
    def finished(self) -> bool:
        """Whether every configuration has ended or was stopped at a rung."""
        return all(c.complete or c.stopped is not None for c in self.configurations)

    def rows(self) -> list[dict[str, Any]]:
        """One row per run, for a data frame: settings, seed, state, rounds, metric, folder."""
        rows = []
        for found in self.configurations:
            runs = zip(found.seeds, found.progress, found.values, strict=True)
            for seed, progress, value in runs:
                row: dict[str, Any] = {"configuration": found.name, **found.settings}
                row |= {
                    "seed": seed,
                    "state": progress.state,
                    "rounds": progress.rounds,
                }
                row |= {self.metric: value}
                row["stopped at rung"] = found.rung
                row["path"] = str(self._folder.run_folder(found.name, seed))
                rows.append(row)
        return rows

    def __repr__(self) -> str:
        best = self.best
        words = f"{len(self.configurations)} configurations"
        if best is not None:
            words += f", best {best.name}"
        return f"<Sweep {self.path}: {words}>"


def open_sweep(path: str | Path) -> Sweep:
    """Open the folder of a sweep, finished or not."""
    return Sweep(Path(path))


__all__ = ["Sweep", "SweptConfiguration", "open_sweep", "value_at"]
