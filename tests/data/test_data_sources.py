"""Sources: strict reading of small files made here, windows of a text, splits and normalising."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import struct
import tarfile

import numpy as np
import pytest
import torch

from poise.core.errors import DataError, InvalidOption
from poise.data import federation
from poise.data.catalogue import DataFile
from poise.data.files import check, folders, home, read_gzip, read_idx, read_npz
from poise.data.sources.cifar10 import read_batches, reduced
from poise.data.sources.heart_disease import read_hospital
from poise.data.sources.images import image_pools
from poise.data.sources.shakespeare import VOCABULARY, read_roles, windows
from poise.data.sources.usps import read_libsvm
from poise.data.splits import balanced_subset, held_out

# strict reading
# -------------------------------------------------------------------------------------


def idx(array: np.ndarray, kind: int = 8) -> bytes:
    return (
        bytes([0, 0, kind, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def test_idx_round_trip(tmp_path):
    path = tmp_path / "a.gz"
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path.write_bytes(gzip.compress(idx(array)))
    assert (read_idx(path, (2, 3, 4)) == array).all()
    table = np.array([[1, -2], [3, 4]], dtype=">i4")
    path.write_bytes(gzip.compress(idx(table, 12)))
    assert (read_idx(path, (2, 2)) == table).all()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda good: gzip.compress(good)[:-9], "not a complete gzip"),
        (lambda good: good, "not a complete gzip"),
        (lambda good: gzip.compress(b"\1" + good[1:]), "not an IDX file"),
        (lambda good: gzip.compress(good[:-1]), "expected 18"),
        (lambda good: gzip.compress(good + b"x"), "19 bytes unpacked"),
        (
            lambda good: gzip.compress(good[:7] + b"\5" + good[8:]),
            r"shape \(5, 3\), expected \(2, 3\)",
        ),
        (lambda good: gzip.compress(b""), "magic missing"),
    ],
)
def test_a_spoilt_idx_file_is_refused_by_name(tmp_path, spoil, words):
    path = tmp_path / "labels.gz"
    path.write_bytes(spoil(idx(np.zeros((2, 3), np.uint8))))
    with pytest.raises(DataError, match=words) as caught:
        read_idx(path, (2, 3))
    assert "labels.gz" in str(caught.value)


def test_checksums_are_compared(tmp_path):
    content = b"some bytes"
    file = DataFile(
        "set/one.bin", len(content), f"sha256:{hashlib.sha256(content).hexdigest()}"
    )
    with pytest.raises(DataError, match="no such file"):
        check(tmp_path, file)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/one.bin").write_bytes(content)
    assert check(tmp_path, file) == tmp_path / "set/one.bin"
    (tmp_path / "set/one.bin").write_bytes(content[:-1])
    with pytest.raises(DataError, match="9 bytes instead of 10"):
        check(tmp_path, file)
    (tmp_path / "set/one.bin").write_bytes(b"same size.")
    with pytest.raises(DataError, match="altered"):
        check(tmp_path, file)


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("POISE_DATA", str(tmp_path / "given"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert folders() == [tmp_path / "given", tmp_path / "cache/poise"]
    file = DataFile("set/one.bin", 1, "sha256:00")
    with pytest.raises(
        DataError,
        match=r"put these into .*given or .*cache.poise: set/one.bin \(sha256:00\)",
    ):
        home("thing", [file])
    (tmp_path / "cache/poise/set").mkdir(parents=True)
    (tmp_path / "cache/poise/set/one.bin").write_bytes(b"x")
    assert home("thing", [file]) == tmp_path / "cache/poise"


def test_a_missing_set_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("POISE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, words in (
        ("mnist", "poise data fetch mnist"),
        ("shakespeare", "shakespeare_roles.json.gz"),
    ):
        with pytest.raises(DataError, match=words):
            federation(name)


def test_npz_is_strict_and_never_unpickles(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((2, 2), np.uint8))
    assert read_npz(path, {"x": ((2, 2), "u1")})["x"].shape == (2, 2)
    for wanted in ({"x": ((2, 3), "u1")}, {"x": ((2, 2), "u2")}, {"y": ((2, 2), "u1")}):
        with pytest.raises(DataError, match=r"a\.npz"):
            read_npz(path, wanted)
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(path, {"x": ((1,), "O")})
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match="cannot be read"):
        read_npz(path, {"x": ((1,), "O")})


def test_cifar_batches(tmp_path):
    records = np.random.default_rng(0).integers(0, 256, (4, 3073)).astype(np.uint8)
    records[:, 0] = [3, 1, 9, 0]
    path = tmp_path / "c.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in (("a", records.tobytes()), ("b", records.tobytes()[:-1])):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    images, labels = read_batches(path, ("a",))
    assert labels.tolist() == [3, 1, 9, 0]
    assert images.shape == (4, 3, 32, 32)
    assert images[2, 1, 0, 5] == records[2, 1 + 1024 + 5]
    for member in ("b", "c"):
        with pytest.raises(DataError, match=r"c\.tar\.gz"):
            read_batches(path, (member,))


def test_smaller_images_are_means_over_blocks():
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8)).astype(np.uint8)
    half = reduced(images, 4)
    assert half.shape == (2, 3, 4, 4)
    assert half.dtype == np.uint8
    exact = images.astype(float)[1, 2, 4:6, 2:4].mean()
    assert half[1, 2, 2, 1] == np.floor(exact + 0.5)
    assert reduced(images, 8) is images
    assert (
        reduced(np.full((1, 1, 4, 4), 255, np.uint8), 1).item() == 255
    )  # no sum overflows


def test_usps_as_published(tmp_path):
    path = tmp_path / "usps.bz2"
    cells = " ".join(f"{k}:{-1 if k < 256 else 0.257}" for k in range(1, 257) if k != 7)
    path.write_bytes(bz2.compress(f"1 {cells}\n10 {cells}\n".encode()))
    images, labels = read_libsvm(path, 2)
    assert labels.tolist() == [0, 9]
    assert images.shape == (2, 1, 16, 16)
    assert images[0, 0, 0, 0] == 0
    assert images[0, 0, 15, 15] == 1257
    assert images[0, 0, 0, 6] == 1000
    with pytest.raises(DataError, match="2 rows, expected 3"):
        read_libsvm(path, 3)


def test_hospital_records(tmp_path):
    path = tmp_path / "h.data"
    path.write_text(
        "63,1,1,145,233,1,2,150,0,2.3,3,?,6,0\n37,1,3,?,250,0,0,187,0,3.5,3,0,3,2\n1,1,1,1,1,1,1,1,1,1,?,?,?,4\n"
    )
    x, y = read_hospital(path)
    assert x.shape == (2, 10)
    assert y.tolist() == [0, 1]
    path.write_text("1,2\n")
    with pytest.raises(DataError, match="line 1 has 2 columns"):
        read_hospital(path)


# windows of a text
# -----------------------------------------------------------------------------------


def test_windows_are_slices_and_never_straddle(tmp_path):
    lines = {"x/A": ["to be or not", "to be"], "x/B": ["that is the question"]}
    path = tmp_path / "roles.json.gz"
    entries = [
        {"play": n.split("/")[0], "role": n.split("/")[1], "lines": text}
        for n, text in lines.items()
    ]
    path.write_bytes(gzip.compress(json.dumps(entries).encode()))
    roles = read_roles(path)
    for stride in (1, 3):
        pool, rows, keys = windows(list(roles.values()), 5, stride)
        expected = [
            (text[s : s + 5], text[s + 5], k)
            for k, text in enumerate("\n".join(text) + "\n" for text in lines.values())
            for s in range(0, len(text) - 5, stride)
        ]
        read = [
            "".join(VOCABULARY[t] for t in window)
            for window in pool.raw[torch.from_numpy(rows)].tolist()
        ]
        after = [VOCABULARY[t] for t in pool.labels[torch.from_numpy(rows)].tolist()]
        assert list(zip(read, after, keys.tolist(), strict=True)) == expected
    assert pool.raw.untyped_storage().nbytes() == sum(map(len, roles.values()))


def test_unknown_characters_are_refused(tmp_path):
    path = tmp_path / "roles.json.gz"
    for text in ("caf\u00e9", "bell\u0007"):
        path.write_bytes(
            gzip.compress(
                json.dumps([{"play": "p", "role": "r", "lines": [text]}]).encode()
            )
        )
        with pytest.raises(DataError, match=r"roles\.json\.gz"):
            read_roles(path)
    path.write_bytes(gzip.compress(b'[{"play": "p"}]'))
    with pytest.raises(DataError, match="not a list of roles"):
        read_roles(path)
    path.write_bytes(gzip.compress(b"[]")[:-4])
    with pytest.raises(DataError, match="not a complete gzip"):
        read_gzip(path)


# choosing and normalising
# ----------------------------------------------------------------------------


def test_held_out_takes_its_share_of_every_group():
    groups = np.repeat([0, 1, 2], [10, 5, 1])
    out = held_out(groups, 0.4, np.random.default_rng(0))
    assert np.bincount(groups[out], minlength=3).tolist() == [4, 2, 0]


def test_balanced_subset_with_a_small_class():
    labels = np.repeat([0, 1, 2], [50, 3, 50])
    rows = balanced_subset(labels, 33, 3, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [15, 3, 15]
    assert len(set(rows.tolist())) == 33


def test_standard_normalisation_has_mean_zero_and_deviation_one():
    x = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4)).astype(np.uint8)
    y = np.zeros(50, np.int64)
    features = image_pools((x, y), (x, y), 255, "standard")[0].features(
        torch.arange(50)
    )
    assert features.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert (features.var(dim=(0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_digits_are_always_there():
    fed = federation("digits", clients=10)
    assert len(fed.test[1]) == 359
    assert fed.test[0].max() == 1.0
    assert abs(np.bincount(fed.test[1]) - 36).max() <= 1
    assert (
        federation("digits", clients=10, seed=9).test[1].tolist()
        == fed.test[1].tolist()
    )


def test_token_arrays_stay_token_numbers() -> None:
    x = np.arange(12).reshape(4, 3) % 7
    fed = federation((x, [0, 1, 0, 1]), clients=2, vocabulary=7)
    taken, _ = fed.client(0)
    assert taken.dtype == np.int64
    assert {tuple(row) for row in taken.tolist()} <= {tuple(row) for row in x.tolist()}
    with pytest.raises(InvalidOption, match="tokens go from 0 to 6, vocabulary = 5"):
        federation((x, [0, 1, 0, 1]), clients=2, vocabulary=5)


def test_raw_and_inverted_pixels_by_hand() -> None:
    raw = federation("digits", clients=3, normalize="raw").client(0)[0]
    unit = federation("digits", clients=3).client(0)[0]
    inverted = federation("digits", clients=3, normalize="inverted").client(0)[0]
    assert raw.max() == 16.0
    np.testing.assert_array_equal(raw, np.round(raw))
    np.testing.assert_allclose(raw / 16, unit, atol=1e-7)
    np.testing.assert_allclose(1 - unit, inverted, atol=1e-7)
