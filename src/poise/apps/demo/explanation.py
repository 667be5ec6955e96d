"""Act 2: which choice of parts is biased, and why, before any training."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from poise.analysis.explain import Explanation
from poise.analysis.reports.figures import colour
from poise.analysis.reports.plots import plot_of
from poise.analysis.reports.tables import Grid
from poise.apps.demo.act import Act
from poise.apps.demo.stage import Stage
from poise.apps.experiments.explanation import explain_named
from poise.results.drawing import empty_figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


TICKS = [0.1, 0.2, 0.5, 1, 2, 5]


@dataclass(frozen=True)
class Choice:
    """A choice of parts: its name, its experiment, and changes of single values."""

    name: str
    experiment: str
    changes: tuple[str, ...] = ()


CHOICES = (
    Choice("FedAvg", "fedavg"),
    Choice("FedAvg, first rule", "fedavg", ("sampler.absent=keep",)),
    Choice("clustered", "clustered"),
    Choice("with Exp-α", "choice"),
)


def explain_choices(stage: Stage) -> Act:
    """Explain four choices of parts."""
    advance = stage.count("2 of 6: explain the choices", len(CHOICES))
    explained: dict[str, Explanation] = {}
    for choice in CHOICES:
        file = str(stage.file(choice.experiment))
        explained[choice.name] = explain_named(file, choice.changes, stage.first)
        advance()
        stage.require_going_on()
    solver = stage.experiment("fedavg").table("solver")
    lines = (
        f"solver = poise.solvers.SGD(lr={solver['lr']}, epochs={solver['epochs']}, "
        f"batch_size={solver['batch_size']})",
        "told = poise.explain(fed, poise.task('logistic'), solver, "
        "sampler='uniform', rounds=60)",
        "print(told.unbiased, told.chi2, *told.warnings, sep='\\n')",
    )
    return Act(
        title="Explain: which choice is biased",
        question="Which objective does each choice minimise, before any training?",
        findings=tuple(_findings(explained)),
        table=_table(explained),
        note="Σ E[ω]: mean sum of the weights of a round. χ²: distance of the objective "
        "from the requested one.",
        figures=(plot_of([importance_figure(explained)], [""]),),
        python="\n".join(lines).replace(
            "'uniform'", f"poise.samplers.Uniform({_per_round(stage)})"
        ),
        commands=(
            f"poise explain {stage.quoted('fedavg.toml')}",
            f"poise explain {stage.quoted('choice.toml')}",
        ),
        numbers={
            "choices": {
                name: {
                    "unbiased": told.unbiased,
                    "sum of mean weights": float(told.mean.sum()),
                    "chi2": told.chi2,
                    "objective": told.objective.tolist(),
                    "warnings": list(told.warnings),
                }
                for name, told in explained.items()
            }
        },
    )


def _per_round(stage: Stage) -> int:
    return int(stage.experiment("fedavg").table("sampler")["m"])


def _findings(explained: dict[str, Explanation]) -> list[str]:
    """The warnings of every choice, each once, in the words of `poise explain`."""
    texts = []
    known: set[str] = set()
    for name, told in explained.items():
        if told.unbiased:
            texts.append(f"{name}: unbiased; it minimises the requested objective.")
        new = [warning for warning in told.warnings if warning not in known]
        texts += [f"{name}: {warning}." for warning in new]
        known.update(new)
    texts.append(
        "with Exp-α: biased on purpose, towards clients whose data agree with the model. "
        "Act 3 shows whether that helps."
    )
    return texts


def _table(explained: dict[str, Explanation]) -> Grid:
    body = []
    for name, told in explained.items():
        chi2 = "∞"
        if isfinite(told.chi2):
            chi2 = f"{told.chi2:.2g}"
        body.append(
            (
                name,
                _verdict(told),
                f"{told.mean.sum():.2f}",
                chi2,
                "; ".join(remark.about for remark in told.remarks) or "none",
            )
        )
    return Grid(("choice", "objective", "Σ E[ω]", "χ²", "warnings"), tuple(body))


def _verdict(told: Explanation) -> str:
    if told.unbiased:
        return "as requested"
    return "biased"


def importance_figure(explained: dict[str, Explanation]) -> Figure:
    """What every client counts, relative to its importance; clients sorted by size."""
    import plotly.graph_objects as go

    figure = empty_figure(
        "What each client counts, relative to its importance",
        "κ = 1: as requested. Clients from small to large.",
        "samples of the client",
        "κ",
    )
    shown = [choice.name for choice in CHOICES if not choice.changes]
    for k, name in enumerate(shown):
        told = explained[name]
        order = np.argsort(told.importance, kind="stable")
        kappa = (told.objective / told.importance)[order]
        figure.add_trace(
            go.Scatter(
                x=np.arange(len(order)),
                y=kappa,
                mode="markers",
                name=name,
                marker={"color": colour(k), "size": 7},
                customdata=order,
                hovertemplate="client %{customdata}: κ = %{y:.3g}"
                "<extra>%{fullData.name}</extra>",
            )
        )
    figure.add_hline(y=1, line={"dash": "dash", "color": "#57606c"})
    figure.update_xaxes(title={"text": "clients, from small to large"}, tickformat="d")
    return figure.update_yaxes(
        type="log", tickvals=TICKS, ticktext=list(map(str, TICKS))
    )
