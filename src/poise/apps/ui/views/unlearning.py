"""A run's unlearning requests: restart tree, certificates, cost of a new request."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from poise.analysis.reports.plots import Plot, plot_of
from poise.analysis.reports.unlearning_page import (
    REQUEST_HEAD,
    UnlearningHistory,
    psi_figure,
    request_cells,
    tree_figure,
)
from poise.apps.experiments.unlearning_pages import unlearning_histories
from poise.apps.ui.jobs import ConsoleJob
from poise.apps.ui.models import Verification
from poise.config.entries import OptionEntry, entries_of
from poise.config.unlearn_request import METHODS, UnlearnRequest
from poise.core.errors import InvalidOption
from poise.ledger.foreign import read_bytes
from poise.privacy.budget import Budget
from poise.results import Run
from poise.unlearning.cost_preview import Preview, declared_budget, declared_by, preview
from poise.unlearning.fulfilment import fulfilled
from poise.unlearning.histories import CERTIFICATE, Histories
from poise.unlearning.request import Request

ENTRIES = entries_of(UnlearnRequest, without=("out",))
"""The options of the form: all options of ``poise unlearn`` except the folder."""


@dataclass(frozen=True)
class RequestOptions:
    """The options of an unlearning request by key, without those at their default."""

    given: Mapping[str, Any]

    def __post_init__(self) -> None:
        changed = {
            key: value
            for key, value in self.given.items()
            if value != ENTRIES[key].default
        }
        object.__setattr__(self, "given", changed)

    @classmethod
    def from_form(cls, form: Mapping[str, str]) -> RequestOptions:
        """Parse the texts of a form; ignores empty fields, raises for unknown ones."""
        given: dict[str, Any] = {}
        for key, text in form.items():
            if key not in ENTRIES:
                raise InvalidOption(
                    f"an unlearning request has no option {key!r}", where=(key,)
                )
            if text.strip():
                given[key] = ENTRIES[key].from_text(text.strip())
        return cls(given)

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> RequestOptions:
        """The options of an API request; null means not given."""
        return cls({key: value for key, value in body.items() if value is not None})

    @classmethod
    def from_request(cls, request: Request) -> RequestOptions:
        """The options of an unfinished request, to repeat it."""
        options = request.options
        given: dict[str, Any] = {"clients": ",".join(map(str, options.clients))}
        values = vars(options)
        for key, entry in ENTRIES.items():
            value = values[entry.option.name]
            if key == "clients" or value is None:
                continue
            switch = entry.option.declared.switch
            if switch is not None:
                value = value == switch
            given[key] = value
        return cls(given)

    @property
    def clients(self) -> str:
        """The clients as the user wrote them."""
        return str(self.given.get("clients", ""))

    @property
    def heuristic(self) -> bool:
        """Whether to continue without a proof of the bound."""
        return bool(self.given.get("heuristic"))

    @property
    def max_rounds(self) -> int:
        """Maximum number of retraining rounds."""
        return int(self.given.get("max_rounds", ENTRIES["max_rounds"].default))

    def arguments(self) -> list[str]:
        """The options as command-line arguments."""
        arguments: list[str] = []
        for key, entry in ENTRIES.items():
            if key in self.given:
                arguments += entry.arguments(self.given[key])
        return arguments

    def form(self) -> dict[str, str]:
        """The texts of the form fields."""
        return {
            key: entry.as_text(self.given.get(key, entry.default))
            for key, entry in ENTRIES.items()
        }

    def cost(self, run: Run, histories: Histories) -> Preview:
        """The cost of this request; changes nothing, raises the command's errors."""
        if not self.clients:
            raise InvalidOption(
                "the request names no clients",
                "add the clients to unlearn, for example clients=3,7",
                where=("clients",),
            )
        for number in re.findall(
            r"\d+", self.clients
        ):  # before expanding a range of clients
            total = histories.root.clients
            if len(number) > 9 or int(number) >= total:
                raise InvalidOption(
                    f"this run has no client {number[:12]}",
                    f"choose clients from 0 to {total - 1}",
                )
        try:
            request = UnlearnRequest.of(self.given, declared_by(run))
            earlier = fulfilled(run, request)
            if earlier is not None:
                raise InvalidOption(
                    "this request was fulfilled already", f"see {earlier.path}"
                )
            return preview(
                run,
                request.clients,
                method=request.method,
                budget=request.budget,
                guarantee=request.guarantee,
            )
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise InvalidOption(
                f"the cost of this budget cannot be computed: {error}",
                "use a smaller epsilon",
            ) from error


