"""Act 3: FedAvg against poise's choice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from poise.analysis.reports import scores
from poise.analysis.reports.figures import learning_curves, trait_weights
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import plot_of
from poise.apps.demo.act import Act
from poise.apps.demo.measures import (
    BETTER,
    NOT_REACHED,
    ONE_SEED,
    UNCLEAR,
    WORSE,
    Measure,
    Outcome,
    by_verdict,
    measured,
    outcome_grid,
)
from poise.apps.demo.roles import Roles, roles_of
from poise.apps.demo.snippets import call
from poise.apps.demo.stage import Stage
from poise.core.types import Ints
from poise.results import Run

NAMES = {"FedAvg": "fedavg", "clustered": "clustered", "with Exp-α": "choice"}
"""The groups of the act and their experiments; the last is poise's choice."""

TARGET = 0.8
LAST = 20
"""Rounds at the end over which the accuracy should be steady."""


def compare_choices(stage: Stage) -> Act:
    """Train FedAvg, clustered sampling, and poise's choice, and compare them."""
    runs = stage.runs("3 of 6: train three choices", list(NAMES.values()))
    groups = {name: runs[file] for name, file in NAMES.items()}
    outcomes = measured(measures(roles_of(stage)), groups)
    drawn = [Group(name, tuple(members)) for name, members in groups.items()]
    by_labels = trait_weights(drawn, "flip ratio")
    by_labels.layout.title.text = "Mean weight of an update, by wrong labels"
    by_labels.layout.xaxis.title.text = "share of classes with wrong labels"
    figures = (
        plot_of([learning_curves(drawn, "accuracy")], [""]),
        plot_of([by_labels], [""]),
    )
    return Act(
        title="Train: FedAvg against poise's choice",
        question="Does the choice of sampler and weights help against wrong labels?",
        findings=tuple(_findings(outcomes)),
        table=outcome_grid(outcomes, "vs FedAvg"),
        note="Mean ± half the 95 % interval over seeds. Differences are paired by seed. "
        "Accuracy on held-out digits with right labels.",
        figures=figures,
        python=_python(stage),
        commands=(
            f"poise run {stage.quoted('choice.toml')} --seeds {stage.first} "
            f"--out {stage.quoted('again', 'choice')}",
            f"poise compare {stage.quoted('fedavg')} {stage.quoted('choice')}",
        ),
        numbers={"measures": [outcome.as_data() for outcome in outcomes]},
    )


def measures(roles: Roles) -> Sequence[Measure]:
    """What the act measures of every run."""
    return (
        Measure("final accuracy", partial(scores.final, metric="accuracy"), "high"),
        Measure(f"spread, last {LAST} rounds", _spread, "low"),
        Measure(f"rounds to {TARGET}", partial(scores.rounds_to, target=TARGET), "low"),
        Measure("weight: wrong labels", partial(share, clients=roles.wrong), "low"),
        Measure(
            "weight: free-riders", partial(share, clients=roles.free_riders), "low"
        ),
    )


def _spread(run: Run) -> float:
    """Standard deviation of the accuracy over the last rounds."""
    return float(np.std(run.metric("accuracy")[-LAST:]))


def share(run: Run, clients: Ints) -> float:
    """The share of all weight that these clients had."""
    return float(run.weights[:, clients].sum() / run.weights.sum())


def findings(outcomes: Sequence[Outcome], other: str) -> list[str]:
    """Where the last group wins, where it loses, and where the seeds do not tell."""
    texts = []
    words = {
        BETTER: f"Better than {other}",
        WORSE: f"Worse than {other}",
        UNCLEAR: f"No clear difference from {other}",
        ONE_SEED: f"Compared with {other}",
        NOT_REACHED: f"Cannot be compared with {other}",
    }
    for verdict, words_first in words.items():
        sentences = by_verdict(outcomes, verdict)
        if sentences:
            texts.append(f"{words_first}: {sentences}.")
    return texts


def _findings(outcomes: Sequence[Outcome]) -> list[str]:
    texts = findings(outcomes, "FedAvg")
    riders = outcomes[-1]
    if riders.verdict == WORSE:
        texts.append(
            "Exp-α trusts clients that improve little on their own data. Free-riders "
            "improve nothing, so they gain weight. Act 4 finds them."
        )
    return texts


def _python(stage: Stage) -> str:
    experiment = stage.experiment("choice")
    solver = {k: v for k, v in experiment.table("solver").items() if k != "name"}
    weighting = experiment.table("weighting")
    riders = [
        call("poise.attacks.FreeRider", attack["clients"], attack.get("kind", "plain"))
        for attack in experiment.tables["attacks"]
    ]
    run = [
        "run = poise.train(fed, poise.task('logistic'), solver,",
        f"    sampler=poise.samplers.ClusteredBySize({experiment.table('sampler')['m']}),",
        f"    weighting=poise.weightings.Exp({weighting['alpha']}, "
        f"{weighting['scale']!r}),",
        f"    attacks=[{', '.join(riders)}],",
        f"    rounds={experiment.table('run')['rounds']}, seed={stage.first})",
    ]
    return "\n".join(
        [
            f"solver = {call('poise.solvers.SGD', **solver)}",
            *run,
            "print(run.metric('accuracy')[-1])",
        ]
    )
