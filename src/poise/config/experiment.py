"""Read and check experiment files; errors name the line of the wrong option."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from poise.config.lines import line_of, path_in
from poise.config.run_options import RunOptions, seeds_in
from poise.config.syntax import problem_of
from poise.core.errors import IncompatibleParts, InvalidOption, errors_at, suggest
from poise.core.objects import MODULE
from poise.core.own_code import IMPORT
from poise.core.slots import DEFAULTS, RUN_SLOTS

TABLES = (
    IMPORT,
    "data",
    "task",
    *RUN_SLOTS,
    "attacks",
    "unlearning",
    "run",
    "expected",
    "sweep",
)
"""The tables of an experiment file."""


@dataclass(frozen=True)
class Experiment:
    """The checked tables of an experiment file.

    Args:
        tables: the tables by name.
        text: the file as it was written.
        path: the file; None for a text.
        overrides: changes of single values, ``table.key=value``.
        changed_by: what made these changes, for error messages.
    """

    tables: Mapping[str, Any]
    text: str = ""
    path: Path | None = None
    overrides: tuple[str, ...] = ()
    changed_by: str = "--set"

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
            whole = len(changed) == 1 or shared > 1
            if whole and shared and changed[:shared] == where[:shared]:
                return f"{self.changed_by} {item}".strip()
            if changed[:1] == where and line_of(self.text, where) is None:
                # a table that only the command line names
                return f"{self.changed_by} {item}".strip()
        if where[:1] == ("personal",) and line_of(self.text, ("personal",)) is None:
            where = ("run", "personal")  # its place in older files
        line = line_of(self.text, where)
        file = str(self.path or "experiment")
        if line:
            return f"{file}, line {line}"
        return file


LARGEST = 2**24
"""Number of characters that poise reads of an experiment file."""


def load(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment file; ``overrides`` are ``table.key=value`` in TOML."""
    file = Path(path)
    if file.is_fifo() and not file.is_relative_to("/dev"):
        raise InvalidOption(f"{file} is a pipe", "give a file, or /dev/stdin")
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(LARGEST + 1)
    except OSError as error:
        raise InvalidOption(
            f"cannot read {file}: {error.strerror}", _other_file(file)
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidOption(
            f"{file} is not a text file in UTF-8: {error.reason}"
        ) from error
    if len(text) > LARGEST:
        raise InvalidOption(
            f"{file} is longer than {LARGEST} characters",
            "keep data in files of their own, and name them in [data]",
        )
    return parse(text, file, overrides)


def _other_file(file: Path) -> str:
    """Return which file was probably meant."""
    if file.is_dir():
        for inside in (file / "experiment.toml", file / "seed-0" / "experiment.toml"):
            if inside.exists():
                return f"the experiment of this run is {inside}"
        return "give an experiment file (.toml), not a folder"
    folder = file.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    found = {other.stem: other for other in sorted(folder.glob("*.toml"))}
    near = get_close_matches(file.stem, found, n=1)
    if near:
        return f"did you mean {found[near[0]]}?"
    return "an example: poise new my_project"


def refuse_missing_file(target: str) -> None:
    """Raise that a file is missing if a text is the name of one rather than a word."""
    file = Path(target)
    if file.suffix == ".toml" or len(file.parts) > 1:
        raise InvalidOption(f"there is no file {target}", _other_file(file))


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
        line, message, hint = problem_of(error, text)
        place = f"{path or 'experiment'}, line {line}"
        raise InvalidOption(f"{place}: {message}", hint) from error
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
        if name == IMPORT:
            _check_modules(table)
            continue
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
        if IMPORT in table:
            raise InvalidOption(
                f"import belongs to no table, but stands in [{name}]",
                "move the line to the top of the file, before the first table",
                where=(name, IMPORT),
            )
        for key, value in table.items():
            if _has_huge_integer(value):
                raise InvalidOption(
                    f"{key} has a whole number beyond 64 bits", where=(name, key)
                )


def _check_modules(given: object) -> None:
    """Raise unless a value is a list of names of modules."""
    named = isinstance(given, list) and all(
        isinstance(name, str) and MODULE.fullmatch(name) for name in given
    )
    if not named:
        raise InvalidOption(
            f"import must be a list of modules, not {given!r}",
            'for example import = ["my_package.parts"]',
            where=(IMPORT,),
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
