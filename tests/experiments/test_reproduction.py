"""Presets are complete, claims can fail, and a miniature of each preset runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import poise
from parameters import thorough_except
from poise.apps.experiments.claims import judge, paired
from poise.apps.experiments.reproduction import (
    Reproduction,
    Selection,
    load_reproduction,
    presets,
)
from poise.apps.experiments.run_scores import rounds_to_targets, score
from poise.core.errors import DataError, InvalidOption
from poise.training import compose


def quadratic_runs(lr: float, seeds=(0, 1, 2)):
    quad = poise.quadratics([[0.0], [4.0]])
    return [
        poise.train(
            quad, quad.task, poise.solvers.SGD(lr=lr, steps=1), rounds=5, seed=s
        )
        for s in seeds
    ]


def test_claims_hold_and_fail_by_the_numbers() -> None:
    runs = {("", "fast"): quadratic_runs(0.5), ("", "slow"): quadratic_runs(0.01)}
    claim = {"text": "t", "score": "final:loss", "left": "fast", "right": "slow"}
    assert judge({**claim, "relation": "below"}, runs).holds
    assert not judge({**claim, "relation": "above"}, runs).holds
    assert judge({**claim, "at_most": 0.9}, runs).holds
    assert not judge({**claim, "at_most": 0.1}, runs).holds
    assert not judge({**claim, "within": 0.1}, runs).holds
    assert not judge({**claim, "no_difference": True}, runs).holds
    assert not judge({**claim, "in_band": True}, runs).holds
    same = {**claim, "right": "fast"}
    assert judge({**same, "in_band": True}, runs).holds
    assert judge({**same, "no_difference": True}, runs).holds
    assert judge({**same, "within": 0.0}, runs).holds


def test_a_gain_in_one_cell_is_compared_with_the_gain_in_another() -> None:
    fast, slow = quadratic_runs(0.5), quadratic_runs(0.01)
    runs = {
        ("far", "a"): fast,
        ("far", "b"): slow,
        ("near", "a"): fast,
        ("near", "b"): fast,
    }
    claim = {"text": "t", "score": "final:loss", "left": "a", "right": "b"}
    assert judge(
        {**claim, "cell": "far", "than_cell": "near", "relation": "below"}, runs
    ).holds
    assert not judge(
        {**claim, "cell": "near", "than_cell": "far", "relation": "below"}, runs
    ).holds
    assert not judge(
        {**claim, "cell": "near", "than_cell": "near", "relation": "below"}, runs
    ).holds


def test_the_right_side_may_be_measured_in_another_cell() -> None:
    runs = {("one", "a"): quadratic_runs(0.01), ("two", "a"): quadratic_runs(0.5)}
    claim = {
        "text": "t",
        "score": "final:loss",
        "left": "a",
        "right": "a",
        "cell": "one",
        "right_cell": "two",
    }
    assert judge({**claim, "relation": "above", "every_seed": True}, runs).holds
    assert not judge({**claim, "relation": "below"}, runs).holds
    assert judge({**claim, "right_cell": "one", "within": 0.0}, runs).holds


def test_a_cell_may_name_its_arms_and_a_scale_may_change_one_cell() -> None:
    preset = {
        "base": {"solver": {"name": "sgd", "steps": 9}, "run": {"rounds": 1}},
        "cells": {"one": {"arms": ["a"]}, "two": {"solver": {"steps": 8}}},
        "arms": {"a": {}, "b": {"solver": {"lr": 0.1}}},
        "scales": {
            "small": {
                "takes": "1 min",
                "run": {"seeds": [3]},
                "cells": {"two": {"solver": {"steps": 2}}},
            }
        },
    }
    made = Reproduction("p", "small", preset)
    assert (made.arms_of("one"), made.arms_of("two"), made.seeds) == (
        ["a"],
        ["a", "b"],
        [3],
    )
    assert made.experiment("one", "a").tables["solver"]["steps"] == 9
    assert made.experiment("two", "b").tables == {
        "solver": {"name": "sgd", "steps": 2, "lr": 0.1},
        "run": {"rounds": 1, "seeds": [3]},
    }


def test_paired_interval_by_hand() -> None:
    mean, half = paired(
        np.array([2.0, 4.0, 9.0])
    )  # sd = sqrt(13), t(0.975, 2) = 4.302653
    assert mean == 5.0
    assert half == pytest.approx(4.302653 * np.sqrt(13 / 3), rel=1e-6)
    assert paired(np.array([1.0]))[1] == np.inf


def test_worst_is_the_client_that_ends_lowest() -> None:
    quad = poise.quadratics([[0.0], [4.0]])
    solver = poise.solvers.SGD(lr=0.5, steps=1)
    run = poise.train(
        quad, quad.task, solver, rounds=5, seed=0, metrics=["client_loss"]
    )
    assert score(run, "worst:client_loss") == run.metric("client_loss")[-1].min()
    with pytest.raises(InvalidOption, match="not one per client"):
        score(run, "worst:loss")


def test_spread_and_surrogate_by_hand() -> None:
    """Client 1 answers four times before client 0 answers once: q is in proportion to (p_0, 4
    p_1)."""
    quad = poise.quadratics([[0.0], [4.0]], sizes=[3, 1])
    run = poise.train(
        quad,
        quad.task,
        poise.solvers.SGD(lr=0.1, steps=1),
        clock=poise.clocks.Asynchronous([1.0, 0.25]),
        rounds=5,
        metrics=["client_loss"],
    )
    assert np.bincount(run.contributions["client"]).tolist() == [1, 4]
    first, second = run.metric("client_loss")[-1]
    q = 4 * 0.25 / (0.75 + 4 * 0.25)
    assert score(run, "surrogate:client_loss") == pytest.approx(
        (1 - q) * first + q * second
    )
    assert score(run, "spread:client_loss") == pytest.approx(abs(first - second) / 2)
    for kind in ("spread", "surrogate"):
        with pytest.raises(InvalidOption, match="not one per client"):
            score(run, f"{kind}:loss")


def test_spread_and_surrogate_are_means_over_the_last_twentieth() -> None:
    quad = poise.quadratics([[0.0], [4.0]])
    run = poise.train(
        quad,
        quad.task,
        poise.solvers.SGD(lr=0.01, steps=1),
        rounds=60,
        metrics=["client_loss"],
    )
    last = run.metric("client_loss")[-3:]
    assert score(run, "surrogate:client_loss") == pytest.approx(
        last.mean()
    )  # everyone takes part equally often
    assert score(run, "spread:client_loss") == pytest.approx(last.std(axis=1).mean())


def test_a_cell_may_change_a_method_or_a_scale_there_alone() -> None:
    tables = {
        "base": {"solver": {"name": "sgd", "lr": 0.1, "steps": 1}},
        "cells": {
            "plain": {},
            "own": {
                "scales": {
                    "small": {"solver": {"steps": 2}},
                    "paper": {"solver": {"steps": 9}},
                },
                "arms": {"b": {"solver": {"lr": 0.3}}},
            },
        },
        "arms": {"a": {}, "b": {"solver": {"lr": 0.2}}},
        "scales": {"small": {}},
    }
    preset = Reproduction("mini", "small", tables)
    rates = {
        (c, a): preset.experiment(c, a).tables["solver"]["lr"]
        for c in preset.cells
        for a in preset.arms
    }
    assert rates == {
        ("plain", "a"): 0.1,
        ("plain", "b"): 0.2,
        ("own", "a"): 0.1,
        ("own", "b"): 0.3,
    }
    assert set(preset.experiment("own", "b").tables) == {"solver"}
    assert preset.experiment("own", "b").tables["solver"]["steps"] == 2


def test_weight_of_a_trait_is_relative_to_the_base() -> None:
    fed = poise.federation("digits", clients=8).with_corruption(
        "flip-labels", rate=0.5, ratio=1.0
    )
    flipped = fed.corruptions[0].corrupted(np.arange(8))
    solver = poise.solvers.SGD(lr=0.5, epochs=2, batch_size=20)
    soft = poise.weightings.SoftMax(0.5)
    run = poise.train(fed, poise.task("logistic"), solver, rounds=3, weighting=soft)
    by_hand = run.weights[:, flipped].sum() / (3 * fed.importance[flipped].sum())
    assert score(run, "weight:flip ratio>0") == pytest.approx(by_hand)
    assert score(run, "weight:flip ratio<0.5") == pytest.approx(
        run.weights[:, ~flipped].sum() / (3 * fed.importance[~flipped].sum())
    )
    assert np.isnan(score(run, "weight:imbalance ratio<0.1"))
    with pytest.raises(InvalidOption, match="has no condition"):
        score(run, "weight:flip ratio")


def curved(curve: list[float], *, seed: int = 0, metric: str = "accuracy") -> poise.Run:
    """A run whose metric has these values after rounds 1, 2, …"""
    from reports.ledgers import made_run

    return made_run({metric: curve}, seed=seed)


def test_a_score_may_cover_a_range_of_rounds() -> None:
    """Changes of rounds 2-5: 2, 1, 3 (tenths); mean 2, standard deviation sqrt(2/3)."""
    run = curved([0.0, 0.1, 0.3, 0.4, 0.7, 0.2])
    assert score(run, "mean:accuracy:3-5") == pytest.approx(1.4 / 3)
    assert score(run, "mean:accuracy:6-6") == pytest.approx(0.2)
    assert score(run, "final:accuracy:1-5") == pytest.approx(0.7)
    assert score(run, "half:accuracy:1-3") == pytest.approx(0.1)
    assert score(run, "mean:accuracy:1-6") == score(run, "mean:accuracy")
    assert score(run, "smoothness:accuracy:2-5") == pytest.approx(np.sqrt(2 / 3) / 2)
    assert score(run, "smoothness:accuracy:1-6") == score(run, "smoothness")
    assert score(run, "smoothness") == score(run, "smoothness:accuracy")
    for wrong in ("mean:accuracy:5-3", "mean:accuracy:0-3", "mean:accuracy:20"):
        with pytest.raises(InvalidOption, match="no range of rounds"):
            score(run, wrong)
    with pytest.raises(InvalidOption, match="the run has 6 rounds"):
        score(run, "mean:accuracy:3-7")
    sparse = curved([np.nan, np.nan, 0.5, 0.6])
    with pytest.raises(
        InvalidOption, match="did not measure accuracy in rounds 1 to 2"
    ):
        score(sparse, "mean:accuracy:1-2")


def test_targets_of_the_page_are_those_of_the_accuracy() -> None:
    names = ("rounds_to:0.9", "rounds_to:0.5:accuracy", "final:accuracy")
    assert rounds_to_targets((*names, "rounds_to:0.8:local_accuracy")) == [0.5, 0.9]


def test_audit_auc_counts_all_clients_or_only_those_seen() -> None:
    """One rider among ten; by hand from the scores of the audit."""
    fed = poise.federation("digits", clients=10)
    solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=16)
    rider = poise.attacks.FreeRider((2,))
    run = poise.train(
        fed,
        poise.task("logistic"),
        solver,
        sampler=poise.samplers.Covering(4),
        rounds=6,
        attacks=[rider],
    )
    found = poise.audit(run)
    assert score(run, "audit_auc") == found.auc([2]) == 1.0
    assert score(run, "audit_auc:seen") == 1.0
    first = next(
        n for n in range(3) if 2 in run.participants[run.participants[:, 0] == n, 1]
    )
    seen = np.unique(run.participants[run.participants[:, 0] <= first, 1])
    after = np.nan_to_num(found.by_round[first])
    others = [after[i] for i in seen if i != 2]
    by_hand = np.mean([(after[2] > v) + 0.5 * (after[2] == v) for v in others])
    assert score(run, f"audit_auc:seen:{first + 1}") == by_hand
    assert score(run, f"audit_auc:all:{first + 1}") == found.auc([2], round=first + 1)
    if first:
        with pytest.raises(InvalidOption, match="took part so far"):
            score(run, "audit_auc:seen:1")
    for wrong in ("audit_auc:some", "audit_auc:seen:first"):
        with pytest.raises(InvalidOption, match="is no score"):
            score(run, wrong)
    with pytest.raises(InvalidOption, match="from 1 to 6"):
        score(run, "audit_auc:all:7")
    fair = poise.train(fed, poise.task("logistic"), solver, rounds=1)
    with pytest.raises(InvalidOption, match="free-riders and others"):
        score(fair, "audit_auc")


def test_the_recovered_share_of_the_headroom_by_hand() -> None:
    """FedAvg loses 0.2 by imbalance (0.8 to 0.6); the method wins 0.1 back: one half."""
    runs = {
        ("iid", "fedavg"): [curved([0.7]), curved([0.9], seed=1)],
        ("skew", "fedavg"): [curved([0.5]), curved([0.7], seed=1)],
        ("skew", "exp"): [curved([0.55]), curved([0.85], seed=1)],
    }
    claim = {
        "text": "t",
        "score": "final:accuracy",
        "cell": "skew",
        "headroom_cell": "iid",
        "left": "exp",
        "right": "fedavg",
    }
    half = judge({**claim, "recovers": 0.49}, runs)
    assert half.holds
    assert half.measured.startswith("recovers 50%: gain +0.1 ±")
    assert not judge({**claim, "recovers": 0.51}, runs).holds
    lossless = {**claim, "headroom_cell": "skew", "recovers": 0.0}
    assert not judge(lossless, runs).holds


def test_unknown_scores_and_presets_are_refused() -> None:
    with pytest.raises(InvalidOption, match="unknown score"):
        score(quadratic_runs(0.1, (0,))[0], "best")
    with pytest.raises(InvalidOption, match="did you mean 'exp-alpha-flips'"):
        load_reproduction("exp-alpha-flip")


@pytest.mark.parametrize("name", presets())
def test_every_claim_and_figure_of_a_preset_names_what_is_there(name: str) -> None:
    preset = load_reproduction(name)
    assert len(preset.seeds) >= 5
    assert {"title", "source"} <= set(preset.preset)
    assert preset.claims
    for item in (*preset.claims, *preset.preset.get("expected", ())):
        here = item.get("cell", "")
        for cell in {here, item.get("than_cell", here)}:
            assert cell in preset.cells
            for side in {"left", "right", "arm"} & set(item):
                assert item[side] in preset.arms_of(
                    item.get("right_cell", cell) if side == "right" else cell
                )


QUICK = [
    "exp-alpha-imbalance-sizes",
    "fraboni-async-weights",
    "fraboni-sifu",
    "mansour-hybrids",
]


@pytest.mark.parametrize("name", thorough_except(QUICK, presets()))
def test_a_miniature_of_every_preset_runs(name: str, tmp_path: Path) -> None:
    """Everything is composed; of every cell one arm runs, and of one cell every arm."""
    preset = load_reproduction(name)
    for cell in preset.cells:
        for number, arm in enumerate(preset.arms_of(cell)):
            if preset.forgets and preset.training_of(cell, arm) != cell:
                continue  # trains like another
            experiment = preset.experiment(cell, arm)
            tables = {
                **experiment.tables,
                "run": {**experiment.tables["run"], "rounds": 2, "evaluate_every": 2},
            }
            try:
                composition = compose(replace(experiment, tables=tables), 0)
            except DataError as error:
                pytest.skip(f"{name} needs data that is not here: {error.message}")
            if number and cell != preset.cells[0]:
                continue
            from poise.training import begin

            run = begin(composition, tmp_path / cell / arm)
            assert run.rounds == 2
            known = (
                "accuracy" if "accuracy" in run.metrics else "own_accuracy"
            )  # personal layers: no one model
            assert np.isfinite(run.metric(known)[-1])


def test_a_reproduction_goes_on_where_it_stopped(tmp_path: Path) -> None:
    tables = {
        "base": {
            "data": {"source": "digits", "clients": 4},
            "task": {"model": "logistic"},
            "solver": {"name": "sgd", "lr": 0.1, "steps": 2, "batch_size": 8},
            "run": {"rounds": 3},
        },
        "arms": {"a": {}, "b": {"weighting": {"name": "soft-max", "temperature": 0.5}}},
        "scales": {"small": {"run": {"seeds": [0, 1]}}},
        "title": "t",
        "source": "s",
    }
    preset = Reproduction("mini", "small", tables)
    asked: list[str] = []
    observe = lambda label, composition: asked.append(label) or []
    first = [run.digest for _, _, _, run in preset.runs(tmp_path, observe)]
    assert len(asked) == 4
    again = [run.digest for _, _, _, run in preset.runs(tmp_path, observe)]
    assert first == again
    assert len(asked) == 4  # nothing was trained a second time


def test_counts_of_clients_and_classes_are_scores() -> None:
    """One class per client, two clients per round: by hand from the weights."""
    fed = poise.federation("digits", "one-class", clients=10, dealt="random", seed=3)
    target = poise.samplers.Target(2, groups="class")
    run = poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.1, steps=1),
        sampler=target,
        rounds=6,
    )
    used = [np.flatnonzero(w) for w in run.weights]
    classes = [len({int(fed.client(int(i))[1][0]) for i in who}) for who in used]
    assert score(run, "distinct_clients") == np.mean([len(who) for who in used])
    assert score(run, "distinct_classes") == np.mean(classes)
    assert score(run, "distinct_classes:late") == np.mean(classes[3:])


def test_claims_about_one_method_and_about_every_seed() -> None:
    fed = poise.quadratics(np.eye(3))
    runs = {
        ("", name): [
            poise.train(fed, fed.task, poise.solvers.SGD(lr=lr, steps=1), rounds=r)
            for r in (2, 3)
        ]
        for name, lr in (("fast", 0.5), ("slow", 0.1))
    }
    claim = {"text": "t", "score": "mean:loss", "left": "fast", "right": "slow"}
    assert judge({**claim, "relation": "below", "every_seed": True}, runs).holds
    assert not judge({**claim, "relation": "above", "every_seed": True}, runs).holds
    one = {"text": "t", "score": "distinct_clients", "left": "fast"}
    assert judge({**one, "between": [3, 3]}, runs).holds
    assert not judge({**one, "between": [1, 2]}, runs).holds


MINI = """
title = "A small comparison"
source = "nowhere"
[base.data]
source = "digits"
clients = 4
[base.task]
model = "logistic"
[base.solver]
name = "sgd"
lr = 0.1
steps = 2
batch_size = 8
[base.run]
rounds = 3
[arms.plain]
[arms.soft.weighting]
name = "soft-max"
temperature = 0.5
[scales.small.run]
seeds = [0, 1]
[[claims]]
text = "soft reaches 5 % no later"
score = "rounds_to:0.05"
left = "soft"
right = "plain"
at_most = 1.0
"""


def test_a_reproduction_writes_a_page_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faults.support import call

    (tmp_path / "mini.toml").write_text(MINI)
    monkeypatch.setattr("poise.apps.experiments.reproduction.FOLDER", tmp_path)
    outcome = call("reproduce", "mini", "--out", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    page = Path(json.loads(outcome.out)["page"])
    text = page.read_text(encoding="utf-8")
    for words in (
        "A small comparison",
        "Distance of the weights from the base",
        "rounds to accuracy 0.05",
        "soft",
    ):
        assert words in text
    said = call("reproduce", "mini", "--out", tmp_path / "out")
    assert str(page) in said.out


def test_the_command_runs_the_seeds_and_arms_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faults.support import call

    (tmp_path / "mini.toml").write_text(MINI)
    monkeypatch.setattr("poise.apps.experiments.reproduction.FOLDER", tmp_path)
    chosen = ("reproduce", "mini", "--seeds", "7..8", "--arms", "soft")
    outcome = call(*chosen, "--out", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    runs = sorted((tmp_path / "out").rglob("ledger.sqlite"))
    assert [f"{p.parent.parent.name}/{p.parent.name}" for p in runs] == [
        "soft/seed-7",
        "soft/seed-8",
    ]
    said = json.loads(outcome.out)
    assert (said["claims"], said["unchecked_claims"]) == ([], 1)
    wrong = call("reproduce", "mini", "--arms", "sofd")
    assert (wrong.code, "no arm 'sofd'" in wrong.err) == (2, True)


def test_a_page_about_homogeneity_shows_misalignments_and_spectra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from faults.support import call

    claim = 'text = "t"\nscore = "homogeneity"\nleft = "soft"\nright = "plain"\nwithin = 0.0\n'
    cells = (
        "[cells.even.data]\npartition = 'iid'\n[cells.odd.data]\npartition = "
        "'one-class'\nclients = 10\n"
    )
    text = (
        MINI.partition("[[claims]]")[0]
        + cells
        + "".join(f"[[claims]]\ncell = '{cell}'\n{claim}" for cell in ("even", "odd"))
    )
    (tmp_path / "mini.toml").write_text(text)
    monkeypatch.setattr("poise.apps.experiments.reproduction.FOLDER", tmp_path)
    outcome = call("reproduce", "mini", "--out", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    figures = {(f["cell"], f["arm"]): f["ours"] for f in said["figures"]}
    both = [
        poise.federation("digits", "one-class", clients=10, seed=seed)
        for seed in (0, 1)
    ]
    both = [poise.graph.similarity(fed).homogeneity for fed in both]
    assert figures["odd", "plain"] == pytest.approx(np.mean(both))
    page = Path(said["page"]).read_text(encoding="utf-8")
    for cell in ("even", "odd"):
        assert f"Distribution of the misalignment: {cell}" in page
        assert f"Spectra of the similarity graphs: {cell}" in page


def test_a_selection_has_its_seeds_cells_arms_and_the_claims_about_them() -> None:
    whole = load_reproduction("mansour-r90")
    part = load_reproduction(
        "mansour-r90", selection=Selection(seeds=(100, 101), cells=("iid",))
    )
    assert (part.seeds, part.cells, part.arms) == ([100, 101], ["iid"], whole.arms)
    assert [claim["text"] for claim in part.claims] == ["IID: no more than 10 % apart"]
    assert part.unchecked_claims == len(whole.claims) - 1
    alone = load_reproduction("mansour-r90", selection=Selection(arms=("fedavg",)))
    assert (alone.cells, alone.arms, alone.claims) == (whole.cells, ["fedavg"], [])
    assert alone.experiment("iid", "fedavg") == whole.experiment("iid", "fedavg")


def test_a_selection_shares_the_trainings_of_the_whole() -> None:
    name = "fraboni-sifu"
    whole = load_reproduction(name)
    for cell in whole.cells:
        for arm in whole.arms_of(cell):
            part = load_reproduction(name, selection=Selection((), (cell,), (arm,)))
            assert part.training_of(cell, arm) == whole.training_of(cell, arm)


def test_unknown_cells_and_arms_are_named() -> None:
    with pytest.raises(InvalidOption, match="no cell 'idd'"):
        load_reproduction("mansour-r90", selection=Selection(cells=("idd",)))
    with pytest.raises(InvalidOption, match="no arm 'fedsgd'"):
        load_reproduction("mansour-r90", selection=Selection(arms=("fedsgd",)))


def test_the_runs_of_a_selection_are_those_of_the_whole(tmp_path: Path) -> None:
    tables = {
        "base": {
            "data": {"source": "digits", "clients": 3, "samples": 60},
            "task": {"model": "logistic"},
            "solver": {"name": "sgd", "lr": 0.1, "steps": 1, "batch_size": 8},
            "run": {"rounds": 1, "seeds": [0, 1]},
        },
        "cells": {"one": {}, "two": {}},
        "arms": {"a": {}, "b": {"solver": {"lr": 0.2}}},
        "scales": {"small": {}},
    }
    whole = Reproduction("mini", "small", tables)
    part = replace(whole, selection=Selection(seeds=(1,), arms=("b",)))
    for made, folder in ((whole, "whole"), (part, "part")):
        for *_, run in made.runs(tmp_path / folder, lambda label, composition: []):
            run.close()
    found = sorted(p.parent for p in (tmp_path / "part").rglob("ledger.sqlite"))
    names = [str(folder.relative_to(tmp_path / "part")) for folder in found]
    assert names == ["one/b/seed-1", "two/b/seed-1"]
    for name in names:
        part_run = poise.open_run(tmp_path / "part" / name)
        assert part_run.digest == poise.open_run(tmp_path / "whole" / name).digest


def test_rounds_to_a_target_of_another_metric() -> None:
    fed = poise.federation("digits", clients=3, client_test_share=0.3, seed=1)
    run = poise.train(
        fed,
        poise.task("logistic"),
        poise.solvers.SGD(lr=0.3, epochs=1, batch_size=32),
        rounds=5,
        seed=1,
        metrics=["local_accuracy"],
    )
    local = run.metric("local_accuracy")
    both = np.concatenate([local, run.metric("accuracy")])
    for target in np.unique(both):
        for metric in ("accuracy", "local_accuracy"):
            reached = np.flatnonzero(run.metric(metric) >= target)
            wanted = reached[0] + 1 if len(reached) else 6
            assert score(run, f"rounds_to:{target}:{metric}") == wanted
        assert score(run, f"rounds_to:{target}") == score(
            run, f"rounds_to:{target}:accuracy"
        )
