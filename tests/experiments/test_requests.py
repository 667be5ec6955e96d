"""Presets whose arms train once and then honour requests to forget."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poise.apps.experiments.claims import judge
from poise.apps.experiments.reproduction import Reproduction
from poise.apps.experiments.run_scores import score
from poise.apps.experiments.unlearning_arms import Requests, certificates
from poise.core.errors import InvalidOption
from poise.results import Run, open_run
from poise.unlearning import verify

TABLES: dict[str, Any] = {
    "title": "t",
    "source": "s",
    "base": {
        "data": {"source": "digits", "partition": "one-class", "clients": 20},
        "task": {"model": "logistic"},
        "solver": {"name": "sgd", "lr": 0.05, "steps": 2, "batch_size": 8},
        "sampler": {"name": "uniform", "m": 5},
        "run": {
            "rounds": 12,
            "metrics": ["train_accuracy"],
            "evaluate_every": 2,
            "keep": "all",
        },
        "requests": {
            "clients": [[0, 10], [1, 11]],
            "target": 0.3,
            "min_rounds": 4,
            "max_rounds": 8,
            "sigma": 0.02,
            "noise": "seeded",
        },
    },
    "arms": {
        "sifu": {"requests": {"method": "sifu"}},
        "scratch": {"requests": {"method": "scratch"}},
        "fine-tune": {"requests": {"method": "fine-tune"}},
        "other": {"requests": {"method": "scratch"}, "solver": {"lr": 0.1}},
    },
    "scales": {"small": {"run": {"seeds": [0, 1]}}},
}
SILENT = lambda label, composition: []


def preset(**changed: Any) -> Reproduction:
    return Reproduction("mini", "small", {**TABLES, **changed})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[Run]]:
    made: dict[tuple[str, str], list[Run]] = {}
    for cell, arm, _, run in preset().runs(tmp_path_factory.mktemp("requests"), SILENT):
        made.setdefault((cell, arm), []).append(run)
    return made


def test_arms_that_train_alike_share_their_training(
    runs: dict[tuple[str, str], list[Run]],
) -> None:
    out = runs["", "sifu"][0].path.parents[3]  # type: ignore[union-attr]
    assert sorted(p.name for p in (out / "training").iterdir()) == ["all", "other"]
    trainings = [
        certificates(runs["", arm][1])[0]["evidence"]["training"]["digest"]
        for arm in TABLES["arms"]
    ]
    assert len(set(trainings[:3])) == 1
    assert trainings[3] != trainings[0]


def test_every_request_is_honoured_by_the_method_of_the_arm(
    runs: dict[tuple[str, str], list[Run]],
) -> None:
    for (_, arm), found in runs.items():
        for run in found:
            said = certificates(run)
            assert [c["clients"] for c in said] == [[0, 10], [1, 11]]
            assert said[1]["forgotten so far"] == [0, 1, 10, 11]
            assert {c["request"]["method"] for c in said} == {
                TABLES["arms"][arm]["requests"]["method"]
            }


def test_scores_are_those_of_the_certificates(
    runs: dict[tuple[str, str], list[Run]],
) -> None:
    run = runs["", "sifu"][0]
    said = certificates(run)
    spent = [c["result"]["rounds"] for c in said]
    assert score(run, "retraining") == sum(spent)
    assert [score(run, f"retraining:{r}") for r in (1, 2)] == spent
    assert score(run, "forgotten:2") == said[1]["result"]["on forgotten clients"]
    assert score(run, "forgotten") == pytest.approx(
        np.mean([c["result"]["on forgotten clients"] for c in said])
    )
    assert score(run, "reached") == np.mean(
        [c["result"]["target reached"] for c in said]
    )
    assert score(run, "training") == open_run(training_of(run)).rounds
    assert score(runs["", "scratch"][0], "restart") == 0
    with pytest.raises(InvalidOption, match="there are 2 requests"):
        score(run, "forgotten:3")
    with pytest.raises(InvalidOption, match="not a branch"):
        score(open_run(training_of(run)), "forgotten")


def training_of(run: Run) -> Path:
    assert run.path is not None
    return run.path.parents[3] / "training" / "all" / run.path.parent.name


def test_certificates_of_a_reproduction_can_be_verified(
    runs: dict[tuple[str, str], list[Run]],
) -> None:
    run = runs["", "sifu"][1]
    assert run.path is not None
    assert verify(run.path / "certificate.json", training_of(run))


def test_claims_in_points(runs: dict[tuple[str, str], list[Run]]) -> None:
    claim = {"text": "t", "score": "retraining", "left": "sifu", "right": "scratch"}
    far = abs(
        np.mean(
            [
                score(a, "retraining") - score(b, "retraining")
                for a, b in zip(*both(runs), strict=True)
            ]
        )
    )
    assert judge({**claim, "apart_at_most": far}, runs).holds
    assert not judge({**claim, "apart_at_most": far - 1}, runs).holds
    assert judge({**claim, "above_by": -far}, runs).holds
    assert not judge({**claim, "above_by": far + 1}, runs).holds


def both(runs: dict[tuple[str, str], list[Run]]) -> tuple[list[Run], list[Run]]:
    return runs["", "sifu"], runs["", "scratch"]


@pytest.mark.thorough
def test_it_stops_anywhere_and_goes_on(
    runs: dict[tuple[str, str], list[Run]], tmp_path: Path
) -> None:
    """Stopped every few rounds, in training and in retraining, it ends with the same records."""
    ended: dict[tuple[str, int], str] = {}
    for patience in range(3, 60):
        asked = iter(range(10**6))
        stop = lambda: next(asked) >= patience  # noqa: B023 - called in this turn of the loop only
        ended = {
            (arm, seed): run.digest
            for _, arm, seed, run in preset().runs(tmp_path, SILENT, stop)
        }
        if len(ended) == 8:
            break
    assert ended == {
        (arm, seed): found[seed].digest
        for (_, arm), found in runs.items()
        for seed in (0, 1)
    }


def test_training_ends_at_the_target(tmp_path: Path) -> None:
    base = {**TABLES["base"], "requests": {**TABLES["base"]["requests"], "target": 0.0}}
    _, _, _, run = next(iter(preset(base=base).runs(tmp_path, SILENT)))
    assert score(run, "training") == 4  # min_rounds, since any accuracy will do


def test_a_whole_training_has_all_its_rounds(tmp_path: Path) -> None:
    """Training goes past the target; retraining still ends at it."""
    requests = {
        **TABLES["base"]["requests"],
        "target": 0.0,
        "whole_training": True,
    }
    whole = preset(base={**TABLES["base"], "requests": requests})
    _, _, _, run = next(iter(whole.runs(tmp_path, SILENT)))
    assert score(run, "training") == 12
    assert score(run, "retraining") == 2 * 4
    again = next(iter(whole.runs(tmp_path, SILENT)))[-1]
    assert again.digest == run.digest


def test_whole_trainings_are_shared_whatever_the_target() -> None:
    requests = {**TABLES["base"]["requests"], "whole_training": True}
    cells = {"low": {}, "high": {"requests": {"target": 0.9}}}
    whole = preset(base={**TABLES["base"], "requests": requests}, cells=cells)
    assert whole.training_of("high", "sifu") == "low"


def test_promised_is_the_share_of_proved_requests(
    runs: dict[tuple[str, str], list[Run]],
) -> None:
    assert score(runs["", "scratch"][0], "promised") == 1
    assert score(runs["", "fine-tune"][0], "promised") == 0


def test_cells_that_only_ask_for_others_share_a_training_too() -> None:
    cells = {f"class-{k}": {"requests": {"clients": [[k, k + 10]]}} for k in range(3)}
    some = preset(cells={**cells, "longer": {"requests": {"target": 0.9}}})
    assert {some.training_of(f"class-{k}", "scratch") for k in range(3)} == {"class-0"}
    assert some.training_of("class-2", "other") == "class-0-other"
    assert some.training_of("longer", "sifu") == "longer"


def test_a_scale_may_leave_cells_out() -> None:
    cells = {"easy": {}, "hard": {}}
    claims = [
        {
            "text": "t",
            "cell": c,
            "score": "retraining",
            "left": "sifu",
            "right": "scratch",
        }
        for c in cells
    ]
    scales = {
        "small": {**TABLES["scales"]["small"], "leaves_out": ["hard"]},
        "paper": TABLES["scales"]["small"],
    }
    small, paper = (
        Reproduction(
            "mini", s, {**TABLES, "cells": cells, "claims": claims, "scales": scales}
        )
        for s in scales
    )
    assert (small.cells, [c["cell"] for c in small.claims]) == (["easy"], ["easy"])
    assert (paper.cells, len(paper.claims)) == (["easy", "hard"], 2)
    assert "leaves_out" not in small.experiment("easy", "sifu").tables


def test_a_table_of_requests_is_checked() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'target'"):
        Requests.of({"clients": [[1]], "taget": 0.5})
    with pytest.raises(InvalidOption, match="has no clients"):
        Requests.of({"target": 0.5})
    with pytest.raises(InvalidOption, match="whole_training = 'yes' is not true"):
        Requests.of({"clients": [[1]], "target": 0.5, "whole_training": "yes"})


def test_the_page_has_claims_and_bars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomli_w

    from faults.support import call

    claim = {
        "text": "SIFU <spends> no more",
        "score": "retraining",
        "left": "sifu",
        "right": "scratch",
        "at_most": 1.0,
    }
    scales = {"small": {"run": {"seeds": [0]}}}
    (tmp_path / "mini.toml").write_text(
        tomli_w.dumps({**TABLES, "scales": scales, "claims": [claim]})
    )
    monkeypatch.setattr("poise.apps.experiments.reproduction.FOLDER", tmp_path)
    outcome = call("reproduce", "mini", "--out", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    text = Path(json.loads(outcome.out)["page"]).read_text(encoding="utf-8")
    for words in (
        "SIFU &lt;spends&gt; no more",
        "Aggregations spent",
        "Accuracy on the unlearned clients F_r",
        "fine-tune",
    ):
        assert words in text
