"""What a run was asked to forget: its tree of histories, certificates, and what another request
would cost.
"""

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
from poise.apps.experiments.unlearning_pages import stories_of
from poise.apps.ui.jobs import Job
from poise.apps.ui.models import Verification
from poise.config.entries import OptionEntry, entries_of
from poise.config.unlearn_request import METHODS, UnlearnRequest
from poise.core.errors import InvalidOption
from poise.ledger.run import Run
from poise.privacy.budget import Budget
from poise.unlearning.histories import CERTIFICATE, Histories
from poise.unlearning.preview import Preview, declared_budget, declared_by, preview
from poise.unlearning.request import Request

ENTRIES = entries_of(UnlearnRequest, without=("out",))
"""The options that the form has: all of ``poise unlearn`` but the folder, which is the run's
own."""


@dataclass(frozen=True)
class Asked:
    """A request as a form has it: values by key; those at their default are left out."""

    given: Mapping[str, Any]

    def __post_init__(self) -> None:
        told = {key: value for key, value in self.given.items() if value != ENTRIES[key].default}
        object.__setattr__(self, "given", told)

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Asked:
        """From the texts of a form; empty fields are not given, unknown ones are refused."""
        given: dict[str, Any] = {}
        for key, text in form.items():
            if key not in ENTRIES:
                raise InvalidOption(f"a request has no option {key!r}", where=(key,))
            if text.strip():
                given[key] = ENTRIES[key].from_text(text.strip())
        return cls(given)

    @classmethod
    def wished(cls, wish: Mapping[str, Any]) -> Asked:
        """From the JSON API, where null is not given."""
        return cls({key: value for key, value in wish.items() if value is not None})

    @classmethod
    def again(cls, request: Request) -> Asked:
        """The form of a request that was made already, to finish it."""
        asked = request.options
        given: dict[str, Any] = {"clients": ",".join(map(str, asked.clients))}
        values = vars(asked)
        for key, entry in ENTRIES.items():
            value = values[entry.option.name]
            switch = entry.option.declared.switch
            if key != "clients" and value is not None:
                given[key] = value == switch if switch is not None else value
        return cls(given)

    @property
    def clients(self) -> str:
        """The clients as the user wrote them."""
        return str(self.given.get("clients", ""))

    @property
    def heuristic(self) -> bool:
        """Whether to go on where the bound has no proof."""
        return bool(self.given.get("heuristic"))

    @property
    def max_rounds(self) -> int:
        """The most rounds of retraining."""
        return int(self.given.get("max_rounds", ENTRIES["max_rounds"].default))

    def arguments(self) -> list[str]:
        """The same on a command line: options at their default are left out."""
        said: list[str] = []
        for key, entry in ENTRIES.items():
            if key in self.given:
                said += entry.arguments(self.given[key])
        return said

    def form(self) -> dict[str, str]:
        """The texts that fill the form again."""
        return {
            key: entry.as_text(self.given.get(key, entry.default)) for key, entry in ENTRIES.items()
        }

    def cost(self, run: Run, histories: Histories) -> Preview:
        """What this request would cost; nothing is changed by looking. Refused like the command
        refuses it.
        """
        for number in re.findall(r"\d+", self.clients):  # before a range of them is written out
            total = histories.root.clients
            if len(number) > 9 or int(number) >= total:
                raise InvalidOption(
                    f"there is no client {number[:12]}", f"clients are 0 to {total - 1}"
                )
        try:
            request = UnlearnRequest.of(self.given, declared_by(run))
            return preview(run, request.clients, method=request.method, budget=request.budget)
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise InvalidOption(
                f"this budget cannot be worked out: {error}", "use a smaller epsilon"
            ) from error


@dataclass(frozen=True)
class FormField:
    """One option as the page shows it."""

    key: str
    label: str
    kind: Literal["text", "number", "choice", "switch"]
    choices: tuple[str, ...]
    placeholder: str
    step: str
    advanced: bool
    usual: str


def form_fields(budget: Mapping[str, Any] | None) -> list[FormField]:
    """The fields of the form; ``budget`` is what the training declared."""
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
    usual = budget.get(entry.key, entry.option.default)
    return FormField(
        entry.key,
        entry.label,
        kind=kind,
        choices=tuple(map(str, entry.option.choices)),
        placeholder=declared.example or entry.as_text(None if entry.option.required else usual),
        step="1" if entry.kind is int else "any",
        advanced=declared.advanced,
        usual="as declared" if declared.inherits else "",
    )


@contextmanager
def opened(run: Run) -> Iterator[Histories]:
    """The histories that a run belongs to, closed afterwards."""
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
class Told:
    """The histories as a page tells them: one row per request, the figures, and what stands
    open.
    """

    budget: Budget
    rows: list[dict[str, Any]]
    plots: list[Plot]
    open: Asked | None
    forgotten: list[int]
    methods: tuple[str, ...] = METHODS
    head: tuple[str, ...] = REQUEST_HEAD


def tell(run: Run, histories: Histories) -> Told:
    """Everything about the requests so far; raises where a certificate is not as it was written."""
    done = histories.finished
    budget = done[-1].request.budget if done else declared_budget(run)
    stories = stories_of(histories, budget)
    drawn = [
        tree_figure(stories, histories.nodes),
        *(psi_figure(s, stories, budget.limit) for s in stories if s.rounds),
    ]
    waiting = histories.open_request
    return Told(
        budget,
        [_row(story, histories) for story in stories[1:]],
        [plot_of([figure], [""]) for figure in drawn],
        Asked.again(waiting) if waiting is not None else None,
        histories.unlearned,
    )


def _row(story: UnlearningHistory, histories: Histories) -> dict[str, Any]:
    place = histories.place(story.branch)
    assert place is not None
    return {
        "request": story.branch,
        "cells": request_cells(story),
        "folder": place,
        "certificate": story.certificate,
        "seen": fingerprint(histories, story.branch),
    }


def fingerprint(histories: Histories, request: int) -> str:
    """What a verification looks at: another certificate or other records mean that an earlier one
    says nothing.
    """
    place = histories.branch_folder(request)
    assert place is not None
    said = hashlib.sha256((place / CERTIFICATE).read_bytes())
    for run in (histories.root, histories.run(request)):
        said.update(run.digest.encode())
    return said.hexdigest()


def verification(request: int, now: str, jobs: Sequence[Job]) -> tuple[Verification, str]:
    """The newest look at a certificate (newest job first): how it ended, and what to say of it."""
    for job in jobs:
        if job.kind != "verify" or job.about.get("request") != request:
            continue
        if job.state == "running":
            return "running", "being verified"
        if job.about.get("seen") != now:
            return "stale", f"changed since it was verified ({job.began})"
        if job.state == "failed":
            return "broken", job.error
        return "holds", f"holds: {len(job.outcome.get('checks', ()))} checks ({job.began})"
    return "unknown", "not verified here"
