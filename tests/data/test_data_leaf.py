"""Data in LEAF's format, on small files made here: FEMNIST itself is not on the machines that run
this."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import poise
from faults.support import call
from poise.core.errors import DataError, InvalidOption
from poise.data import federation, fetch, listing, verify
from poise.data.sources.leaf import compact, leaf, read_users

Users = dict[str, tuple[np.ndarray, list[int]]]


def made(
    count: int, seed: int, labels: list[int] | None = None, length: int = 784
) -> tuple[np.ndarray, list[int]]:
    """Images in 255ths, and labels."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, length)) / 255, labels or rng.integers(
        0, 62, count
    ).tolist()


def content(users: Users) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {
            name: {"x": np.asarray(x).tolist(), "y": y}
            for name, (x, y) in users.items()
        },
    }


def write(path: Path, users: Users) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content(users)))
    return path


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Users, Users]:
    """Two training files and a test file, split by sample, named as LEAF names them."""
    train = {
        "f0000_14": made(5, 0, [3, 61, 9, 0, 10]),
        "f0001_41": made(3, 1),
        "f0002_00": made(4, 2, [7, 7, 1, 40]),
    }
    test = {"f0000_14": made(2, 3, [1, 50]), "f0002_00": made(1, 4, [7])}
    first, second = dict(list(train.items())[:2]), dict(list(train.items())[2:])
    write(tmp_path / "train/all_data_0_niid_0_keep_0_train_9.json", first)
    write(tmp_path / "train/all_data_1_niid_0_keep_0_train_9.json", second)
    write(tmp_path / "test/all_data_0_niid_0_keep_0_test_9.json", test)
    return tmp_path, train, test


def test_every_user_is_a_client_with_its_own_samples(written) -> None:
    folder, train, test = written
    fed = federation("leaf", "by-key", folder=str(folder))
    assert fed.names == tuple(train)
    assert (fed.feature_shape, fed.classes) == ((1, 28, 28), 62)
    for k, (x, y) in enumerate(train.values()):
        own, labels = fed.client(k)
        assert labels.tolist() == y
        assert np.abs(own.reshape(len(y), 784) - x).max() < 1e-7
    assert fed.source.train.raw.dtype == torch.uint8  # 255ths: nothing is lost in bytes
    for name, k in (("f0000_14", 0), ("f0002_00", 2)):
        own, labels = fed.client_test(k)
        assert labels.tolist() == test[name][1]
        assert np.abs(own.reshape(len(labels), 784) - test[name][0]).max() < 1e-7
    assert len(fed.client_test(1)[1]) == 0
    assert len(fed.test_shard.rows) == 3


def test_digits_only(written) -> None:
    folder, train, test = written
    fed = federation("leaf", "by-key", folder=str(folder), digits=True)
    assert fed.classes == 10
    kept = {
        name: [label for label in y if label < 10] for name, (_, y) in train.items()
    }
    kept = {name: y for name, y in kept.items() if y}
    assert fed.names == tuple(kept)
    assert [fed.client(k)[1].tolist() for k in range(fed.clients)] == list(
        kept.values()
    )
    assert sorted(fed.test_shard.labels.tolist()) == sorted(
        y for _, ys in test.values() for y in ys if y < 10
    )
    assert "digits" in fed.source.notes


def test_other_partitions_deal_the_same_samples(written) -> None:
    folder, train, _ = written
    fed = federation("leaf", "iid", clients=4, folder=str(folder))
    assert fed.sizes.sum() == sum(len(y) for _, y in train.values())
    assert (
        fed.label_counts().sum(axis=0).tolist()
        == np.bincount(
            [label for _, y in train.values() for label in y], minlength=62
        ).tolist()
    )


def test_a_split_by_user_has_unseen_test_users(tmp_path: Path) -> None:
    write(tmp_path / "train/a.json", {"one": made(3, 0), "two": made(2, 1)})
    write(tmp_path / "test/a.json", {"three": made(4, 2)})
    fed = federation("leaf", "by-key", folder=str(tmp_path))
    assert fed.names == ("one", "two")
    assert len(fed.test_shard.rows) == 4
    assert fed.client_tests is None
    assert "the test users are others" in fed.source.notes


def test_without_test_folder_nothing_is_held_out(tmp_path: Path) -> None:
    write(tmp_path / "train/a.json", {"one": made(3, 0), "two": made(2, 1)})
    assert leaf(str(tmp_path)).test is None


def test_values_that_are_no_255ths_stay_floats(tmp_path: Path) -> None:
    x, y = np.array([[0.5, -2.0, 1e3]]), [1]
    write(
        tmp_path / "train/a.json",
        {"byte": (np.array([[0.0, 1.0, 51 / 255]]), [0]), "float": (x, y)},
    )
    fed = federation("leaf", "by-key", folder=str(tmp_path), classes=2)
    assert fed.feature_shape == (3,)
    assert fed.client(0)[0].tolist() == [[0.0, 1.0, pytest.approx(0.2)]]
    assert fed.client(1)[0].tolist() == x.tolist()
    assert compact(np.arange(256)[None] / 255).tolist() == [list(range(256))]


def test_a_user_without_samples_is_left_out(tmp_path: Path) -> None:
    write(
        tmp_path / "train/a.json", {"none": (np.empty((0, 784)), []), "one": made(3, 0)}
    )
    assert federation("leaf", "by-key", folder=str(tmp_path)).names == ("one",)


