"""What pages and the API tell of a run: from its ledger, or from memory where that has not changed.

Everything heavy is imported when it is first asked for: the console begins without PyTorch.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from poise.analysis.reports.tables import finite
from poise.apps.ui import models, quarantine
from poise.apps.ui.actions import jobs_of
from poise.apps.ui.jobs import Job
from poise.apps.ui.library import Library
from poise.apps.ui.views.drawing import drawn
from poise.core.errors import IncompatibleParts, InvalidOption, PoiseError
from poise.ledger.run import Run
from poise.ledger.store import DATABASE
from poise.ledger.summary import read_summary

if TYPE_CHECKING:
    from poise.analysis.reports.graphs import KeptGraph
    from poise.apps.ui.views.audit import Judged
    from poise.apps.ui.views.unlearning import Asked
    from poise.privacy.budget import Budget


SOON = 20_000
"""Clients times rounds up to which a run is audited in a moment."""


def client_of(library: Library, name: str, client: int, page: int = 1) -> models.ClientOf:
    """One client of a run."""
    from poise.apps.ui.views import audit
    from poise.apps.ui.views import client as views

    with library.open(name) as run:
        own = views.part(run, views.checked(run, client))
        kept, promised = _graph(library.folder(name)), _budget(run)
        psi, trouble = _psi(run, client, promised)
        last = 0.0 if psi is None else float(psi[-1])
        judged, unjudged = _judged_if_possible(library, name, run)
        return models.ClientOf(
            profile=views.profile(run, client),
            participation=own.facts,
            events=own.events,
            refused=[models.Refusal(aggregation=n, reason=why) for n, why in own.refused],
            place=views.place(kept, client)
            if kept is not None and kept.graph.clients == run.clients
            else None,
            contributions=own.page(page),
            no_verdict=unjudged,
            verdict=None if judged is None else audit.verdict(judged, client),
            sensitivity=models.Sensitivity(
                psi=None if psi is None else finite(last),
                limit=promised.limit,
                beyond=last > promised.limit,
                trouble=trouble,
            ),
        )


def client_figures(library: Library, name: str, client: int) -> str:
    """The figures of one client (`Drawings`)."""
    from poise.apps.ui.views import client as views

    with library.open(name) as run:
        views.checked(run, client)
        judged, _ = _judged_if_possible(library, name, run)

        def make() -> str:
            own, promised = views.part(run, client), _budget(run)
            psi, _ = _psi(run, client, promised)
            found = None if judged is None else judged.audit
            return drawn(
                views.plots(run, client, own=own, psi=psi, limit=promised.limit, found=found)
            )

        return library.kept(name, ("client", client, judged is None), make)


def federation_of(library: Library, name: str) -> models.FederationOf:
    """All clients of a run together."""
    from poise.apps.ui.views import federation as views

    with library.open(name) as run:
        kept = _graph(library.folder(name))
        return models.FederationOf(
            facts=models.facts(views.facts(run)),
            no_graph=views.why_no_graph(run),
            graph=[] if kept is None else models.facts(views.graph_facts(kept)),
            typical={} if kept is None else views.typical(kept),
            same_data=None if kept is None else kept.digest == run.meta.get("federation"),
        )


def federation_figures(library: Library, name: str) -> str:
    """How much everyone holds, and of which classes (`Drawings`)."""
    from poise.apps.ui.views import federation as views

    def make() -> str:
        with library.open(name) as run:
            return drawn(views.plots(run))

    return library.kept(name, "federation", make)


def graph_figures(library: Library, name: str) -> str:
    """The similarity graph that was made for a run (`Drawings`); no figures where none was."""
    from poise.apps.ui.views import federation as views

    folder = library.folder(name)
    file = views.graph_file(folder)
    made_at = file.stat().st_mtime_ns if file.exists() else 0

    def make() -> str:
        kept = _graph(folder)
        return drawn([] if kept is None else views.graph_plots(kept))

    return library.kept(name, ("graph", made_at), make)


def unlearning_of(library: Library, name: str) -> models.UnlearningOf:
    """What a run was asked to forget; raises where a certificate is not as it was written."""
    from poise.apps.ui.views import unlearning as views

    jobs = jobs_of(library, name).all()
    with library.open(name) as run, views.opened(run) as histories:
        told = views.tell(run, histories)
        assert histories.root.path is not None
        return models.UnlearningOf(
            training=library.name(histories.root.path),
            forgotten=told.forgotten,
            limit=told.budget.limit,
            budget=asdict(told.budget),
            open=None if told.open is None else told.open.form(),
            requests=[_certificate(row, jobs, told.head) for row in told.rows],
        )


def _certificate(
    row: dict[str, Any], jobs: list[Job], head: tuple[str, ...]
) -> models.CertificateOf:
    from poise.apps.ui.views.unlearning import verification

    state, words = verification(row["request"], row["seen"], jobs)
    return models.CertificateOf(
        request=row["request"],
        summary=dict(zip(head, row["cells"], strict=True)),
        certificate=row["certificate"],
        verification=state,
        verification_words=words,
    )


def unlearning_figures(library: Library, name: str) -> str:
    """The tree of histories and the sensitivities (`Drawings`)."""
    from poise.apps.ui.views import unlearning as views

    with library.open(name) as run, views.opened(run) as histories:
        done = len(histories.finished)
        return library.kept(
            name, ("unlearning", done), lambda: drawn(views.tell(run, histories).plots)
        )


def cost_of(library: Library, name: str, asked: Asked) -> models.Cost:
    """What a request would cost."""
    from poise.apps.ui.views.unlearning import opened

    with library.open(name) as run, opened(run) as histories:
        looked = asked.cost(run, histories)
        command = shlex.join(["poise", "unlearn", str(histories.root.path), *asked.arguments()])
    return models.Cost(
        restart=list(looked.restart),
        ideal=list(looked.ideal),
        given_up=looked.given_up,
        sigma=looked.sigma,
        limit=looked.limit,
        psi={str(c): finite(v) for c, v in looked.psi.items()},
        not_proved=list(looked.not_proved),
        words=models.facts(looked.rows()),
        command=command,
    )


def audit_of(library: Library, name: str, alarm: float, page: int = 1) -> models.AuditOf:
    """Who only pretends to work."""
    from poise.apps.ui.views import audit as views

    with library.open(name) as run:
        found, true = _judged(library, name, run).at(alarm), views.free_riders(run)
        known = bool(true) and len(true) < run.clients
        return models.AuditOf(
            alarm=alarm,
            ranking=views.ranking(found, page, true=true),
            thresholds=views.thresholds(found, true),
            auc=found.audit.auc(true) if known else None,
            news=views.live_news(run),
        )


def audit_figures(library: Library, name: str, alarm: float) -> str:
    """The figures of the audit (`Drawings`)."""
    from poise.apps.ui.views import audit as views

    def make() -> str:
        with library.open(name) as run:
            return drawn(
                views.plots(run, _judged(library, name, run).at(alarm), views.free_riders(run))
            )

    return library.kept(name, ("audit", alarm), make)


def quarantine_of(library: Library, name: str) -> models.QuarantineOf:
    """Who is in quarantine, and the experiment and the command that go on without them."""
    from poise.apps.ui.views.federation import on_nodes

    folder = library.folder(name)
    made = quarantine.decisions(folder)
    inside = quarantine.excluded(made)
    text, command, trouble = "", "", ""
    with library.open(name) as run:
        if inside:
            file = f"{quarantine.without_name(inside)}.toml"
            to = " --to DIR" if on_nodes(run.experiment) else ""
            command = f"poise {'deploy ' if to else ''}run {file}{to}"
            try:
                text = quarantine.experiment_without(run, inside)
            except PoiseError as error:
                command, trouble = "", str(error)
    return models.QuarantineOf(
        excluded=inside,
        decisions=[models.DecisionOf(**vars(one)) for one in made],
        experiment=text,
        command=command,
        trouble=trouble,
    )


def decide(library: Library, name: str, verb: models.Verb) -> models.DecisionOf:
    """Write a decision about a client down, with what the audit said at the time."""
    from poise.apps.ui.views.audit import verdict
    from poise.apps.ui.views.client import checked

    with library.open(name) as run:
        checked(run, verb.client)
        judged, _ = _judged_if_possible(library, name, run)
        said = None if judged is None else verdict(judged, verb.client)
        made = quarantine.decide(
            run,
            verb.client,
            action=verb.action,
            who=verb.who,
            why=verb.why,
            score=said.score if said else None,
            p=said.p if said else None,
        )
    return models.DecisionOf(**vars(made))


def job_of(job: Job) -> models.JobOf:
    """An action and how far it is."""
    grows = job.about.get("grows")
    rounds = (
        read_summary(Path(grows)).rounds if grows and (Path(grows) / DATABASE).exists() else None
    )
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
    """One of the deployments that the console was told of; the only one where none is named."""
    if not name:
        return known[0] if len(known) == 1 else None
    for path in known:
        if str(path) == name:
            return path
    raise InvalidOption(
        f"the console does not know the deployment {name!r}", "start it with --deployment DIR"
    )


def _judged(library: Library, name: str, run: Run) -> Judged:
    from poise.apps.ui.views.audit import judge

    return library.kept(name, "audit", lambda: judge(run))


def _judged_if_possible(library: Library, name: str, run: Run) -> tuple[Judged | None, str]:
    """The audit, or why there is none: a page that is about something else does not wait for a long
    one.
    """
    from poise.apps.ui.views.audit import judge

    def make() -> Judged:
        if run.clients * run.rounds > SOON:
            raise IncompatibleParts(
                "this run has not been audited yet", "its audit page does that, and takes a while"
            )
        return judge(run)

    try:
        return library.kept(name, "audit", make), ""
    except PoiseError as error:
        return None, str(error)


def _graph(folder: Path) -> KeptGraph | None:
    from poise.analysis.reports.graphs import kept_graph
    from poise.apps.ui.views.federation import graph_file

    file = graph_file(folder)
    return kept_graph(file) if file.exists() else None


def _budget(run: Run) -> Budget:
    """What requests to forget are promised: as the training declared, or as usual."""
    from poise.unlearning.preview import declared_budget

    return declared_budget(run)


def _psi(run: Run, client: int, promised: Budget) -> tuple[np.ndarray | None, str]:
    """Psi of one client after each aggregation, (R + 1,), or why it cannot be counted."""
    from poise.unlearning.ledger_sensitivity import budget_sensitivity

    try:
        return budget_sensitivity(run, promised, [client])[:, 0], ""
    except PoiseError as error:
        return None, str(error)
