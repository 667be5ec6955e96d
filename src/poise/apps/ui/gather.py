"""The data behind pages and API responses, read from the ledger or from the cache.

Heavy modules are imported on first use, so that the console starts without PyTorch.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports.tables import finite
from poise.apps.ui import models, quarantine
from poise.apps.ui.actions import jobs_of, operand
from poise.apps.ui.jobs import ConsoleJob
from poise.apps.ui.library import Library
from poise.apps.ui.views.drawing import drawn
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError
from poise.ledger.store import DATABASE
from poise.ledger.summary import read_summary
from poise.results import Run

if TYPE_CHECKING:
    from poise.analysis.reports.graphs import KeptGraph
    from poise.apps.ui.views.audit import KeptAudit
    from poise.apps.ui.views.unlearning import RequestOptions
    from poise.privacy.budget import Budget


FAST_AUDIT = 20_000
"""Clients times rounds up to which an audit takes less than a second."""


def client_of(
    library: Library, name: str, given: str, page: int = 1
) -> models.ClientOf:
    """One client of a run, given by number or by name."""
    from poise.apps.ui.views import audit
    from poise.apps.ui.views import client as views

    with library.open(name) as run:
        client = views.checked(run, given)
        history = views.client_history(run, client)
        kept = _graph(library.folder(name))
        position = None
        if kept is not None and kept.graph.clients == run.clients:
            position = views.graph_position(kept, client)
        audited, no_audit = _audit_if_fast(library, name, run)
        verdict = None
        if audited is not None:
            verdict = audit.audit_result(audited, client)
        refused = []
        for n, reason in history.refused:
            refused.append(models.RefusedUpdate(aggregation=n, reason=reason))
        return models.ClientOf(
            profile=views.profile(run, client),
            names=list(run.client_names),
            participation=history.facts,
            events=history.events,
            refused=refused,
            place=position,
            latest=views.latest(run, client),
            measured_on=views.measured_in_words(run),
            contributions=history.page(page),
            no_verdict=no_audit,
            verdict=verdict,
            sensitivity=_sensitivity(run, client),
        )


def client_figures(library: Library, name: str, given: str) -> str:
    """The figures of one client (`Drawings`)."""
    from poise.apps.ui.views import client as views

    with library.open(name) as run:
        client = views.checked(run, given)
        audited, _ = _audit_if_fast(library, name, run)
        audit = None
        if audited is not None:
            audit = audited.audit

        def make() -> str:
            budget = _budget(run)
            psi, _ = _psi(run, client, budget)
            plots = views.plots(
                run,
                client,
                history=views.client_history(run, client),
                psi=psi,
                limit=budget.limit,
                audit=audit,
            )
            return drawn(plots)

        return library.cached(name, ("client", client, audited is None), make)


def federation_of(library: Library, name: str) -> models.FederationOf:
    """All clients of a run together."""
    from poise.apps.ui.views import federation as views

    with library.open(name) as run:
        federation = models.FederationOf(
            facts=models.facts(views.facts(run)),
            ranking=_client_ranking(library, name, run),
            no_graph=views.why_no_graph(run),
            names=list(run.client_names),
            graph=[],
            typical={},
            same_data=None,
        )
        kept = _graph(library.folder(name))
        if kept is not None:
            federation.graph = models.facts(views.graph_facts(kept))
            federation.typical = views.typical(kept)
            federation.same_data = kept.digest == run.meta.get("federation")
        return federation


def _client_ranking(
    library: Library, name: str, run: Run
) -> models.ClientRanking | None:
    """How each client of a run fares, the worst first; None before the first round."""
    from poise.analysis.reports.client_tables import client_table
    from poise.analysis.reports.groups import Group

    table = library.cached(
        name, "client ranking", lambda: client_table(Group(name, (run,)))
    )
    if table is None:
        return None
    return models.ClientRanking(
        heading=list(table.heading),
        lines=[list(line) for line in table.lines],
        order=list(table.order),
        note=table.note,
    )


def federation_figures(library: Library, name: str) -> str:
    """Sizes and classes of the clients (`Drawings`)."""
    from poise.apps.ui.views import federation as views

    def make() -> str:
        with library.open(name) as run:
            return drawn(views.plots(run))

    return library.cached(name, "federation", make)


def graph_figures(library: Library, name: str) -> str:
    """The figures of a run's similarity graph (`Drawings`); empty without a graph."""
    from poise.apps.ui.views import federation as views

    folder = library.folder(name)
    file = views.graph_file(folder)
    changed = 0
    if file.exists():
        changed = file.stat().st_mtime_ns

    def make() -> str:
        kept = _graph(folder)
        if kept is None:
            return drawn([])
        return drawn(views.graph_plots(kept))

    return library.cached(name, ("graph", changed), make)


