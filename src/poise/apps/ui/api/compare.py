"""API routes that compare several runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from poise.analysis.reports import compare, comparison_as_data, group_runs
from poise.analysis.reports.folder_names import named_by_folder
from poise.analysis.reports.groups import Group
from poise.apps.ui.library import Library
from poise.apps.ui.shared import PROBLEMS, RunLibrary
from poise.apps.ui.views.drawing import Drawings, drawn, side_by_side

router = APIRouter(tags=["compare"], responses=PROBLEMS)

MOST = 40
"""Maximum number of runs in one comparison."""

Chosen = Annotated[
    list[str],
    Query(alias="run", description="Names of runs.", min_length=1, max_length=MOST),
]


class Mean(BaseModel):
    """A mean with its 95 % interval."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


class ScoreOf(Mean):
    """A score of a group: mean over its runs, and all values."""

    values: list[float | None]
    unit: str
    better: str


class GroupOf(BaseModel):
    """Runs of one experiment."""

    label: str
    data: str
    seeds: list[str]
    rounds: int
    scores: dict[str, ScoreOf]


class ContrastOf(BaseModel):
    """One score of a group compared with the first group."""

    score: str
    label: str
    baseline: str
    method: str | None
    difference: Mean | None
    significant: bool | None
    sentence: str


class ComparisonOf(BaseModel):
    """Scores of experiments and their differences."""

    groups: list[GroupOf]
    contrasts: list[ContrastOf]


@contextmanager
def grouped(library: Library, names: list[str]) -> Iterator[list[Group]]:
    """Open runs and group them by experiment, for the duration of the block."""
    with ExitStack() as stack:
        runs = [
            stack.enter_context(library.open(name)) for name in dict.fromkeys(names)
        ]
        yield named_by_folder(group_runs(runs))


@router.get("/compare", response_model=ComparisonOf)
def comparison(names: Chosen, library: RunLibrary) -> object:
    """Scores by experiment, and differences from the first experiment with the same data."""

    def make() -> object:
        with grouped(library, names) as groups:
            return comparison_as_data(compare(groups))

    return library.cached_for(names, "comparison", make)


@router.get("/compare/figures", response_model=Drawings)
def figures(names: Chosen, library: RunLibrary) -> Response:
    """Curves of several runs: means over seeds with 95 % bands."""

    def make() -> str:
        with grouped(library, names) as groups:
            return drawn(side_by_side(groups))

    return Response(
        library.cached_for(names, "comparison of curves", make),
        media_type="application/json",
    )
