"""shards: an ensemble that unlearned clients is the ensemble trained without them, to the bit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from faults.support import call
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.personal import Layers
from poise.samplers import Uniform
from poise.solvers import SGD
from poise.unlearning import verify
from poise.unlearning.certificate import canonical, digest_of
from poise.unlearning.shard_training import assigned

FED = poise.federation(
    "digits", "dirichlet", clients=9, alpha=0.5, samples=300, test_samples=60
)
TASK = poise.task("mlp", hidden=6)
SPLIT = [[3, 6, 7], [2, 5, 8], [0, 1, 4]]
READING = ("-shm", "-wal")  # files of SQLite while a ledger is open
OPTIONS: dict[str, Any] = {
    "solver": SGD(0.1, steps=3, batch_size=8),
    "sampler": Uniform(2),
    "rounds": 5,
    "seed": 3,
}


def trained(out: Path, **options: Any) -> Any:
    return poise.shards(
        FED, TASK, **{"shards": SPLIT, "out": out, **OPTIONS, **options}
    )


def forget(ensemble: Any, clients: list[int], **options: Any) -> Any:
    return poise.unlearn(ensemble, clients, method="shards", **options)


def alone(shard: int, gone: list[int]) -> np.ndarray:
    """The model of a training on the remaining clients of a shard."""
    stay = set(SPLIT[shard]) - set(gone)
    others = [c for c in range(9) if c not in stay]
    return poise.train(FED.without(others), TASK, **OPTIONS).model


def hashes(folder: Path) -> dict[str, str]:
    """The content of every file of a folder."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(
            file.read_bytes()
        ).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(READING)
    }


