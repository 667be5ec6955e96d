"""Act 5: a client is unlearned, with a certificate that is verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.analysis.reports.figures import learning_curves
from poise.analysis.reports.groups import Group
from poise.analysis.reports.numbers import score_text
from poise.analysis.reports.plots import Plot, plot_of
from poise.analysis.reports.rows import Score
from poise.analysis.reports.tables import Grid
from poise.analysis.reports.unlearning_page import sensitivity_figure
from poise.apps.demo.act import Act
from poise.apps.demo.measures import Measure, measured
from poise.apps.demo.snippets import call
from poise.apps.demo.stage import Stage
from poise.config.unlearn_request import Method
from poise.results import Run
from poise.results.drawing import PALETTE
from poise.unlearning import sensitivity, sensitivity_budget
from poise.unlearning.fulfilment import Unlearned
from poise.unlearning.operation import unlearn
from poise.unlearning.verification import verify

LEAVING = 34
"""The client that leaves: 40 samples with wrong labels."""

EPSILON = 10.0
DELTA = 0.01
SIGMA = 0.05
MIN_ROUNDS = 5
SCRATCH: Method = "scratch"


@dataclass(frozen=True)
class Requests:
    """The same request for every seed: with poise, and from scratch."""

    sifu: Sequence[Unlearned]
    scratch: Sequence[Unlearned]

    @property
    def groups(self) -> Mapping[str, Sequence[Run]]:
        """The retrainings by method; poise's is last."""
        return {
            "from scratch": [done.run for done in self.scratch],
            "poise unlearn": [done.run for done in self.sifu],
        }


def unlearn_client(stage: Stage) -> Act:
    """Train a provable run, unlearn a client, and verify the certificates."""
    name = "forget"
    runs = stage.runs("5 of 6: train what can be proved", [name])[name]
    requests = _fulfil(stage, runs)
    checks = [_verified(done) for done in requests.sifu]
    return Act(
        title="Unlearn: one client leaves, with a certificate",
        question=f"Client {LEAVING} leaves. What does it cost to unlearn its data?",
        findings=tuple(_findings(requests, checks)),
        table=_table(requests, checks),
        note="Both retrain until 99 % of the accuracy on the remaining clients is back. "
        "Mean ± half the 95 % interval over seeds. The noise is secret, so a repeated "
        "demo needs other numbers of rounds.",
        figures=_figures(runs[0], requests),
        python=_python(stage),
        commands=_commands(stage),
        numbers=_numbers(requests, checks),
    )


def _fulfil(stage: Stage, runs: Sequence[Run]) -> Requests:
    """Make the request of every seed, and the same one from scratch beside it."""
    advance = stage.count(f"5 of 6: unlearn client {LEAVING}", 2 * len(runs))
    sifu = []
    scratch = []
    for run in runs:
        assert run.path is not None
        sifu.append(_request(stage, run.path))
        advance()
        scratch.append(_request(stage, run.path, SCRATCH))
        advance()
    return Requests(sifu, scratch)


def _request(stage: Stage, folder: Path, method: Method = "sifu") -> Unlearned:
    out = None
    if method == SCRATCH:
        out = str(folder / SCRATCH)
    done = unlearn(
        folder,
        [LEAVING],
        method,
        epsilon=EPSILON,
        delta=DELTA,
        sigma=SIGMA,
        min_rounds=MIN_ROUNDS,
        out=out,
        stop=stage.stop,
    )
    stage.require_going_on()
    return done


def _verified(done: Unlearned) -> int:
    """Verify a certificate, as poise verify does; returns the number of checks."""
    assert done.path is not None
    return len(verify(done.path))


ROUNDS = Measure("rounds of retraining", lambda run: float(run.rounds), "low")
ACCURACY = Measure(
    "accuracy on held-out digits",
    lambda run: float(run.metric("accuracy")[-1]),
    "high",
)


