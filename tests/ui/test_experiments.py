"""Runs of a page as experiments: folded seeds, short names, and their order."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from typing import Any

from poise.apps.ui.views.experiments import (
    LONGEST,
    columns,
    experiments,
    sorted_lines,
)
from poise.apps.ui.views.listing import Interval, RunLine


def line(name: str, experiment: str = "", **values: Any) -> RunLine:
    defaults: dict[str, Any] = {
        "state": "done",
        "trouble": "",
        "ending": "",
        "branch_of": None,
        "recipe": {"solver": "sgd(lr=0.1)", "sampler": "full"},
        "data": "digits: clients = 10",
        "clients": 10,
        "seed": 0,
        "rounds": 5,
        "planned": 5,
        "progress": 1.0,
        "eta": None,
        "progress_words": "",
        "scores": {},
        "over_seeds": {},
        "tags": [],
        "changed": datetime(2026, 11, 18, tzinfo=UTC),
        "began": None,
        "seconds": 0.0,
        "duration": "",
    }
    whole = {**defaults, "name": name, "experiment": experiment or name, **values}
    return RunLine(**whole)


def test_runs_that_differ_in_their_seed_are_one_experiment() -> None:
    lines = [
        line("a/seed-0", "A"),
        line("b/seed-0", "B", recipe={"solver": "sgd(lr=0.2)", "sampler": "full"}),
        line("a/seed-1", "A", state="running"),
        line("c", "C"),
    ]
    texts = {"a/seed-0": "lr = 0.1", "b/seed-0": "lr = 0.2", "c": "lr = 0.1\nsteps = 3"}
    found = experiments(lines, identities(texts))
    assert [(e.name, len(e.lines), e.states) for e in found] == [
        ("a", 2, {"done": 1, "running": 1}),
        ("b/seed-0", 1, {"done": 1}),
        ("c", 1, {"done": 1}),
    ]
    assert [e.differs for e in found] == [
        "solver=sgd(lr=0.1)",
        "solver=sgd(lr=0.2)",
        "solver=sgd(lr=0.1, steps=3)",
    ]


def test_the_short_name_begins_with_what_differs() -> None:
    """All names of the demo began with the same options of the data, and were cut."""
    data = {"source": "digits", "partition": "dirichlet", "sizes": list(range(50))}
    shared = {"data": data, "solver": {"name": "sgd"}, "weighting": {"name": "plain"}}
    clustered = shared | {"sampler": {"name": "clustered-by-size"}}
    told = {
        "fedavg": shared | {"sampler": {"name": "uniform"}},
        "clustered": clustered,
        "choice": clustered | {"weighting": {"name": "exp", "alpha": 0.5}},
        "other": shared | {"data": {**data, "partition": "iid"}},
        "heart": {"data": {"source": "heart-disease"}},
    }
    found = experiments([line(name) for name in told], told)
    assert {e.name: e.differs for e in found} == {
        "fedavg": "sampler=uniform",
        "clustered": "sampler=clustered-by-size, weighting=plain",
        "choice": "weighting=exp(alpha=0.5)",
        "other": "sampler=none",
        "heart": "",
    }


def identities(texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {
        name: tomllib.loads(f"[solver]\nname = 'sgd'\nbatch_size = 8\n{text}")
        for name, text in texts.items()
    }


def test_an_experiment_in_several_folders_names_them() -> None:
    lines = [line("a/seed-0", "A"), line("b/seed-1", "A", seed=1)]
    assert experiments(lines, {})[0].name == "a, b"
    lines += [line("c/d/seed-2", "A", seed=2), line("e/seed-3", "A", seed=3)]
    assert experiments(lines, {})[0].name == "a, b and 2 more"
    lines = [line("seed-0", "A"), line("seed-1", "A")]
    assert experiments(lines, {})[0].name == "seed-0"


def test_copies_of_a_seed_are_not_seeds() -> None:
    """``poise run`` with one seed into two folders: one seed, two runs."""
    lines = [line("a/x/seed-0", "A"), line("b/x/seed-0", "A")]
    (found,) = experiments(lines, {})
    assert (found.name, found.seeds, found.copies) == ("a/x, b/x", 1, 1)
    lines += [line("a/x/seed-1", "A", seed=1)]
    (found,) = experiments(lines, {})
    assert (found.seeds, found.copies) == (2, 1)
    separate = [line("a", "A", data_seed=1), line("b", "A", data_seed=2)]
    assert experiments(separate, {})[0].seeds == 2


def test_the_data_of_several_seeds_have_no_seed() -> None:
    identity = {"data": {"source": "digits", "clients": 10}}
    words = "digits: clients = 10, seed = 0"
    lines = [line("a/0", "A", data=words), line("a/1", "A", data=words, seed=1)]
    (found,) = experiments(lines, {"a/0": identity})
    assert found.data == "digits: clients = 10"
    (alone,) = experiments(lines[:1], {"a/0": identity})
    assert alone.data == words
    python = [one.model_copy(update={"data": "given in Python"}) for one in lines]
    assert experiments(python, {"a/0": identity})[0].data == "given in Python"


def test_one_experiment_needs_no_short_name_and_a_long_one_is_cut() -> None:
    (alone,) = experiments([line("a")], identities({"a": ""}))
    assert alone.differs == ""
    texts = {"a": f"lr = '{'x' * 100}'", "b": "steps = '" + "y" * 100 + "'\nlr = 3"}
    for found in experiments([line("a"), line("b")], identities(texts)):
        assert len(found.differs) <= LONGEST
    unread = experiments([line("a"), line("b")], {})
    assert [found.differs for found in unread] == ["", ""]


def interval(mean: float) -> Interval:
    return Interval(mean=mean, low=None, high=None, n=2, text="")


def test_experiments_are_sorted_by_their_means_and_stay_together() -> None:
    low = {"accuracy": interval(0.5)}
    high = {"accuracy": interval(0.7)}
    lines = [
        line("a/0", "A", scores={"accuracy": 0.1}, over_seeds=low),
        line("b/0", "B", scores={"accuracy": 0.6}, over_seeds=high),
        line("a/1", "A", scores={"accuracy": 0.9}, over_seeds=low),
        line("b/1", "B", scores={"accuracy": 0.8}, over_seeds=high),
        line("none", scores={}),
    ]

    def order(by: str, way: Any) -> list[str]:
        return [found.name for found in sorted_lines(lines, by, way)]

    assert order("accuracy", "up") == ["a/0", "a/1", "b/0", "b/1", "none"]
    assert order("accuracy", "down") == ["b/1", "b/0", "a/1", "a/0", "none"]
    assert order("absent", "down") == [found.name for found in lines_together(lines)]


def lines_together(lines: list[RunLine]) -> list[RunLine]:
    """Nothing to sort by: the order of the first runs of the experiments."""
    return [lines[0], lines[2], lines[1], lines[3], lines[4]]


def test_times_and_words_sort_too() -> None:
    early = datetime(2026, 11, 17, tzinfo=UTC)
    late = datetime(2026, 11, 18, tzinfo=UTC)
    lines = [
        line("old"),
        line("late", began=late, seconds=3.0, state="failed"),
        line("early", began=early, seconds=70.0),
    ]
    found = {
        by: [one.name for one in sorted_lines(lines, by, "up")]
        for by in ("began", "duration", "state")
    }
    assert found == {
        "began": ["early", "late", "old"],
        "duration": ["late", "early", "old"],
        "state": ["old", "early", "late"],
    }


def test_nan_comes_last_in_both_orders() -> None:
    nan = float("nan")
    lines = [line("a", scores={"loss": nan}), line("b", scores={"loss": 1.0})]
    for way in ("up", "down"):
        assert [one.name for one in sorted_lines(lines, "loss", way)] == ["b", "a"]


def test_a_score_with_the_name_of_a_column_is_offered_once() -> None:
    assert columns(["accuracy", "state"])[-1] == "accuracy"
    assert columns(["state"]).count("state") == 1
