"""Experiment files: what is written is what is read, for every part."""

from __future__ import annotations

import contextlib
import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

import poise
from faults.support import SMALL, changed
from poise.apps.experiments.runner import folders_in, run_experiment, runs_in
from poise.clocks import Synchronous
from poise.config.experiment import load, parse
from poise.config.lines import line_of
from poise.core.errors import InvalidOption
from poise.core.parts import build, describe
from poise.samplers import Full, Uniform
from poise.servers import Add
from poise.solvers import SGD
from poise.training import compose

positive = st.floats(1e-6, 1e6, allow_nan=False)
solvers = st.builds(
    SGD,
    lr=positive,
    epochs=st.integers(1, 50),
    batch_size=st.none() | st.integers(1, 999),
    momentum=st.floats(0, 0.99),
    weight_decay=st.floats(0, 1),
    clip=st.none() | positive,
    decay=st.floats(0.1, 1.0),
)
samplers = st.builds(Full) | st.builds(Uniform, m=st.integers(1, 10))
clocks = st.builds(
    Synchronous,
    durations=st.none() | st.just("F80") | st.lists(positive, min_size=10, max_size=10),
)
servers = st.builds(Add, lr=positive)
run_tables = st.fixed_dictionaries(
    {"rounds": st.integers(1, 1000)},
    optional={
        "evaluate_every": st.integers(1, 9),
        "keep": st.sampled_from(["all", "last", "unlearnable"]),
        "bad_updates": st.sampled_from(["stop", "drop"]),
        "metrics": st.just(["client_loss"]),
        "seeds": st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True),
        "backend": st.just("local")
        | st.builds(lambda w: {"name": "local", "workers": w}, st.integers(1, 4)),
    },
)


def through_toml(table: dict[str, Any]) -> dict[str, Any]:
    return tomllib.loads(tomli_w.dumps(table))


@settings(max_examples=60)
@given(part=solvers | samplers | clocks | servers)
def test_a_part_is_made_again_from_its_table(part: Any) -> None:
    table = through_toml(describe(part))
    again = build(part.slot, table)
    assert type(again) is type(part)
    assert describe(again) == describe(part)
    for field in dataclasses.fields(part):
        one, other = getattr(part, field.name), getattr(again, field.name)
        assert (
            tuple(one) == tuple(other)
            if isinstance(one, list | tuple)
            else one == other
        )


@pytest.fixture(scope="module")
def digits() -> Any:
    return poise.federation(
        "digits", "dirichlet", clients=10, alpha=0.3, samples=300, seed=0
    )


@settings(max_examples=40)
@given(solver=solvers, sampler=samplers, clock=clocks, server=servers, run=run_tables)
def test_an_experiment_is_composed_again_from_its_file(
    solver: Any, sampler: Any, clock: Any, server: Any, run: dict[str, Any], digits: Any
) -> None:
    """Composition -> table -> TOML -> composition gives equal parts, and the text is a fixed
    point."""
    made = {"solver": solver, "sampler": sampler, "clock": clock, "server": server}
    first = {
        "task": {"model": "mlp", "hidden": 16},
        "run": run,
        **{slot: describe(p) for slot, p in made.items()},
    }
    experiment = parse(tomli_w.dumps(first))
    one = compose(experiment, experiment.seeds[-1], federation=digits)
    text = tomli_w.dumps(one.table())
    two = compose(parse(text), parse(text).seeds[0], federation=digits)
    assert {slot: describe(getattr(two.parts, slot)) for slot in made} == {
        s: describe(p) for s, p in made.items()
    }
    assert tomli_w.dumps(two.table()) == text
    assert one.options == two.options
    assert one.task == two.task


def test_the_data_are_dealt_again_as_they_were() -> None:
    one = compose(parse(SMALL), 3)
    text = tomli_w.dumps(one.table())
    two = compose(parse(text), 3)
    assert one.federation.digest() == two.federation.digest()
    assert one.federation.seed == 3, (
        "without a seed under [data], every seed of the run deals anew"
    )
    fixed = compose(parse(changed("clients = 10", "clients = 10\nseed = 7")), 3)
    assert fixed.federation.seed == 7


def test_the_shipped_experiments_compose() -> None:
    files = sorted((Path(poise.__file__).parent / "config" / "presets").rglob("*.toml"))
    assert files
    for file in files:
        if file.parent.name == "demo":
            compose(load(file), 0)


def test_every_seed_runs_into_its_folder(tmp_path: Path) -> None:
    experiment = parse(changed("rounds = 12", "rounds = 2\nseeds = [4, 11, 2]"))
    runs = run_experiment(experiment, tmp_path)
    assert [int(r.meta["seed"]) for r in runs] == [4, 11, 2]
    assert [p.name for p in folders_in(tmp_path)] == ["seed-2", "seed-4", "seed-11"], (
        "in the order of numbers"
    )
    assert [r.digest for r in runs_in(tmp_path)] == [
        runs[2].digest,
        runs[0].digest,
        runs[1].digest,
    ]
    for run in runs:
        assert f"    {run.meta['seed']},\n" in run.experiment, (
            "the file of a run names its own seed only"
        )


def test_runs_in_memory_leave_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = run_experiment(parse(changed("rounds = 12", "rounds = 2")), None)
    assert run.path is None
    assert run.rounds == 2
    assert not list(tmp_path.iterdir())


def test_a_failing_composition_begins_no_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        run_experiment(parse(changed("lr = 0.1", "lr = -1")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_overrides_reach_nested_tables() -> None:
    made = parse(
        SMALL,
        overrides=[
            "run.backend.name=local",
            "run.backend.workers=2",
            "data.corruption.rate=0.5",
        ],
    )
    assert made.tables["run"]["backend"] == {"name": "local", "workers": 2}
    assert made.tables["data"]["corruption"] == {"rate": 0.5}


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("solver", "lr"), 3),
        (("solver", "nothing"), 2),
        (("sampler", "m"), 7),
        (("sampler", "times"), 8),
        (("sampler", "d"), 12),
        (("attacks", "0", "name"), 14),
        (("attacks", "1", "name"), 17),
        (("attacks", "1", "clients"), 16),
        (("attacks", "2"), 13),
        (("run", "backend", "name"), 20),
        (("run", "backend", "workers"), 19),
        (("run", "keep"), 18),
        (("task",), None),
        ((), None),
    ],
)
def test_lines_are_found_from_where(where: tuple[str, ...], line: int | None) -> None:
    text = """lr = 1
[solver]
lr = 0.1
name = "sgd" # [run]

[ sampler ]
"m" = 3
times = [
  [1, 2], # m = 7
  ["d = 3"],
]
d = 4
[[attacks]]
name = "mimic"

[[attacks]]
name = "free-rider"
[run]
[run.backend]
name = "local"
"""
    assert line_of(text, where) == line


def test_lines_after_a_long_text_are_found() -> None:
    text = '[task]\nnote = """\n[run]\nmodel = 3 [\n"""\nmodel = "mlp"\n[run]\nrounds = 3\n'
    assert line_of(text, ("task", "model")) == 6
    assert line_of(text, ("run", "rounds")) == 8


@settings(max_examples=100)
@given(text=st.text(max_size=200) | st.text(alphabet='[]=".#\n abrun{}', max_size=80))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidOption):
        assert parse(text).seeds
