"""Which runs belong together, and what they are called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from poise.analysis.reports import Group, compare, group_runs, render_page
from poise.analysis.reports.compare import pairwise
from poise.analysis.reports.folder_names import named_by_folder
from poise.analysis.reports.groups import data_of, labels
from poise.analysis.reports.ranking import ranking_as_data
from poise.analysis.reports.sections import findings
from poise.core.errors import InvalidOption, LedgerError
from poise.results import Run, open_run
from poise.results.words import cut_apart
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


def test_labels_that_are_cut_stay_different() -> None:
    """The names of two experiments of the demo, which a legend cut to one text."""
    common = "solver=sgd(steps=20), sampler=clustered-by-size"
    names = [
        f"{common}, weighting=exp(alpha=0.5, scale=none)",
        f"{common}, weighting=proportional",
        "solver=sgd(epochs=5), sampler=uniform, weighting=proportional",
    ]
    shown = cut_apart(names, 40)
    assert shown[:2] == [
        "…weighting=exp(alpha=0.5, scale=none)",
        "…weighting=proportional",
    ]
    assert shown[2].startswith("solver=sgd(epochs=5)")
    assert max(map(len, shown)) <= 40
    doubled = [f"{letter}{'x' * 50}, m={m}" for letter in "ab" for m in (5, 10)]
    assert len(set(cut_apart(doubled, 40))) == 4
    assert len(set(cut_apart(["y" * 60, "y" * 61, "y" * 62], 40))) == 3


def different(folder: Path, **data: object) -> list[Run]:
    """Two experiments with long labels, in folders of their own."""
    solver = {"name": "sgd", "lr": 0.1, "steps": 20, "note": "n" * 20}
    sections = {"solver": solver, "sampler": {"name": "clustered-by-size"}}
    return [
        made_run(SOME, path=folder / "plain" / "seed-0", data={"source": "digits"}),
        made_run(
            SOME,
            path=folder / "clustered" / "seed-0",
            data={"source": "digits", **data},
            **sections,
        ),
    ]


def test_long_labels_give_way_to_the_names_of_folders(tmp_path: Path) -> None:
    groups = named_by_folder(group_runs(different(tmp_path)))
    assert [group.label for group in groups] == ["plain", "clustered"]
    assert "sampler=clustered-by-size" in groups[1].description
    page = render_page(groups)
    assert page.count("sampler=clustered-by-size") == 1, "explained once"
    assert "<strong>clustered</strong>: solver=sgd" in page


def test_folders_that_do_not_tell_groups_apart_are_not_used(tmp_path: Path) -> None:
    first, second = different(tmp_path)
    shutil.copytree(tmp_path / "clustered" / "seed-0", tmp_path / "plain" / "seed-1")
    other = open_run(tmp_path / "plain" / "seed-1")
    labels = [group.label for group in group_runs([first, other])]
    both = named_by_folder(group_runs([first, other]))
    assert [group.label for group in both] == labels
    memory = group_runs([made_run(SOME), second])
    assert named_by_folder(memory) == memory
    short = group_runs([made_run(SOME), made_run(SOME, server={"name": "adam"})])
    assert named_by_folder(short) == short


def test_equal_names_get_those_of_their_parents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    runs = [different(tmp_path / "a")[0], different(tmp_path / "b")[1]]
    shutil.move(tmp_path / "b" / "clustered", tmp_path / "b" / "plain" / "again")
    shutil.move(tmp_path / "b" / "plain" / "again", tmp_path / "c" / "plain")
    runs[1] = open_run(tmp_path / "c" / "plain" / "seed-0")
    groups = named_by_folder(group_runs(runs))
    assert [group.label for group in groups] == ["a/plain", "c/plain"]


def test_other_data_are_not_compared(tmp_path: Path) -> None:
    runs = different(tmp_path)
    hearts = made_run(
        SOME,
        path=tmp_path / "heart" / "seed-0",
        data={"source": "heart-disease", "partition": "by-key"},
    )
    groups = named_by_folder(group_runs([*runs, hearts]))
    assert [group.label for group in groups] == ["plain", "clustered", "heart"]
    assert max(len(group.description) for group in groups) < 120
    comparison = compare(groups)
    assert {contrast.sides for contrast in comparison.contrasts} == {
        "clustered vs plain"
    }
    first = comparison.sentences[0]
    assert first == (
        "Not comparable, because the data differ: plain, clustered (on digits); "
        "heart (on heart-disease)."
    )
    page = findings(comparison)
    assert page.index("Not comparable") < page.index(
        "Ranking by final accuracy on digits"
    )
    assert "Ranking by final accuracy on heart-disease" in page
    assert {c.sides for c in pairwise(comparison.rows, "final accuracy").contrasts} == {
        "clustered vs plain"
    }
    made = ranking_as_data(comparison.rows, "final accuracy")
    assert made["rankings"]["heart-disease"] == ["heart"]


def test_parts_and_seeds_of_the_same_data_are_compared() -> None:
    plain = {"source": "digits", "clients": 5}
    assert data_of({"data": plain}) == data_of({"data": {**plain, "alpha": 0.1}})
    assert data_of({"data": {**plain, "target": "age"}}) == "digits(target=age)"
    long = [f"{'x' * 40}{end}.csv" for end in "ab"]
    assert len({data_of({"data": {"source": path}}) for path in long}) == 2
