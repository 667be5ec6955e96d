"""`poise export` takes models out of run folders, by seed, round and client."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file

import poise
from faults.support import call
from results.hospitals import hospitals, trained

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of one experiment, with all models."""
    path = tmp_path_factory.mktemp("runs") / "exp"
    fed = poise.federation("digits", "dirichlet", alpha=0.5, clients=6, samples=400)
    for seed in SEEDS:
        poise.train(
            fed,
            poise.task("logistic"),
            poise.solvers.SGD(lr=0.05, steps=3, batch_size=16),
            rounds=4,
            seed=seed,
            keep="all",
            out=path / f"seed-{seed}",
        ).close()
    return path


def facts(file: Path) -> dict[str, str]:
    with safe_open(file, "pt") as opened:
        return dict(opened.metadata())


def test_the_best_seed_is_exported_and_named(folder: Path, tmp_path: Path) -> None:
    final = [
        float(poise.open_run(folder / f"seed-{s}").metric("accuracy")[-1])
        for s in SEEDS
    ]
    best = int(np.argmax(final))
    file = tmp_path / "w.safetensors"
    outcome = call("export", folder, "--safetensors", file)
    assert outcome.code == 0, outcome.err
    assert f"seed {best} of 3 seeds: the highest final accuracy" in outcome.err
    assert f"{final[best]:.4g}" in outcome.err
    assert f"seed-{best}: safetensors {file}" in outcome.out
    assert facts(file)["poise.seed"] == str(best)


def test_a_seed_and_a_round_can_be_chosen(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    for seed in SEEDS:
        arguments = ("--safetensors", file, "--seed", seed, "--round", 2)
        outcome = call("export", folder, *arguments, "--json")
        assert outcome.code == 0, outcome.err
        run = poise.open_run(folder / f"seed-{seed}")
        document = json.loads(outcome.out)
        assert document["model"]["run"] == str(run.path)
        for name, tensor in load_file(file).items():
            np.testing.assert_array_equal(tensor.numpy(), run.state_dict(2)[name])


@pytest.mark.fresh_process
def test_every_target_at_once(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="extra onnx")
    pytest.importorskip("onnxscript", reason="extra onnx")
    out = tmp_path / "out"
    outcome = call(
        "export",
        folder / "seed-1",
        *("--safetensors", out, "--torch", out, "--onnx", out),
        *("--hub-folder", out / "hub", "--card", out / "card.md"),
        *("--license", "apache-2.0", "--title", "Digits of six clients", "--json"),
    )
    assert outcome.code == 0, outcome.err
    written = json.loads(outcome.out)["model"]
    assert {
        Path(v).relative_to(tmp_path).as_posix() for v in list(written.values())[1:]
    } == {
        "out/model.safetensors",
        "out/model.pt",
        "out/model.onnx",
        "out/hub",
        "out/card.md",
    }
    for card in (out / "card.md", out / "hub" / "README.md"):
        text = card.read_text(encoding="utf-8")
        assert 'license: "apache-2.0"' in text
        assert "# Digits of six clients" in text


def test_a_card_of_a_folder_has_intervals(folder: Path, tmp_path: Path) -> None:
    call("export", folder, "--card", tmp_path / "card.md")
    assert "mean over 3 seeds" in (tmp_path / "card.md").read_text(encoding="utf-8")


def test_a_client_can_be_named(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    files = []
    for client in ("zurich", "2"):
        file = tmp_path / f"{client}.safetensors"
        outcome = call("export", run.path, "--safetensors", file, "--client", client)
        assert outcome.code == 0, outcome.err
        files.append(load_file(file))
        assert facts(file)["poise.client"] == "2"
    assert all((files[0][name] == files[1][name]).all() for name in files[0])
    card = tmp_path / "card.md"
    assert call("export", run.path, "--card", card, "--client", "zurich").code == 0
    text = card.read_text(encoding="utf-8")
    assert "zurich uses it as all clients do" in text
    for name in hospitals().names:
        assert f"| {name} |" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seed", 7), "there is no run of seed 7"),
        (("--client", "bern"), "there is no client 'bern'"),
        (("--client", 99), "there is no client 99"),
        (("--round", 9), "no model after 9 aggregations"),
        (("--license", "two words"), "is not one word"),
    ],
)
def test_wrong_choices_are_one_sentence(
    folder: Path, tmp_path: Path, options: tuple[object, ...], words: str
) -> None:
    outcome = call("export", folder, "--hub-folder", tmp_path / "hub", *options)
    assert outcome.code == 2
    assert words in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "hub").exists()


@pytest.mark.slow
def test_a_model_with_unlearned_clients_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(folder / "seed-0", tmp_path / "run"))
    poise.unlearn(run, [3], sigma=0.1, target=2.0, min_rounds=1, max_rounds=2)
    file = tmp_path / "w.safetensors"
    outcome = call("export", run, "--safetensors", file)
    assert outcome.code == 2
    assert "unlearned later: client 3" in outcome.err
    assert not file.exists()
    branch = run / "unlearning" / "001"
    assert f"export {branch}" in outcome.err
    assert call("export", branch, "--safetensors", file).code == 0
    assert facts(file)["poise.digest"] == poise.open_run(branch).digest
    outcome = call("export", run, "--safetensors", file, "--with-forgotten")
    assert outcome.code == 0
    assert facts(file)["poise.digest"] == poise.open_run(run).digest