def test_it_trains_and_is_found_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "leaf/femnist"
    write(folder / "train/all_data_0.json", {f"u{k}": made(6, k) for k in range(4)})
    write(folder / "test/all_data_0.json", {f"u{k}": made(2, 9 + k) for k in range(4)})
    monkeypatch.setenv("POISE_DATA", str(tmp_path))
    fed = federation("leaf", "by-key")
    run = poise.train(
        fed, poise.task("logistic"), poise.solvers.SGD(lr=0.1, steps=2), rounds=2
    )
    assert np.isfinite(run.metric("accuracy")).all()
    line = next(line for line in listing() if line.name == "leaf")
    assert (line.present, line.folder, line.fetchable) == (True, str(tmp_path), False)
    assert line.size == sum(path.stat().st_size for path in folder.rglob("*.json"))


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "train/a.json", {"one": made(3, 0)})
    assert leaf(str(tmp_path)) is leaf(str(tmp_path))
    write(path, {"other": made(3, 1)})
    os.utime(path, ns=(1, 1))
    assert leaf(str(tmp_path)).key_names == ("other",)


def test_absent_data_say_how_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"leaf.femnist.*preprocess\.sh"):
        federation("leaf", "by-key")
    (tmp_path / "leaf/femnist").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no \*\.json in .*train"):
        federation("leaf", "by-key")
    with pytest.raises(DataError, match=r"cannot be downloaded.*preprocess\.sh"):
        fetch("leaf")
    with pytest.raises(DataError, match="no checksums"):
        verify("leaf")
    with pytest.raises(InvalidOption, match="classes = 0"):
        leaf(str(tmp_path), classes=0)
    said = call("data", "list", "--json")
    line = next(
        line for line in json.loads(said.out)["files"] if line["name"] == "leaf"
    )
    assert "not fetched" in line["about"]


# what is malformed is refused, by file and user
# --------------------------------------------------------


def _drop(key):
    return lambda held: held.pop(key)


def _own(key, value):
    return lambda held: held["user_data"]["bob"].__setitem__(key, value)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_drop("users"), "there is no 'users'"),
        (_drop("num_samples"), "there is no 'num_samples'"),
        (_drop("user_data"), "there is no 'user_data'"),
        (lambda held: held.update(users="bob"), "must be lists"),
        (lambda held: held.update(user_data=[]), "must be lists"),
        (lambda held: held["num_samples"].pop(), "2 users, but 1 num_samples"),
        (lambda held: held.update(users=["bob", "bob"]), "user 'bob': named twice"),
        (
            lambda held: held["user_data"].update(eve={}),
            "user 'eve': in user_data, but not in users",
        ),
        (lambda held: held["user_data"].pop("bob"), "user 'bob': no x and y"),
        (lambda held: held["user_data"]["bob"].pop("y"), "user 'bob': no x and y"),
        (
            lambda held: held["num_samples"].__setitem__(1, 3),
            "user 'bob': 2 entries in x, but num_samples says 3",
        ),
        (
            lambda held: held["user_data"]["bob"]["y"].pop(),
            "user 'bob': 1 entries in y, but num_samples says 2",
        ),
        (_own("x", 5), "user 'bob': x is not a list"),
        (
            _own("x", [[0.1, 0.2, 0.3, 0.4], [0.1]]),
            "user 'bob': the vectors in x have different lengths",
        ),
        (
            _own("x", [0.1, 0.2]),
            r"user 'bob': x must hold vectors of one length, but has shape \(2,\)",
        ),
        (
            _own("x", [[], []]),
            r"user 'bob': x must hold vectors of one length, but has shape \(2, 0\)",
        ),
        (
            _own("x", [[0.1] * 4, [0.1, 0.2, 0.3, math.nan]]),
            "user 'bob': x is not finite in sample 1",
        ),
        (
            _own("x", [[0.1] * 4, [0.1, 0.2, 0.3, math.inf]]),
            "user 'bob': x is not finite in sample 1",
        ),
        (
            _own("x", [["0.1"] * 4, ["0.2"] * 4]),
            "user 'bob': x holds something that is not a number",
        ),
        (
            _own("x", [[None] * 4, [0.1] * 4]),
            "user 'bob': x holds something that is not a number",
        ),
        (
            _own("y", [[0], [1]]),
            r"user 'bob': y must hold numbers, but has shape \(2, 1\)",
        ),
        (_own("y", [0, 1.5]), "user 'bob': label 1.5 is not a whole number"),
        (_own("y", [0, 62]), r"user 'bob': label 62 lies outside 0\.\.61"),
        (_own("y", [0, -1]), r"user 'bob': label -1 lies outside 0\.\.61"),
        (
            _own("x", [[0.1] * 9, [0.2] * 9]),
            "user 'bob': vectors of 9 values, but of 4 for 'ann'",
        ),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, spoil: Any, words: str) -> None:
    held = content({"ann": made(3, 0, length=4), "bob": made(2, 1, length=4)})
    spoil(held)
    path = tmp_path / "train/all_data_7.json"
    path.parent.mkdir()
    path.write_text(json.dumps(held))
    with pytest.raises(DataError, match=words) as caught:
        leaf(str(tmp_path))
    assert "all_data_7.json" in str(caught.value)


@pytest.mark.parametrize(
    "text", [b"", b'{"users": ["a"', b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"3"]
)
def test_what_is_not_json_or_no_table_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "all_data_0.json"
    path.write_bytes(text)
    with pytest.raises(
        DataError, match=r"all_data_0\.json: not (JSON|in LEAF's format)"
    ):
        read_users(path)


def test_a_user_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"train/{name}.json", {"ann": made(2, 0)})
    with pytest.raises(DataError, match=r"b\.json: user 'ann' is already in .*a\.json"):
        leaf(str(tmp_path))


def test_no_digit_at_all_is_said(tmp_path: Path) -> None:
    write(tmp_path / "train/a.json", {"ann": made(2, 0, [30, 40])})
    with pytest.raises(InvalidOption, match=r"no user .* has a digit"):
        leaf(str(tmp_path), digits=True)
