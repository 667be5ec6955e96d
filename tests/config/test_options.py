"""Signatures, tables, command lines, the API and forms agree with the declared options."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import tomli_w
import typer.main

import poise
from faults.support import SMALL, call
from poise.analysis.explain import explain
from poise.apps.cli.app import app
from poise.apps.experiments.unlearning_arms import REQUEST_KEYS
from poise.auditing.live import ACTIONS
from poise.config.entries import entries_of
from poise.config.experiment import TABLES, parse
from poise.config.run_options import RUN_KEYS, AuditAction, Keep, RunOptions
from poise.config.unlearn_request import METHODS, UnlearnRequest
from poise.core.errors import InvalidOption, PoiseError
from poise.core.options import options_of
from poise.core.parts import parts_of
from poise.core.slots import DEFAULTS, RUN_SLOTS
from poise.engine import Parts
from poise.ledger.retention import RULES
from poise.privacy.budget import Budget
from poise.training import compose, composed, train
from poise.unlearning.fulfilment import fulfil
from poise.unlearning.operation import unlearn
from poise.unlearning.request import Request, load

RUN, REQUEST = options_of(RunOptions), options_of(UnlearnRequest)


def commands(*path: str) -> dict[str, Any]:
    """The options of a command by their long name, as click has them."""
    found: Any = typer.main.get_command(app)
    for name in path:
        found = found.commands[name]
    return {option: one for one in found.params for option in one.opts}


def described(function: Any) -> dict[str, str]:
    """The arguments that a docstring describes, by name, on one line each."""
    doc = inspect.getdoc(function) or ""
    section = doc.partition("Args:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if not line.startswith("    "):
            break
        entry = re.match(r"    (\w+): (.*)", line)
        if entry and not line.startswith("     "):
            name = entry[1]
            found[name] = entry[2]
        else:
            found[name] += f" {line.strip()}"
    return found


# the run ------------------------------------------------------------------------------------------
# ----------

BESIDE_OPTIONS = {
    "progress",
    "federation",
    "task",
    "out",
    "attacks",
    "callbacks",
    "stop",
    "unlearning",
    "start",
}
"""Arguments of `train` that are no options of a run: data, places, functions, and the first model
itself."""


def test_train_takes_every_slot_and_every_option() -> None:
    parameters = inspect.signature(train).parameters
    assert set(parameters) == BESIDE_OPTIONS | set(RUN_SLOTS) | (set(RUN) - {"start"})


@pytest.mark.parametrize("name", sorted(set(RUN) - {"start", "metrics"}))
def test_the_signature_of_train_has_the_type_and_the_default_of_each_option(
    name: str,
) -> None:
    parameter = inspect.signature(train).parameters[name]
    assert parameter.default == RUN[name].default
    assert get_type_hints(train)[name] == RUN[name].type


@pytest.mark.parametrize("name", sorted(set(RUN) - {"start"}))
def test_the_help_of_train_has_the_words_of_each_option(name: str) -> None:
    assert described(train)[name] == RUN[name].help


def test_the_help_of_train_describes_every_argument() -> None:
    assert set(described(train)) == set(inspect.signature(train).parameters)


def test_explain_takes_arguments_of_train_with_the_same_defaults() -> None:
    asked, known = (
        inspect.signature(explain).parameters,
        inspect.signature(train).parameters,
    )
    assert set(RUN_SLOTS) <= set(asked)
    for name in set(asked) - {"estimate"}:
        assert asked[name].default == known[name].default, name


def test_the_table_run_has_a_key_for_every_option() -> None:
    assert set(RUN_KEYS) == {"seeds" if name == "seed" else name for name in RUN}
    values = {
        "rounds": 3,
        "time": 2.5,
        "evaluate_every": 2,
        "metrics": ["loss"],
        "keep": "all",
        "audit": "warn",
        "bad_updates": "drop",
        "backend": "local",
        "start": "00",
        "keep_updates": True,
        "stop_when": "accuracy >= 0.9",
        "patience": 3,
        "patience_metric": "loss",
        "max_bytes": 10**9,
        "max_seconds": 60.0,
        "seeds": [4],
    }
    assert set(values) == set(RUN_KEYS), "give a value for the new option here"
    assert RunOptions.of(values).table() == values


def test_a_table_without_a_value_for_a_default_is_the_default() -> None:
    assert RunOptions.of({"rounds": 100}) == RunOptions()
    assert RunOptions.of({"rounds": 100}, seed=7).seed == 7


def test_slots_are_those_of_the_engine_and_their_defaults_are_parts() -> None:
    assert set(RUN_SLOTS) == {field.name for field in dataclasses.fields(Parts)} - {
        "attacks"
    }
    assert set(RUN_SLOTS) < set(TABLES)
    compose(parse(SMALL), 0)  # loads the parts
    for slot, name in DEFAULTS.items():
        assert name in parts_of(slot)


@pytest.mark.parametrize(
    "slot",
    sorted(set(RUN_SLOTS) - {"solver", "sampler", "clock", "weighting", "server"}),
)
def test_a_slot_takes_parts_and_names_in_python_and_tables_in_files(slot: str) -> None:
    named = {"aggregator": "median", "channel": "top-k", "personal": "batchnorm"}[slot]
    options = {"share": 0.5} if named == "top-k" else {}
    part = parts_of(slot)[named](**options)
    file = SMALL.replace("hidden = 16", "hidden = 16\nnorm = true").replace(
        'metrics = ["client_loss"]', ""
    )
    experiment = parse(file + "\n" + tomli_w.dumps({slot: {"name": named, **options}}))
    made = compose(experiment, 0)
    assert getattr(made.parts, slot) == part
    assert compose(parse(tomli_w.dumps(made.table())), 0).parts == made.parts
    chosen = {"solver": made.parts.solver}
    fed, task = made.federation, made.task
    assert (
        getattr(composed(fed, task, {**chosen, slot: part}, made.options).parts, slot)
        == part
    )
    if not options:
        assert (
            getattr(
                composed(fed, task, {**chosen, slot: named}, made.options).parts, slot
            )
            == part
        )


def test_personal_layers_are_read_from_older_files() -> None:
    old = parse(SMALL.replace("rounds = 12", 'rounds = 12\npersonal = "batchnorm"'))
    assert compose(old, 0).parts.personal == parts_of("personal")["batchnorm"]()


def test_choices_are_those_of_the_packages_that_act_on_them() -> None:
    assert set(get_args(Keep)) == set(RULES)
    assert set(get_args(AuditAction)) == set(ACTIONS)


def test_the_command_run_has_an_option_for_every_option_of_a_run() -> None:
    known = commands("run")
    for entry in entries_of(RunOptions, without=("start",)).values():
        assert entry.flag in known
    assert commands("resume")["--rounds"].help


def test_options_of_the_command_change_the_file(tmp_path: Path) -> None:
    file = tmp_path / "exp.toml"
    file.write_text(SMALL)
    outcome = call(
        "run",
        file,
        "--rounds",
        2,
        "--keep",
        "all",
        "--metrics",
        "train_loss",
        "--keep-updates",
        "--out",
        tmp_path / "out",
        "--json",
    )
    assert outcome.code == 0, outcome
    made = poise.open_run(tmp_path / "out" / "seed-0")
    assert made.rounds == 2
    assert made.meta["keep"] == "all"
    assert "train_loss" in made.metrics
    assert "keep_updates = true" in made.experiment
    wrong = call("run", file, "--rounds", 0, "--out", tmp_path / "wrong")
    assert wrong.code == 2
    assert "run.rounds=0: rounds must be at least 1" in wrong.err


# requests to forget
# -----------------------------------------------------------------------------------------

BESIDE_REQUEST = {"progress", "run", "federation", "task", "callbacks", "stop"}


def test_unlearn_takes_every_option_of_a_request() -> None:
    parameters = inspect.signature(unlearn).parameters
    assert set(parameters) == BESIDE_REQUEST | set(REQUEST)
    for name in set(REQUEST) - {"clients"}:
        assert parameters[name].default == REQUEST[name].default, name
    hints = get_type_hints(unlearn)
    for name in set(REQUEST) - {"clients", "out", "sigma"}:  # Python also takes "plan"
        assert hints[name] == REQUEST[name].type, name


@pytest.mark.parametrize("name", sorted(REQUEST))
def test_the_help_of_unlearn_has_the_words_of_each_option(name: str) -> None:
    assert described(unlearn)[name] == REQUEST[name].help


def test_the_help_of_unlearn_describes_every_argument() -> None:
    assert set(described(unlearn)) == set(inspect.signature(unlearn).parameters)


def test_the_commands_have_every_option_of_a_request() -> None:
    entries = entries_of(UnlearnRequest)
    own = {"run", "--plan", "--json", "--client", "--erase"}
    assert set(commands("unlearn")) == {entry.flag for entry in entries.values()} | own
    deployed = set(commands("deploy", "unlearn"))
    local = set(commands("unlearn")) - {"--measure-forgotten"}
    assert deployed == local | {"--to", "--keep-nodes"}


def test_the_api_and_the_form_have_every_option_of_a_request() -> None:
    models = pytest.importorskip("poise.apps.ui.models")
    views = pytest.importorskip("poise.apps.ui.views.unlearning")
    entries = entries_of(UnlearnRequest, without=("out",))
    fields = models.RequestBody.model_fields
    assert set(fields) == set(entries)
    for key, entry in entries.items():
        assert fields[key].is_required() == entry.option.required, key
        assert entry.option.required or fields[key].default == entry.default, key
    assert [field.key for field in views.form_fields(None)] == list(entries)


def test_the_api_refuses_what_the_request_refuses() -> None:
    models = pytest.importorskip("poise.apps.ui.models")
    for wrong in (
        {"delta": 1.0},
        {"epsilon": 0.0},
        {"sigma": -1.0},
        {"min_rounds": -1},
        {"method": "magic"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            models.RequestBody(clients="3", **wrong)
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            UnlearnRequest(clients=(3,), **wrong)


def test_presets_take_every_option_but_place_and_measurement() -> None:
    assert set(REQUEST_KEYS) == set(REQUEST) - {"measure_forgotten", "out"}


def test_what_is_not_given_is_as_the_training_declared_it() -> None:
    given = {
        "clients": "3,7",
        "epsilon": None,
        "delta": 0.05,
        "seeded_noise": True,
        "heuristic": False,
    }
    made = UnlearnRequest.of(given, {"epsilon": 2.0, "delta": 0.5})
    assert (made.clients, made.epsilon, made.delta, made.sigma) == (
        (3, 7),
        2.0,
        0.05,
        0.05,
    )
    assert (made.noise, made.heuristic) == ("seeded", False)
    assert made.budget == Budget(epsilon=2.0, delta=0.05)


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    asked = UnlearnRequest(
        clients=(2, 5),
        method="last",
        target=0.8,
        epsilon=3.0,
        noise="secret",
        heuristic=True,
    )
    made = Request(asked, index=2, node=(1, 7), sigma=0.3, commitment="ab")
    made.save(tmp_path)
    again = load(tmp_path)
    assert again == made
    assert made.differences(again) == {}
    other = dataclasses.replace(
        made, options=dataclasses.replace(asked, sigma=0.9, clients=(2,))
    )
    assert other.differences(made) == {"clients": (2, 5), "sigma": 0.05}


def test_a_request_of_an_older_version_is_read(tmp_path: Path) -> None:
    old = {
        "clients": [3],
        "method": "sifu",
        "budget": {
            "epsilon": 10,
            "delta": 0.01,
            "sigma": 0.05,
            "calibration": "analytic",
            "participation": "conservative",
            "strong_convexity": None,
        },
        "target": 0.5,
        "min_rounds": 2,
        "max_rounds": 9,
        "heuristic": False,
        "noise": "seeded",
        "index": 1,
        "node": [0, 4],
        "sigma": 0.05,
        "commitment": "x",
    }
    (tmp_path / "request.json").write_text(json.dumps(old))
    made = load(tmp_path)
    assert (made.clients, made.node, made.target, made.max_rounds) == (
        (3,),
        (0, 4),
        0.5,
        9,
    )
    made.save(tmp_path)
    assert json.loads((tmp_path / "request.json").read_text()) == old, (
        "older versions can read what is written"
    )


def test_methods_of_a_request_are_named_in_its_help() -> None:
    for method in METHODS:
        assert f"``{method}``" in REQUEST["method"].help


def test_fulfil_is_what_unlearn_does() -> None:
    more = {"request", "begun"}
    assert (
        set(inspect.signature(fulfil).parameters)
        == (BESIDE_REQUEST - {"progress"}) | more
    )


# values -------------------------------------------------------------------------------------------
# ----------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"rounds": True}, "rounds must be a whole number or nothing, not True"),
        ({"rounds": 2.0}, "rounds must be a whole number"),
        ({"time": float("nan")}, "time must be above 0 and finite"),
        ({"time": 0}, "time must be above 0"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"keep": "lats"}, "did you mean 'last'"),
        ({"metrics": ("loss", 3)}, "metrics must be a list of texts"),
        ({"metrics": "loss"}, "metrics must be a list of texts"),
        ({"audit": "wran"}, "did you mean 'warn'"),
        ({"keep_updates": 1}, "keep_updates must be true or false"),
        ({"stop_when": "accuracy"}, "not of the form METRIC >= NUMBER"),
        ({"stop_when": "accuracy >= many"}, "not of the form METRIC >= NUMBER"),
        ({"stop_when": "accuracy >= nan"}, "not of the form METRIC >= NUMBER"),
        ({"stop_when": "accuracy == 1"}, "not of the form METRIC >= NUMBER"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"patience_metric": "loss"}, "patience_metric needs patience"),
        ({"max_bytes": 0}, "max_bytes must be at least 1"),
        ({"max_seconds": 0.0}, "max_seconds must be above 0"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidOption, match=says) as caught:
        RunOptions(**options)
    (name,) = options
    assert caught.value.where == (RUN[name].key,)


def test_numpy_values_become_plain_ones() -> None:
    import numpy as np

    made = RunOptions(rounds=np.int64(3), time=np.float32(2.0), seed=np.uint8(1))  # type: ignore[arg-type]
    assert [type(value) for value in (made.rounds, made.time, made.seed)] == [
        int,
        float,
        int,
    ]
    tomli_w.dumps(made.table())


def test_declared_options_load_nothing_heavy() -> None:
    code = (
        "import sys, poise.config.run_options, poise.config.unlearn_request, poise.apps.cli.app;"
        "print([name for name in ('torch', 'numpy', 'scipy', 'pydantic', 'plotly') if name in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_request_with_an_altered_key_is_refused(tmp_path: Path) -> None:
    Request(UnlearnRequest(clients=(3,), target=0.5), index=1).save(tmp_path)
    file = tmp_path / "request.json"
    whole = file.read_text()
    for key in re.findall(r'"(\w+)":', whole):
        file.write_text(whole.replace(f'"{key}":', f'"{key}x":', 1))
        with pytest.raises(PoiseError):
            load(tmp_path)
