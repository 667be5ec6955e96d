"""What a node can hold: files and functions; what is wrong with them is said exactly, and stays on
the node."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from poise.apps.deploy.data_files import read_arrays
from poise.apps.deploy.node import reply_to
from poise.apps.deploy.node_data import open_node_data
from poise.apps.deploy.registration import load_held_out
from poise.core.errors import DataError, InvalidOption, PoiseError

CSV = "age,pressure,sick\n61,1.5,1\n48,2.5,0\n"


def table(folder: Path, text: str) -> Path:
    file = folder / "patients.csv"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        "\ufeff" + CSV,
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\n\n"),
        CSV.replace(",", " , "),
        '"age","pressure","sick"\n"61","1.5","1"\n48,25e-1,0',
    ],
    ids=["plain", "mark", "windows", "blank lines", "blanks", "quotes"],
)
def test_tables_as_people_write_them(text: str, tmp_path: Path) -> None:
    x, y = read_arrays(table(tmp_path, text), "sick", 2)
    assert x.tolist() == [[61.0, 1.5], [48.0, 2.5]]
    assert (y.tolist(), y.dtype) == ([1, 0], np.int64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CSV.replace("48", ""), "patients.csv, line 3, column 'age': no value"),
        (CSV.replace("48", "NA"), "line 3, column 'age': no value"),
        (CSV.replace("2.5", " ? "), "line 3, column 'pressure': no value"),
        (CSV + ",,\n", "line 4, column 'age': no value"),
        (
            CSV.replace("1.5", "high"),
            "line 2, column 'pressure': 'high' is not a number",
        ),
        (CSV.replace("1.5", "1_5"), "line 2, column 'pressure': '1_5' is not a number"),
        (CSV.replace("1.5", "inf"), "line 2, column 'pressure': inf is not finite"),
        (CSV.replace("48,2.5", "48"), "line 3: 2 values for 3 columns"),
        (CSV.replace("48,2.5", "48,2,5"), "line 3: 4 values for 3 columns"),
        (CSV.replace("age", "sick"), "2 columns have the name 'sick'"),
        (CSV.replace("age", ""), "a column without a name"),
        (CSV.replace(",", ";"), "no column 'sick' (columns: age;pressure;sick"),
        ("sick\n1\n", "no columns except 'sick'"),
        ("age,sick\n", "columns but no rows"),
        ("", "no column 'sick'"),
        (
            CSV.replace("1.5,1", "1.5,3"),
            "the label in row 0 is 3 (with classes = 2: 0 to 1)",
        ),
        (CSV.replace("1.5,1", "1.5,0.5"), "the label in row 0 is 0.5"),
        (CSV.replace("1.5,1", "1.5,-1"), "the label in row 0 is -1"),
        ('age,sick\n"61,1\n', "cannot be read as data"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_exactly(
    text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as error:
        read_arrays(table(tmp_path, text), "sick", 2)
    assert words in str(error.value)


def broken(file: Path, kind: str) -> None:
    x, y = np.ones((3, 2)), np.zeros(3)
    made: dict[str, dict[str, Any]] = {
        "nan": {"x": np.full((3, 2), np.nan), "y": y},
        "text": {"x": np.full((3, 2), "a"), "y": y},
        "object": {"x": np.array([[1, None]] * 3, dtype=object), "y": y},
        "no y": {"x": x},
        "lengths": {"x": x, "y": y[:2]},
        "empty": {"x": x[:0], "y": y[:0]},
        "flat": {"x": y, "y": y},
        "fine": {"x": x, "y": y},
    }
    np.savez(file, **made.get(kind, made["fine"]))
    if kind == "truncated":
        file.write_bytes(file.read_bytes()[:-40])
    if kind == "noise":
        file.write_bytes(b"no archive")
    if kind == "one array":
        with file.open("wb") as stream:
            np.save(stream, x)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nan", "x is not finite in row 0"),
        ("text", "x must be numbers, not <U1"),
        ("object", "cannot be read as data"),
        ("no y", "no array 'y' (arrays: x)"),
        ("lengths", r"x has shape [3, 2] and y [2]"),
        ("empty", "x has shape [0, 2]"),
        ("flat", "x has shape [3]"),
        ("truncated", "cannot be read as data"),
        ("noise", "cannot be read as data"),
        ("one array", "cannot be read as data"),
    ],
)
def test_what_is_wrong_with_arrays_is_said(
    kind: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "patients.npz"
    broken(file, "fine")
    assert read_arrays(file, "y", 0)[0].shape == (3, 2)
    broken(file, kind)
    with pytest.raises(DataError) as error:
        read_arrays(file, "y", 0)
    assert words in str(error.value)
    assert "patients.npz" in str(error.value)


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    from pyarrow import parquet

    file = tmp_path / "patients.parquet"

    def write(**columns: Any) -> None:
        parquet.write_table(pa.table(columns), file)

    def wrong() -> str:
        with pytest.raises(DataError) as error:
            read_arrays(file, "sick", 2)
        return str(error.value)

    write(age=pa.array([61, 48], pa.int16()), sick=[True, False], pressure=[1.5, 2.5])
    x, y = read_arrays(file, "sick", 2)
    assert (x.tolist(), y.tolist()) == ([[61.0, 1.5], [48.0, 2.5]], [1, 0])
    table(tmp_path, CSV)
    same = [
        open_node_data(
            0, {"file": f"patients.{k}", "label": "sick", "classes": 2}, tmp_path
        )
        for k in ("csv", "parquet")
    ]
    assert np.array_equal(same[0].shard.arrays()[0], same[1].shard.arrays()[0])
    write(age=[61, None], sick=[0, 1])
    assert "patients.parquet, row 1, column 'age': no value" in wrong()
    write(age=["old", "young"], sick=[0, 1])
    assert "row 0, column 'age': 'old' is not a number" in wrong()
    write(age=[[1.0], [2.0]], sick=[0, 1])
    assert "column 'age': list<" in wrong()
    write(age=[1.0, float("nan")], sick=[0, 1])
    assert "row 1, column 'age': no value" in wrong()
    write(age=[1.0])
    assert "no column 'sick'" in wrong()
    write(age=pa.array([], pa.float64()), sick=pa.array([], pa.int8()))
    assert "columns but no rows" in wrong()
    file.write_bytes(file.read_bytes()[:50])
    assert "cannot be read as data" in wrong()


def test_columns_of_texts_need_their_list_on_a_node(tmp_path: Path) -> None:
    table(tmp_path, "age,sex,state\n61,m,ill\n48,f,well\n")
    data = {"file": "patients.csv", "label": "state", "classes": 2}
    with pytest.raises(DataError, match=r"line 2, column 'sex': 'm' is not a number"):
        open_node_data(0, data, tmp_path)
    listed = {"sex": ["f", "m"], "state": ["well", "ill"]}
    held = open_node_data(0, {**data, "categories": listed}, tmp_path)
    x, y = held.shard.arrays()
    assert (x.tolist(), y.tolist()) == ([[61, 0, 1], [48, 1, 0]], [1, 0])
    other = {"sex": ["f", "x"], "state": ["well", "ill"]}
    with pytest.raises(DataError, match="'m' is none of its categories"):
        open_node_data(0, {**data, "categories": other}, tmp_path)
    with pytest.raises(InvalidOption, match="features must be"):
        open_node_data(0, {**data, "features": "age"}, tmp_path)


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "patients.parquet").touch()
    with pytest.raises(
        InvalidOption,
        match=r"parquet files need pyarrow \(pip install 'poise\[parquet\]'\)",
    ):
        read_arrays(tmp_path / "patients.parquet", "sick", 2)


PATIENTS = """
import numpy as np
from scales import SCALE

