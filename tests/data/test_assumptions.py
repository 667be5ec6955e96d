"""A partition says which deciding value it took when nobody gave one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import poise
from poise.data.assumptions import DECIDING

TAKEN: list[tuple[str, dict[str, Any], str]] = [
    ("dirichlet", {}, "takes alpha = 1.0"),
    ("dirichlet", {"on_demand": True}, "takes alpha = 1.0"),
    ("dirichlet-by-class", {}, "takes kappa = 1.0"),
    ("shards", {}, "takes two shards per client"),
    ("imbalanced", {}, "takes ratios = 1, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001"),
]
SAID: list[tuple[str, dict[str, Any]]] = [
    ("iid", {}),
    ("one-class", {}),
    ("dirichlet", {"alpha": 1.0}),
    ("dirichlet-by-class", {"kappa": 1.0}),
    ("shards", {"shard_size": 20}),
    ("shards", {"sizes": [100, 200, 300]}),
    ("imbalanced", {"ratio": 0.5}),
    ("imbalanced", {"ratios": [1.0, 0.5]}),
]


@pytest.mark.parametrize(("partition", "options", "text"), TAKEN)
def test_a_value_that_nobody_gave_is_stated(
    partition: str, options: dict[str, Any], text: str
) -> None:
    fed = poise.federation("digits", partition, clients=3, **options)
    assert text in fed.assumed
    assert fed.assumed in fed.summary()


@pytest.mark.parametrize(("partition", "options"), SAID)
def test_a_given_value_is_not_stated(partition: str, options: dict[str, Any]) -> None:
    assert poise.federation("digits", partition, clients=3, **options).assumed == ""


def test_the_stated_value_makes_the_same_federation() -> None:
    silent = poise.federation("digits", "dirichlet", clients=5, seed=3)
    given = poise.federation("digits", "dirichlet", alpha=1.0, clients=5, seed=3)
    assert (silent.label_counts() == given.label_counts()).all()
    assert set(DECIDING) == {t[0] for t in TAKEN}


def test_run_folder_explain_and_inspection_state_it(tmp_path: Path) -> None:
    from poise.apps.experiments.inspection import inspect

    fed = poise.federation("digits", "dirichlet", clients=3)
    solver = poise.solvers.SGD(lr=0.1, steps=1)
    poise.train(fed, poise.task("logistic"), solver, rounds=1, out=tmp_path / "run")
    assert f"# {fed.assumed}\n" in (tmp_path / "run/experiment.toml").read_text()
    assert poise.resume(tmp_path / "run", rounds=2).rounds == 2
    explained = poise.explain(fed, poise.task("logistic"), solver=solver)
    assert f"data: {fed.assumed}" in explained.notes
    assert inspect(fed).as_data()["assumed"] == fed.assumed


def test_owners_that_a_random_partition_ignores_are_stated() -> None:
    fed = poise.federation("synthetic", clients=4)
    assert "'synthetic' has 4 owners, but 'iid' deals its samples to 4 clients" in (
        fed.assumed
    )
    assert "partition = 'by-key'" in fed.summary()
    for stated in ("iid", "by-key"):
        assert poise.federation("synthetic", stated, clients=4).assumed == ""
    assert poise.federation("digits", clients=4).assumed == ""


def test_natural_is_a_word_for_by_key() -> None:
    with pytest.raises(poise.core.errors.InvalidOption) as refused:
        poise.federation("digits", "natural", clients=4)
    assert refused.value.hint == "did you mean 'by-key'?"
