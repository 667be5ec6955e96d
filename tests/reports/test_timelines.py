"""The timeline picture: its numbers by hand, and where it is shown."""

from __future__ import annotations

import numpy as np

import poise
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import plots
from poise.analysis.reports.timelines import local_tasks, overlaps, timeline_figure
from poise.clocks import Asynchronous, Synchronous
from poise.solvers import SGD
from poise.weightings import Identical


def run_with(clock: object) -> poise.Run:
    fed = poise.quadratics(np.eye(2))
    return poise.train(
        fed,
        fed.task,
        SGD(lr=0.1, steps=1),
        clock=clock,
        weighting=Identical(),
        rounds=4,
    )


def test_pieces_of_work_by_hand() -> None:
    """Client 1 needs 1, client 0 needs 2.5: arrivals at 1, 2, 2.5, 3."""
    work = local_tasks(run_with(Asynchronous([2.5, 1.0])))
    assert work.clients.tolist() == [1, 1, 0, 1]
    assert work.begin.tolist() == [0.0, 1.0, 0.0, 2.0]
    assert work.end.tolist() == [1.0, 2.0, 2.5, 3.0]
    assert (work.versions.tolist(), work.rounds.tolist()) == (
        [0, 1, 0, 2],
        [0, 1, 2, 3],
    )
    assert work.weights.tolist() == [1.0] * 4


def test_the_picture_has_a_bar_per_piece() -> None:
    bar, _ = timeline_figure(run_with(Asynchronous([2.5, 1.0]))).data
    assert np.allclose(bar.base, [0.0, 1.0, 0.0, 2.0])
    assert np.allclose(bar.x, [1.0, 1.0, 2.5, 1.0])
    assert bar.customdata[2].tolist() == [
        0,
        3,
        2,
        1.0,
    ]  # version 0, third aggregation, staleness 2


def test_it_is_shown_where_work_crosses_aggregations() -> None:
    later, at_once = (
        run_with(Asynchronous([2.5, 1.0])),
        run_with(Synchronous([2.5, 1.0])),
    )
    assert overlaps(later)
    assert not overlaps(at_once)
    for run, shown in ((later, True), (at_once, False)):
        titles = [plot.title for plot in plots([Group("a", (run,))])]
        assert any("Client timeline" in t for t in titles) == shown, titles
