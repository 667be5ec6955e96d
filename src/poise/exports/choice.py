"""Which of several seeds to export: the one that the user names, or the best by a rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from poise.analysis.reports.groups import Group
from poise.analysis.reports.rows import main_metric
from poise.analysis.reports.scores import final
from poise.core.directions import PREFIXES
from poise.core.errors import InvalidOption
from poise.results import Run


@dataclass(frozen=True)
class Chosen:
    """A run of an experiment, and why it was chosen.

    Args:
        run: the run.
        reason: one sentence; empty if there was no choice.
        rule: the value by which it was chosen; empty if none decided.
    """

    run: Run
    reason: str = ""
    rule: str = ""


def chosen_seed(runs: Sequence[Run], seed: int | None = None) -> Chosen:
    """Return the run of a seed, or the best one (`best_of`)."""
    if seed is None:
        return best_of(runs)
    named = [run for run in runs if run.meta.get("seed") == str(seed)]
    if len(named) > 1:
        folders = ", ".join(str(run.path) for run in named)
        raise InvalidOption(
            f"{len(named)} runs have seed {seed}", f"export one of {folders}"
        )
    if named:
        return Chosen(named[0])
    seeds = ", ".join(run.meta.get("seed", "?") for run in runs)
    raise InvalidOption(f"there is no run of seed {seed}", f"seeds: {seeds}")


def best_of(runs: Sequence[Run]) -> Chosen:
    """Return the run with the best last value of the main metric.

    The main metric is the accuracy, or else the loss, or another metric of the model,
    on held-out data where there are any. Equal runs: the first one. The values of the
    chosen run are too good on average, because it was chosen by them.
    """
    if len(runs) == 1:
        return Chosen(runs[0])
    metric = main_metric([Group("runs", tuple(runs))])
    if metric is None:
        return Chosen(
            runs[0], "the first seed: the runs measured no metric of the model"
        )
    lower = runs[0].directions.lower_is_better(metric)
    sign = -1.0 if lower else 1.0
    values = [final(run, metric) if metric in run.metrics else math.nan for run in runs]
    ranked = [-math.inf if math.isnan(value) else sign * value for value in values]
    k = ranked.index(max(ranked))
    word = "lowest" if lower else "highest"
    score = f"the {word} final {metric}, {values[k]:.4g}"
    where = "" if metric.startswith(PREFIXES) else " on held-out data"
    rule = f"the {word} final {metric}{where} of {len(runs)} runs, {values[k]:.4g}"
    seeds = {run.meta.get("seed", "?") for run in runs}
    if len(seeds) < len(runs):  # several experiments, such as a sweep
        return Chosen(runs[k], f"{runs[k].path}: {score} of {len(runs)} runs", rule)
    seed = runs[k].meta.get("seed", "?")
    reason = f"seed {seed} of {len(runs)} seeds: {score} (--seed chooses another)"
    return Chosen(runs[k], reason, rule)
