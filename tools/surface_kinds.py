"""The parts of the public surface that can be read without running anything."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import click
import typer.main

from poise.apps.cli.app import app
from poise.apps.experiments.unlearning_arms import REQUEST_KEYS
from poise.config.experiment import TABLES
from poise.config.run_options import RunOptions
from poise.config.sweep_options import SweepOptions
from poise.core.options import describe_type, options_of
from poise.core.parts import SLOTS, parts_of
from poise.data import federation
from poise.data.corruptions import CORRUPTIONS
from poise.data.partitions import PARTITIONS
from poise.data.populations import POPULATIONS
from poise.data.sources import SOURCES
from poise.ledger import schema
from poise.metrics.named import NAMED
from poise.privacy.budget import UnlearningPlan
from poise.tasks import Task, ridge
from poise.tasks.losses import LOSSES, METRICS
from poise.tasks.models import MODELS

Items = dict[str, str]


def python() -> Items:
    """Names of the reference with their parameters, methods and properties."""
    import reference  # beside this file; found where a script or a test needs it

    found: Items = {}
    seen: set[int] = set()
    for module_name in reference.importable():
        module = importlib.import_module(module_name)
        for name in reference.public_names(module):
            value = getattr(module, name)
            found[f"{module_name}.{name}"] = _kind(value)
            if id(value) not in seen:
                seen.add(id(value))
                found.update(_inside(f"{module_name}.{name}", value))
    return found


def _kind(value: object) -> str:
    if inspect.ismodule(value):
        return "module"
    if inspect.isclass(value):
        return "class"
    if callable(value):
        return "function"
    return "value"


def _inside(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Parameters of a function or class, and the members of a class."""
    is_protocol = bool(getattr(value, "_is_protocol", False))
    if not inspect.ismodule(value) and callable(value) and not is_protocol:
        yield from _parameters(name, value)
    if inspect.isclass(value) and not _is_part(value):
        for member, target in _members(value):
            if inspect.isfunction(target):
                yield f"{name}.{member}", "method"
                yield from _parameters(f"{name}.{member}", target)
            else:
                yield f"{name}.{member}", "property"


def _is_part(cls: type) -> bool:
    """Whether a class is a part, whose methods are those of its slot's protocol."""
    return dataclasses.is_dataclass(cls) and hasattr(cls, "slot")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that poise's own classes define.

    Fields of dataclasses are parameters, too, and are listed as such.
    """
    owners = [each for each in reversed(cls.__mro__) if _is_ours(each.__module__)]
    found = {name: value for each in owners for name, value in vars(each).items()}
    fields = getattr(cls, "__dataclass_fields__", {})
    for name, value in found.items():
        target = getattr(value, "__func__", value)
        known = isinstance(target, property | cached_property)
        known = known or inspect.isfunction(target)
        if known and not name.startswith("_") and name not in fields:
            yield name, target


def _is_ours(module: str) -> bool:
    return module == "poise" or module.startswith("poise.")


def _parameters(name: str, taker: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    try:
        parameters = inspect.signature(taker).parameters.values()
    except (TypeError, ValueError):
        return
    for parameter in parameters:
        if parameter.name not in ("self", "cls"):
            yield f"{name}({parameter.name})", _default(parameter.default)


def _default(value: object) -> str:
    """A default as text that is the same in every process."""
    if value in (inspect.Parameter.empty, dataclasses.MISSING):
        return "required"
    if inspect.isfunction(value):
        return value.__name__
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def files() -> Items:
    """Tables and keys of experiment files, parts with their options."""
    found = {f"[{table}]": "table" for table in TABLES}
    for table, options in (
        ("run", RunOptions),
        ("sweep", SweepOptions),
        ("unlearning", UnlearningPlan),
    ):
        for declared in options_of(options).values():
            kind = describe_type(declared.type)
            found[f"[{table}] {declared.key}"] = f"{kind}, {_default(declared.default)}"
    found |= {f"[requests] {key}": "key of presets" for key in REQUEST_KEYS}
    found.update(_taken("[data]", federation))
    found.update(_taken("[task]", Task))
    for slot in SLOTS:
        for name, cls in sorted(parts_of(slot).items()):
            if _is_ours(cls.__module__):
                found[f"[{slot}] name = {name}"] = "part"
                found.update(_taken(f"[{slot}] name = {name}:", cls))
    makers: Mapping[str, Mapping[str, Callable[..., Any]]] = {
        "[data] source": SOURCES,
        "[data] partition": PARTITIONS,
        "[data] population": POPULATIONS,
        "[data] corruption": CORRUPTIONS,
        "[task] model": {**MODELS, "ridge": ridge},
    }
    for key, register in makers.items():
        for name in sorted(register):
            found[f"{key} = {name}"] = "name"
            found.update(_taken(f"{key} = {name}:", register[name]))
    found |= {f"[task] loss = {name}": "name" for name in LOSSES}
    found |= {f"[task] metrics = {name}": "name" for name in {**METRICS, **NAMED}}
    return found


def _taken(prefix: str, taker: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """The options that a class or function takes by name."""
    for parameter in inspect.signature(taker).parameters.values():
        named = parameter.kind in (
            parameter.KEYWORD_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        if named:
            yield f"{prefix} {parameter.name}", _default(parameter.default)


def commands() -> Items:
    """Verbs of the command line, with arguments and options."""
    return dict(_commands("poise", typer.main.get_command(app)))


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, str]]:
    yield path, "command"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for spelling in (*parameter.opts, *parameter.secondary_opts):
                yield f"{path} {spelling}", f"option of type {parameter.type.name}"
        else:
            yield f"{path} {parameter.human_readable_name}", "argument"
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from _commands(f"{path} {name}", inner)


def ledger() -> Items:
    """The schema of ``ledger.sqlite``: version, tables and columns."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema.TABLES)
    found = {
        "schema version": str(schema.VERSION),
        "schema versions read": ", ".join(map(str, schema.READABLE)),
    }
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    for (table,) in connection.execute(query).fetchall():
        found[table] = "table"
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})"):
            found[f"{table}.{column}"] = kind
    connection.close()
    return found
