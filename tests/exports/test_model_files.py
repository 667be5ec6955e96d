"""Exported weights load elsewhere, and compute what the run's model computes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import poise
from exports.models import NAMED, OWN, Case, Normed
from poise.core.errors import InvalidOption, PoiseError
from poise.exports.onnx_file import example
from poise.exports.trained import TrainedModel
from poise.results import Run, open_run

ALL = {**NAMED, **OWN}
EXACT = 1e-6


def inputs(run: Run, count: int = 4) -> Any:
    return example(TrainedModel(run).form, run.module(), count=count)


def outputs(module: nn.Module, x: Any) -> np.ndarray:
    with torch.no_grad():
        if isinstance(x, dict):
            return np.asarray(module(**x))
        return np.asarray(module(x))


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_files_of_weights_load_into_a_fresh_module(case: Case, tmp_path: Path) -> None:
    run = case.train()
    x = inputs(run)
    wanted = outputs(run.module(), x)
    for file, read in (
        (poise.exports.safetensors(run, tmp_path / "a.safetensors"), load_file),
        (
            poise.exports.pytorch(run, tmp_path / "a.pt"),
            lambda f: torch.load(f, weights_only=True),
        ),
    ):
        fresh = run.module(0)
        assert not np.allclose(outputs(fresh, x), wanted), "training changed the model"
        fresh.load_state_dict(read(file))
        np.testing.assert_array_equal(outputs(fresh, x), wanted)


def test_named_weights_are_those_of_the_vector(tmp_path: Path) -> None:
    """A logistic model has W (3, 6) and b (3): the outputs are W x + b."""
    run = NAMED["logistic"].train()
    weights = load_file(poise.exports.safetensors(run, tmp_path))
    assert {name: tuple(t.shape) for name, t in weights.items()} == {
        "1.weight": (3, 6),
        "1.bias": (3,),
    }
    np.testing.assert_array_equal(weights["1.weight"].numpy().ravel(), run.model[:18])
    np.testing.assert_array_equal(weights["1.bias"].numpy(), run.model[18:])


def test_the_header_names_the_run(tmp_path: Path) -> None:
    run = NAMED["mlp"].train(tmp_path / "run", keep="all", seed=3)
    file = poise.exports.safetensors(run, tmp_path / "out", n=1)
    assert file == tmp_path / "out" / "model.safetensors"
    with safe_open(file, "pt") as opened:
        facts = opened.metadata()
    assert facts["format"] == "pt"
    assert facts["poise.digest"] == run.digest_after(1) != run.digest
    assert facts["poise.model"] == run.model_hash(1)
    assert (facts["poise.round"], facts["poise.seed"]) == ("1", "3")
    np.testing.assert_array_equal(
        load_file(file)["1.bias"].numpy(), run.state_dict(1)["1.bias"]
    )


def test_a_personal_model_is_that_of_its_client(tmp_path: Path) -> None:
    case = Case(NAMED["mlp"].federation, lambda: poise.task("mlp", hidden=4))
    run = case.train(personal=poise.personal.Layers("3.*"))
    files = [
        load_file(
            poise.exports.safetensors(run, tmp_path / f"{k}.safetensors", client=k)
        )
        for k in (0, 1)
    ]
    assert torch.equal(files[0]["1.weight"], files[1]["1.weight"])
    assert not torch.equal(files[0]["3.weight"], files[1]["3.weight"])
    assert "the personal layers of client 1" in poise.exports.card(run, client=1)
    assert "has those of no client" in poise.exports.card(run)
    wanted = run.client_model(1)
    flat = np.concatenate([files[1][n].numpy().ravel() for n in run.state_dict()])
    np.testing.assert_array_equal(flat, wanted)


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    run = NAMED["logistic"].train(rounds=1)
    (tmp_path / "taken").write_text("")
    with pytest.raises(PoiseError, match=r"cannot write .*taken"):
        poise.exports.hub_folder(run, tmp_path / "taken")
    with pytest.raises(InvalidOption, match="name of a safetensors file"):
        poise.exports.pytorch(run, tmp_path / "x.safetensors")


def test_code_of_the_user_s_own_is_not_imported_for_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_own(tmp_path, monkeypatch)
    (tmp_path / "own_model.py").write_text("raise RuntimeError('imported')\n")
    file = poise.exports.safetensors(open_run(run), tmp_path / "w.safetensors")
    assert set(load_file(file)) == {"weight", "bias"}


def write_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a model in a module of the user's own, made by another process."""
    import subprocess
    import sys

    (folder / "own_model.py").write_text(
        "from torch import nn\n\n\ndef make(width=6):\n    return nn.Linear(width, 3)\n"
    )
    program = (
        "import poise\nfrom exports.models import SGD, flat\n"
        "task = poise.Task(module='own_model:make', options={'width': 6})\n"
        "poise.train(flat(), task, SGD, rounds=2, out='run')\n"
    )
    tests = str(Path(__file__).parents[1])
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    import os

    paths = os.pathsep.join([tests, str(folder), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    return folder / "run"


# A folder for a hub ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", NAMED.values(), ids=NAMED)
def test_a_hub_folder_is_enough_to_predict(case: Case, tmp_path: Path) -> None:
    run = case.train(tmp_path / "run")
    folder = poise.exports.hub_folder(open_run(tmp_path / "run"), tmp_path / "hub")
    assert {file.name for file in folder.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    module = poise.exports.load_module(folder)
    assert not module.training
    x = inputs(run)
    np.testing.assert_allclose(
        outputs(module, x), outputs(run.module(), x), rtol=EXACT, atol=EXACT
    )


def test_the_configuration_describes_inputs_classes_and_origin(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=4, samples=80)
    run = poise.train(fed, poise.task("logistic"), NAMED["logistic"].solver, rounds=1)
    folder = poise.exports.hub_folder(run, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert config["num_labels"] == 10
    (entry,) = config["inputs"]
    assert entry["shape"] == [1, 8, 8]
    scale, shift = re.findall(r"[\d.]+", entry["preprocessing"])
    stored = np.full((1, 1, 8, 8), 16, dtype=np.float32)
    assert (stored * float(scale) + float(shift) == 1).all(), "digits: 16 becomes 1"
    assert config["poise"]["digest"] == run.digest
    assert "value \\* 0.0625" in (folder / "README.md").read_text().replace("*", "\\*")


def test_names_of_classes_are_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 6)).astype(np.float32)
    y = np.array(["sick", "healthy", "unknown"])[np.arange(60) % 3]
    fed = poise.federation((x, y), clients=3, classes=["sick", "healthy", "unknown"])
    run = poise.train(fed, poise.task("logistic"), NAMED["logistic"].solver, rounds=1)
    folder = poise.exports.hub_folder(run, tmp_path / "hub")
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"] == {"0": "sick", "1": "healthy", "2": "unknown"}
    assert config["label2id"] == {"sick": 0, "healthy": 1, "unknown": 2}


def test_code_of_a_folder_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(write_own(tmp_path, monkeypatch))
    folder = poise.exports.hub_folder(run, tmp_path / "hub")
    with pytest.raises(InvalidOption, match=r"names code of its own: own_model.*trust"):
        poise.exports.load_module(folder)
    module = poise.exports.load_module(folder, trust_code=True)
    x = torch.randn(2, 6)
    np.testing.assert_array_equal(outputs(module, x), outputs(run.module(), x))


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", "{", "is not a configuration of poise"),
        ("config.json", "[]", "is not a configuration of poise"),
        ("model.safetensors", "", "does not fit the model of its configuration"),
    ],
)
def test_a_damaged_folder_is_named(
    tmp_path: Path, file: str, content: str, words: str
) -> None:
    run = NAMED["logistic"].train(rounds=1)
    folder = poise.exports.hub_folder(run, tmp_path / "hub")
    (folder / file).write_text(content)
    with pytest.raises(PoiseError, match=words):
        poise.exports.load_module(folder)


def test_a_module_without_a_name_has_one_clear_sentence(tmp_path: Path) -> None:
    case = Case(OWN["normed"].federation, lambda: poise.Task(module=Normed()))
    made = case.train(tmp_path / "run")
    run = open_run(tmp_path / "run")
    with pytest.raises(InvalidOption, match="it was a Python object"):
        poise.exports.onnx(run, tmp_path / "m.onnx")
    file = poise.exports.safetensors(run, tmp_path / "m.safetensors")
    fresh = Normed().eval()
    fresh.load_state_dict(load_file(file))
    x = torch.randn(3, 6)
    np.testing.assert_array_equal(outputs(fresh, x), outputs(made.module(), x))
    folder = poise.exports.hub_folder(run, tmp_path / "hub")
    with pytest.raises(InvalidOption, match="make your module and load"):
        poise.exports.load_module(folder)


# ONNX ---------------------------------------------------------------------------------------------


@pytest.fixture
def runtime() -> Any:
    pytest.importorskip("onnx", reason="extra onnx")
    pytest.importorskip("onnxscript", reason="extra onnx")
    return pytest.importorskip("onnxruntime", reason="extra onnx")


@pytest.mark.fresh_process
@pytest.mark.slow
@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_onnx_computes_what_the_module_computes(
    case: Case, tmp_path: Path, runtime: Any
) -> None:
    run = case.train()
    file = poise.exports.onnx(run, tmp_path / "model.onnx")
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for count in (1, 3, 17):
        x = inputs(run, count)
        named = x if isinstance(x, dict) else {"x": x}
        (found,) = session.run(None, {k: v.numpy() for k, v in named.items()})
        assert len(found) == count
        np.testing.assert_allclose(found, outputs(run.module(), x), rtol=0, atol=1e-5)


@pytest.mark.fresh_process
def test_onnx_names_the_run_and_no_folder(tmp_path: Path, runtime: Any) -> None:
    run = NAMED["logistic"].train(tmp_path / "run")
    file = poise.exports.onnx(run, tmp_path / "model.onnx")
    facts = runtime.InferenceSession(file).get_modelmeta().custom_metadata_map
    assert facts["poise.digest"] == run.digest
    assert facts["poise.round"] == "2"
    content = file.read_bytes()
    assert b"site-packages" not in content
    assert b".py" not in content


class Branching(nn.Module):
    """A Python branch on the number of samples, which no export can keep."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 2:
            return self.head(x)
        return self.head(x) * 2


class Counting(Branching):
    """`len` fixes the number of samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.view(len(x), -1))


class Random(Branching):
    """Draws numbers, also in evaluation mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x + torch.rand_like(x))


@pytest.mark.fresh_process
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Branching, "computes something else|cannot export|does not take"),
        (Counting, "does not take 1 samples"),
        (Random, "computes something else"),
    ],
)
def test_a_module_that_onnx_cannot_keep_is_refused(
    tmp_path: Path, runtime: Any, module: type[nn.Module], words: str
) -> None:
    case = Case(NAMED["logistic"].federation, lambda: poise.Task(module=module))
    with pytest.raises(PoiseError, match=words):
        poise.exports.onnx(case.train(rounds=1), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.fresh_process
def test_a_missing_package_of_onnx_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(
        InvalidOption, match=r"onnxscript .*pip install 'poise\[onnx\]'"
    ):
        poise.exports.onnx(NAMED["logistic"].train(rounds=1), tmp_path / "m.onnx")
