"""Who came to each aggregation: numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import poise
from poise.analysis.reports import cohorts
from poise.clocks import Asynchronous
from poise.core.types import Contribution, Record, Refusal
from poise.ledger import Ledger
from poise.results import Run
from poise.solvers import SGD
from reports.ledgers import made_run


def test_class_shares_by_hand() -> None:
    counts = np.array([[4, 0], [0, 4], [2, 2], [9, 9]])
    cohort = [{0: 1.0}, {0: 0.5, 1: 0.5}, {1: 0.5, 2: 0.5}, {}]
    run = made_run(rounds=4, cohorts=cohort, arrays={"label_counts": counts})
    shares = cohorts.class_shares(run)
    assert shares is not None
    assert shares[:3].tolist() == [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]
    assert np.isnan(shares[3]).all(), "nobody came"
    assert cohorts.class_shares(made_run(rounds=2)) is None
    assert cohorts.composition_figure(made_run(rounds=2)) is None


def test_many_aggregations_are_added_up_in_bins() -> None:
    counts = np.array([[1, 0], [0, 1]])
    run = made_run(
        rounds=4,
        clients=2,
        cohorts=[{0: 1.0}, {1: 1.0}, {0: 1.0}, {0: 1.0}],
        arrays={"label_counts": counts},
    )
    assert cohorts.class_shares(run, most=2).tolist() == [[0.5, 0.5], [1.0, 0.0]]  # type: ignore[union-attr]


def test_staleness_by_hand() -> None:
    """Client 1 needs 1, client 0 needs 2.5: arrivals of versions 0, 1, 0, 2 in aggregations 0, 1,
    2, 3."""
    fed = poise.quadratics(np.eye(2))
    run = poise.train(
        fed, fed.task, SGD(lr=0.1, steps=1), clock=Asynchronous([2.5, 1.0]), rounds=4
    )
    mean, largest, _ = cohorts.staleness(run)
    assert mean.tolist() == [0, 0, 2, 1]
    assert largest.tolist() == [0, 0, 2, 1]
    mean, largest, edges = cohorts.staleness(run, most=2)
    assert (mean.tolist(), largest.tolist(), edges.tolist()) == (
        [0, 1.5],
        [0, 2],
        [0, 2, 4],
    )
    lines = {
        trace.name: trace.y.tolist() for trace in cohorts.staleness_figure(run).data
    }
    assert lines == {"largest": [0, 0, 2, 1], "mean": [0, 0, 2, 1]}


def reporting(losses: list[list[float | None]]) -> Run:
    ledger = Ledger.create(
        None, {"seed": 0, "clients": 9, "status": "done", "experiment": "[run]\n"}, {}
    )
    for n, row in enumerate(losses):
        parts = tuple(
            Contribution(i, n, 0, 1.0, 1.0, 1.0, 1, 1, loss)
            for i, loss in enumerate(row)
        )
        refused = (Refusal(8, n, "too long"),) if n == 1 else ()
        ledger.append(
            Record(n, n + 1.0, parts, {}, 1, 1, refusals=refused), torch.zeros(1), {}
        )
    return Run(ledger)


def test_quantiles_of_what_the_cohort_reported() -> None:
    run = reporting([[4.0, 0.0, 1.0, 3.0, 2.0], [None, None], [7.0]])
    found = cohorts.loss_quantiles(run)
    assert found is not None
    rounds, values, whose = found
    assert rounds.tolist() == [1, 3], "nobody reported in the second"
    assert values.tolist() == [[0, 1, 2, 3, 4], [7] * 5]
    assert "cohort" in whose


def test_measured_losses_of_all_clients_come_before_reports() -> None:
    run = made_run(
        {"client_loss": [np.array([1.0, 2.0, np.nan, 3.0]), None, np.array([5.0] * 4)]},
        run={"evaluate_every": 2, "rounds": 3},
    )
    found = cohorts.loss_quantiles(run)
    assert found is not None
    assert found[0].tolist() == [1, 3]
    assert found[1][:, 2].tolist() == [2.0, 5.0]
    assert found[2] == "all clients"
    figure = cohorts.loss_figure(run)
    assert figure is not None
    assert [trace.name for trace in figure.data] == [
        "minimum to maximum",
        "middle half",
        "median",
    ]


def test_runs_without_losses_have_no_picture_of_them() -> None:
    assert cohorts.loss_figure(made_run(rounds=2)) is None


def test_sizes_and_refusals() -> None:
    sizes, refused = cohorts.cohort_size_figure(
        reporting([[1.0, 2.0], [1.0], [1.0]])
    ).data
    assert (sizes.y.tolist(), refused.y.tolist()) == ([2, 1, 1], [0, 1, 0])


@pytest.mark.parametrize("latest", [False, True])
def test_of_many_pieces_of_work_the_first_or_the_latest_are_shown(
    latest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poise.analysis.reports import timelines

    monkeypatch.setattr(timelines, "MOST_TASKS", 3)
    bar, _ = timelines.timeline_figure(made_run(rounds=4), latest=latest).data
    assert bar.customdata[:, 1].tolist() == ([3, 4, 4] if latest else [1, 1, 2])


def test_curves_against_real_time() -> None:
    from poise.results.drawing import axis_values

    run = made_run(rounds=3)
    run.seconds = np.array([0.5, 1.0, 2.0])
    assert axis_values(run, "seconds").tolist() == [0.5, 1.5, 3.5]
