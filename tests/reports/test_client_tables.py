"""How each client fares, by name, in reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from poise.analysis.reports import Group, write_page
from poise.analysis.reports.client_tables import MOST_LINES, client_table
from poise.analysis.reports.figures import participation, weight_map
from poise.core.client_names import NAMES
from poise.ledger import Ledger
from poise.results import Run, open_run
from reports.ledgers import made_run

HOSPITALS = ["cleveland", "budapest", "<zurich>"]


def hospitals(path: Path, seed: int = 0, accuracy: float = 0.0) -> Run:
    """Three hospitals; budapest is the worst, and was not measured in the last round."""
    rounds = [[0.5, 0.5, 0.5], [0.8 + accuracy, 0.6 + accuracy, 0.9 + accuracy]]
    values = [np.array(row) for row in rounds]
    values.append(np.array([0.7 + accuracy, np.nan, 0.9 + accuracy]))
    run = made_run(
        {"client_accuracy": values},
        seed=seed,
        clients=3,
        cohorts=[{0: 0.2, 1: 0.8}, {1: 0.4, 2: 0.6}, {1: 1.0}],
        arrays={"sizes": np.array([10, 20, 30])},
        path=path,
    )
    run.close()
    ledger = Ledger.open(path, writing=True)
    ledger.set(NAMES, json.dumps(HOSPITALS))
    ledger.close()
    return open_run(path)


def test_the_worst_hospital_comes_first_with_its_name(tmp_path: Path) -> None:
    table = client_table(Group("a", (hospitals(tmp_path / "a"),)))
    assert table is not None
    assert table.heading == (
        "client",
        "samples",
        "aggregations",
        "mean weight",
        "client accuracy",
    )
    assert table.lines == (
        ("budapest", "20", "3", "0.7333", "0.6"),
        ("cleveland", "10", "1", "0.06667", "0.7"),
        ("<zurich>", "30", "1", "0.2", "0.9"),
    )
    assert "the worst comes first" in table.note
    assert table.order == (1, 0, 2), "the numbers that pages link to"
    assert "mean over" not in table.note, "one seed"


def test_values_are_means_over_seeds(tmp_path: Path) -> None:
    runs = tuple(hospitals(tmp_path / str(k), k, 0.1 * k) for k in range(2))
    table = client_table(Group("a", runs))
    assert table is not None
    # values 0.1 apart: half the interval is 12.7 · 0.0707 / √2
    assert [line[-1] for line in table.lines] == [
        "0.65 ± 0.64",
        "0.75 ± 0.64",
        "0.95 ± 0.64",
    ]
    assert "Every value is a mean over 2 seeds" in table.note


def test_test_data_sort_before_training_data() -> None:
    """The client that is second worst on its training data is best on its test data."""
    measured = {
        "client_accuracy": [np.array([0.8, 0.7, 0.9])],
        "client_local_accuracy": [np.array([0.9, 0.9, 0.9])],
        "client_test_accuracy": [np.array([0.85, 0.6, 0.7])],
        "client_test_loss": [np.array([0.1, 0.2, 0.3])],
    }
    table = client_table(Group("a", (made_run(measured, clients=3),)))
    assert table is not None
    assert table.order == (1, 2, 0)
    assert table.heading[-4:] == (
        "client test accuracy",
        "client test loss",
        "client local accuracy",
        "client accuracy",
    )
    assert table.note == (
        "Sorted by client test accuracy: the worst comes first. Client test accuracy, "
        "client test loss: of the model on the client's own test data. Client local "
        "accuracy: of the client's model after local work, on its own test data. Client "
        "accuracy: of the model on the client's training data."
    )
    alone = {"client_accuracy": measured["client_accuracy"]}
    trained = client_table(Group("a", (made_run(alone, clients=3),)))
    assert trained is not None
    assert "data that training did not use" in trained.note


def test_seeds_with_other_clients_are_not_averaged() -> None:
    arrays = [{"sizes": np.array(sizes)} for sizes in ([1, 2], [2, 1])]
    runs = tuple(
        made_run({"loss": [1.0]}, seed=k, clients=2, arrays=given)
        for k, given in enumerate(arrays)
    )
    assert client_table(Group("a", runs)) is None


def test_without_metrics_per_client_the_page_says_how_to_measure() -> None:
    table = client_table(Group("a", (made_run({"loss": [1.0]}),)))
    assert table is not None
    assert 'metrics = ["client_accuracy"]' in table.note
    assert [line[0] for line in table.lines] == [f"client {k}" for k in range(4)]


def test_of_many_clients_the_worst_are_shown() -> None:
    losses = np.arange(100.0)
    run = made_run({"client_loss": [losses]}, clients=100)
    table = client_table(Group("a", (run,)))
    assert table is not None
    assert len(table.lines) == MOST_LINES
    assert table.lines[0][0] == "client 99", "the largest loss is the worst"
    assert "Shows 50 of 100 clients" in table.note


def test_stale_clients_have_a_column() -> None:
    import torch

    from poise.core.types import Contribution, Record

    run = made_run({"loss": [1.0]})
    ledger = run._ledger
    parts = (Contribution(2, 0, 0, 1.0, 1.0, 1.0, 10, 5),)
    record = Record(1, 2.0, parts, {"loss": 0.5}, 1, 1)
    ledger.append(record, torch.zeros(2), {})
    table = client_table(Group("a", (Run(ledger),)))
    assert table is not None
    column = table.heading.index("mean staleness")
    assert {line[0]: line[column] for line in table.lines}["client 2"] == "1"


def test_figures_have_the_names_on_their_axes(tmp_path: Path) -> None:
    run = hospitals(tmp_path / "run")
    names = ("cleveland", "budapest", "&lt;zurich&gt;")
    assert weight_map(run).layout.yaxis.ticktext == names
    assert participation([Group("a", (run,))]).layout.xaxis.ticktext == names
    others = made_run({"loss": [1.0]}, clients=3)
    groups = [Group("a", (run,)), Group("b", (others,))]
    assert participation(groups).layout.xaxis.ticktext is None, "whose names?"


def test_the_page_shows_them_by_name(tmp_path: Path) -> None:
    run = hospitals(tmp_path / "run")
    page = write_page([Group("a", (run,))], tmp_path / "report.html").read_text()
    assert '<th scope="row">budapest</th>' in page
    assert "&lt;zurich&gt;" in page
    assert "<zurich>" not in page
    assert "Client accuracy by client" in page
