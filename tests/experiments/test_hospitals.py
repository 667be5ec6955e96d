"""The example of four hospitals without its processes: the files it writes, and that its
experiments fit them."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import poise
from poise.apps.deploy.fault_injection import FaultInjection
from poise.apps.deploy.folder import read_toml
from poise.apps.deploy.node_data import open_node_data
from poise.apps.deploy.policy import Policy
from poise.config.experiment import load
from poise.core.errors import PoiseError
from poise.data import listing
from poise.training import parts_in

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location(
        "hospitals_example", EXAMPLE / "run.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def need_data() -> None:
    if "heart-disease" not in {line.name for line in listing() if line.present}:
        pytest.skip("data set 'heart-disease' is not in the data folder ($POISE_DATA)")


def test_each_hospital_gets_its_own_patients(example: Any, tmp_path: Path) -> None:
    need_data()
    patients = example.hospitals()
    assert {site: len(y) for site, (_, y) in patients.items()} == {
        "cleveland": 242,
        "hungarian": 208,
        "switzerland": 37,
        "va": 104,
        "held-out": 149,
    }
    for client, site in enumerate(example.SITES):
        folder = tmp_path / site
        folder.mkdir()
        (folder / "node.toml").write_text(f"client = {client}\nport = 1\n")
        example.hand_over(folder, *patients[site])
        config = tomllib.loads((folder / "node.toml").read_text())
        assert config["port"] == 1
        x, y = open_node_data(client, config["data"], folder).shard.arrays()
        assert np.array_equal(x, patients[site][0])
        assert np.array_equal(y, patients[site][1])


@pytest.mark.parametrize("method", ["fedavg", "fedsoftmax", "fedfix"])
def test_the_experiments_train(example: Any, method: str) -> None:
    need_data()
    for changes in example.MODELS.values():
        experiment = load(EXAMPLE / f"{method}.toml", changes)
        parts, options = parts_in(experiment), experiment.table("task")
        run = poise.train(
            poise.federation("heart-disease", "by-key"),
            poise.task(options.pop("model"), **options),
            parts.solver,
            clock=parts.clock,
            weighting=parts.weighting,
            rounds=experiment.table("run")["rounds"],
        )
        assert run.metric("accuracy")[-1] > 0.7  # who always says "sick" has 0.52
        assert run.bytes_up.sum() > 0


def test_the_certificate_has_its_curvature(example: Any, tmp_path: Path) -> None:
    need_data()
    table = Policy(min_cohort=3).table()
    (tmp_path / "policy.toml").write_text(tomli_w.dumps(table))
    example.allow_curvature(tmp_path)
    assert Policy.of(read_toml(tmp_path / "policy.toml")) == Policy(
        min_cohort=3, curvature=True
    )
    solver = parts_in(load(EXAMPLE / "fedavg.toml")).solver
    patients = [
        np.hstack([x, np.ones((len(x), 1))])
        for x, _ in (example.hospitals()[site] for site in example.SITES)
    ]
    largest = max((x.astype(float) ** 2).sum(axis=1).max() / 2 for x in patients)
    assert solver.rate(0) * largest <= 1


def test_a_node_misbehaves_for_a_while_only(example: Any, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("client = 3\n")
    with example.odd(tmp_path, delay=example.DELAY, attack={"name": "stale-replay"}):
        faults = FaultInjection.of(tomllib.loads(file.read_text()), tmp_path)
        assert (faults.delay, faults.attack is None) == (example.DELAY, False)
    assert file.read_text() == "client = 3\n"


def test_without_the_data_it_says_what_to_do(
    example: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("POISE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.argv", ["run.py", "--out", str(tmp_path / "out")])
    assert example.main() != 0
    assert "poise data fetch heart-disease" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    monkeypatch.setattr("sys.argv", ["run.py", "--out", str(tmp_path / "full")])
    assert example.main() == PoiseError("").exit_code
    assert "is not empty" in capsys.readouterr().err
