"""Every reproduction in the repository can be explained; how long it takes is measured, not
asserted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from parameters import thorough_except
from poise.apps.cli.app import app
from poise.apps.experiments.explanation import explain_named
from poise.apps.experiments.reproduction import load_reproduction, presets
from poise.core.errors import DataError, PoiseError

KNOWN = {  # what an arm must be flagged for, where the answer is plain; "" for nothing
    ("fraboni-async-weights", "identical"): "Asynchronous with Identical",
    ("fraboni-async-weights", "time-based"): "",
    ("fraboni-clustered-mnist", "md"): "",
    ("fraboni-clustered-mnist", "size"): "",
    ("mansour-noniid-fmnist", "softworse"): "SoftMax minimises a surrogate",
}


def cases() -> list[tuple[str, str]]:
    """The first cell of every preset with its last arm, and where the answer is plain."""
    found = {name: load_reproduction(name) for name in presets()}
    last = {
        (name, list(preset.arms_of(preset.cells[0]))[-1])
        for name, preset in found.items()
    }
    return sorted(last | set(KNOWN))


QUICK = [
    ("buttaci-homogeneity", "k100"),
    ("fraboni-clustered-mnist", "md"),
    ("fraboni-fedfix", "fedbuff"),
    ("fraboni-sifu", "sifu-authors"),
    ("mansour-noniid-fmnist", "softworse"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arm"), thorough_except(QUICK, cases()))
def test_every_preset_can_be_explained(name: str, arm: str) -> None:
    try:
        found = explain_named(name, arm=arm)
    except DataError as error:
        pytest.skip(str(error))
    assert found.objective.sum() == pytest.approx(1.0)
    if found.unbiased is None:  # Adam's steps have no closed form
        assert any("no closed form" in text for text in found.warnings)
    assert found.rounds > 0
    assert json.dumps(
        found.as_data(),
        default=lambda v: (
            v.tolist() if isinstance(v, np.ndarray | np.generic) else str(v)
        ),
    )
    if (name, arm) in KNOWN:
        wanted = KNOWN[name, arm]
        assert (
            any(wanted in r.about for r in found.remarks)
            if wanted
            else not found.remarks
        )


FILE = """
[data]
source = "digits"
clients = 6
partition = "dirichlet"
alpha = 0.5
sizes = [40, 60, 80, 100, 120, 140]
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.05
steps = 3
batch_size = 16
weight_decay = 0.05
[sampler]
name = "uniform"
m = 2
[run]
rounds = 5
"""


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["explain", *words])


def test_the_command_explains_files_and_runs(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "exp.toml"
    file.write_text(FILE)
    shown = call(str(file))
    assert shown.exit_code == 0
    assert "warning: uniform sampling with unequal importance" in shown.output
    found = json.loads(call(str(file), "--set", "sampler.name=md", "--json").output)
    assert (found["unbiased"], found["warnings"], found["clients"]) == (True, [], 6)
    assert found["constants"]["convexity"]["value"] == 0.05
    assert (
        CliRunner()
        .invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
        .exit_code
        == 0
    )
    again = json.loads(call(str(tmp_path / "run"), "--json").output)
    assert again["warnings"] == json.loads(call(str(file), "--json").output)["warnings"]


def test_wrong_use_is_named() -> None:
    with pytest.raises(
        PoiseError, match="neither an experiment file nor a run nor a reproduction"
    ):
        explain_named("fraboni-fedfixx")
    with pytest.raises(PoiseError, match="has no arm 'nobody'"):
        explain_named("fraboni-async-weights", arm="nobody")
    with pytest.raises(PoiseError, match="has no cell 'nowhere'"):
        explain_named("fraboni-async-weights", cell="nowhere")
