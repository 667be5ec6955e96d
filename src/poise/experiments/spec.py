"""Experiment files: TOML in, checked tables out, with the line of what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.core.errors import InvalidOption, PoiseError, suggest

SLOTS = ("solver", "sampler", "clock", "weighting", "server")
TABLES = ("data", "task", *SLOTS, "attacks", "unlearning", "run", "expected")
RUN_KEYS = (
    "rounds", "time", "seeds", "evaluate_every", "metrics", "backend", "keep", "bad_updates", "personal",
    "start", "keep_updates", "audit",
)  # fmt: skip
DEFAULTS = {
    "sampler": {"name": "full"},
    "clock": {"name": "synchronous"},
    "weighting": {"name": "proportional"},
    "server": {"name": "add"},
}


@dataclass(frozen=True)
class Experiment:
    """The checked tables of an experiment file."""

    tables: Mapping[str, Any]
    text: str = ""
    path: Path | None = None
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Short name, from the file."""
        return self.path.stem if self.path is not None else "experiment"

    @property
    def seeds(self) -> list[int]:
        """The seeds to run."""
        return list(self.tables["run"].get("seeds", [0]))

    def table(self, name: str) -> dict[str, Any]:
        """A table, or what stands for it where the file leaves it out."""
        return dict(self.tables.get(name, DEFAULTS.get(name, {})))

    def locate(self, error: PoiseError, table: str) -> PoiseError:
        """The same error with the file, and the line of the key that it speaks of."""
        words = spoken_of(error.message)
        for item in self.overrides:
            if item.partition("=")[0].strip() in {f"{table}.{word}" for word in words}:
                return type(error)(f"--set {item}: {error.message}", error.hint)
        line = line_of(self.text, table, words)
        where = f"{self.path or 'experiment'}{f', line {line}' if line else ''}"
        return type(error)(f"{where}: {error.message}", error.hint)


def load(path: str | Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment file; ``overrides`` are ``table.key=value`` with TOML values."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOption(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{file} is not a text file in UTF-8: {error.reason}") from error
    return parse(text, file, overrides)


def parse(text: str, path: Path | None = None, overrides: Iterable[str] = ()) -> Experiment:
    r"""Check the text of an experiment file.

    >>> parse("[data]\nsource='digits'\n[run]\nrounds=1\n[smapler]\nname='full'")
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: experiment, line 5: unknown table [smapler] (did you mean 'sampler'?)
    """
    where = str(path or "experiment")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidOption(f"{where}: {error}") from error
    changes = tuple(overrides)
    for item in changes:
        _override(tables, item)
    for name in tables:
        if name not in TABLES:
            raise InvalidOption(f"{_at(where, text, name)}: unknown table [{name}]", suggest(name, TABLES))
        kind = list if name == "attacks" else dict
        if not isinstance(tables[name], kind):
            wanted = "an array of tables [[attacks]]" if kind is list else f"a table [{name}]"
            raise InvalidOption(f"{_at(where, text, name)}: {name} must be {wanted}")
        for key, value in tables[name].items() if kind is dict else ():
            if _beyond(value):
                raise InvalidOption(f"{_at(where, text, name, key)}: {key} has a whole number beyond 64 bits")
    tables.setdefault("run", {})
    _check_run(tables["run"], where, text)
    return Experiment(tables, text, path, changes)


def _beyond(value: Any) -> bool:
    """Whether a whole number in this value is larger than a machine's."""
    if isinstance(value, dict | list):
        return any(_beyond(v) for v in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _check_run(run: Mapping[str, Any], where: str, text: str) -> None:
    for key, value in run.items():
        place = _at(where, text, "run", key)
        if key not in RUN_KEYS:
            raise InvalidOption(f"{place}: [run] has no key {key!r}", suggest(key, RUN_KEYS))
        whole = isinstance(value, int) and not isinstance(value, bool)
        if key in ("rounds", "evaluate_every") and not whole:
            raise InvalidOption(f"{place}: {key} must be a whole number, not {value!r}")
        if key == "time" and not (whole or isinstance(value, float)):
            raise InvalidOption(f"{place}: time must be a number, not {value!r}")
        if key == "seeds" and not (isinstance(value, list) and value and all(type(s) is int and s >= 0 for s in value)):
            raise InvalidOption(f"{place}: seeds must be a list of whole numbers, for example [0, 1, 2]")
        if key == "seeds" and len(set(value)) < len(value):
            raise InvalidOption(f"{place}: seeds has the same seed twice", "the same seed gives the same run")
        if key == "metrics" and not (isinstance(value, list) and all(isinstance(m, str) for m in value)):
            raise InvalidOption(f'{place}: metrics must be a list of names, for example ["client_loss"]')
    if "rounds" not in run and "time" not in run:
        raise InvalidOption(f"{_at(where, text, 'run')}: the run has no end", "give rounds or time under [run]")


def spoken_of(message: str) -> list[str]:
    """The words of a message that may be a key or a value of the file, the likeliest first.

    >>> spoken_of("partition 'dirichlet': alpha must be positive")
    ['dirichlet', 'alpha', 'partition', 'must', 'be', 'positive']
    """
    quoted = re.findall(r"'([\w-]+)'", message)
    subjects = re.findall(r"(?<![\w-])([a-z_]+) (?:must|=|-?\d|is|has|\[)", message)
    return list(dict.fromkeys([*quoted, *subjects, *re.findall(r"(?<![\w'-])[a-z_]+(?![\w'-])", message)]))


def line_of(text: str, table: str, words: Iterable[str] = ()) -> int | None:
    """The line, inside a table, of the first word that is a key or a text there; else of the table's header."""
    header = None
    inside = False
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            inside = bool(re.match(rf"\[\[?\s*{re.escape(table)}\s*(\.|\])", stripped))
            header = number if inside and header is None else header
        elif inside:
            lines.append((number, stripped))
        elif re.match(rf"{re.escape(table)}\s*[=.]", stripped):
            return number
    wanted = [re.escape(word) for word in words]
    for pattern in (r"[\"']?{}[\"']?\s*[=.]", r".*=.*[\"']{}[\"']"):  # as a key, then as a text
        for word in wanted:
            for number, line in lines:
                if re.match(pattern.format(word), line):
                    return number
    return header


def _at(where: str, text: str, table: str, key: str = "") -> str:
    line = line_of(text, table, [key] if key else [])
    return f"{where}, line {line}" if line else where


def _override(tables: dict[str, Any], item: str) -> None:
    """``solver.lr=0.1`` into the tables."""
    key, equals, value = item.partition("=")
    table, dot, option = key.strip().partition(".")
    if not equals or not dot or not option:
        raise InvalidOption(f"--set {item!r} is not of the form table.key=value", "for example --set solver.lr=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a text
    target = tables.setdefault(table, {})
    *path, last = option.split(".")
    for step in path:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target
    if not isinstance(target, dict):
        raise InvalidOption(f"--set {item!r}: there is no table {key.strip().rpartition('.')[0]!r} to change")
    target[last] = parsed
