"""The axes and options of a sweep, as files, command lines and Python write them."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from config.test_options import commands, described
from faults.support import SMALL
from poise.apps.experiments.sweeping import sweep
from poise.config.entries import entries_of
from poise.config.experiment import parse
from poise.config.sweep_axes import axes_of, configurations, configured, parse_axis
from poise.config.sweep_options import SWEEP_KEYS, SweepOptions
from poise.core.errors import InvalidOption
from poise.core.options import options_of

BASE = parse(SMALL)
OPTIONS = options_of(SweepOptions)


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("solver.lr=0.01,0.1", ("solver", "lr"), (0.01, 0.1)),
        ("weighting=proportional,exp", ("weighting",), ("proportional", "exp")),
        (
            "weighting={name='exp',alpha=0.2}, {name='max', k=2}",
            ("weighting",),
            ({"name": "exp", "alpha": 0.2}, {"name": "max", "k": 2}),
        ),
        ("task.hidden=[16,8],32", ("task", "hidden"), ([16, 8], 32)),
        ("data.source='a,b','c'", ("data", "source"), ("a,b", "c")),
        ("run.keep_updates=true,false", ("run", "keep_updates"), (True, False)),
    ],
)
def test_an_axis_is_read_from_the_command_line(
    text: str, key: tuple[str, ...], values: tuple[Any, ...]
) -> None:
    axis = parse_axis(text)
    assert (axis.key, axis.values) == (key, values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("solver.lr", "not of the form table.key=value,value"),
        ("solver.lr=", "no values to sweep over"),
        ("solver.lr=1,1", "has the value 1 twice"),
        ("weighting={name=exp}", "is no value of TOML"),
        ("sovler.lr=1", "did you mean 'solver'"),
        ("run.seeds=1,2", "every configuration runs with the same seeds"),
        ("sweep.eta=1,2", "no table"),
        ("expected.accuracy=1,2", "no table"),
    ],
)
def test_a_wrong_axis_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        parse_axis(text)


def test_a_file_a_dictionary_and_a_command_line_mean_the_same() -> None:
    table = tomllib.loads(
        """
        [over]
        solver.lr = [0.01, 0.1]
        weighting = [{name = "exp", alpha = 0.2}, "proportional"]
        """
    )
    by_file = SweepOptions.of(table)
    by_python = SweepOptions(
        over={
            "solver.lr": [0.01, 0.1],
            "weighting": [{"name": "exp", "alpha": 0.2}, "proportional"],
        }
    )
    by_command = tuple(
        map(
            parse_axis,
            ["solver.lr=0.01,0.1", "weighting={name='exp',alpha=0.2},proportional"],
        )
    )
    assert by_file == by_python
    assert by_file.over == by_command
    assert SweepOptions.from_document(by_file.document()) == by_file


def test_options_of_a_call_replace_those_of_the_file() -> None:
    table = {"over": {"solver": {"lr": [1.0]}, "data": {"alpha": [2.0]}}, "eta": 2}
    made = SweepOptions.of(table, over={"solver.lr": [3.0]}, eta=4)
    assert [(axis.dotted, axis.values) for axis in made.over] == [
        ("solver.lr", (3.0,)),
        ("data.alpha", (2.0,)),
    ]
    assert made.eta == 4


@pytest.mark.parametrize(
    ("options", "says", "where"),
    [
        ({}, "no values to sweep over", "over"),
        ({"over": {"solver": {"lr": 0.1}}}, "must be a list of values", "over"),
        ({"over": 3}, "must be a table", "over"),
        ({"eta": 1}, "eta must be at least 2", "eta"),
        ({"jobs": 0}, "jobs must be at least 1", "jobs"),
        ({"rungs": [30, 10]}, "ascending order", "rungs"),
        ({"rungs": [0]}, "ascending order", "rungs"),
        ({"seeds": [1, 1]}, "a seed twice", "seeds"),
        ({"sedes": [1]}, "did you mean 'seeds'", "sedes"),
    ],
)
def test_a_wrong_option_is_refused_with_its_place(
    options: dict[str, Any], says: str, where: str
) -> None:
    if options and "over" not in options:
        options = {**options, "over": {"solver.lr": [1.0]}}
    with pytest.raises(InvalidOption, match=says) as caught:
        SweepOptions.of(options)
    assert caught.value.where[0] == where


def test_zip_needs_equally_many_values() -> None:
    with pytest.raises(InvalidOption, match="equally many values, not 1 and 2"):
        configurations(axes_of({"solver.lr": [1], "data.alpha": [1, 2]}), zipped=True)


def test_two_axes_of_the_same_value_are_refused() -> None:
    with pytest.raises(InvalidOption, match="change the same values"):
        configurations(axes_of({"weighting": ["exp"], "weighting.alpha": [1]}))


@pytest.mark.parametrize(
    ("over", "names"),
    [
        (
            {"solver.lr": [0.1], "data.alpha": [1, 2]},
            ["lr=0.1,alpha=1", "lr=0.1,alpha=2"],
        ),
        ({"solver.lr": [1], "server.lr": [2]}, ["solver.lr=1,server.lr=2"]),
        ({"weighting.name": ["exp", "max"]}, ["weighting=exp", "weighting=max"]),
        ({"task.model": ["mlp"]}, ["model=mlp"]),
        (
            {"weighting": [{"name": "exp", "alpha": 0.2}, "max"]},
            ["weighting=exp-alpha=0.2", "weighting=max"],
        ),
        ({"data.source": ["/a/b c.csv", "/a/b/c.csv"]}, ["source=_a_b_c.csv"] * 2),
        ({"attacks": [[], [{"name": "mimic", "clients": [1]}]]}, ["attacks=none", ""]),
    ],
)
def test_names_say_what_differs_and_are_names_of_folders(
    over: dict[str, Any], names: list[str]
) -> None:
    made = [c.name for c in configurations(axes_of(over))]
    assert len(set(made)) == len(made)
    for name, expected in zip(made, names, strict=True):
        assert name.startswith(expected)
        assert Path(name).name == name
        assert len(name) < 150


def test_a_configuration_changes_only_its_values() -> None:
    made = configured(BASE, {"solver.lr": 9.0, "server.lr": 2.0})
    assert made.table("solver") == {**BASE.table("solver"), "lr": 9.0}
    assert made.table("server") == {"name": "add", "lr": 2.0}
    for table in ("data", "task", "sampler", "run"):
        assert made.table(table) == BASE.table(table)
    assert BASE.table("solver")["lr"] == 0.1


def test_another_name_of_a_part_drops_the_options_of_the_first_one() -> None:
    sampler = configured(BASE, {"sampler.name": "full"}).table("sampler")
    assert sampler == {"name": "full"}
    same = configured(BASE, {"sampler.name": "uniform"}).table("sampler")
    assert same == BASE.table("sampler")


def test_sweep_takes_every_option_with_its_default_and_its_words() -> None:
    beside = {"experiment", "out", "observe", "stop"}
    parameters = inspect.signature(sweep).parameters
    assert set(parameters) == beside | set(OPTIONS)
    assert set(described(sweep)) == set(parameters)
    hints = get_type_hints(sweep)
    for name in set(OPTIONS) - {"over"}:
        assert parameters[name].default == OPTIONS[name].default, name
        assert described(sweep)[name] == OPTIONS[name].help
    for name in ("jobs", "zip", "metric", "eta"):
        assert hints[name] == OPTIONS[name].type


def test_the_command_and_the_table_have_every_option() -> None:
    assert set(SWEEP_KEYS) == set(OPTIONS)
    known = commands("sweep")
    for entry in entries_of(SweepOptions).values():
        assert entry.flag in known