@dataclass(frozen=True)
class FormField:
    """One field of the form."""

    key: str
    label: str
    kind: Literal["text", "number", "choice", "switch"]
    choices: tuple[str, ...]
    placeholder: str
    step: str
    advanced: bool
    usual: str


def form_fields(budget: Mapping[str, Any] | None) -> list[FormField]:
    """The fields of the form; ``budget`` was declared at training time."""
    return [_form_field(entry, budget or {}) for entry in ENTRIES.values()]


def _form_field(entry: OptionEntry, budget: Mapping[str, Any]) -> FormField:
    kind: Literal["text", "number", "choice", "switch"] = "text"
    if entry.is_switch:
        kind = "switch"
    elif entry.option.choices:
        kind = "choice"
    elif entry.kind in (int, float):
        kind = "number"
    declared = entry.option.declared
    default = None
    if not entry.option.required:
        default = budget.get(entry.key, entry.option.default)
    step = "any"
    if entry.kind is int:
        step = "1"
    usual = ""
    if declared.inherits:
        usual = "as declared"
    return FormField(
        entry.key,
        entry.label,
        kind=kind,
        choices=tuple(map(str, entry.option.choices)),
        placeholder=declared.example or entry.as_text(default),
        step=step,
        advanced=declared.advanced,
        usual=usual,
    )


@contextmanager
def opened(run: Run) -> Iterator[Histories]:
    """The histories of a run, closed at the end of the block."""
    histories = Histories.of(run)
    try:
        yield histories
    finally:
        for branch in histories.branches:
            if branch.run is not None:
                branch.run.close()
        if histories.root is not run:
            histories.root.close()


@dataclass(frozen=True)
class UnlearningView:
    """Data of the page: a row per request, the figures, and the unfinished request."""

    budget: Budget
    rows: list[dict[str, Any]]
    plots: list[Plot]
    open: RequestOptions | None
    forgotten: list[int]
    methods: tuple[str, ...] = METHODS
    head: tuple[str, ...] = REQUEST_HEAD


def unlearning_view(run: Run, histories: Histories) -> UnlearningView:
    """The view of all requests so far; raises an error for an altered certificate."""
    finished = histories.finished
    if finished:
        budget = finished[-1].request.budget
    else:
        budget = declared_budget(run)
    branches = unlearning_histories(histories, budget)
    figures = [tree_figure(branches, histories.nodes)]
    figures += [
        psi_figure(branch, branches, budget.limit)
        for branch in branches
        if branch.rounds
    ]
    unfinished = None
    if histories.open_request is not None:
        unfinished = RequestOptions.from_request(histories.open_request)
    return UnlearningView(
        budget,
        rows=[_row(branch, histories) for branch in branches[1:]],
        plots=[plot_of([figure], [""]) for figure in figures],
        open=unfinished,
        forgotten=histories.unlearned,
    )


def _row(branch: UnlearningHistory, histories: Histories) -> dict[str, Any]:
    folder = histories.branch_folder(branch.branch)
    assert folder is not None
    return {
        "request": branch.branch,
        "cells": request_cells(branch),
        "folder": folder,
        "certificate": branch.certificate,
        "fingerprint": fingerprint(histories, branch.branch),
    }


def fingerprint(histories: Histories, request: int) -> str:
    """A hash of certificate and ledgers; if it changes, a verification is stale."""
    folder = histories.branch_folder(request)
    assert folder is not None
    hashed = hashlib.sha256(read_bytes(folder / CERTIFICATE))
    for run in (histories.root, histories.run(request)):
        hashed.update(run.digest.encode())
    return hashed.hexdigest()


def verification(
    request: int, current: str, jobs: Sequence[ConsoleJob]
) -> tuple[Verification, str]:
    """The state of the latest verification of a certificate, and its description.

    Args:
        request: number of the request.
        current: the current `fingerprint` of the certificate.
        jobs: the jobs of the run, newest first.
    """
    for job in jobs:
        if job.kind != "verify" or job.about.get("request") != request:
            continue
        if job.state == "running":
            return "running", "verification in progress"
        if job.about.get("seen") != current:
            return "stale", f"changed since the verification ({job.began})"
        if job.state == "failed":
            return "broken", job.error
        return (
            "holds",
            f"holds: {len(job.outcome.get('checks', ()))} checks ({job.began})",
        )
    return "unknown", "not verified yet"