def _findings(requests: Requests, checks: Sequence[int]) -> list[str]:
    guarantee = requests.sifu[0].certificate["guarantee"]
    proved = sum(done.certificate["guarantee"]["promised"] for done in requests.sifu)
    rounds, accuracy = measured([ROUNDS, ACCURACY], requests.groups)
    return [
        f"{proved} of {len(checks)} certificates prove (ε = {guarantee['epsilon']:g}, "
        f"δ = {guarantee['delta']:g}); poise verify confirms {len(checks)} of "
        f"{len(checks)}, {checks[0]} checks each.",
        f"Compared with a retraining from scratch: {rounds.sentence}, "
        f"{rounds.verdict}; {accuracy.sentence}, {accuracy.verdict}.",
        "From scratch removes the client completely. poise's guarantee is (ε, δ), "
        "for less work.",
    ]


def _table(requests: Requests, checks: Sequence[int]) -> Grid:
    body = []
    for outcome in measured([ROUNDS, ACCURACY], requests.groups):
        scratch, sifu = outcome.scores.values()
        body.append((outcome.measure.name, score_text(sifu), score_text(scratch)))
    restart = Score(tuple(float(done.restart[1]) for done in requests.sifu))
    guarantee = requests.sifu[0].certificate["guarantee"]
    body += [
        ("restarts after round", score_text(restart), "0"),
        (
            "guarantee",
            f"ε = {guarantee['epsilon']:g}, δ = {guarantee['delta']:g}",
            "complete removal",
        ),
        ("poise verify", f"holds, {checks[0]} checks", "not needed"),
    ]
    return Grid(("", "poise unlearn", "from scratch"), tuple(body))


def _figures(run: Run, requests: Requests) -> tuple[Plot, ...]:
    limit = sensitivity_budget(SIGMA, EPSILON, DELTA)
    note = (
        f"Line: client {LEAVING}; grey: the others. poise restarts from the last model "
        f"below the dashed limit Ψ* = {limit:.3f}."
    )
    psi = sensitivity_figure(
        "How far each client has moved the model (sensitivity Ψ)",
        note,
        psi=sensitivity(run),
        limit=limit,
        colours={LEAVING: PALETTE[1]},
    )
    groups = [Group(name, (runs[0],)) for name, runs in requests.groups.items()]
    curves = learning_curves(groups, "accuracy")
    curves.layout.title.text = "Retraining with the first seed: accuracy"
    return (plot_of([psi], [""]), plot_of([curves], [""]))


def _python(stage: Stage) -> str:
    options = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "sigma": SIGMA,
        "min_rounds": MIN_ROUNDS,
    }
    request = call("poise.unlearn", "RUN", [LEAVING], **options)
    return "\n".join(
        [
            f"run = poise.open_run({str(stage.folder('forget'))!r})",
            f"done = {request.replace(repr('RUN'), 'run')}",
            "print(done.restart, done.rounds, done.certificate['guarantee']['promised'])",
        ]
    )


def _commands(stage: Stage) -> tuple[str, ...]:
    seed = f"seed-{stage.first}"
    run = stage.quoted("forget", seed)
    certificate = stage.quoted("forget", seed, "unlearning", "001", "certificate.json")
    return (
        f"poise unlearn {run} --clients {LEAVING} --min-rounds {MIN_ROUNDS}",
        f"poise verify {certificate}",
    )


def _numbers(requests: Requests, checks: Sequence[int]) -> dict[str, Any]:
    outcomes = measured([ROUNDS, ACCURACY], requests.groups)
    return {
        "client": LEAVING,
        "certificates": [str(done.path) for done in requests.sifu],
        "promised": [
            done.certificate["guarantee"]["promised"] for done in requests.sifu
        ],
        "restarts": [list(done.restart) for done in requests.sifu],
        "checks": list(checks),
        "measures": [outcome.as_data() for outcome in outcomes],
    }
