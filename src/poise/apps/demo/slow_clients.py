"""Act 6: slow clients, with a server that waits and with FedFix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from poise.analysis.reports import scores
from poise.analysis.reports.figures import learning_curves
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import plot_of
from poise.apps.demo.act import Act
from poise.apps.demo.measures import Measure, measured, outcome_grid
from poise.apps.demo.roles import durations_of, roles_of
from poise.apps.demo.snippets import call
from poise.apps.demo.stage import Stage
from poise.apps.demo.training import findings
from poise.results import Run

NAMES = {"synchronous": "synchronous", "FedFix": "fedfix"}
TARGET = 0.8


def time_slow_clients(stage: Stage) -> Act:
    """Give both clocks the same simulated time, and compare them."""
    runs = stage.runs("6 of 6: wait, or go on", list(NAMES.values()))
    groups = {name: runs[file] for name, file in NAMES.items()}
    outcomes = measured(MEASURES, groups)
    drawn = [Group(name, tuple(members)) for name, members in groups.items()]
    roles = roles_of(stage)
    budget = stage.experiment("fedfix").table("run")["time"]
    return Act(
        title="Slow clients: wait, or go on",
        question=f"{len(roles.slow)} clients need {roles.slowness:g} times longer. "
        "Should the server wait?",
        findings=tuple(findings(outcomes, "waiting")),
        table=outcome_grid(outcomes, "vs waiting"),
        note=f"Both have {budget:g} units of simulated time; a usual client needs one "
        "unit. Mean ± half the 95 % interval over seeds, paired by seed.",
        figures=(plot_of([learning_curves(drawn, "accuracy", "time")], [""]),),
        python=_python(stage),
        commands=(
            f"poise run {stage.quoted('fedfix.toml')} --seeds {stage.first} "
            f"--out {stage.quoted('again', 'fedfix')}",
            f"poise compare {stage.quoted('synchronous')} {stage.quoted('fedfix')} "
            f"--target {TARGET}",
        ),
        numbers={"measures": [outcome.as_data() for outcome in outcomes]},
    )


def time_to(run: Run, target: float) -> float | None:
    """The simulated time at which a run first reaches an accuracy; None if never."""
    n = scores.rounds_to(run, target)
    if n is None:
        return None
    return float(run.times[n - 1])


MEASURES: Sequence[Measure] = (
    Measure(f"time to {TARGET}", partial(time_to, target=TARGET), "low"),
    Measure("final accuracy", partial(scores.final, metric="accuracy"), "high"),
    Measure("bytes, both ways", lambda run: _bytes(run), "low", "bytes"),
)


def _bytes(run: Run) -> float:
    return float((run.bytes_up + run.bytes_down).sum())


def _python(stage: Stage) -> str:
    experiment = stage.experiment("fedfix")
    durations = durations_of(stage)
    usual = float(durations.min())
    slow = durations[durations > usual]
    solver = {k: v for k, v in experiment.table("solver").items() if k != "name"}
    dt = experiment.table("clock")["dt"]
    recipe = call("poise.recipes.fedfix", dt, "TIMES", **solver)
    times = f"[{usual}] * {len(durations) - len(slow)} + {slow.tolist()}"
    left = experiment.table("data")["without"]
    return "\n".join(
        [
            f"parts = {recipe.replace(repr('TIMES'), times)}",
            f"run = poise.train(fed.without({left}), poise.task('logistic'), **parts,",
            f"    time={experiment.table('run')['time']}, seed={stage.first})",
            f"print(run.times[run.rounds_to({TARGET}) - 1])",
        ]
    )