def test_the_split_is_seeded_disjoint_and_even() -> None:
    split = assigned(11, 3, seed=5)
    assert sorted(c for shard in split for c in shard.tolist()) == list(range(11))
    assert sorted(len(shard) for shard in split) == [3, 4, 4]
    again, other = assigned(11, 3, seed=5), assigned(11, 3, seed=6)
    assert all(np.array_equal(a, b) for a, b in zip(split, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(split, other, strict=True))


def test_every_shard_is_the_run_on_its_clients_and_is_recorded(tmp_path: Path) -> None:
    ensemble = trained(tmp_path / "e", shards=3)
    document = json.loads((tmp_path / "e" / "shards.json").read_text())
    assert document["members"] == [s.tolist() for s in assigned(9, 3, seed=3)]
    assert document["seed"] == 3
    for k, run in enumerate(ensemble.runs):
        others = [c for c in range(9) if c not in ensemble.members[k]]
        single = poise.train(FED.without(others), TASK, **OPTIONS)
        assert np.array_equal(run.model, single.model)
        assert run.digest == single.digest


def test_predictions_are_the_mean_of_the_probabilities(tmp_path: Path) -> None:
    ensemble = trained(tmp_path / "e")
    x, y = FED.test_shard.arrays()
    oracle = TASK.bind(FED)
    total = np.zeros((60, 10))
    for run in ensemble.runs:
        outputs = oracle.kernel.outputs(
            torch.from_numpy(run.model), torch.from_numpy(x)
        )
        powers = np.exp(outputs.detach().double().numpy())
        total += powers / powers.sum(axis=1, keepdims=True) / 3
    np.testing.assert_allclose(ensemble.predict(x), total, rtol=1e-12)
    assert ensemble.accuracy() == (total.argmax(axis=1) == y).mean()


def test_two_shards_of_one_number_each_predict_their_mean(tmp_path: Path) -> None:
    """Steps of rate 1/4 on (w - y)^2: the models move from 0 to the targets 2 and 6 by a half in
    each of two rounds, to 1.5 and 4.5, and the ensemble predicts 3."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    fed = poise.federation((np.ones((2, 1)), np.array([2.0, 6.0])), [[0], [1]])
    task = poise.Task(module=module, loss="mse", dtype="float64")
    ensemble = poise.shards(
        fed,
        task,
        shards=[[0], [1]],
        out=tmp_path / "e",
        solver=SGD(0.25, steps=1),
        rounds=2,
    )
    assert [run.model.tolist() for run in ensemble.runs] == [[1.5], [4.5]]
    assert ensemble.predict(np.ones((3, 1))).tolist() == [[3.0]] * 3
    done = forget(ensemble, [0])
    assert done.shards.predict(np.ones((1, 1))).tolist() == [[4.5]]
    with pytest.raises(IncompatibleParts, match="held-out"):
        ensemble.accuracy()


@pytest.mark.parametrize("gone", [[6], [0, 7, 4], [3, 2, 1]])
def test_the_ensemble_is_the_one_trained_without_the_clients(
    gone: list[int], tmp_path: Path
) -> None:
    ensemble = trained(tmp_path / "e", sampler=None)
    before = {k: hashes(ensemble.folder(k)) for k in range(3)}
    done = forget(ensemble, gone)
    stay = [c for c in range(9) if c not in gone]
    renumbered = [[stay.index(c) for c in shard if c in stay] for shard in SPLIT]
    other = poise.shards(
        FED.without(gone),
        TASK,
        shards=renumbered,
        out=tmp_path / "other",
        **{**OPTIONS, "sampler": None},
    )
    for left, right in zip(done.shards.runs, other.runs, strict=True):
        assert np.array_equal(left.model, right.model)
    x = FED.client(0)[0]
    assert np.array_equal(done.shards.predict(x), other.predict(x))
    assert done.shards.accuracy() == other.accuracy()
    for k, shard in enumerate(SPLIT):
        if not set(shard) & set(gone):
            assert hashes(ensemble.folder(k)) == before[k]
            assert k in [entry["shard"] for entry in done.certificate["untouched"]]


def test_the_certificate_names_the_shards_and_their_work(tmp_path: Path) -> None:
    done = forget(trained(tmp_path / "e"), [6, 0])
    document = done.certificate
    assert document["guarantee"] == {"promised": True, "epsilon": 0.0, "delta": 0.0}
    assert [entry["shard"] for entry in document["retrained"]] == [0, 2]
    assert [entry["clients"] for entry in document["retrained"]] == [[6], [0]]
    assert [entry["shard"] for entry in document["untouched"]] == [1]
    inner = [r.certificate["digest"] for r in done.requests.values()]
    assert [entry["certificate"] for entry in document["retrained"]] == inner
    # 2 shards, 5 rounds, 2 clients a round, 3 steps each
    assert document["result"]["rounds"] == 10 == done.rounds
    assert document["result"]["client rounds"] == 20
    assert document["result"]["local steps"] == 60
    labels = [check.label for check in verify(done.path)]
    assert "shard 2: the unlearned clients took no part in retraining" in labels
    assert "shard 1: untouched and whole" in labels


def test_requests_in_sequence_and_a_shard_without_clients(tmp_path: Path) -> None:
    trained(tmp_path / "e", sampler=None)
    first = forget(tmp_path / "e", [6, 5])
    second = forget(tmp_path / "e", [3, 7, 2])
    third = forget(tmp_path / "e", [8])
    assert second.certificate["forgotten so far"] == [2, 3, 5, 6, 7]
    assert second.certificate["left out"] == [{"shard": 0, "clients": [3, 6, 7]}]
    assert [entry["shard"] for entry in second.certificate["retrained"]] == [1]
    assert third.certificate["retrained"] == []
    assert third.rounds == 0
    ensemble = poise.open_shards(tmp_path / "e")
    assert ensemble.live == [2]
    assert np.array_equal(
        ensemble.predict(FED.client(0)[0]), third.shards.predict(FED.client(0)[0])
    )
    for done in (first, second, third):
        verify(done.path)
    with pytest.raises(InvalidOption, match="no client would be left"):
        forget(tmp_path / "e", [0, 1, 4])
    with pytest.raises(InvalidOption, match="client 6 was unlearned already"):
        forget(tmp_path / "e", [6])


@pytest.mark.parametrize("after", [2, 5, 7])
def test_an_interrupted_request_is_finished_by_repeating_it(
    after: int, tmp_path: Path
) -> None:
    ensemble = trained(tmp_path / "e")
    seen: list[Any] = []
    stopped = forget(
        ensemble, [6, 0], callbacks=[seen.append], stop=lambda: len(seen) >= after
    )
    assert stopped.certificate == {}
    assert ensemble.unlearned == []
    with pytest.raises(InvalidOption, match="not finished"):
        forget(ensemble, [6])
    again: list[Any] = []
    done = forget(ensemble, [0, 6], callbacks=[again.append])
    assert len(seen) + len(again) == 10
    for k, run in enumerate(done.shards.runs):
        assert np.array_equal(run.model, alone(k, [6, 0]))
    verify(done.path)


def test_an_interrupted_training_is_finished_by_repeating_it(tmp_path: Path) -> None:
    seen: list[Any] = []
    trained(tmp_path / "e", callbacks=[seen.append], stop=lambda: len(seen) >= 7)
    with pytest.raises(LedgerError, match="shard-2 has no run"):
        poise.open_shards(tmp_path / "e")
    ensemble = trained(tmp_path / "e")
    for k, run in enumerate(ensemble.runs):
        assert np.array_equal(run.model, alone(k, []))
    with pytest.raises(InvalidOption, match="another split"):
        trained(tmp_path / "e", shards=2)


def test_altered_evidence_is_found(tmp_path: Path) -> None:
    done = forget(trained(tmp_path / "e"), [6])
    for name in (
        "shards.json",
        "unlearning/001/request.json",
        "shard-0/unlearning/001/ledger.sqlite",
        "shard-0/unlearning/001/models/00000005.safetensors",
        "shard-1/models/00000005.safetensors",
    ):
        file = tmp_path / "e" / name
        before = file.read_bytes()
        changed = bytearray(before)
        changed[-20] ^= 1
        file.write_bytes(changed)
        with pytest.raises(poise.PoiseError):
            verify(done.path)
        file.write_bytes(before)
    verify(done.path)
    document = json.loads(done.path.read_text())
    document["result"]["rounds"] = 1
    done.path.write_bytes(canonical(document))
    with pytest.raises(LedgerError, match="altered"):
        verify(done.path)
    document["digest"] = digest_of(document)
    done.path.write_bytes(canonical(document))
    with pytest.raises(LedgerError, match="result"):
        verify(done.path)


def test_wrong_splits_and_options_are_refused(tmp_path: Path) -> None:
    for split, words in (
        (0, "from 1 to the 9"),
        (10, "from 1 to the 9"),
        ([[0, 1], [2]], "exactly one shard"),
        ([[0, 1, 2, 3, 4, 5, 6, 7, 8], []], "no client"),
        ([list(range(9)), [0]], "exactly one shard"),
        ("three", "neither a number"),
    ):
        with pytest.raises(InvalidOption, match=words):
            trained(tmp_path / "e", shards=split)
    with pytest.raises(InvalidOption, match="rounds"):
        trained(tmp_path / "e", round=3)
    with pytest.raises(IncompatibleParts, match="personal"):
        trained(tmp_path / "e", personal=Layers("head"))
    with pytest.raises(IncompatibleParts, match="rounds instead of time"):
        trained(tmp_path / "e", rounds=None, time=5.0)
    with pytest.raises(IncompatibleParts, match="shard 0 with 3 clients"):
        trained(tmp_path / "e", sampler=Uniform(4))
    assert not (tmp_path / "e").exists()


def test_requests_that_do_not_apply_are_refused(tmp_path: Path) -> None:
    ensemble = trained(tmp_path / "e")
    with pytest.raises(InvalidOption, match="method='shards'"):
        poise.unlearn(tmp_path / "e", [0], method="scratch")
    with pytest.raises(InvalidOption, match="no ensemble"):
        poise.unlearn(tmp_path / "e" / "shard-0", [0], method="shards")
    with pytest.raises(InvalidOption, match="max_rounds"):
        forget(ensemble, [0], max_rounds=60)
    with pytest.raises(InvalidOption, match="there is no client 9"):
        forget(ensemble, [9])
    # one client of shard 0 would be left, and Uniform draws two
    with pytest.raises(IncompatibleParts, match="shard 0 with 1 clients"):
        forget(ensemble, [3, 6])
    assert not list((tmp_path / "e").rglob("request.json"))
    with pytest.raises(LedgerError, match="holds no shards"):
        poise.open_shards(tmp_path)
    with pytest.raises(LedgerError, match="shard-0"):
        poise.open_run(tmp_path / "e")


def test_the_verbs_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text(
        '[data]\nsource = "digits"\nclients = 6\nsamples = 200\n[task]\nmodel = "logistic"\n'
        '[solver]\nname = "sgd"\nlr = 0.1\nsteps = 2\n[run]\nrounds = 3\n'
    )
    made = call("run", file, "--shards", "2", "--out", tmp_path / "r", "--json")
    assert made.code == 0, made.err
    folder = tmp_path / "r" / "seed-0"
    ensemble = poise.open_shards(folder)
    assert json.loads(made.out)["ensembles"][0]["accuracy"] == ensemble.accuracy()
    client = str(ensemble.members[1][0])
    asked = ("unlearn", folder, "--clients", client, "--method", "shards")
    cost = json.loads(call(*asked, "--plan", "--json").out)
    assert cost == {"retrained": [1], "left out": [], "rounds": 3}
    done = call(*asked)
    assert done.code == 0, done.err
    assert call("verify", folder / "unlearning" / "001" / "certificate.json").code == 0
    assert call("unlearn", folder, "--clients", "0", "--method", "scratch").code == 2
