"""Every kind of the user's data trains as the same data given as arrays."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import poise
from poise.core.errors import DataError, IncompatibleParts, InvalidOption, PoiseError
from poise.data import blocks
from poise.data.own.csv_files import csv_table
from poise.data.own.encoding import read_tables

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
OWNERS = np.repeat(["north", "south", "west"], 20)
SGD = poise.solvers.SGD(lr=0.3, steps=4, batch_size=5)


def model(fed: poise.Federation) -> list[float]:
    run = poise.train(fed, poise.task("logistic"), SGD, rounds=3, seed=1)
    return list(run.model.tolist())


def columns() -> dict[str, Any]:
    named = {name: X[:, k] for k, name in enumerate(("age", "weight", "pressure"))}
    return {**named, "sick": Y, "hospital": OWNERS}


def write_csv(file: Path, rows: slice = slice(None), owner: bool = True) -> Path:
    names = ["age", "weight", "pressure", "sick", *(["hospital"] if owner else [])]
    lines = [",".join(names)]
    table = columns()
    for row in range(60)[rows]:
        cells = [repr(float(table[n][row])) for n in names[:3]]
        cells += [str(table[n][row]) for n in names[3:]]
        lines.append(",".join(cells))
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return model(poise.federation((X, Y), "by-key", keys=OWNERS))


@pytest.mark.parametrize("kind", ["pandas", "polars", "csv", "parquet", "datasets"])
def test_tables_train_as_arrays(
    kind: str, tmp_path: Path, expected: list[float]
) -> None:
    source: Any = write_csv(tmp_path / "patients.csv")
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        source = tmp_path / "patients.parquet"
        parquet.write_table(pa.table(columns()), source)
    elif kind == "datasets":
        source = pytest.importorskip("datasets").Dataset.from_dict(columns())
    elif kind != "csv":
        source = pytest.importorskip(kind).DataFrame(columns())
    fed = poise.federation(source, label="sick", key="hospital")
    assert fed.names == ("north", "south", "west")
    assert fed.source.columns == ("age", "weight", "pressure")
    assert model(fed) == expected


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(X[row]), int(Y[row])


@pytest.mark.parametrize("kind", ["tensors", "items", "npz", "folder", "npy", "memmap"])
def test_data_sets_and_files_of_arrays_train_as_arrays(
    kind: str, tmp_path: Path, expected: list[float]
) -> None:
    np.savez(tmp_path / "all.npz", x=X, y=Y)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    tensors = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    sources: dict[str, Any] = {
        "tensors": tensors,
        "items": Rows(),
        "npz": tmp_path / "all.npz",
        "folder": f"{tmp_path}/",
        "npy": tmp_path / "x.npy",
        "memmap": (np.load(tmp_path / "x.npy", mmap_mode="r"), Y),
    }
    options = {"label": "y.npy"} if kind == "npy" else {}
    fed = poise.federation(sources[kind], "by-key", keys=OWNERS, **options)
    assert model(fed) == expected


def test_hospitals_from_their_own_files(tmp_path: Path, expected: list[float]) -> None:
    files = [
        write_csv(tmp_path / f"{name}.csv", slice(20 * k, 20 * k + 20), owner=False)
        for k, name in enumerate(("north", "south", "west"))
    ]
    fed = poise.federation(files, label="sick")
    assert (fed.names, fed.sizes.tolist()) == (("north", "south", "west"), [20] * 3)
    assert model(fed) == expected
    parts = [(X[20 * k : 20 * k + 20], Y[20 * k : 20 * k + 20]) for k in range(3)]
    assert model(poise.federation(parts)) == expected
    named = poise.federation({"a": files[0], "b": parts[1]}, label="sick")
    assert named.names == ("a", "b")
    own = poise.federation(files, label="sick", client_test_share=0.25, test=files[0])
    assert own.client_test_shards([0, 1, 2]).sizes.tolist() == [5, 5, 5]
    assert len(own.test[1]) == 20


def experiment(folder: Path, data: str) -> Path:
    file = folder / "experiment.toml"
    rest = "[task]\nmodel = 'logistic'\n[solver]\nname = 'sgd'\nlr = 0.3\nsteps = 4\n"
    file.write_text(f"[data]\n{data}\n{rest}batch_size = 5\n[run]\nrounds = 3\n")
    return file


def test_an_experiment_file_names_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from poise.apps.experiments.explanation import explain_named
    from poise.apps.experiments.inspection import federation_of
    from poise.config.experiment import load
    from poise.training import compose, federation_in

    (tmp_path / "study").mkdir()
    data = write_csv(tmp_path / "study" / "patients.csv")
    file = experiment(
        tmp_path / "study",
        "source = 'patients.csv'\nlabel = 'sick'\nkey = 'hospital'\n"
        "test = 'patients.csv'",
    )
    fed = federation_in(load(file), 0)
    assert fed.names == ("north", "south", "west")
    assert fed.spec is not None
    assert fed.spec["source"] == fed.spec["test"] == str(data)
    assert len(fed.test[1]) == 60
    composition = compose(load(file), 0)
    task = composition.task
    poise.train(fed, task, SGD, rounds=3, out=tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert poise.resume(tmp_path / "run", rounds=4).rounds == 4
    with pytest.raises(InvalidOption, match="only to resume or unlearn"):
        explain_named(str(tmp_path / "run"))
    with pytest.raises(InvalidOption, match="only to resume or unlearn"):
        federation_of(str(tmp_path / "run" / "experiment.toml"), ())
    data.write_text(data.read_text().replace("1,north", "0,north", 1))
    with pytest.raises(IncompatibleParts, match="not those the run began with"):
        poise.resume(tmp_path / "run", rounds=5)
    data.unlink()
    assert poise.open_run(tmp_path / "run").rounds == 4
    with pytest.raises(DataError, match=r"patients.csv: no such file"):
        poise.resume(tmp_path / "run", rounds=5)


def test_texts_become_columns_and_classes(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"age": [61, 48, 50], "sex": ["m", "f", "m"], "sick": ["yes", "no", "no"]}
    )
    fed = poise.federation(frame, clients=1, label="sick")
    assert fed.source.columns == ("age", "sex=f", "sex=m")
    assert fed.source.class_names == ("no", "yes")
    x, y = fed.client(0)
    order = np.argsort(x[:, 0])
    assert x[order].tolist() == [[48, 1, 0], [50, 0, 1], [61, 0, 1]]
    assert y[order].tolist() == [0, 0, 1]
    other = poise.federation(
        frame, clients=1, label="sick", categories={"sick": ["yes", "no"]}
    )
    assert other.client(0)[1][order].tolist() == [1, 1, 0]
    # two clients share one encoding, although each knows one text only
    both = poise.federation([frame[:1], frame[1:2]], label="sick")
    assert both.client(0)[0].tolist() == [[61, 0, 1]]
    assert both.client(1)[0].tolist() == [[48, 1, 0]]


def test_true_and_false_mean_the_same_in_frames_and_files(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "age": [61, 48, 50],
            "smokes": [True, False, True],
            "ill": [False, True, True],
            "old": [True, False, False],
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    for data in (frame, tmp_path / "a.csv"):
        fed = poise.federation(data, clients=1, label=["ill", "old"])
        assert fed.source.columns == ("age", "smokes")
        assert fed.shards(np.array([0])).samples.multi_label
        x, y = fed.client(0)
        order = np.argsort(x[:, 0])
        assert x[order].tolist() == [[48, 0], [50, 1], [61, 1]]
        assert y[order].tolist() == [[1, 0], [1, 0], [0, 1]]
        one = poise.federation(data, clients=1, label="ill", features=["age"])
        assert (one.classes, one.class_names) == (2, ())


def test_several_columns_of_0_and_1_say_how_to_train_them() -> None:
    many = np.stack([Y, 1 - Y, Y], axis=1)
    with pytest.raises(IncompatibleParts, match="target='multi-label' for 3 labels"):
        model(poise.federation((X, many), clients=2))
    assert model(poise.federation((X, many), clients=2, target="multi-label"))


@pytest.mark.parametrize(
    "made",
    [
        {"a": (X[:20], Y[:20]), "b": (X[20:], Y[20:])},
        {"data": {"a": (X[:20], Y[:20]), "b": (X[20:], Y[20:])}},
        {"data": (X, Y), "keys": np.repeat(["a", "b"], [20, 40])},
    ],
)
def test_a_function_may_return_the_owners(made: Any) -> None:
    fed = poise.federation(lambda: made)
    assert (fed.names, fed.sizes.tolist()) == (("a", "b"), [20, 40])
    assert poise.federation(lambda: made, "iid", clients=3).clients == 3


def test_keys_are_owners() -> None:
    assert poise.federation((X, Y), keys=OWNERS).names == ("north", "south", "west")


def test_gaps(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("age,sick\n1,0\n,1\n3,1\n")
    with pytest.raises(DataError, match=r"a.csv, line 3, column 'age': no value"):
        poise.federation(file, clients=1, label="sick")
    dropped = poise.federation(file, clients=1, label="sick", missing="drop")
    assert sorted(dropped.client(0)[0][:, 0].tolist()) == [1, 3]
    filled = poise.federation(file, clients=1, label="sick", missing=-1.5)
    assert sorted(filled.client(0)[0][:, 0].tolist()) == [-1.5, 1, 3]
    file.write_text("age,sick\n,0\n2,1\n3,\n")
    with pytest.raises(DataError, match=r"a.csv, line 4, column 'sick': a label or"):
        poise.federation(file, clients=1, label="sick", missing=0.0)
    file.write_text("age,sick,site\n1,0,a\n2,,b\n3,1,\n")
    with pytest.raises(DataError, match="line 3, column 'sick': a label or") as no:
        poise.federation(file, label="sick", key="site")
    assert no.value.hint == "remove these rows, or write missing='drop'"
    file.write_text("age,sick,site\n1,0,a\n2,1,b\n3,1,\n")
    with pytest.raises(DataError, match="line 4, column 'site': a label or") as no:
        poise.federation(file, label="sick", key="site")
    assert "0.0" not in no.value.hint
    kept = poise.federation(file, label="sick", key="site", missing="drop")
    assert kept.names == ("a", "b")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [1.0, np.nan], "sick": [0, 1]})
    with pytest.raises(DataError, match="the data frame, row 1, column 'age'"):
        poise.federation(frame, clients=1, label="sick")


def test_a_class_that_only_the_test_data_have_is_named(tmp_path: Path) -> None:
    x = np.zeros((4, 2), np.float32)
    known = (x, np.array([0, 1, 0, 1]))
    with pytest.warns(UserWarning, match="samples of the classes 3; the model has 4"):
        assert poise.federation(known, clients=1, test=(x, [0, 3, 1, 3])).classes == 4
    for name, texts in (("train", "ill,well"), ("test", "ill,unknown")):
        rows = "".join(f"1,{text}\n" for text in texts.split(","))
        (tmp_path / f"{name}.csv").write_text(f"age,state\n{rows}")
    files = {"source": tmp_path / "train.csv", "test": tmp_path / "test.csv"}
    with pytest.warns(UserWarning, match="samples of the classes unknown; the model"):
        poise.federation(**files, clients=1, label="state")
    listed = {"state": ["ill", "unknown", "well"]}
    masks = np.zeros((4, 3), np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poise.federation(known, clients=1, test=(x, [0, 3, 1, 3]), classes=4)
        poise.federation(known, clients=1, test=(x[:1], [1]))
        poise.federation(**files, clients=1, label="state", categories=listed)
        poise.federation((x, masks), clients=1, test=(x, masks - 100))
        poise.federation((x, [0.0, 1, 2, 3]), clients=1, test=(x, [0.0, 9, 9, 9]))


def test_folders_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = RNG.integers(0, 256, size=(6, 5, 4), dtype=np.uint8)
    for k, values in enumerate(pixels):
        folder = tmp_path / "pictures" / ("cat" if k < 3 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(values).save(folder / f"{k}.png")
    fed = poise.federation(f"{tmp_path}/pictures", clients=2)
    same = poise.federation((pixels[:, None], [0, 0, 0, 1, 1, 1]), clients=2)
    assert fed.digest() == same.digest()
    assert (fed.feature_shape, fed.source.class_names) == ((1, 5, 4), ("cat", "dog"))
    image.fromarray(pixels[0].T).save(tmp_path / "pictures" / "cat" / "tall.png")
    with pytest.raises(DataError, match="images of 4x5 and 5x4 pixels"):
        poise.federation(f"{tmp_path}/pictures", clients=2)
    sized = poise.federation(f"{tmp_path}/pictures", clients=2, size=[8, 8])
    assert sized.feature_shape == (1, 8, 8)
    (tmp_path / "pictures" / "cat" / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"bad.png cannot be read as an image"):
        poise.federation(f"{tmp_path}/pictures", clients=2)


def test_partitioners_of_flwr_datasets() -> None:
    partitioner = pytest.importorskip("flwr_datasets.partitioner")
    datasets = pytest.importorskip("datasets")
    own = datasets.Dataset.from_dict(columns())
    theirs = partitioner.DirichletPartitioner(4, "sick", 0.5, min_partition_size=1)
    theirs.dataset = own
    sizes = [len(theirs.load_partition(i)) for i in range(4)]
    for source, by in ((own, "sick"), ((X, Y), "label")):
        rule = partitioner.DirichletPartitioner(4, by, 0.5, min_partition_size=1)
        options = {"label": "sick", "features": ["age"]} if by == "sick" else {}
        fed = poise.federation(source, rule, **options)
        assert fed.sizes.tolist() == sizes
    first = np.sort(np.array(theirs.load_partition(0)["age"], dtype=np.float32))
    assert np.sort(fed.client(0)[0][:, 0]).tolist() == first.tolist()
    with pytest.raises(InvalidOption, match="already has a data set"):
        poise.federation((X, Y), theirs)
    wrong = partitioner.NaturalIdPartitioner("ward")
    with pytest.raises(InvalidOption, match="NaturalIdPartitioner cannot divide"):
        poise.federation((X, Y), wrong)


CSV = "age,sick\n61,1\n48,0\n"


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (CSV, {}, "no column of labels is named"),
        (CSV, {"label": "sik"}, "has no column 'sik' (did you mean 'sick'?)"),
        (CSV, {"label": "sick", "key": "ward"}, "has no column 'ward'"),
        (CSV, {"label": "sick", "features": ["agee"]}, "no column 'agee'"),
        (CSV, {"label": "sick", "lable": 1}, "no option 'lable'"),
        (CSV, {"label": "sick", "missing": "keep"}, "missing = 'keep' must be"),
        ("age,sick\n61,1\nold,0\n", {"label": "sick"}, "'old' is not a number"),
        ("age,sick\n", {"label": "sick"}, "columns but no rows"),
        ("age,sick\n1\n", {"label": "sick"}, "line 2: 1 values for 2 columns"),
    ],
)
def test_mistakes_in_tables(
    text: str, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(PoiseError) as error:
        poise.federation(file, **options)
    assert words in str(error.value)


def test_mistakes_in_lists_and_paths(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text(CSV)
    b.write_text("size,sick\n61,1\n")
    with pytest.raises(DataError, match=r"b.csv has no column 'age', but .*a.csv has"):
        poise.federation([a, b], label="sick")
    with pytest.raises(InvalidOption, match="the list of clients needs no key"):
        poise.federation([a, a], label="sick", key="age")
    with pytest.raises(InvalidOption, match="client 1 has no samples"):
        poise.federation([(X, Y), (X[:0], Y[:0])])
    with pytest.raises(InvalidOption, match=r"client 1: samples have shape \(2,\)"):
        poise.federation([(X, Y), (X[:, :2], Y)])
    with pytest.raises(DataError, match="no such file or folder"):
        poise.federation(str(tmp_path / "absent.csv"), label="sick")
    (tmp_path / "a.xlsx").touch()
    with pytest.raises(InvalidOption, match=r"unknown file type '.xlsx'"):
        poise.federation(str(tmp_path / "a.xlsx"))
    (tmp_path / "c.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot be read as data"):
        poise.federation(tmp_path / "c.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no subfolders with images"):
        poise.federation(f"{tmp_path}/empty")


def test_large_tables_are_converted_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_csv(tmp_path / "a.csv")
    small = poise.federation(file, label="sick", key="hospital")
    monkeypatch.setattr(blocks, "LARGE", 100)
    monkeypatch.setattr("poise.data.own.csv_files._ROWS", 7)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read = read_tables([csv_table(file)], label="sick", key="hospital")[0]
    assert blocks.is_mapped(read.x)
    large = poise.federation(file, label="sick", key="hospital")
    assert large.digest() == small.digest()
    assert list((tmp_path / "cache").rglob("*.*")) == []


def test_mapped_data_are_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    fed = poise.federation((mapped, Y), clients=4, test_share=0.2)
    raw = fed.source.train.raw.numpy()
    assert np.shares_memory(raw, mapped)
    same = poise.federation((X, Y), clients=4, test_share=0.2)
    assert all(np.array_equal(a, b) for a, b in zip(fed.test, same.test, strict=True))
    assert model(fed) == model(same)
    bad = X.copy()
    bad[41, 1] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(InvalidOption, match="x is not finite in row 41"):
        poise.federation((np.load(tmp_path / "bad.npy", mmap_mode="r"), Y))


LARGE_RUN = """
import sys, threading, time
import numpy as np, poise

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

peak, running = [0], [True]
def watch():
    while running[0]:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.02)

rows = int(sys.argv[2])
shape = (rows, 1024)
x = np.lib.format.open_memmap(sys.argv[1], "w+", np.float32, shape)
x[::50_000, 0] = 1.0
del x
x = np.load(sys.argv[1], mmap_mode="r")
y = np.zeros(rows, np.int64)
y[::2] = 1
threading.Thread(target=watch, daemon=True).start()
fed = poise.federation((x, y), clients=100)
solver = poise.solvers.SGD(lr=0.1, steps=3, batch_size=32)
sampler = poise.samplers.Uniform(m=10)
run = poise.train(fed, poise.task("logistic"), solver, sampler=sampler, rounds=3)
running[0] = False
print(peak[0])
"""


def peak_memory(file: Path, rows: int) -> int:
    command = [sys.executable, "-c", LARGE_RUN, str(file), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    file.unlink()
    return int(done.stdout.split()[-1])


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_ten_gigabytes_train_within_one(tmp_path: Path) -> None:
    small = peak_memory(tmp_path / "small.npy", 2_000)
    large = peak_memory(tmp_path / "large.npy", 2_621_440)  # 10 GiB, mostly holes
    assert large - small <= 2**30
