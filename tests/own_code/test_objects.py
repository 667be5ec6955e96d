"""Objects by name: found, named again, and refused with one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import poise
from own_code.support import write_package
from poise.core.errors import DataError, InvalidOption
from poise.core.objects import RUN_FILE, load_object, name_of, use_folders
from poise.core.own_code import changes_between, code_of
from poise.ledger.store import DATABASE


def test_the_mark_of_a_run_folder_is_the_ledger() -> None:
    assert RUN_FILE == DATABASE


def test_an_object_has_the_name_that_finds_it(tmp_path: Path) -> None:
    write_package(tmp_path, "own_objects")
    use_folders([tmp_path])
    make = load_object("own_objects.models:make")
    assert name_of(make) == "own_objects.models:make"
    assert name_of(sys.modules["own_objects.models"].smooth) == (
        "own_objects.models:smooth"
    )
    assert name_of(lambda: 0) is None
    assert name_of(torch.nn.Linear(1, 1)) is None


BROKEN = {
    "own_absent:make": "there is no module 'own_absent'",
    "own_broken.nothing:make": "there is no module 'own_broken.nothing'",
    "own_broken.raises:make": r"ZeroDivisionError.*raises.py, line 2",
    "own_broken.syntax:make": r"SyntaxError.*syntax.py, line 1",
    "own_broken.needs:make": r"no_such_thing.*needs.py, line 1",
    "own_broken.exits:make": "SystemExit",
    "own_broken:mkae": "did you mean 'make'",
    "own_broken:": "not the name of an object",
    "own_broken:a.b": "not the name of an object",
    "../own_broken:make": "not the name of an object",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_failure_is_one_sentence_with_the_place(tmp_path: Path, name: str) -> None:
    package = tmp_path / "own_broken"
    package.mkdir()
    (package / "__init__.py").write_text("def make(): ...\n")
    (package / "raises.py").write_text("x = 1\n1 / 0\n")
    (package / "syntax.py").write_text("def (\n")
    (package / "needs.py").write_text("import no_such_thing\n")
    (package / "exits.py").write_text("raise SystemExit(3)\n")
    use_folders([tmp_path])
    with pytest.raises(InvalidOption, match=BROKEN[name]) as refused:
        load_object(name)
    assert "\n" not in str(refused.value)


def test_the_hint_says_where_poise_looked(tmp_path: Path) -> None:
    use_folders([tmp_path])
    with pytest.raises(InvalidOption, match=str(tmp_path)):
        load_object("own_absent.models:make")


def test_a_module_in_a_run_folder_is_refused(tmp_path: Path) -> None:
    write_package(tmp_path / "run", "own_planted")
    (tmp_path / "run" / DATABASE).touch()
    use_folders([tmp_path / "run"])
    with pytest.raises(InvalidOption, match="there is no module"):
        load_object("own_planted.models:make")
    sys.path.insert(0, str(tmp_path / "run"))  # as `python -m` does in that folder
    with pytest.raises(InvalidOption, match="nothing from run folders"):
        load_object("own_planted.models:make")
    assert "own_planted" not in sys.modules


def test_two_packages_of_one_name_are_not_confused(tmp_path: Path) -> None:
    for place in ("a", "b"):
        write_package(tmp_path / place, "own_twice")
    use_folders([tmp_path / "a"])
    load_object("own_twice.models:make")
    use_folders([tmp_path / "b"])
    with pytest.raises(InvalidOption, match="already imported from"):
        load_object("own_twice.models:make")


def test_the_hash_notices_every_file_and_imports_none(tmp_path: Path) -> None:
    write_package(tmp_path, "own_hashed")
    use_folders([tmp_path])
    first = code_of(["own_hashed.models"])
    (tmp_path / "own_hashed" / "data.py").write_text("# other\n")
    second = code_of(["own_hashed.models"])
    (tmp_path / "own_hashed" / "models.py").write_text("# other\n")
    third = code_of(["own_hashed.models"])
    assert "own_hashed" not in sys.modules
    assert "does not name" in changes_between(first, second)[0]
    assert "(own_hashed.models)" in changes_between(second, third)[0]
    assert changes_between(first, first) == []


def test_a_task_and_its_module_are_not_exchanged() -> None:
    fed = poise.federation("digits", clients=2, samples=40)
    sgd = poise.solvers.SGD(lr=0.1, steps=1)
    with pytest.raises(InvalidOption, match=r"poise\.Task\(module=…\)"):
        poise.train(fed, torch.nn.Linear(64, 10), sgd)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="already a task"):
        poise.Task(module=poise.task("mlp"))  # type: ignore[arg-type]


def test_an_unknown_option_of_a_function_is_named(tmp_path: Path) -> None:
    write_package(tmp_path, "own_options")
    use_folders([tmp_path])
    with pytest.raises(InvalidOption, match="did you mean 'hidden'"):
        poise.Task(module="own_options.models:make", options={"hiden": 3})
    with pytest.raises(InvalidOption, match="did you mean 'rows'"):
        poise.federation("own_options.data:load", options={"row": 3})


def test_a_function_without_a_name_is_called_by_its_own_in_messages() -> None:
    def rows(count: int = 3) -> tuple[list[list[int]], list[int]]:
        return [[count]] * 2, [-1, 0]

    with pytest.raises(InvalidOption, match=r"rows has no option 'counts'"):
        poise.federation(rows, options={"counts": 3})
    with pytest.raises(DataError) as refused:
        poise.federation(rows)
    assert "rows: labels start at -1" in str(refused.value)
    assert " at 0x" not in str(refused.value)


def test_options_of_a_table_that_a_function_returns() -> None:
    """They mean the same as beside the table itself."""
    pandas = pytest.importorskip("pandas", reason="the extra [pandas] is not installed")
    frame = pandas.DataFrame(
        {
            "age": [30.0, 50.0, np.nan, 70.0],
            "sex": ["m", "f", "f", "m"],
            "noise": [1, 2, 3, 4],
            "ill": [0, 1, 1, 0],
            "old": [0, 1, 0, 1],
        }
    )
    options = {
        "label": ["ill", "old"],
        "features": ["age", "sex"],
        "missing": "drop",
        "categories": {"sex": ["m", "f"]},
        "target": "multi-label",
    }
    made = poise.federation(lambda: frame, clients=1, **options)
    assert made.source.columns == ("age", "sex=m", "sex=f")
    assert sorted(made.client(0)[1].tolist()) == [[0, 0], [0, 1], [1, 1]]
    assert made.digest() == poise.federation(frame, clients=1, **options).digest()


def test_entry_points_declare_parts(tmp_path: Path) -> None:
    """A distribution on the path, as pip installs it."""
    write_package(tmp_path, "own_plugin")
    info = tmp_path / "own_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own_plugin\nVersion: 1.2\n"
    )
    (info / "entry_points.txt").write_text("[poise.parts]\nmine = own_plugin.parts\n")
    sys.path.insert(0, str(tmp_path))
    fed = poise.federation("digits", clients=3, samples=60)
    sgd = poise.solvers.SGD(lr=0.1, steps=1)
    run = poise.train(
        fed, poise.task("logistic"), sgd, weighting="own_plugin-equal", rounds=1
    )
    assert set(run.contributions["coefficient"]) == {1 / 3}
    assert "1.2" in run.meta["code"]
