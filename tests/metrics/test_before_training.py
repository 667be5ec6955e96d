"""What poise says before round 0: metrics without test data, batches of one sample."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import poise
from faults.support import call
from poise.core.errors import IncompatibleParts

SGD = poise.solvers.SGD(lr=0.1, epochs=1, batch_size=16)


def hospitals(sizes: dict[str, int], **options: Any) -> Any:
    """A federation of clients with these names and sizes."""
    rng = np.random.default_rng(0)
    data = {}
    for name, size in sizes.items():
        x = rng.normal(size=(size, 4)).astype(np.float32)
        data[name] = (x, np.arange(size) % 2)
    return poise.federation(data, **options)


FILE = """\
[data]
source = "rows.csv"
label = "ill"
clients = 2
[task]
model = "logistic"
metrics = ["auroc"]
[solver]
name = "sgd"
lr = 0.1
steps = 1
[run]
rounds = 1
"""


def test_metrics_without_test_data_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = hospitals({"va": 32, "nj": 40})
    task = poise.task("logistic", metrics=["auroc"])
    sentence = "no test data, so the run does not measure auroc"
    with pytest.warns(UserWarning, match=sentence):
        poise.train(fed, task, SGD, rounds=1)
    said = poise.explain(fed, task, SGD, rounds=1)
    assert any("auroc not measured" in warning for warning in said.warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poise.train(fed, task, SGD, rounds=1, metrics=["train_auroc"])
        poise.train(fed, poise.task("logistic"), SGD, rounds=1)
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("age,ill\n" + "30,0\n50,1\n41,0\n62,1\n" * 9)
    Path("exp.toml").write_text(FILE)
    with pytest.warns(UserWarning, match=sentence):
        assert call("run", "exp.toml", "--out", "out").code == 0


def test_clients_with_test_data_of_their_own_are_offered_own_metrics() -> None:
    fed = hospitals({"va": 32, "nj": 40}, client_test_share=0.25)
    task = poise.task("logistic", metrics=["accuracy", "auroc"])
    sentence = (
        r"no common test data, so the run does not measure accuracy, auroc "
        r"\(ask for own_accuracy or client_test_accuracy: "
    )
    with pytest.warns(UserWarning, match=sentence):
        poise.train(fed, task, SGD, rounds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for chosen in ("own_accuracy", "client_test_auroc", "client_local_auroc"):
            poise.train(fed, task, SGD, rounds=1, metrics=[chosen])


NORM = lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def test_a_batch_of_one_sample_is_refused_before_round_0(tmp_path: Path) -> None:
    fed = hospitals({"nj": 40, "va": 33})
    task = poise.Task(module=NORM)
    with pytest.raises(IncompatibleParts, match="client 'va' has 33 samples") as no:
        poise.train(fed, task, SGD, rounds=1, out=tmp_path / "r")
    assert "these sizes work: batch_size = 14, 15, 17, 18" in str(no.value)
    assert not (tmp_path / "r").exists()
    said = poise.explain(fed, task, SGD, rounds=1)
    assert "client 'va' has 33 samples" in " ".join(said.warnings)


@pytest.mark.parametrize("batch_size", [14, 15, 17, 18])
def test_the_batch_sizes_that_poise_names_work(batch_size: int) -> None:
    fed = hospitals({"nj": 40, "va": 33})
    sgd = poise.solvers.SGD(lr=0.1, epochs=1, batch_size=batch_size)
    poise.train(fed, poise.Task(module=NORM), sgd, rounds=1)


def test_runs_that_take_no_single_sample_are_not_refused() -> None:
    fed = hospitals({"nj": 40, "va": 33})
    few = poise.solvers.SGD(lr=0.1, steps=2, batch_size=16)
    poise.train(fed, poise.Task(module=NORM), few, rounds=1)
    poise.train(fed, poise.task("logistic"), SGD, rounds=1)
    pixels = poise.federation("digits", clients=3, samples=99)  # 33 samples each
    wide = lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 10)
    )
    poise.train(pixels, poise.Task(module=wide), SGD, rounds=1)


def test_a_client_with_one_sample_is_refused() -> None:
    fed = hospitals({"nj": 40, "va": 1})
    with pytest.raises(IncompatibleParts, match="leave clients with few samples out"):
        poise.train(fed, poise.Task(module=NORM), SGD, rounds=1)
