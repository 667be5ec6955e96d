"""The verb ``poise sweep``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from poise.apps.cli.terminal import console, notes, print_json, remark, stoppable
from poise.apps.experiments.sweep_folder import SweepFolder
from poise.apps.experiments.sweep_jobs import RunNews
from poise.apps.experiments.sweep_plan import SweepPlan, plan_sweep
from poise.apps.experiments.sweep_results import Sweep, SweptConfiguration
from poise.apps.experiments.sweeping import (
    alive,
    options_in,
    run_name,
    run_sweep,
)
from poise.config.entries import entries_of, values_of
from poise.config.experiment import load
from poise.config.sweep_axes import parse_axis
from poise.config.sweep_options import SweepOptions

if TYPE_CHECKING:
    from rich.table import Table


def planned(
    file: Path,
    over: list[str],
    overrides: list[str],
    *,
    options: Mapping[str, Any],
    quiet: bool,
) -> SweepPlan:
    """Check all configurations of a file, and return the plan of its sweep."""
    experiment = load(file, overrides)
    given = values_of(options, entries_of(SweepOptions, without=("over",)))
    axes = [parse_axis(text) for text in over]
    swept = options_in(
        experiment, over={a.dotted: list(a.values) for a in axes}, **given
    )
    with SweepBar(quiet) as bar:
        return plan_sweep(experiment, swept, bar.checking(len(swept.configurations)))


def continue_sweep(
    plan: SweepPlan, folder: Path, *, report: Path | None = None, json: bool = False
) -> None:
    """Run what is left of a sweep, and print its ranking."""
    if not json:
        remark(f"{describe(plan)}, into {folder}")
    with stoppable(json) as stop, SweepBar(quiet=json) as bar:
        made = run_sweep(plan, folder, observe=bar.watch(plan, folder), stop=stop)
    if stop.raised:
        remark(f"stopped; continue with: poise resume {folder}")
    page = None
    if report is not None:
        page = write_sweep_page(made, report)
    show_sweep(made, json, page)


def resume_sweep(folder: Path, json: bool) -> None:
    """Continue the sweep of a folder as it was planned."""
    continue_sweep(SweepFolder(folder).plan(), folder, json=json)


def write_sweep_page(made: Sweep, out: Path) -> Path:
    """Write the page of a sweep."""
    from poise.apps.experiments.sweep_pages import write_page_of_sweep

    return write_page_of_sweep(made, out)


def describe(plan: SweepPlan) -> str:
    """Return in words how many runs a sweep has.

    For example ``12 runs: 4 configurations with 3 seeds, 2 at a time``.
    """
    seeds = len(plan.options.seeds)
    words = (
        f"{_count(plan.runs, 'run')}: {_count(len(plan.configurations), 'configuration')} "
        f"with {_count(seeds, 'seed')}"
    )
    if plan.options.jobs > 1:
        words += f", {plan.options.jobs} at a time"
    return words


def _count(n: int, noun: str) -> str:
    if n == 1:
        return f"{n} {noun}"
    return f"{n} {noun}s"


def show_plan(plan: SweepPlan, folder: Path, json: bool) -> None:
    """Print which runs a sweep would make, and which of them the folder has already."""
    sweep_folder = SweepFolder(folder)
    decisions = sweep_folder.decisions() if sweep_folder.exists else []
    going_on = set(alive(plan, decisions))
    lines = []
    for configuration in plan.configurations:
        states = {
            str(seed): sweep_folder.progress_of(configuration.name, seed).state
            for seed in plan.options.seeds
        }
        lines.append(
            {
                "name": configuration.name,
                "settings": dict(configuration.settings),
                "rounds": plan.rounds[configuration.name],
                "stopped": configuration.name not in going_on,
                "runs": states,
            }
        )
    if json:
        document = {"folder": str(folder), "runs": plan.runs, "metric": plan.metric}
        print_json(document | {"configurations": lines})
        return
    console.print(f"{describe(plan)}, into {folder}", markup=False, highlight=False)
    console.print(_rule(plan), markup=False, highlight=False)
    console.print(_plan_table(lines))


def _rule(plan: SweepPlan) -> str:
    """Return in words how configurations are compared."""
    direction = "highest"
    if plan.lower_is_better:
        direction = "lowest"
    words = f"ranked by the {direction} mean {plan.metric} over the seeds"
    rungs = plan.options.rungs
    if rungs:
        rounds = ", ".join(map(str, rungs))
        words += f"; after rounds {rounds} the best 1/{plan.options.eta} go on"
    return words


def _plan_table(lines: list[dict[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("configuration", overflow="fold", min_width=24)
    for name in ("rounds", "done", "left"):
        table.add_column(name, justify="right")
    for line in lines:
        states = list(line["runs"].values())
        done = sum(state in ("done", "diverged") for state in states)
        left = str(len(states) - done)
        if line["stopped"]:
            left = "stopped"
        rounds = "by time"
        if line["rounds"] is not None:
            rounds = str(line["rounds"])
        table.add_row(Text(line["name"]), rounds, str(done), left)
    return table


def show_sweep(made: Sweep, json: bool, page: Path | None = None) -> None:
    """Print the ranking of a sweep and the page that was written, or one JSON document."""
    if json:
        print_json({**sweep_as_data(made), "page": page and str(page)})
        return
    console.print(sweep_table(made, console.width))
    best = made.best
    if best is not None:
        console.print(
            f"best: {best.name}  ({made.path / best.name})",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if len(made.configurations) > 1 and made.finished:
        console.print(LUCK, style="dim", markup=False, highlight=False)
    if page is None:
        remark(f"write a page about it: poise report {made.path}")
    else:
        remark(f"page: {page}")


LUCK = (
    "The best of many is partly lucky: repeat it with new seeds before you rely on its "
    "score."
)


def sweep_table(made: Sweep, width: int) -> Table:
    """Return the ranking as a table: mean ± half the 95 % interval over the seeds."""
    from poise.analysis.reports.fitted_table import fitted_table
    from poise.apps.experiments.sweep_pages import ranking_heading, ranking_of

    caption = ""
    if len(made.plan.options.seeds) > 1:
        caption = "mean ± half the width of the 95 % confidence interval over seeds"
    lines = [
        (place, name.replace(",", ", "), *rest)
        for place, name, *rest in ranking_of(made)
    ]
    return fitted_table(
        ranking_heading(made), lines, label=1, width=width, least=20, caption=caption
    ).table


def sweep_as_data(made: Sweep) -> dict[str, Any]:
    """Return a sweep as plain values for ``--json``."""
    best = made.best
    return {
        "folder": str(made.path),
        "metric": made.metric,
        "best": None if best is None else best.name,
        "finished": made.finished,
        "configurations": [_as_data(c, made) for c in made.ranking],
        "decisions": [decision.document() for decision in made.decisions],
    }


def _as_data(configuration: SweptConfiguration, made: Sweep) -> dict[str, Any]:
    estimated = configuration.estimate
    interval: dict[str, Any] = dict.fromkeys(("mean", "low", "high"))
    if estimated is not None and math.isfinite(estimated.mean):
        interval = {
            "mean": estimated.mean,
            "low": estimated.low,
            "high": estimated.high,
        }
    return {
        "name": configuration.name,
        "settings": dict(configuration.settings),
        "state": configuration.state,
        "rung": configuration.rung,
        **interval,
        "values": list(configuration.values),
        "seeds": list(configuration.seeds),
        "rounds": [run.rounds for run in configuration.progress],
        "digests": [run.digest for run in made.runs(configuration.name)],
        "runs": [
            str(made.path / run_name(configuration.name, seed))
            for seed in configuration.seeds
        ],
    }


class SweepBar:
    """A bar over all rounds of a sweep, with the time left, and one for each present run."""

    def __init__(self, quiet: bool) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=notes, disable=quiet)
        self._quiet = quiet
        self._tasks: dict[str, TaskID] = {}
        self._rounds: dict[str, int] = {}
        self._all: TaskID | None = None
        self._left = 0  # rounds that the sweep makes in all

    def __enter__(self) -> SweepBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress.tasks:
            self._progress.stop()

    def checking(self, total: int) -> Any:
        """Return a function that advances a bar over checked configurations."""
        self._progress.start()
        task = self._progress.add_task("checking", total=total, score="")
        return lambda: self._progress.advance(task)

    def watch(self, plan: SweepPlan, folder: Path) -> Any:
        """Return the function that takes news of the runs."""
        self._progress.start()
        sweep_folder = SweepFolder(folder)
        decisions = sweep_folder.decisions() if sweep_folder.exists else []
        going_on = set(alive(plan, decisions))
        planned = {}
        for configuration in plan.configurations:
            rounds = plan.rounds[configuration.name]
            for seed in plan.options.seeds:
                name = run_name(configuration.name, seed)
                recorded = sweep_folder.progress_of(configuration.name, seed).rounds
                planned[name] = rounds
                self._rounds[name] = recorded
                if configuration.name in going_on:
                    self._left += rounds or 0
                else:
                    self._left += recorded
        words = f"{_count(plan.runs, 'run')}, rounds"
        done = sum(self._rounds.values())
        self._all = self._progress.add_task(
            words, total=self._left or None, completed=done, score=""
        )

        def observe(news: RunNews) -> None:
            self._see(news, planned[news.name])

        return observe

    def _see(self, news: RunNews, planned: int | None) -> None:
        """Show one message."""
        assert self._all is not None
        if news.kind in ("warning", "failed"):
            if not self._quiet:
                remark(f"{news.name}: {news.text}")
            return
        self._rounds[news.name] = news.rounds
        self._progress.update(self._all, completed=sum(self._rounds.values()))
        if news.kind == "stopped":
            self._left -= (planned or 0) - news.rounds
            self._progress.update(self._all, total=self._left or None)
        if news.kind in ("ended", "stopped"):
            task = self._tasks.pop(news.name, None)
            if task is not None:
                self._progress.remove_task(task)
            return
        if news.name not in self._tasks:
            self._tasks[news.name] = self._progress.add_task(
                f"  {news.name}", total=planned, score=""
            )
        task = self._tasks[news.name]
        self._progress.update(task, completed=news.rounds)
        if news.metrics:
            score = "  ".join(f"{k} {v:.3f}" for k, v in list(news.metrics.items())[:2])
            self._progress.update(task, score=score)
