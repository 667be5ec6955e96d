"""Read and check experiment files; errors name the line of the wrong option."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.config.lines import line_of, path_in
from poise.config.run_options import RunOptions, seeds_in
from poise.core.errors import IncompatibleParts, InvalidOption, errors_at, suggest
from poise.core.slots import DEFAULTS, RUN_SLOTS

TABLES = ("data", "task", *RUN_SLOTS, "attacks", "unlearning", "run", "expected")
"""The tables of an experiment file."""


@dataclass(frozen=True)
class Experiment:
    """The checked tables of an experiment file.

    Args:
        tables: the tables by name.
        text: the file as it was written.
        path: the file; None for a text.
        overrides: changes of single values on the command line, ``table.key=value``.
    """

    tables: Mapping[str, Any]
    text: str = ""
    path: Path | None = None
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A short name, from the file."""
        if self.path is not None:
            return self.path.stem
        return "experiment"

    @property
    def seeds(self) -> list[int]:
        """The seeds to run."""
        return seeds_in(self.tables["run"])

    def table(self, name: str) -> dict[str, Any]:
        """Return a table; for a slot without a table, that of its default part."""
        if name in self.tables:
            return dict(self.tables[name])
        if name in DEFAULTS:
            return {"name": DEFAULTS[name]}
        return {}

    @contextmanager
    def located(self) -> Iterator[None]:
        """Prefix errors inside the block with file and line of the wrong option."""
        try:
            yield
        except (InvalidOption, IncompatibleParts) as error:
            message = f"{self.place_of(error.where)}: {error.message}"
            raise type(error)(message, error.hint, where=error.where) from error

    def place_of(self, where: tuple[str, ...]) -> str:
        """Return where an option was written: command line, or file and line."""
        for item in self.overrides:
            changed = path_in(item.partition("=")[0])
            shared = min(len(changed), len(where))
            if shared > 1 and changed[:shared] == where[:shared]:
                return f"--set {item}"
        if where[:1] == ("personal",) and line_of(self.text, ("personal",)) is None:
            where = ("run", "personal")  # its place in older files
        line = line_of(self.text, where)
        file = str(self.path or "experiment")
        if line:
            return f"{file}, line {line}"
        return file


def load(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment file; ``overrides`` are ``table.key=value`` in TOML."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(
            f"{file} is not a text file in UTF-8: {error.reason}"
        ) from error
    return parse(text, file, overrides)


def parse(
    text: str, path: Path | None = None, overrides: Iterable[str] = ()
) -> Experiment:
    r"""Check the text of an experiment file.

    >>> parse("[data]\nsource='digits'\n[run]\nrounds=1\n[smapler]\nname='full'")
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: experiment, line 5: unknown table [smapler] (did you mean
    'sampler'?)
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"{path or 'experiment'}: {error}") from error
    changes = tuple(overrides)
    for item in changes:
        _override(tables, item)
    tables = migrated(tables)
    experiment = Experiment(tables, text=text, path=path, overrides=changes)
    with experiment.located():
        _check_tables(tables)
        tables.setdefault("run", {})
        with errors_at("run"):
            RunOptions.of(tables["run"])
    return experiment


def migrated(tables: dict[str, Any]) -> dict[str, Any]:
    """Convert tables of older files: ``[run] personal = "batchnorm"`` to [personal]."""
    run = tables.get("run")
    if not isinstance(run, dict) or "personal" not in run or "personal" in tables:
        return tables
    kept = {key: value for key, value in run.items() if key != "personal"}
    return {**tables, "run": kept, "personal": {"name": run["personal"]}}


def _check_tables(tables: Mapping[str, Any]) -> None:
    """Raise for unknown tables, values in their place, and integers beyond 64 bits."""
    for name, table in tables.items():
        if name not in TABLES:
            raise InvalidOption(
                f"unknown table [{name}]", suggest(name, TABLES), where=(name,)
            )
        if name == "attacks":
            if not isinstance(table, list) or not all(
                isinstance(entry, dict) for entry in table
            ):
                raise InvalidOption(
                    "attacks must be an array of tables [[attacks]]", where=(name,)
                )
            continue
        if not isinstance(table, dict):
            raise InvalidOption(f"{name} must be a table [{name}]", where=(name,))
        for key, value in table.items():
            if _has_huge_integer(value):
                raise InvalidOption(
                    f"{key} has a whole number beyond 64 bits", where=(name, key)
                )


def _has_huge_integer(value: object) -> bool:
    """Return whether a value contains an integer beyond 64 bits."""
    if isinstance(value, dict):
        return any(_has_huge_integer(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_huge_integer(item) for item in value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _override(tables: dict[str, Any], item: str) -> None:
    """Write an override such as ``solver.lr=0.1`` into the tables."""
    key, equals, value = item.partition("=")
    table, dot, option = key.strip().partition(".")
    if not equals or not dot or not option:
        raise InvalidOption(
            f"--set {item!r} is not of the form table.key=value",
            "for example --set solver.lr=0.1",
        )
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a text
    target = tables.setdefault(table, {})
    *path, last = option.split(".")
    for step in path:
        if isinstance(target, dict):
            target = target.setdefault(step, {})
    if not isinstance(target, dict):
        raise InvalidOption(
            f"--set {item!r}: there is no table {key.strip().rpartition('.')[0]!r} to "
            "change"
        )
    target[last] = parsed
