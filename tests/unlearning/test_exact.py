"""exact: the model without the clients' sums is the model of a training without the clients."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.aggregators import Median
from poise.attacks import Scaled
from poise.channels import TopK
from poise.clocks import Synchronous
from poise.core.errors import IncompatibleParts, InvalidOption, LedgerError
from poise.data import listing
from poise.samplers import Uniform
from poise.servers import Add, Noisy
from poise.solvers import SGD, Sums
from poise.unlearning import verify
from poise.unlearning.certificate import canonical, digest_of
from poise.unlearning.cost_preview import preview
from poise.weightings import Clipped

TASK = poise.ridge("random", count=30)


def digits(**options: Any) -> Any:
    given = {"clients": 8, "samples": 300, "test_samples": 60, "alpha": 0.5, **options}
    return poise.federation("digits", "dirichlet", **given)


FED = digits()


def trained(out: Path | None = None, fed: Any = FED, **options: Any) -> poise.Run:
    given = {"solver": Sums(), "rounds": 1, "keep_updates": True, **options}
    return poise.train(fed, given.pop("task", TASK), out=out, **given)


def forget(run: Any, clients: Any, fed: Any = FED, **options: Any) -> Any:
    given = {"method": "exact", "task": TASK, **options}
    return poise.unlearn(run, clients, federation=fed, **given)


def without(clients: list[int], fed: Any = FED) -> np.ndarray:
    return poise.train(fed.without(clients), TASK, Sums(), rounds=1).model


@pytest.mark.parametrize(("gone", "head"), [(0, [1 / 5, 7 / 5]), (1, [2 / 3, 2 / 3])])
def test_two_clients_by_hand(gone: int, head: list[float]) -> None:
    """Client 0 has the sample (1, 2): (F^T F + 1) H = F^T Y is [[2, 1], [1, 2]] H = (2, 2). Client
    1 has (2, 2) and (0, 4): [[3, 1], [1, 2]] H = (2, 3)."""
    x, y = np.array([[1.0], [2.0], [0.0]]), np.array([2.0, 2.0, 4.0])
    fed = poise.federation((x, y), [[0], [1, 2]])
    task = poise.ridge(penalty=1.0)
    run = trained(fed=fed, task=task)
    done = forget(run, gone, fed, task=task)
    found = task.bind(fed).head(done.run.model)[:, 0]
    np.testing.assert_allclose(found, head, rtol=1e-14)


@pytest.mark.parametrize("importance", ["size", "equal", [1, 2, 3, 4, 5, 6, 7, 9]])
@pytest.mark.parametrize("group", [[3], [0, 2, 7], [1, 2, 3, 4, 5, 6, 7]])
def test_a_group_leaves_the_model_of_a_training_without_it(
    group: list[int], importance: Any
) -> None:
    fed = digits(importance=importance)
    done = forget(trained(fed=fed), group, fed)
    wanted = without(group, fed)
    np.testing.assert_allclose(done.run.model, wanted, atol=1e-14)
    if isinstance(importance, str):
        assert np.array_equal(done.run.model, wanted)
    assert done.rounds == done.run.rounds == 0
    assert done.reached == (done.certificate["result"]["target reached"])


def test_requests_in_sequence_are_one_request_for_all_clients(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    first = forget(run, [5, 1])
    second = forget(first.run, [0])
    assert np.array_equal(first.run.model, without([1, 5]))
    assert np.array_equal(second.run.model, without([0, 1, 5]))
    assert second.certificate["forgotten so far"] == [0, 1, 5]
    for done in (first, second):
        labels = [check.label for check in verify(done.path)]
        assert "the training is one round of sums with all clients" in labels
        assert "the start is the model from the stored updates of the others" in labels


def test_the_certificate_says_what_holds_and_what_the_server_knows() -> None:
    document = forget(trained(), [2]).certificate
    guarantee, grounds = document["guarantee"], document["grounds"]
    assert guarantee["promised"] is True
    assert guarantee["epsilon"] == guarantee["delta"] == 0
    assert guarantee["composed epsilon"] == 0
    assert grounds["not proved"] == []
    said = " ".join(grounds["assumed"])
    assert "reveal the samples" in said
    assert "still holds the stored updates" in said
    result = document["result"]
    assert result["rounds"] == result["bytes up"] == result["bytes down"] == 0
    assert document["noise"]["sigma"] == 0


def test_the_score_is_measured_and_a_missed_target_is_reported() -> None:
    done = forget(trained(), [2], target=0.999)
    assert not done.reached
    assert done.certificate["result"]["target reached"] is False
    alone = poise.train(
        FED.without([2]), TASK, Sums(), rounds=1, metrics=["train_accuracy"]
    )
    assert done.certificate["result"]["on remaining clients"] == pytest.approx(
        alone.metric("train_accuracy")[-1]
    )
    held_out = forget(trained(), [2], held_out=True).certificate["result"]
    assert held_out["on held-out data"] == pytest.approx(alone.metric("accuracy")[-1])


@pytest.mark.parametrize("left", ["request.json", "ledger", "model"])
def test_an_interrupted_request_is_finished_by_repeating_it(
    left: str, tmp_path: Path
) -> None:
    whole = forget(trained(tmp_path / "whole"), [2, 4])
    run = trained(tmp_path / "run")
    forget(run, [2, 4])
    branch = tmp_path / "run" / "unlearning" / "001"
    (branch / "certificate.json").unlink()
    if left == "request.json":
        (branch / "ledger.sqlite").unlink()
        shutil.rmtree(branch / "models")
    if left == "ledger":
        shutil.rmtree(branch / "models")
    with pytest.raises(InvalidOption, match="not finished"):
        forget(run, [3])
    again = forget(run, [2, 4])
    assert np.array_equal(again.run.model, whole.run.model)
    assert (
        again.certificate["evidence"]["start"] == whole.certificate["evidence"]["start"]
    )
    verify(again.path)


def test_altered_evidence_is_found(tmp_path: Path) -> None:
    done = forget(trained(tmp_path / "run"), [2])
    file = tmp_path / "run" / "models" / "00000001.updates.safetensors"
    before = file.read_bytes()
    changed = bytearray(before)
    changed[-3] ^= 4
    file.write_bytes(changed)
    with pytest.raises(LedgerError, match="updates"):
        verify(done.path)
    file.write_bytes(before)
    verify(done.path)
    document = json.loads(done.path.read_text())
    document["result"]["on remaining clients"] = 1.0
    document["digest"] = digest_of(document)
    done.path.write_bytes(canonical(document))
    with pytest.raises(LedgerError, match="result"):
        verify(done.path)


def test_a_preview_says_that_no_round_is_repeated() -> None:
    cost = preview(trained(), [2], method="exact")
    assert (cost.given_up, cost.sigma, cost.not_proved) == (0, 0.0, ())


REFUSED = {
    "gradient steps": (
        {"task": poise.task("logistic"), "solver": SGD(0.1, steps=1)},
        "SGD",
    ),
    "no updates": ({"keep_updates": False}, "keep_updates"),
    "two rounds": ({"rounds": 2}, "2 rounds"),
    "sampled clients": ({"sampler": Uniform(3)}, "Uniform"),
    "late clients": ({"clock": Synchronous("F80", enough=3)}, "Synchronous"),
    "clipped updates": ({"weighting": Clipped(1.0)}, "Clipped"),
    "median": ({"aggregator": Median()}, "Median"),
    "channel": ({"channel": TopK(0.5)}, "TopK"),
    "half a step": ({"server": Add(0.5)}, "Add"),
    "noise": ({"server": Noisy(0.1)}, "Noisy"),
    "attack": ({"attacks": [Scaled(clients=(1,), fraction=0.5)]}, "dishonest"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_runs_whose_model_is_no_sum_are_refused(how: str) -> None:
    options, words = REFUSED[how]
    task = options.get("task", TASK)
    with pytest.raises(IncompatibleParts, match=f"exact: .*{words}"):
        forget(trained(**options), [0], task=task, target=0.5)


def test_a_client_whose_update_was_dropped_is_named() -> None:
    class Reciprocal(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 1 / x

    x, y = np.ones((6, 2)), np.arange(6.0)
    x[5] = 0
    fed = poise.federation((x, y), [[0, 1], [2, 3], [4, 5]])
    task = poise.ridge(Reciprocal())
    run = trained(fed=fed, task=task, bad_updates="drop")
    with pytest.raises(IncompatibleParts, match="client 2 did not take part"):
        forget(run, [0], fed, task=task, target=9.0)


def test_it_does_not_mix_with_other_methods() -> None:
    done = forget(trained(), [0])
    with pytest.raises(IncompatibleParts, match="exact"):
        forget(done.run, [1], method="sifu")


@pytest.mark.thorough
def test_five_hundred_random_features_of_mnist() -> None:
    if "mnist" not in {line.name for line in listing() if line.present}:
        pytest.skip("data set 'mnist' is not in the data folder ($POISE_DATA)")
    fed = poise.federation("mnist", "dirichlet", clients=20, alpha=0.5)
    task = poise.ridge("random", count=500)
    run = trained(fed=fed, task=task)
    assert run.metric("accuracy")[-1] > 0.915
    done = forget(run, [3, 11], fed, task=task, target=0.9)
    alone = poise.train(fed.without([3, 11]), task, Sums(), rounds=1)
    heads = [task.bind(fed).head(model) for model in (done.run.model, alone.model)]
    assert (heads[0] - heads[1]).abs().max() < 1e-12
    assert done.reached
