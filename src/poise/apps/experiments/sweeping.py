"""`sweep`: run every configuration of an experiment, and read the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from poise.apps.experiments.halving import RungDecision, decide
from poise.apps.experiments.sweep_folder import SweepFolder
from poise.apps.experiments.sweep_jobs import Jobs, RunNews, RunOrder
from poise.apps.experiments.sweep_plan import SweepPlan, plain_tables, plan_sweep
from poise.apps.experiments.sweep_results import Sweep, open_sweep, value_at
from poise.config.experiment import Experiment, load, parse
from poise.config.sweep_options import SweepOptions
from poise.core.errors import InvalidOption, errors_at
from poise.core.options import options_of
from poise.results import open_run
from poise.training import never


def quiet(news: RunNews) -> None:
    """Ignore a message: the default of ``observe``."""


def sweep(
    experiment: str | Path | Mapping[str, Any],
    over: Mapping[str, Any] = {},
    seeds: Iterable[int] = (),
    jobs: int = 1,
    zip: bool = False,
    metric: str | None = None,
    rungs: Iterable[int] = (),
    eta: int = 3,
    out: str | Path | None = None,
    observe: Callable[[RunNews], None] = quiet,
    stop: Callable[[], bool] = never,
) -> Sweep:
    """Run an experiment with several values of its keys, and compare the results.

    Every combination of values runs with every seed, in a run folder of its own. Repeat
    the call to continue an interrupted sweep: finished runs are kept, stopped runs
    continue, and the rest begins. All configurations are checked before the first runs.
    Options left at their defaults are those of the table [sweep].

    Args:
        experiment: the experiment file, or its tables as a dictionary.
        over: the values of each key of the experiment file to sweep over.
        seeds: the seeds of every configuration; by default those of the experiment
            file.
        jobs: number of runs at a time, each in a process of its own if more than 1.
        zip: combine the first values of all keys, then the second ones, instead of
            every combination.
        metric: the metric that ranks configurations; accuracy if the runs measure it,
            or else a loss.
        rungs: rounds after which only the best configurations go on.
        eta: at each rung, the best 1/eta of the configurations go on.
        out: the folder of the sweep; by default ``runs/<file>-sweep``.
        observe: called with news of the runs.
        stop: whether to stop all runs at the end of their rounds.

    >>> import tempfile
    >>> tables = {"data": {"source": "digits", "clients": 5, "samples": 100},
    ...           "task": {"model": "logistic"},
    ...           "solver": {"name": "sgd", "lr": 0.1, "steps": 2, "batch_size": 8},
    ...           "run": {"rounds": 3}}
    >>> made = sweep(tables, {"solver.lr": [0.001, 0.1]}, out=tempfile.mkdtemp())
    >>> made.best.name, len(made.rows())
    ('lr=0.1', 2)
    """
    base = _experiment(experiment)
    given = {
        "seeds": tuple(seeds),
        "jobs": jobs,
        "zip": zip,
        "metric": metric,
        "rungs": tuple(rungs),
        "eta": eta,
    }
    declared = options_of(SweepOptions)
    changes = {name: v for name, v in given.items() if v != declared[name].default}
    options = options_in(base, over=over, **changes)
    plan = plan_sweep(base, options)
    folder = default_folder(base) if out is None else Path(out)
    return run_sweep(plan, folder, observe=observe, stop=stop)


def options_in(experiment: Experiment, **changes: Any) -> SweepOptions:
    """Return the options of an experiment's table [sweep], with changes."""
    table = experiment.tables.get("sweep", {})
    try:
        return SweepOptions.of(table, **changes)
    except InvalidOption as error:
        if error.where[:1] and error.where[0] in changes:
            raise
        with experiment.located(), errors_at("sweep"):
            raise


def default_folder(experiment: Experiment) -> Path:
    """Return where an experiment is swept by default."""
    return Path("runs") / f"{experiment.name}-sweep"