def load(rows=3, shift=0.0):
    return SCALE * np.arange(2.0 * rows).reshape(rows, 2) + shift, [k % 2 for k in range(rows)]

def fails():
    raise KeyError("room 12")

def leaves():
    raise SystemExit("bye")

def odd():
    return {"x": [1], "y": [2]}

def ragged():
    return [[1, 2], [3]], [0, 1]
"""


def beside(folder: Path, scale: float = 1.0) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "scales.py").write_text(f"SCALE = {scale}\n")
    (folder / "patients.py").write_text(PATIENTS)
    return folder


def test_a_function_gives_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = beside(tmp_path / "a")
    before = list(sys.path)
    found = open_node_data(
        1,
        {
            "callable": "patients:load",
            "classes": 2,
            "options": {"rows": 4, "shift": 0.5},
        },
        here,
    )
    assert found.facts() == {
        "client": 1,
        "samples": 4,
        "shape": [2],
        "classes": 2,
        "data": None,
    }
    x, y = found.shard.arrays()
    assert (x[1].tolist(), y.tolist()) == ([2.5, 3.5], [0, 1, 0, 1])
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "scales")
    other = beside(tmp_path / "b")
    (other / "patients.py").write_text("def load():\n    return [[7.0]], [0.5]\n")
    quantities = open_node_data(
        0, {"callable": "patients:load"}, other
    )  # each node its own module of that name
    assert [part.tolist() for part in quantities.shard.arrays()] == [[[7.0]], [0.5]]


def test_a_function_of_an_installed_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "hospital"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "records.py").write_text("def read():\n    return [[1.0, 2.0]], [1]\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = open_node_data(
        0, {"callable": "hospital.records:read", "classes": 3}, tmp_path
    )
    assert found.facts()["samples"] == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"callable": "patients:fails"},
            "patients:fails failed (patients.py, line 9): KeyError: 'room 12'",
        ),
        ({"callable": "patients:leaves"}, "(patients.py, line 12): SystemExit: bye"),
        (
            {"callable": "patients:odd"},
            "callable patients:odd returned dict (return two arrays: (x, y))",
        ),
        ({"callable": "patients:ragged"}, "rows of different lengths"),
        ({"callable": "patients:absent"}, "AttributeError"),
        ({"callable": "patiens:load"}, "No module named 'patiens'"),
        (
            {"callable": "patients:load", "options": {"row": 1}},
            "unexpected keyword argument 'row'",
        ),
        ({"callable": "patients.load"}, "is not 'module:function'"),
        ({"callable": "../patients:load"}, "is not 'module:function'"),
        ({"callable": "patients:load", "options": 3}, "options must be a table, not 3"),
        ({"callable": "patients:load", "file": "a.csv"}, "both a file and a callable"),
        (
            {"callable": "patients:load", "clases": 2},
            "no key 'clases' (did you mean 'classes'?)",
        ),
        (
            {"callable": "patients:load", "classes": "2"},
            "classes = '2' must be a whole number",
        ),
        ({"callable": "patients:load", "classes": 1}, "the label in row 1 is 1"),
        ({"file": "a.xlsx"}, "unknown file type '.xlsx' (known: .csv, .npz, .parquet)"),
        ({"file": "a.csv"}, "a.csv cannot be read as data"),
    ],
)
def test_what_a_node_cannot_hold(
    data: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PoiseError) as error:
        open_node_data(0, data, beside(tmp_path))
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["fails", "leaves", "odd", "absent"])
def test_what_a_function_does_wrong_stays_on_the_node(
    name: str, tmp_path: Path
) -> None:
    beside(tmp_path)
    (tmp_path / "node.toml").write_text(
        f'client = 2\n[data]\ncallable = "patients:{name}"\n'
    )
    (tmp_path / "policy.toml").write_text("")
    facts = json.dumps({"kind": "hello", "nonce": "n", "client": 2})
    content: dict[str, Any] = {"facts": {"json": facts}, "vectors": {}}
    told = reply_to(
        SimpleNamespace(metadata=SimpleNamespace(src_node_id=0), content=content),
        tmp_path,
    )
    assert told.facts == {
        "nonce": "n",
        "refused": "its node is not set up correctly; its journal says why",
        "by policy": False,
    }
    (line,) = map(json.loads, (tmp_path / "journal.jsonl").read_text().splitlines())
    assert f"callable patients:{name}" in line["detail"]


def test_the_servers_test_table_is_encoded_as_on_the_nodes(tmp_path: Path) -> None:
    file = table(tmp_path, "age,sex,note,sick\n61,m,7,1\n,f,8,0\n30,f,9,1\n")
    columns = {
        "label": "sick",
        "features": ["age", "sex"],
        "missing": "drop",
        "categories": {"sex": ["m", "f"]},
    }
    node = {"file": file.name, "classes": 2, **columns}
    own = open_node_data(0, node, tmp_path).shard.take(torch.arange(2))
    held_out = load_held_out({"test": str(file), **columns}, {"classes": 2})
    x, y = held_out.take(torch.arange(2))
    assert torch.equal(x, own[0])
    assert x.tolist() == [[61.0, 1.0, 0.0], [30.0, 0.0, 1.0]]
    assert (y.tolist(), len(held_out.rows)) == ([1, 1], 2)
