"""Times of real nodes are called seconds; simulated time stays simulated time."""

from __future__ import annotations

from typing import Any

import pytest

from poise.analysis.reports import Group, score_table
from poise.analysis.reports.figures import learning_curves
from poise.analysis.reports.plots import curve_plots
from poise.analysis.reports.timelines import timeline_figure
from reports.ledgers import made_run

NODES = {"backend": {"name": "flower", "time": "real"}}
REHEARSED = {"backend": {"name": "flower", "time": "simulated"}}


def group(label: str, run: dict[str, Any]) -> Group:
    times = [2.5, 7.0]
    return Group(label, (made_run({"accuracy": [0.2, 0.5]}, times=times, run=run),))


@pytest.mark.parametrize(
    ("runs", "axis", "choice"),
    [
        (
            [NODES],
            "seconds that the server waited for its nodes",
            "seconds of the clock",
        ),
        ([{"backend": "flower"}], "seconds that the server", "seconds of the clock"),
        ([REHEARSED], "simulated time (units of the clock)", "simulated time"),
        ([{}], "simulated time (units of the clock)", "simulated time"),
        ([NODES, {}], "time (seconds on nodes, units", "time of the clock"),
    ],
)
def test_the_unit_of_the_clock(
    runs: list[dict[str, Any]], axis: str, choice: str
) -> None:
    groups = [group(str(k), run) for k, run in enumerate(runs)]
    figure = learning_curves(groups, "accuracy", "time")
    assert figure.layout.xaxis.title.text.startswith(axis)
    (plot,) = curve_plots(groups)
    assert choice in [name for name, _ in plot.views]
    row = score_table(groups)[0]
    assert row.scores[choice].known == (7.0,)


def test_the_timeline_of_nodes_is_in_seconds() -> None:
    figure = timeline_figure(group("a", NODES).runs[0])
    assert "seconds" in figure.layout.xaxis.title.text
