"""What the console says of one client, against the ledger itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import numpy as np
import pytest

import poise
from poise.analysis.reports.graphs import KeptGraph
from poise.apps.ui.library import NotInRun
from poise.apps.ui.views import client as views
from poise.graph import SimilarityGraph
from poise.privacy.budget import Budget
from poise.results import Run, open_run
from poise.unlearning.ledger_sensitivity import budget_sensitivity
from ui.samples import plain


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    found = open_run(plain(tmp_path_factory.mktemp("runs")))
    yield found
    found.close()


def test_the_profile_is_that_of_the_federation(run: Run) -> None:
    fed = poise.federation(
        "digits",
        partition="dirichlet",
        alpha=0.3,
        clients=10,
        samples=300,
        test_samples=60,
        seed=0,
    )
    said = views.profile(run, 3)
    assert said.samples == fed.sizes[3]
    assert said.classes == np.bincount(fed.client(3)[1], minlength=10).tolist()
    assert said.importance == pytest.approx(fed.sizes[3] / 300)
    shares = np.array(said.classes) / said.samples
    everyone = fed.label_counts().sum(axis=0) / 300
    assert said.divergence["total variation"] == pytest.approx(
        np.abs(shares - everyone).sum() / 2
    )


def test_every_round_it_took_part_in_is_there(run: Run) -> None:
    assert run.path is not None
    with sqlite3.connect(run.path / "ledger.sqlite") as database:
        query = (
            "SELECT n, coefficient, norm, loss_after FROM contributions WHERE client = 3 "
            "ORDER BY n DESC"
        )
        recorded = database.execute(query).fetchall()
    history = views.client_history(run, 3)
    rows = history.page(1).rows
    assert [
        (r.aggregation - 1, r.weight, r.norm, r.loss_after) for r in rows
    ] == recorded
    assert history.facts.rounds == len({n for n, *_ in recorded})


def test_mean_weight_is_that_of_the_table_of_clients(run: Run) -> None:
    """Aggregations without the client count as 0, unlike in the second average."""
    facts = views.client_history(run, 3).facts
    weights = run.weights[:, 3]
    assert 0 < facts.rounds < run.rounds
    assert facts.mean_weight == pytest.approx(weights.mean())
    assert facts.weight_per_contribution == pytest.approx(weights[weights > 0].mean())


def test_pages_of_rounds_cover_all_of_them_once(run: Run) -> None:
    history = views.client_history(run, int(run.contributions["client"][0]))
    many = views.ClientHistory(np.repeat(history.rows[:1], 7), run.rounds, [], [])
    many.rows["round"] = np.arange(7)
    seen = [r.aggregation for k in (1, 2, 3) for r in many.page(k, size=3).rows]
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    assert many.page(99, size=3).page == 3


def test_one_client_is_counted_as_all_are(run: Run) -> None:
    every = budget_sensitivity(run, Budget())
    assert np.array_equal(budget_sensitivity(run, Budget(), [3])[:, 0], every[:, 3])


def test_figures_hold_what_was_recorded(run: Run) -> None:
    history = views.client_history(run, 3)
    psi = budget_sensitivity(run, Budget(), [3])[:, 0]
    drawn = {
        plot.title: json.loads(plot.views[0][1])
        for plot in views.plots(run, 3, history, psi, 0.14, None)
    }
    assert list(drawn) == [
        "Classes",
        "Weight in each round with this client",
        "Length of its updates",
        "Client loss after each aggregation",
        "Sensitivity Psi to client 3",
    ]
    assert drawn["Sensitivity Psi to client 3"]["layout"]["shapes"][0]["y0"] == 0.14


def test_very_many_rounds_are_averaged(run: Run) -> None:
    history = views.client_history(run, 3)
    rows = np.repeat(history.rows[:1], 1000)
    rows["round"], rows["norm"] = np.arange(1000), np.arange(1000)
    figure = views.length_figure(views.ClientHistory(rows, 1000, [], []))
    assert len(figure.data[0].x) == 334
    assert figure.data[0].y[0] == pytest.approx(1.0)  # of 0, 1 and 2
    assert "bins of 3" in figure.layout.title.subtitle.text


def test_the_place_in_the_graph() -> None:
    angles = np.radians([0.0, 10.0, 25.0, 170.0])
    kept = KeptGraph(
        SimilarityGraph(np.stack([np.cos(angles), np.sin(angles)], axis=1)), {}
    )
    said = views.graph_position(kept, 0)
    assert [n.client for n in said.nearest] == [1, 2, 3]
    assert said.nearest[0].misalignment == pytest.approx(
        (1 - np.cos(np.radians(10))) / 2
    )
    assert views.graph_position(kept, 3).rank == 4


def test_a_client_that_is_not_there_is_refused(run: Run) -> None:
    with pytest.raises(NotInRun, match="this run has no client 10"):
        views.checked(run, 10)