def unlearning_of(library: Library, name: str) -> models.UnlearningOf:
    """The unlearning requests of a run; raises an error for an altered certificate."""
    from poise.apps.ui.views import unlearning as views

    jobs = jobs_of(library, name).all()
    with library.open(name) as run, views.opened(run) as histories:
        view = views.unlearning_view(run, histories)
        assert histories.root.path is not None
        unfinished = None
        if view.open is not None:
            unfinished = view.open.form()
        return models.UnlearningOf(
            training=library.name(histories.root.path),
            forgotten=view.forgotten,
            limit=view.budget.limit,
            budget=asdict(view.budget),
            open=unfinished,
            requests=[_certificate(row, jobs, view.head) for row in view.rows],
        )


def _certificate(
    row: dict[str, Any], jobs: list[ConsoleJob], head: tuple[str, ...]
) -> models.CertificateOf:
    from poise.apps.ui.views.unlearning import verification

    state, words = verification(row["request"], row["fingerprint"], jobs)
    return models.CertificateOf(
        request=row["request"],
        summary=dict(zip(head, row["cells"], strict=True)),
        certificate=row["certificate"],
        verification=state,
        verification_words=words,
    )


def unlearning_figures(library: Library, name: str) -> str:
    """The restart tree and the sensitivities (`Drawings`)."""
    from poise.apps.ui.views import unlearning as views

    with library.open(name) as run, views.opened(run) as histories:

        def make() -> str:
            return drawn(views.unlearning_view(run, histories).plots)

        return library.cached(name, ("unlearning", len(histories.finished)), make)


def cost_of(library: Library, name: str, options: RequestOptions) -> models.Cost:
    """The cost of an unlearning request."""
    from poise.apps.ui.views.unlearning import opened

    with library.open(name) as run, opened(run) as histories:
        cost = options.cost(run, histories)
        training = histories.root.path
        assert training is not None
        command = shlex.join(
            ["poise", "unlearn", operand(training), *options.arguments()]
        )
    return models.Cost(
        restart=list(cost.restart),
        ideal=list(cost.ideal),
        given_up=cost.given_up,
        sigma=cost.sigma,
        limit=cost.limit,
        psi={str(c): finite(v) for c, v in cost.psi.items()},
        not_proved=list(cost.not_proved),
        words=models.facts(cost.rows()),
        command=command,
    )


def audit_of(
    library: Library, name: str, alarm: float, page: int = 1
) -> models.AuditOf:
    """The audit of a run at a false-alarm rate."""
    from poise.apps.ui.views import audit as views

    with library.open(name) as run:
        kept = _audited(library, name, run).at(alarm)
        free_riders = views.free_riders(run)
        auc = None
        if 0 < len(free_riders) < run.clients:
            auc = kept.audit.auc(free_riders)
        return models.AuditOf(
            alarm=alarm,
            ranking=views.ranking(kept, page, free_riders=free_riders),
            thresholds=views.thresholds(kept, free_riders),
            auc=auc,
            news=views.live_events(run),
        )


def audit_figures(library: Library, name: str, alarm: float) -> str:
    """The figures of the audit (`Drawings`)."""
    from poise.apps.ui.views import audit as views

    def make() -> str:
        with library.open(name) as run:
            kept = _audited(library, name, run).at(alarm)
            return drawn(views.plots(run, kept, views.free_riders(run)))

    return library.cached(name, ("audit", alarm), make)


