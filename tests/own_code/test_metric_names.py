"""Metrics with options, and metrics without a name, in the experiment file of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import poise
from faults.support import call, opened
from own_code.support import write_package
from poise.core.errors import InvalidOption
from poise.core.objects import use_folders
from poise.metrics import AUROC, F1, CalibrationError, OfSet
from poise.tasks import task_of


def test_a_metric_that_has_a_name_is_written_by_it() -> None:
    task = poise.task("mlp", metrics={"f": F1("micro"), "a": AUROC()})
    assert task.spec is not None
    assert task.spec["metrics"] == {"f": "f1-micro", "a": "auroc"}
    assert task_of(task.spec).spec == task.spec


@pytest.mark.parametrize(
    "metric", [CalibrationError(bins=5), OfSet(lambda outputs, labels: 1.0)]
)
def test_a_metric_without_a_name_is_named_on_resume(
    tmp_path: Path, metric: Any
) -> None:
    fed = poise.federation("digits", clients=3, samples=60, test_share=0.2)
    task = poise.task("logistic", metrics={"e": metric})
    sgd = poise.solvers.SGD(lr=0.1, steps=1)
    poise.train(fed, task, sgd, rounds=1, out=tmp_path / "r").close()
    refused = call("resume", tmp_path / "r", "--rounds", "2")
    said = " ".join(refused.err.split())
    assert refused.code == 2
    assert "the experiment has no [task]: metric 'e' has no name" in said
    assert "metrics = {'e' = 'my_package.metrics:NAME'}" in said
    assert "__main__" not in said


def test_a_metric_object_at_the_top_level_of_a_module_has_a_name(
    tmp_path: Path,
) -> None:
    write_package(tmp_path, "own_metric")
    lines = (
        "from poise.metrics import CalibrationError\nece = CalibrationError(bins=5)\n"
    )
    (tmp_path / "own_metric" / "scores.py").write_text(lines)
    use_folders([tmp_path])
    task = poise.Task(module=nn.Linear, metrics={"e": "own_metric.scores:ece"})
    assert task.spec is not None
    assert task.spec["metrics"] == {"e": "own_metric.scores:ece"}


def test_unlearning_says_that_it_takes_the_objects_itself(tmp_path: Path) -> None:
    x = np.arange(60, dtype=np.float32).reshape(20, 3) / 60
    fed = poise.federation((x, np.arange(20) % 2), clients=2)
    sgd = poise.solvers.SGD(lr=0.1, steps=1)
    task = poise.task("logistic")
    path = tmp_path / "r"
    poise.train(fed, task, sgd, rounds=2, keep="all", out=path).close()
    with opened(path) as run, pytest.raises(InvalidOption) as refused:
        poise.unlearn(run, [1])
    assert "unlearn(run, …, federation=…)" in str(refused.value)
    assert "resume(" not in str(refused.value)
