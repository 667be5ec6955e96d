"""Figures over several runs, for notebooks: ``poise.plot.compare([...], by="weighting")``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poise.analysis.reports.figures import learning_curves
from poise.analysis.reports.groups import Group, group_runs
from poise.core.errors import InvalidOption, require, suggest
from poise.results import Run, open_run
from poise.results.drawing import Axis, with_legend_aside
from poise.results.loading import run_folders
from poise.results.words import brief

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SEEDS = ("run.seeds", "data.seed")
"""Options in which the runs of one line may differ without a remark."""


def compare(
    runs: Iterable[Run | str | Path] | str | Path,
    by: str | Sequence[str] | None = None,
    *,
    metric: str = "accuracy",
    against: Axis = "rounds",
) -> Figure:
    """Return the curves of runs: one line for each choice, with a band over its runs.

    The line is the mean over the runs of a choice. The band is its 95 % confidence
    interval, where there are several runs. The legend names the differences.

    Args:
        runs: runs, run folders, or patterns such as ``"runs/**"``.
        by: what a line stands for: a table of the experiment (``"weighting"``) or an
            option (``"solver.lr"``), or several of them
            (``["solver.lr", "data.alpha"]``): a line for each combination. By default
            runs that differ in their seed only share a line.
        metric: any metric of the runs; of a metric with one value per client the
            standard deviation over clients.
        against: the x-axis: ``"rounds"``, ``"time"``, ``"seconds"`` or ``"bytes"``.

    >>> import poise
    >>> fed = poise.federation("digits", clients=5)
    >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
    >>> runs = [
    ...     poise.train(fed, poise.task("logistic"), solver, weighting=w, rounds=3, seed=s)
    ...     for w in (poise.weightings.Proportional(), poise.weightings.Max(2))
    ...     for s in (0, 1)
    ... ]
    >>> figure = poise.plot.compare(runs, by="weighting")
    >>> [line.name for line in figure.data if line.name]
    ['weighting=proportional', 'weighting=max(k=2)']
    """
    opened = list(_opened(runs))
    require(len(opened) > 0, "compare: there are no runs", "give at least one run")
    keys = _keys(by)
    if keys:
        groups = _groups(opened, keys)
    else:
        groups = group_runs(opened)
    known = sorted({name for run in opened for name in run.metrics})
    if metric not in known:
        raise InvalidOption(
            f"compare: no run has the metric {metric!r}",
            suggest(metric, known),
            where=("metric",),
        )
    figure = with_legend_aside(learning_curves(groups, metric, against))
    mixed = sorted({name for group in groups for name in _mixed(group, keys)})
    if mixed:
        note = figure.layout.title.subtitle.text or ""
        more = f"Lines mix runs with different {', '.join(mixed)}."
        figure.layout.title.subtitle.text = f"{note} {more}".strip()
    return figure


def _opened(runs: Iterable[Run | str | Path] | str | Path) -> Iterable[Run]:
    """Yield runs, and open those that are given as folders or patterns."""
    given = [runs] if isinstance(runs, str | Path) else runs
    for item in given:
        if isinstance(item, Run):
            yield item
        else:
            for folder in run_folders(item):
                yield open_run(folder)


def _keys(by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the tables and options that lines stand for; none by default."""
    if by is None:
        return ()
    keys = (by,) if isinstance(by, str) else tuple(by)
    require(
        bool(keys) and all(isinstance(key, str) for key in keys),
        "compare: by is neither an option nor several of them",
        'write by="solver.lr" or by=["solver.lr", "data.alpha"]',
        where="by",
    )
    return keys


def _groups(runs: list[Run], keys: Sequence[str]) -> list[Group]:
    """Return the runs of each choice of tables or options."""
    members: dict[str, list[Run]] = {}
    known: set[str] = set()
    for run in runs:
        options = run.experiment.options()
        known |= options.keys() | {name.partition(".")[0] for name in options}
        label = ", ".join(_label(key, options) for key in keys)
        members.setdefault(label, []).append(run)
    for key in keys:
        require(
            key in known,
            f"compare: no experiment has {key!r}",
            suggest(key, known),
            where="by",
        )
    return [Group(label, tuple(same)) for label, same in members.items()]


def _label(key: str, options: Mapping[str, Any]) -> str:
    """Return the choice of an experiment in a few words."""
    if key in options:
        return f"{key}={brief(options[key])}"
    prefix = f"{key}."
    table = {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix) and name not in SEEDS
    }
    return f"{key}={brief(table) or 'none'}"


def _mixed(group: Group, keys: Sequence[str]) -> set[str]:
    """Return the options, beside seeds and ``keys``, in which the runs of a line differ."""
    listed = [run.experiment.options() for run in group.runs]
    names = {name for options in listed for name in options} - set(SEEDS)
    return {
        name
        for name in names
        if not any(f"{name}.".startswith(f"{key}.") for key in keys)
        and len({json.dumps(o.get(name), default=str) for o in listed}) > 1
    }


__all__ = ["compare"]
