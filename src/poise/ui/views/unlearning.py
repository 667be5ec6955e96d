"""What a run was asked to forget: its tree of histories, certificates, and what another request would cost."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, get_args

from poise.core.errors import InvalidOption
from poise.experiments.stories import stories_of
from poise.ledger.run import Run
from poise.reports.forgetting import REQUEST_HEAD, Story, psi_figure, request_cells, tree_figure
from poise.reports.plots import Plot, plot_of
from poise.ui.jobs import Job
from poise.ui.models import Verification
from poise.unlearning.budget import Budget, Participation
from poise.unlearning.gaussian import Calibration
from poise.unlearning.histories import CERTIFICATE, Histories
from poise.unlearning.previewing import Preview, asked_budget, preview
from poise.unlearning.request import METHODS, Request, parse_clients

CALIBRATIONS, PARTICIPATIONS = get_args(Calibration), get_args(Participation)
BUDGET = tuple(f.name for f in fields(Budget))


@dataclass(frozen=True)
class Asked:
    """A request as a form has it; the fields are the options of ``poise unlearn``, None as the command has it."""

    clients: str = ""
    method: str = "sifu"
    epsilon: float | None = None
    delta: float | None = None
    sigma: float | None = None
    target: float | None = None
    min_rounds: int = 50
    max_rounds: int = 10_000
    calibration: str | None = None
    participation: str | None = None
    strong_convexity: float | None = None
    heuristic: bool = False
    secret_noise: bool = False
    measure_forgotten: bool = False
    held_out: bool = False

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Asked:
        """From the texts of a form; empty fields are as usual, unknown ones are refused."""
        known = {f.name: f for f in fields(cls)}
        given: dict[str, Any] = {}
        for name, text in form.items():
            if name not in known:
                raise InvalidOption(f"a request has no option {name!r}")
            if text.strip():
                given[name] = _value(name, str(known[name].type), text.strip())
        return cls(**given)

    @classmethod
    def again(cls, request: Request) -> Asked:
        """The form of a request that was made already, to finish it."""
        budget = request.budget
        return cls(
            clients=",".join(map(str, request.clients)), method=request.method, target=request.target,
            min_rounds=request.min_rounds, max_rounds=request.max_rounds, heuristic=request.heuristic,
            secret_noise=request.noise == "secret", **{name: getattr(budget, name) for name in BUDGET},
        )  # fmt: skip

    def arguments(self) -> list[str]:
        """The same on a command line: what is as usual is left out."""
        said: list[str] = []
        usual = Asked()
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "clients" or value != getattr(usual, f.name):
                said.append(f"--{f.name.replace('_', '-')}")
                said += [] if value is True else [f"{value!r}" if isinstance(value, float) else str(value)]
        return said

    def form(self) -> dict[str, str]:
        """The texts that fill the form again."""
        said = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: "on" if v is True else "" if v is None or v is False else f"{v}" for k, v in said.items()}

    def cost(self, run: Run, histories: Histories) -> Preview:
        """What this request would cost; nothing is changed by looking. Refused like the command refuses it."""
        for number in re.findall(r"\d+", self.clients):  # before a range of them is written out
            total = histories.root.clients
            if len(number) > 9 or int(number) >= total:
                raise InvalidOption(f"there is no client {number[:12]}", f"clients are 0 to {total - 1}")
        try:
            budget = asked_budget(run, {name: getattr(self, name) for name in BUDGET})
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise InvalidOption(f"this budget cannot be worked out: {error}", "use a smaller epsilon") from error
        Request((), self.method, budget, self.target or 0.0, self.min_rounds, self.max_rounds)  # checks the options
        return preview(run, parse_clients(self.clients.replace(" ", "")), self.method, budget)


def _value(name: str, kind: str, text: str) -> Any:
    try:
        if kind.startswith("bool"):
            return text.lower() in ("on", "true", "1")
        if kind.startswith("int"):
            return int(text)
        return float(text) if kind.startswith("float") else text
    except ValueError as error:
        raise InvalidOption(f"{name.replace('_', ' ')} must be a number, not {text!r}") from error


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
    """The histories as a page tells them: one row per request, the figures, and what stands open."""

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
    budget = done[-1].request.budget if done else asked_budget(run, {})
    stories = stories_of(histories, budget)
    drawn = [
        tree_figure(stories, histories.oracle),
        *(psi_figure(s, stories, budget.limit) for s in stories if s.rounds),
    ]
    waiting = histories.open_request
    return Told(
        budget, [_row(story, histories) for story in stories[1:]], [plot_of([figure], [""]) for figure in drawn],
        Asked.again(waiting) if waiting is not None else None, histories.forgotten,
    )  # fmt: skip


def _row(story: Story, histories: Histories) -> dict[str, Any]:
    place = histories.place(story.branch)
    assert place is not None
    return {
        "request": story.branch, "cells": request_cells(story), "folder": place, "certificate": story.certificate,
        "seen": fingerprint(histories, story.branch),
    }  # fmt: skip


def fingerprint(histories: Histories, request: int) -> str:
    """What a verification looks at: another certificate or other records mean that an earlier one says nothing."""
    place = histories.place(request)
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
