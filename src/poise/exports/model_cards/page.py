"""Compose a model card from its sections."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from poise.analysis.reports.groups import tables
from poise.analysis.reports.wording import ROLES, phrase
from poise.core.own_code import recorded_code
from poise.core.slots import DEFAULTS
from poise.exports.bibliography import Work, sources_of
from poise.exports.markdown import bullets, code, fence, front_matter, table, text
from poise.exports.model_cards.data import data_section
from poise.exports.model_cards.findings import (
    attack_section,
    audit_section,
    bias_section,
    refused_section,
)
from poise.exports.model_cards.guarantees import guarantee_section
from poise.exports.model_cards.results import results_section, worst_client
from poise.exports.model_cards.subject import (
    CardOptions,
    Subject,
    without_folders,
)
from poise.ledger.summary import CERTIFICATE
from poise.results import Run


def card(
    run: Run,
    siblings: Sequence[Run] = (),
    *,
    n: int | None = None,
    client: int | str | None = None,
    options: CardOptions | None = None,
) -> str:
    """Return the model card of a run, Markdown with the front matter of model hubs.

    All facts come from ledgers. The card contains no samples; sizes, classes and
    metrics of single clients are in it unless ``options`` leaves them out.

    Args:
        run: the run of the model.
        siblings: runs of other seeds, for intervals.
        n: the model after n aggregations; the newest by default.
        client: the model of this client, with its personal layers.
        options: licence, headline, and whether clients are listed.

    >>> import poise
    >>> fed = poise.federation("digits", clients=5)
    >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
    >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=2)
    >>> [line for line in card(run).splitlines() if line.startswith("# ")]
    ['# logistic on digits']
    """
    subject = Subject.of(run, siblings, n=n, client=client, options=options)
    return card_of(subject)


def card_of(subject: Subject, usage: str = "") -> str:
    """Return the card of a subject; ``usage`` is Markdown about the files beside it."""
    cited = sources_of(subject.experiment)
    sections = {
        "Use": usage,
        "Model": _model(subject),
        "Data": data_section(subject, _sources(cited.get("data", ()))),
        "Method": _method(subject.experiment, cited),
        "Results": results_section(subject),
        "Bias": bias_section(subject),
        "Guarantees": guarantee_section(subject),
        "Audit": audit_section(subject),
        "Refused updates": refused_section(subject),
        "Attacks": attack_section(subject),
        "Reproduction": _reproduction(subject),
        "Limits": _limits(subject),
        "References": _references(cited),
    }
    parts = [front_matter(_front(subject)), f"# {text(subject.title)}", _lead(subject)]
    parts += [f"## {name}\n\n{body}" for name, body in sections.items() if body]
    return "\n\n".join(parts) + "\n"


def _front(subject: Subject) -> dict[str, Any]:
    """Return the front matter: licence, tags, data and results."""
    scores = {name: subject.score(name) for name in subject.scalar_metrics}
    known = {name: value for name, value in scores.items() if math.isfinite(value)}
    front: dict[str, Any] = {
        "license": subject.options.license,
        "library_name": "pytorch",
        "tags": ["federated-learning", "poise"],
    }
    if "data" in subject.experiment:
        front["datasets"] = [subject.source]
    if known:
        front["metrics"] = list(known)
        front["model-index"] = [_model_index(subject, known)]
    return front


def _model_index(subject: Subject, scores: Mapping[str, float]) -> dict[str, Any]:
    """Return the results in the form that model hubs read."""
    return {
        "name": subject.title,
        "results": [
            {
                "task": {"type": "other", "name": "federated learning"},
                "dataset": {"type": subject.source, "name": subject.source},
                "metrics": [
                    {"type": name, "value": value} for name, value in scores.items()
                ],
            }
        ],
    }


def _lead(subject: Subject) -> str:
    """Return one paragraph about the model, and what a reader must know first."""
    run = subject.run
    lead = (
        f"{code(subject.model)}, trained by federated learning over {run.clients:,} "
        f"clients. This is the model after {subject.n} of {run.rounds} aggregations, "
        f"seed {text(subject.seed)}."
    )
    if subject.options.chosen:
        lead += (
            f" It was chosen for {text(subject.options.chosen)}; its scores are therefore "
            "too good on average."
        )
    if subject.client is not None:
        name = text(subject.client_name(subject.client))
        if run.array("personal") is None:
            lead += (
                f" {name} uses it as all clients do: the run has no personal layers."
            )
        else:
            lead += f" It has the personal layers of {name}: it is not for others."
    lead += (
        " poise wrote this card from the ledger of the run; it contains no samples of "
        "clients."
    )
    status = run.meta.get("status", "")
    certified = run.path is not None and (run.path / CERTIFICATE).exists()
    if status != "done" and not certified:  # a request decides when its branch ends
        lead += f"\n\n**The state of the run is {text(status)!r}, not 'done'.**"
    if run.damage:
        lead += f"\n\n**The ledger is damaged: {text(run.damage)}.**"
    return lead


def _model(subject: Subject) -> str:
    """Return architecture, size and classes."""
    run = subject.run
    task = subject.experiment.get("task")
    described = "given in Python; the ledger has no description of it"
    if task:
        described = text(phrase(task))
    rows = [
        ("model and loss", described),
        ("trained parameters", f"{run.trainable:,}"),
    ]
    if subject.class_names:
        rows.append(("classes", ", ".join(map(text, subject.class_names))))
    return table(("", ""), rows)


def _sources(works: Sequence[Work]) -> str:
    """Return a sentence with the works that describe data and partition, if any."""
    if not works:
        return ""
    return f"Source: {', '.join(f'[{work.label}]' for work in works)}."


def _method(experiment: Mapping[str, Any], cited: Mapping[str, Sequence[Work]]) -> str:
    """Return the choice for each slot, with the works that describe it."""
    equation = "theta[n+1] = Server( theta[n],  sum_i  omega_i(n) * Delta_i(rho_i(n)) )"
    defaults = {slot: {"name": name} for slot, name in DEFAULTS.items()}
    chosen = {**defaults, **experiment}
    rows = []
    for section, role in ROLES.items():
        if section not in chosen or section in ("data", "attacks"):
            continue
        works = ", ".join(f"[{work.label}]" for work in cited.get(section, ()))
        rows.append((section, text(role), text(phrase(chosen[section])), works))
    heading = ("slot", "role", "choice", "source")
    return f"{fence(equation, 'text')}\n\n{table(heading, rows)}"


def _reproduction(subject: Subject) -> str:
    """Return versions, seeds and digest, and the experiment file with its command."""
    run = subject.run
    seeds = ", ".join(subject.group.seeds)
    rows = [
        ("poise", code(run.meta.get("poise", "?"))),
        ("seeds of the experiment", text(seeds)),
        (f"digest of the run, {run.rounds} rounds", code(run.digest)),
        (f"hash of the model after round {subject.n}", _model_hash(subject)),
        ("card written with", code(f"Python {platform.python_version()}")),
    ]
    for package, known in recorded_code(run.meta).items():
        rows.append((f"code beside poise: {text(package)}", code(known)))
    again = (
        f"`poise run experiment.toml --seeds {subject.seed}` with this file gives the "
        "same digest:"
    )
    if not {"data", "task"} <= set(subject.experiment):
        again = "Data or model were Python objects; this file names the other choices:"
    file = fence(_experiment(subject), "toml")
    return f"{table(('', ''), rows)}\n\n{again}\n\n{file}"


def _experiment(subject: Subject) -> str:
    """Return the experiment file, without the folders of its data."""
    given = tables(subject.run)
    published = without_folders(given)
    if published == given:
        return subject.run.experiment
    return tomli_w.dumps(published)


def _model_hash(subject: Subject) -> str:
    return code(subject.run.model_hash(subject.n) or "unknown")


def _limits(subject: Subject) -> str:
    """Return what the numbers of this card do not show."""
    run = subject.run
    items = []
    if len(subject.group.runs) == 1:
        items.append("One seed: the results do not show how much another seed differs.")
    if not subject.client_metrics:
        items.append(
            "No metric was measured per client: the mean can hide clients for whom the "
            "model is poor."
        )
    items += filter(None, [worst_client(subject)])
    if run.array("personal") is not None and subject.client is None:
        items.append(
            "Clients have personal layers, and this model has those of no client: export "
            "one with --client."
        )
    if not subject.scalar_metrics:
        items.append("Nothing was measured on held-out data.")
    if not run.contributions[run.contributions["round"] < subject.n].size:
        items.append("No client has contributed to this model.")
    else:
        absent = run.clients - len(set(run.contributions["client"].tolist()))
        if absent:
            items.append(f"{absent:,} clients never contributed an update.")
    items.append(
        "The model fits the clients of this federation. Check it on your own data before "
        "you use it elsewhere."
    )
    items.append("Sizes, classes and metrics of clients are facts about their data.")
    return bullets(items)


def _references(cited: Mapping[str, Sequence[Work]]) -> str:
    """Return the works that describe the method, once each."""
    works = {work.key: work for found in cited.values() for work in found}
    return bullets(str(works[key]) for key in sorted(works))