def _experiment(given: str | Path | Mapping[str, Any]) -> Experiment:
    """Return the experiment of a file, or of its tables."""
    if isinstance(given, Mapping):
        try:
            return parse(tomli_w.dumps(given))
        except TypeError as error:
            raise InvalidOption(
                f"the tables of the experiment hold a value that TOML has not: {error}",
                "use numbers, texts, switches, lists and tables",
            ) from error
    return load(given)


def run_sweep(
    plan: SweepPlan,
    out: Path,
    *,
    observe: Callable[[RunNews], None] = quiet,
    stop: Callable[[], bool] = never,
) -> Sweep:
    """Run what is left of a plan into a folder: rung by rung, then to the end."""
    folder = SweepFolder(out)
    failed: set[str] = set()

    def watch(news: RunNews) -> None:
        if news.kind == "failed":
            failed.add(news.name)
        observe(news)

    with folder.locked(), Jobs(plan.options.jobs, watch, stop) as jobs:
        decisions = folder.begin(plan)
        for rung in plan.options.rungs[len(decisions) :]:
            names = alive(plan, decisions)
            jobs.advance(_orders(plan, folder, names, until=rung))
            if stop():
                break
            scores = _scores_at(plan, folder, names, until=rung, failed=failed)
            decisions.append(_decision(plan, scores, len(decisions) + 1))
            folder.save(plan, decisions)
            _announce(decisions[-1], plan, watch)
        if not stop():
            names = alive(plan, decisions)
            jobs.advance(_orders(plan, folder, names, until=None))
    return open_sweep(out)


def _announce(
    decision: RungDecision, plan: SweepPlan, observe: Callable[[RunNews], None]
) -> None:
    """Report the runs that a decision stopped."""
    for name in decision.stopped:
        for seed in plan.options.seeds:
            news = RunNews(run_name(name, seed), "stopped", decision.round)
            observe(news)


def alive(plan: SweepPlan, decisions: Sequence[RungDecision]) -> list[str]:
    """Return the names of the configurations that no decision stopped, in order."""
    stopped = {name for decision in decisions for name in decision.stopped}
    return [c.name for c in plan.configurations if c.name not in stopped]


def _orders(
    plan: SweepPlan, folder: SweepFolder, names: Sequence[str], *, until: int | None
) -> list[RunOrder]:
    """Return the runs that have not come so far yet."""
    file = plan.experiment.path
    orders = []
    for name in names:
        tables = plain_tables(plan.experiment_of(name))
        for seed in plan.options.seeds:
            if folder.progress_of(name, seed).reached(until):
                continue
            order = RunOrder(
                run_name(name, seed),
                tables,
                None if file is None else str(file.absolute()),
                seed=seed,
                folder=str(folder.run_folder(name, seed)),
                until=until,
            )
            orders.append(order)
    return orders


def run_name(name: str, seed: int) -> str:
    """Return the name of a run: its folder in that of the sweep."""
    return f"{name}/seed-{seed}"


def _scores_at(
    plan: SweepPlan,
    folder: SweepFolder,
    names: Sequence[str],
    *,
    until: int,
    failed: set[str],
) -> dict[str, list[float]]:
    """Return the metric of every run after so many rounds; nan for a failed run."""
    scores: dict[str, list[float]] = {}
    for name in names:
        scores[name] = []
        for seed in plan.options.seeds:
            value = math.nan
            if run_name(name, seed) not in failed:
                run = open_run(folder.run_folder(name, seed))
                value = value_at(run, plan.metric, until)
                run.close()
            scores[name].append(value)
    return scores


def _decision(
    plan: SweepPlan, scores: Mapping[str, Sequence[float]], rung: int
) -> RungDecision:
    """Decide at a rung, counted from 1."""
    return decide(
        scores,
        rung=rung,
        round=plan.options.rungs[rung - 1],
        eta=plan.options.eta,
        lower_is_better=plan.lower_is_better,
    )


__all__ = ["run_sweep", "sweep"]
