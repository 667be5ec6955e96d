"""Which runs belong together, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from poise.analysis.reports import Group, group_runs
from poise.analysis.reports.groups import labels
from poise.core.errors import InvalidOption, LedgerError
from reports.ledgers import experiment, made_run

SOME = {"accuracy": [0.1, 0.2]}


def test_runs_that_differ_in_seed_only_are_one_group() -> None:
    data = {"source": "digits", "clients": 4}
    runs = [made_run(SOME, seed=s, data={**data, "seed": s}) for s in (2, 0, 1)]
    (group,) = group_runs(runs)
    assert group.seeds == ("0", "1", "2")
    assert group.label == "sgd, uniform(m=2), proportional"
    assert "seed" not in group.experiment["data"]


def test_a_run_given_twice_counts_once() -> None:
    run = made_run(SOME)
    (group,) = group_runs([run, run, made_run(SOME)])
    assert len(group.runs) == 1


def test_labels_say_what_differs() -> None:
    runs = [
        made_run(SOME, weighting={"name": "soft-max"}),
        made_run(SOME),
        made_run(SOME, seed=1, weighting={"name": "soft-max"}),
    ]
    groups = group_runs(runs)
    assert [g.label for g in groups] == ["weighting=soft-max", "weighting=proportional"]
    assert [len(g.runs) for g in groups] == [2, 1]


def test_labels_leave_out_options_that_all_share() -> None:
    sgd, prox = {"name": "sgd", "lr": 0.1}, {"name": "prox", "lr": 0.1, "mu": 0.5}
    made = labels([experiment(solver=sgd), experiment(solver=prox)])
    assert made == ["solver=sgd", "solver=prox(mu=0.5)"]


def test_labels_of_data_attacks_and_several_differences() -> None:
    some = experiment(
        data={"alpha": 0.1}, attacks=[{"name": "free-rider", "clients": [1]}]
    )
    other = experiment(data={"alpha": 1.0})
    made = labels([some, other])
    assert made == [
        "alpha=0.1, attacks=free-rider(clients=[1])",
        "alpha=1, attacks=none",
    ]


def test_no_two_labels_are_equal() -> None:
    long = [
        experiment(solver={"name": "sgd", "note": "x" * 40 + str(k)}) for k in range(3)
    ]
    made = labels(long)
    assert len(set(made)) == 3
    assert len(set(labels([experiment(), experiment(), experiment()]))) == 3


def test_data_made_in_python_are_told_apart_by_their_size() -> None:
    assert [
        g.label for g in group_runs([made_run(SOME), made_run(SOME, clients=6)])
    ] == [
        "clients=4",
        "clients=6",
    ]


def test_damaged_experiment_file_is_named(tmp_path: Path) -> None:
    run = made_run(SOME, path=tmp_path / "r")
    (tmp_path / "r" / "experiment.toml").write_text("[solver\n", encoding="utf-8")
    with pytest.raises(LedgerError, match=r"r is not TOML"):
        group_runs([run])
    (tmp_path / "r" / "experiment.toml").unlink()  # the ledger has a copy
    assert len(group_runs([run])) == 1


def test_a_group_without_runs_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no runs"):
        Group("nobody", ())
