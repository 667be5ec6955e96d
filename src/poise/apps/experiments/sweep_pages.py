"""The ranking of a sweep as texts, and the page of a sweep."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from poise.analysis.reports import sections
from poise.analysis.reports.groups import Group
from poise.analysis.reports.numbers import with_interval
from poise.analysis.reports.page import document, write_whole_page
from poise.analysis.reports.plots import Plot, curve_plots, plot_of
from poise.analysis.reports.ranking import ranked
from poise.analysis.reports.rows import Score, ScoreRow
from poise.analysis.reports.sweep_figures import (
    SweptPoint,
    effect,
    parallel_coordinates,
)
from poise.apps.experiments.sweep_results import Sweep, SweptConfiguration
from poise.core.errors import InvalidOption

MOST_CURVES = 8
"""The largest number of configurations, best first, whose curves a page shows."""


def ranking_heading(made: Sweep) -> tuple[str, ...]:
    """Return the columns of `ranking_of`."""
    return ("#", "configuration", f"final {made.metric}", "to the best", "state")


def ranking_of(made: Sweep) -> list[tuple[str, ...]]:
    """Return the ranking as texts, best first.

    The mean and the difference to the best have 95 % intervals. Only complete
    configurations have a place.
    """
    score = f"final {made.metric}"
    better = "high"
    if made.plan.lower_is_better:
        better = "low"
    complete = [c for c in made.ranking if c.complete and c.stopped is None]
    rows = [_row(configuration, score, better) for configuration in complete]
    ranks = {rank.row.label: rank for rank in ranked(rows, score)}
    places = max((rank.places for rank in ranks.values()), default=0)
    lines: list[tuple[str, ...]] = []
    for configuration in made.ranking:
        place = ""
        behind = ""
        rank = ranks.get(configuration.name)
        if rank is not None:
            place = str(rank.place or "")
            behind = rank.behind_text
        value = _value_text(configuration, places)
        state = _state_text(configuration, made)
        lines.append((place, configuration.name, value, behind, state))
    return lines


def _state_text(configuration: SweptConfiguration, made: Sweep) -> str:
    """Return the state of a configuration, with its rounds, and its runs so far."""
    state = configuration.state
    seeds = len(made.plan.options.seeds)
    if state == "done":
        return f"{configuration.rounds} rounds"
    if configuration.stopped is not None:
        return f"rung {configuration.rung} (round {configuration.stopped.round})"
    if state == "unfinished":
        ended = sum(run.ended for run in configuration.progress)
        return f"{ended} of {seeds} runs"
    return state


def _row(configuration: SweptConfiguration, score: str, better: str) -> ScoreRow:
    """Return a configuration as a row of a table of scores."""
    return ScoreRow(
        configuration.name,
        tuple(map(str, configuration.seeds)),
        rounds=configuration.rounds,
        scores={score: Score(configuration.values, better=better)},
    )


def _value_text(configuration: SweptConfiguration, places: int = 0) -> str:
    estimated = configuration.estimate
    if estimated is None or not math.isfinite(estimated.mean):
        return "—"
    return with_interval(estimated.mean, estimated.half_width, places=places)


def write_page_of_sweep(made: Sweep, out: Path) -> Path:
    """Write the page of a sweep: ranking, decisions, figures, the best experiment."""
    begun = [c for c in made.ranking if c.seeds]
    if not begun:
        raise InvalidOption(f"{made.path} has no runs yet", "run the sweep first")
    title = title_of(made.path)
    best = [Group(c.name, tuple(made.runs(c.name))) for c in begun[:MOST_CURVES]]
    drawn = [*_sweep_plots(made), *curve_plots(best)]
    body = [
        _header(made, title),
        _ranking(made),
        _decisions(made),
        sections.figures(drawn),
        sections.runs(best),
        sections.experiments(best[:1]),
        sections.footer(best),
    ]
    return write_whole_page(out, document(title, "".join(body), drawn=bool(drawn)))


def title_of(path: Path) -> str:
    """Return the title of the sweep in a folder.

    >>> [title_of(Path(name)) for name in ("exp-sweep", "sweep", "halving")]
    ['Sweep exp', 'Sweep', 'Sweep halving']
    """
    name = path.name.removesuffix("sweep").rstrip("-_. ")
    return f"Sweep {name}".rstrip()


def _header(made: Sweep, title: str) -> str:
    """Return the title, the numbers of the sweep, and how to read them."""
    plan = made.plan
    seeds = len(plan.options.seeds)
    lead = f"{len(plan.configurations)} configurations with {seeds} seeds each."
    best = made.best
    if best is not None:
        lead += (
            f" Best: {best.name}, with a final {made.metric} of {_value_text(best)}."
        )
    note = "Mean ± half the width of the 95 % confidence interval over seeds."
    if len(plan.configurations) > 1:
        note += (
            " The best of many is partly lucky: repeat it with new seeds before you rely "
            "on its score."
        )
    if len(made.ranking) > MOST_CURVES:
        note += f" Curves and runs are those of the best {MOST_CURVES} configurations."
    warning = ""
    if not made.finished:
        words = "The sweep is not finished: its ranking is preliminary."
        warning = f'<p class="warning">{words}</p>'
    return (
        f'<header>\n<h1>{sections.text(title)}</h1>\n<p class="lead">'
        f'{sections.text(lead)}</p>\n<p class="note">{sections.text(note)}</p>\n'
        f"{warning}</header>\n"
    )


def _ranking(made: Sweep) -> str:
    """Return the table of configurations, each named with its place."""
    lines = []
    for place, name, *rest in ranking_of(made):
        numbered = f"{place}. {name}" if place else name
        lines.append((numbered, *rest))
    return sections.numbers(ranking_heading(made)[1:], lines)


def _decisions(made: Sweep) -> str:
    """Return what was decided at each rung; empty without rungs."""
    if not made.decisions:
        return ""
    items = ""
    for decision in made.decisions:
        words = (
            f"Rung {decision.rung}, after round {decision.round}: "
            f"{', '.join(decision.kept)} went on; {len(decision.stopped)} of "
            f"{len(decision.means)} configurations were stopped."
        )
        items += f"<li>{sections.text(words)}</li>"
    rule = (
        f"At each rung the best 1/{made.plan.options.eta} of the configurations go on, by "
        f"the mean {made.metric} over all seeds. A configuration goes on or stops with all "
        "of its seeds."
    )
    return (
        f'<section>\n<h2>Rungs</h2>\n<p class="note">{sections.text(rule)}</p>'
        f"<ul>{items}</ul>\n</section>\n"
    )


def _sweep_plots(made: Sweep) -> Iterator[Plot]:
    """Yield the figures of the configurations."""
    points = []
    for configuration in made.ranking:
        estimated = configuration.estimate
        if estimated is not None and math.isfinite(estimated.mean):
            stopped = configuration.stopped is not None
            point = SweptPoint(
                configuration.name, configuration.settings, estimated, stopped=stopped
            )
            points.append(point)
    if len(points) < 2:
        return
    lower = made.plan.lower_is_better
    figure = parallel_coordinates(points, made.metric, lower_is_better=lower)
    yield plot_of([figure], [""])
    for key in points[0].settings:
        yield plot_of([effect(points, key, made.metric)], [""])


__all__ = ["ranking_heading", "ranking_of", "write_page_of_sweep"]
