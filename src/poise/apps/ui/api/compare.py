"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from poise.analysis.reports import compare, comparison_as_data, group_runs
from poise.analysis.reports.groups import Group
from poise.apps.ui.library import Library
from poise.apps.ui.shared import PROBLEMS, ClientStateStore
from poise.apps.ui.views.drawing import Drawings, drawn, side_by_side

router = APIRouter(tags=["compare"], responses=PROBLEMS)

MOST = 40
"""Runs that are compared at once."""

Chosen = Annotated[
    list[str], Query(alias="run", description="Names of runs.", min_length=1, max_length=MOST)
]


class Mean(BaseModel):
    """A mean with its 95 % interval."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


class ScoreOf(Mean):
    """A score of a group: over its runs, and of each."""

    values: list[float | None]
    unit: str
    better: str


class GroupOf(BaseModel):
    """Runs of one experiment."""

    label: str
    seeds: list[str]
    rounds: int
    scores: dict[str, ScoreOf]


class ContrastOf(BaseModel):
    """One score of a group against that of the first one."""

    score: str
    label: str
    baseline: str
    method: str | None
    difference: Mean | None
    significant: bool | None
    sentence: str


class ComparisonOf(BaseModel):
    """What can be said about the differences of experiments."""

    groups: list[GroupOf]
    contrasts: list[ContrastOf]


@contextmanager
def grouped(library: Library, names: list[str]) -> Iterator[list[Group]]:
    """Runs opened and put together by experiment, for the time of the block."""
    with ExitStack() as stack:
        yield group_runs([stack.enter_context(library.open(name)) for name in dict.fromkeys(names)])


@router.get("/compare", response_model=ComparisonOf)
def comparison(names: Chosen, library: ClientStateStore) -> object:
    """Scores by experiment, and which differences are significant; the first run's experiment is
    the baseline.
    """

    def make() -> object:
        with grouped(library, names) as groups:
            return comparison_as_data(compare(groups))

    return library.kept_of(names, "comparison", make)


@router.get("/compare/figures", response_model=Drawings)
def figures(names: Chosen, library: ClientStateStore) -> Response:
    """Curves of several runs, means over seeds with 95 % bands."""

    def make() -> str:
        with grouped(library, names) as groups:
            return drawn(side_by_side(groups))

    return Response(
        library.kept_of(names, "comparison of curves", make), media_type="application/json"
    )
