"""Act 4: the audit names the clients that only pretend to work."""

from __future__ import annotations

import numpy as np

from poise.analysis.reports.audit_page import norm_figure, score_figure
from poise.analysis.reports.plots import plot_of
from poise.analysis.reports.tables import Grid
from poise.apps.demo.act import Act
from poise.apps.demo.roles import roles_of
from poise.apps.demo.stage import Stage
from poise.auditing.audit import Audit, audit
from poise.core.types import Ints


def find_free_riders(stage: Stage) -> Act:
    """Audit the runs of poise's choice."""
    runs = stage.recorded("choice")
    advance = stage.count("4 of 6: audit the runs", len(runs))
    audits: list[Audit] = []
    for run in runs:
        audits.append(audit(run))
        advance()
    planted = roles_of(stage).free_riders
    first = audits[0]
    return Act(
        title="Audit: who only pretends to work",
        question="Who sends updates without doing the work?",
        findings=tuple(_findings(audits, planted)),
        table=_table(first),
        note="p-value: how often an honest client looks at least this suspicious. "
        "The audit reads the ledger; it needs no data.",
        figures=(
            plot_of([score_figure(first)], [""]),
            plot_of([norm_figure(runs[0], first)], [""]),
        ),
        python="\n".join(
            [
                f"found = poise.audit(poise.open_run({str(stage.folder('choice'))!r}))",
                "print(found.suspects)",
                f"print(found.explain({int(planted[0])}))",
            ]
        ),
        commands=(f"poise audit {stage.quoted('choice')}",),
        numbers={
            "planted": planted.tolist(),
            "suspects": {
                run.meta["seed"]: list(result.suspects)
                for run, result in zip(runs, audits, strict=True)
            },
        },
    )


def _findings(audits: list[Audit], planted: Ints) -> list[str]:
    clients = len(audits[0].scores)
    found = sum(int(np.isin(planted, a.suspects).sum()) for a in audits)
    alarms = sum(int((~np.isin(a.suspects, planted)).sum()) for a in audits)
    hidden = len(planted) * len(audits)
    honest = (clients - len(planted)) * len(audits)
    return [
        f"Over {len(audits)} seeds, the audit finds {found} of {hidden} free-riders "
        f"({interval(found, hidden)}).",
        f"It suspects {alarms} of {honest} honest clients ({interval(alarms, honest)}).",
    ]


def interval(hits: int, n: int) -> str:
    """A share with its exact 95 % interval of Clopper and Pearson.

    >>> interval(10, 10), interval(0, 240)
    ('100 %, 95 % interval 69.2 to 100 %', '0 %, 95 % interval 0 to 1.53 %')
    """
    from scipy.special import betaincinv

    low = 0.0
    if hits > 0:
        low = float(betaincinv(hits, n - hits + 1, 0.025))
    high = 1.0
    if hits < n:
        high = float(betaincinv(hits + 1, n - hits, 0.975))
    share = f"{100 * hits / n:.3g} %"
    return f"{share}, 95 % interval {100 * low:.3g} to {100 * high:.3g} %"


def _table(result: Audit) -> Grid:
    """The suspects, and a row for all others."""
    rows = []
    for i in sorted(result.suspects, key=lambda i: -result.scores[i]):
        evidence = result.explain(i).partition(": ")[2]
        rows.append((str(i), "yes", f"{result.p_values[i]:.1g}", evidence))
    others = np.delete(result.p_values, result.suspects)
    rows.append(
        (
            f"{len(others)} others",
            "no",
            _at_least(float(others.min())),
            "nothing against them",
        )
    )
    return Grid(("client", "suspected", "p-value", "evidence"), tuple(rows))


def _at_least(p_value: float) -> str:
    if p_value >= 1:
        return "1"
    return f"≥ {p_value:.1g}"
