"""The experiment and the metadata of a run as values."""

from __future__ import annotations

import hashlib
import json
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import poise
from poise.core.errors import LedgerError
from poise.results.experiment import ExperimentText
from poise.results.meta import RunMeta
from results.hospitals import trained


def test_the_experiment_is_text_and_value(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", weighting=poise.weightings.Exp(alpha=0.2))
    experiment = run.experiment
    assert (
        experiment == experiment.text == (tmp_path / "run/experiment.toml").read_text()
    )
    assert isinstance(experiment, str)
    assert type(experiment.text) is str
    assert tomllib.loads(experiment) == dict(experiment.tables)
    assert hashlib.sha256(experiment.encode()).hexdigest()
    assert (
        json.loads(json.dumps({"experiment": experiment}))["experiment"] == experiment
    )
    assert experiment.solver.lr == 0.05
    assert experiment.weighting.alpha == 0.2
    assert experiment.run.rounds == 4
    assert experiment.task.model == "logistic"
    assert experiment.sampler.name == "full"  # the default part
    assert experiment.attacks == []
    assert dict(experiment.solver) == {
        "name": "sgd",
        "lr": 0.05,
        "steps": 2,
        "batch_size": 8,
    }
    with pytest.raises(AttributeError, match="no 'momentum' under \\[solver\\]"):
        _ = experiment.solver.momentum
    with pytest.raises(AttributeError, match="did you mean 'sampler'"):
        _ = experiment.smapler


def test_the_metadata_know_when_the_run_began(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    began = trained(tmp_path / "run").meta.began
    assert began is not None
    assert timedelta(seconds=-2) < began - before < timedelta(minutes=5)
    assert RunMeta({}).began is None
    with pytest.raises(LedgerError, match="'began' is not a time"):
        _ = RunMeta({"began": "yesterday"}).began


def test_every_option_has_a_dotted_name() -> None:
    text = (
        '[data]\nsource = "digits"\ncorruption = [{name = "flip-labels", rate = 0.1}]\n'
        '[run]\nseeds = [0]\nbackend = {name = "local", workers = 2}\n'
        '[[attacks]]\nname = "free-rider"\nclients = [1]\n'
    )
    assert ExperimentText(text).options() == {
        "sampler.name": "full",
        "clock.name": "synchronous",
        "weighting.name": "proportional",
        "aggregator.name": "weighted-sum",
        "channel.name": "plain",
        "server.name": "add",
        "data.source": "digits",
        "data.corruption.0.name": "flip-labels",
        "data.corruption.0.rate": 0.1,
        "run.seeds": [0],
        "run.backend.name": "local",
        "run.backend.workers": 2,
        "attacks.0.name": "free-rider",
        "attacks.0.clients": [1],
    }


def test_metadata_have_types_and_stay_texts() -> None:
    meta = trained(seed=3).meta
    assert (meta["seed"], meta.seed) == ("3", 3)
    assert (meta.clients, meta.status, meta.keep) == (4, "done", "last")
    assert meta.version == poise.__version__
    assert meta.trainable == 12
    assert meta.class_names == ()
    assert isinstance(meta, dict)
    assert all(type(value) is str for value in meta.values())