def quarantine_of(library: Library, name: str) -> models.QuarantineOf:
    """The clients in quarantine, and the experiment and command that exclude them."""
    from poise.apps.ui.views.federation import on_nodes

    folder = library.folder(name)
    decisions = quarantine.decisions(folder)
    excluded = quarantine.excluded(decisions)
    experiment = ""
    command = ""
    trouble = ""
    with library.open(name) as run:
        if excluded:
            file = f"{quarantine.without_name(excluded)}.toml"
            command = f"poise run {file}"
            if on_nodes(run.experiment):
                command = f"poise deploy run {file} --to DIR"
            try:
                experiment = quarantine.experiment_without(run, excluded)
            except PoiseError as error:
                command = ""
                trouble = str(error)
    return models.QuarantineOf(
        excluded=excluded,
        decisions=[models.DecisionOf(**vars(decision)) for decision in decisions],
        experiment=experiment,
        command=command,
        trouble=trouble,
    )


def decide(library: Library, name: str, form: models.DecisionForm) -> models.DecisionOf:
    """Record a decision about a client, with its current audit result."""
    from poise.apps.ui.views.audit import audit_result
    from poise.apps.ui.views.client import checked

    with library.open(name) as run:
        checked(run, form.client)
        audited, _ = _audit_if_fast(library, name, run)
        score = None
        p = None
        if audited is not None:
            result = audit_result(audited, form.client)
            score = result.score
            p = result.p
        decision = quarantine.decide(
            run,
            form.client,
            action=form.action,
            who=form.who,
            why=form.why,
            score=score,
            p=p,
        )
    return models.DecisionOf(**vars(decision))


def job_of(job: ConsoleJob) -> models.JobOf:
    """An action and its progress."""
    grows = job.about.get("grows")
    rounds = None
    if grows and (Path(grows) / DATABASE).exists():
        rounds = read_summary(Path(grows)).rounds
    return models.JobOf(
        id=job.id,
        kind=job.kind,
        title=job.title,
        command=job.command,
        began=job.began,
        state=job.state,
        error=job.error,
        hint=str(job.outcome.get("hint", "")),
        log=job.log,
        rounds=rounds,
        of=job.about.get("of"),
    )


def deployment_named(known: tuple[Path, ...], name: str | None) -> Path | None:
    """A deployment of the console by name; without a name, the only deployment."""
    if not name:
        if len(known) == 1:
            return known[0]
        return None
    for path in known:
        if str(path) == name:
            return path
    raise InvalidOption(
        f"the console does not know the deployment {name!r}",
        "start the console with --deployment DIR",
    )


def _audited(library: Library, name: str, run: Run) -> KeptAudit:
    from poise.apps.ui.views.audit import audit_run

    return library.cached(name, "audit", lambda: audit_run(run))


def _audit_if_fast(
    library: Library, name: str, run: Run
) -> tuple[KeptAudit | None, str]:
    """The audit if cached or fast, otherwise the reason; other pages do not wait."""
    from poise.apps.ui.views.audit import audit_run

    def make() -> KeptAudit:
        if run.clients * run.rounds > FAST_AUDIT:
            raise IncompatibleParts(
                "this run has not been audited yet",
                "open its audit page; this takes a while",
            )
        return audit_run(run)

    try:
        return library.cached(name, "audit", make), ""
    except PoiseError as error:
        return None, str(error)


def _graph(folder: Path) -> KeptGraph | None:
    from poise.analysis.reports.graphs import kept_graph
    from poise.apps.ui.views.federation import graph_file

    file = graph_file(folder)
    if os.path.lexists(file):
        return kept_graph(file)
    return None


def _budget(run: Run) -> Budget:
    """The budget of unlearning requests: declared at training time, or the default."""
    from poise.unlearning.cost_preview import declared_budget

    return declared_budget(run)


def _sensitivity(run: Run, client: int) -> models.Sensitivity:
    budget = _budget(run)
    psi, trouble = _psi(run, client, budget)
    sensitivity = models.Sensitivity(
        psi=None,
        limit=budget.limit,
        beyond=False,
        epsilon=budget.epsilon,
        delta=budget.delta,
        trouble=trouble,
    )
    if psi is not None:
        last = float(psi[-1])
        sensitivity.psi = finite(last)
        sensitivity.beyond = last > budget.limit
    return sensitivity


def _psi(run: Run, client: int, budget: Budget) -> tuple[np.ndarray | None, str]:
    """Psi of one client after each aggregation, (R + 1,), or why it is unknown."""
    from poise.unlearning.ledger_sensitivity import budget_sensitivity

    try:
        return budget_sensitivity(run, budget, [client])[:, 0], ""
    except PoiseError as error:
        return None, str(error)
