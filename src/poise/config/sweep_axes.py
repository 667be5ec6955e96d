"""The axes of a sweep: keys of an experiment file, each with a list of values."""

from __future__ import annotations

import copy
import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poise.config.experiment import TABLES, Experiment
from poise.config.lines import path_in
from poise.core.errors import ELSEWHERE, InvalidOption, suggest
from poise.core.own_code import IMPORT
from poise.core.slots import DEFAULTS, RUN_SLOTS

NOT_SWEPT = (IMPORT, "expected", "sweep")
"""The tables of an experiment file that no axis changes."""

HEADINGS = {"task": "model", "data": "source", **dict.fromkeys(RUN_SLOTS, "name")}
"""The key that a text stands for where a whole table is swept."""

LONGEST_NAME = 120
"""The largest number of characters in the name of a configuration."""

OPENING = "[{("
CLOSING = "]})"


@dataclass(frozen=True)
class Axis:
    """One key of an experiment file and its values in a sweep.

    Args:
        key: the path of the key: ``("solver", "lr")``, or ``("weighting",)`` for a
            whole table.
        values: the values, in order.
    """

    key: tuple[str, ...]
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        where = ("over", *self.key)
        known = [name for name in TABLES if name not in NOT_SWEPT]
        table = next(iter(self.key), "")
        if table not in known:
            raise InvalidOption(
                f"cannot sweep over {self.dotted!r}: there is no table [{table}]",
                _meant(self.key) or suggest(table, known),
                where=where,
            )
        if self.key[:2] in (("run", "seeds"), ("run", "seed")):
            raise InvalidOption(
                "cannot sweep over run.seeds: every configuration runs with the same seeds",
                "name them with seeds: --seeds 0..2, or seeds = [0, 1, 2] under [run]",
                where=where,
            )
        if not self.values:
            raise InvalidOption(
                f"{self.dotted} has no values to sweep over",
                f"for example {self.dotted} = [0.01, 0.1]",
                where=where,
            )
        texts = [json.dumps(value, sort_keys=True) for value in self.values]
        repeated = next((text for text, n in Counter(texts).items() if n > 1), None)
        if repeated is not None:
            raise InvalidOption(
                f"{self.dotted} has the value {repeated} twice",
                "name every value once",
                where=where,
            )

    @property
    def dotted(self) -> str:
        """The key as it is written: ``solver.lr``."""
        return ".".join(self.key)


USUAL = {
    "solver": ("lr", "steps", "epochs", "batch_size", "momentum", "weight_decay"),
    "data": ("alpha", "kappa", "clients"),
    "sampler": ("m",),
    "run": ("rounds",),
}
"""Options that users sweep most, by table."""


def _meant(key: tuple[str, ...]) -> str:
    """Return a hint for a key that is an option without its table; else nothing.

    >>> _meant(("lr",)), _meant(("learning_rate",)), _meant(("solvr", "lr"))
    ("did you mean 'solver.lr'?", "did you mean 'solver.lr'?", '')
    """
    if len(key) != 1:
        return ""
    names = (key[0].lower(), *ELSEWHERE.get(key[0].lower(), ()))
    for table, options in USUAL.items():
        for name in names:
            if name in options:
                return f"did you mean '{table}.{name}'?"
    return ""


@dataclass(frozen=True)
class Configuration:
    """One choice of values of a sweep.

    Args:
        name: what differs from the other configurations: its folder and its label.
        settings: the values, by dotted key.
    """

    name: str
    settings: Mapping[str, Any]


def parse_axis(text: str) -> Axis:
    """Return the axis of a text such as ``solver.lr=0.01,0.1``.

    Values are those of TOML; commas separate them. A bare word is a text.

    >>> parse_axis("weighting=proportional,{name='exp',alpha=0.2}").values
    ('proportional', {'name': 'exp', 'alpha': 0.2})
    """
    key, equals, values = text.partition("=")
    path = path_in(key)
    if not equals or not path:
        raise InvalidOption(
            f"--over {text!r} is not of the form table.key=value,value",
            "for example --over solver.lr=0.01,0.1",
        )
    return Axis(path, tuple(_parse_value(value) for value in _split(values)))


def _split(text: str) -> list[str]:
    """Split a text at its commas, but not inside brackets and quotes."""
    parts = [""]
    depth = 0
    quote = ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in OPENING:
            depth += 1
        elif sign in CLOSING:
            depth -= 1
        if sign == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        if text[0] in "[{\"'":
            raise InvalidOption(
                f"--over: {text} is no value of TOML: {error}",
                "write texts in quotes, for example {name='exp', alpha=0.2}",
            ) from error
        return text  # a bare word is a text


def axes_of(over: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes of a table: ``{"solver": {"lr": [0.01, 0.1]}}`` or dotted keys.

    >>> [axis.dotted for axis in axes_of({"solver.lr": [1, 2], "data": {"alpha": [1]}})]
    ['solver.lr', 'data.alpha']
    """
    return tuple(_axes_in(over, ()))


def _axes_in(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Axis]:
    for key, value in table.items():
        inner = (*path, *(path_in(key) or (key,)))
        if isinstance(value, Mapping):
            yield from _axes_in(value, inner)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield Axis(inner, tuple(value))
        else:
            raise InvalidOption(
                f"{'.'.join(inner)} must be a list of values, not {value!r}",
                f"for example {'.'.join(inner)} = [{value!r}]",
                where=("over", *inner),
            )


def configurations(
    axes: Sequence[Axis], *, zipped: bool = False
) -> tuple[Configuration, ...]:
    """Return every combination of the values; with ``zipped``, the k-th of all axes.

    >>> axes = axes_of({"solver.lr": [0.1, 1.0], "data.alpha": [1, 2]})
    >>> [configuration.name for configuration in configurations(axes)]
    ['lr=0.1,alpha=1', 'lr=0.1,alpha=2', 'lr=1.0,alpha=1', 'lr=1.0,alpha=2']
    >>> [configuration.name for configuration in configurations(axes, zipped=True)]
    ['lr=0.1,alpha=1', 'lr=1.0,alpha=2']
    """
    _refuse_overlap(axes)
    lengths = sorted({len(axis.values) for axis in axes})
    if zipped and len(lengths) > 1:
        raise InvalidOption(
            f"zip needs axes with equally many values, not {lengths[0]} and {lengths[-1]}",
            "leave zip out to run every combination",
            where=("zip",),
        )
    columns = [axis.values for axis in axes]
    rows = zip(*columns, strict=True) if zipped else itertools.product(*columns)
    labels = _labels(axes)
    made: dict[str, Configuration] = {}
    for row in rows:
        pairs = zip(labels, row, strict=True)
        name = _file_name(",".join(f"{label}={text_of(v)}" for label, v in pairs))
        unique = name
        number = 2
        while unique in made:
            unique = f"{name}-{number}"
            number += 1
        settings = {axis.dotted: v for axis, v in zip(axes, row, strict=True)}
        made[unique] = Configuration(unique, settings)
    return tuple(made.values())


def _refuse_overlap(axes: Sequence[Axis]) -> None:
    """Raise if two axes change the same value."""
    for first, second in itertools.combinations(axes, 2):
        shared = min(len(first.key), len(second.key))
        if first.key[:shared] == second.key[:shared]:
            raise InvalidOption(
                f"two axes change the same values: {first.dotted} and {second.dotted}",
                "write whole tables, for example weighting = [{name = 'exp', alpha = 0.2}]",
                where=("over", *second.key),
            )


def _labels(axes: Sequence[Axis]) -> list[str]:
    """Return a short name for each axis: the last part of its key where that is clear."""
    short = []
    for axis in axes:
        heading = len(axis.key) == 2 and axis.key[1] == HEADINGS.get(axis.key[0])
        word = axis.key[-1]
        if heading and axis.key[1] == "name":
            word = axis.key[0]
        short.append(word)
    count = Counter(short)
    return [
        word if count[word] == 1 else axis.dotted
        for word, axis in zip(short, axes, strict=True)
    ]


def text_of(value: object) -> str:
    """Return a value as it appears in the name of a configuration.

    >>> text_of({"name": "exp", "alpha": 0.2}), text_of([50, 20]), text_of(True)
    ('exp-alpha=0.2', '50-20', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        head = [text_of(v) for k, v in value.items() if k in HEADINGS.values()]
        rest = [
            f"{k}={text_of(v)}" for k, v in value.items() if k not in HEADINGS.values()
        ]
        return "-".join([*head, *rest]) or "none"
    if isinstance(value, list | tuple):
        return "-".join(text_of(item) for item in value) or "none"
    return str(value)


def inline_table(table: Mapping[str, Any]) -> str:
    """Return a table as a value of ``--over``.

    >>> inline_table({"name": "md", "m": 5})
    "{name='md',m=5}"
    """
    pairs = [f"{key}={_inline(value)}" for key, value in table.items()]
    return f"{{{','.join(pairs)}}}"


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return inline_table(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_inline, value))}]"
    if isinstance(value, str):
        return f"'{value}'"
    return json.dumps(value)


def _file_name(name: str) -> str:
    """Return a text without signs that shells and file systems treat in their own way."""
    safe = re.sub(r"[^\w.,=+-]+", "_", name)
    return safe[:LONGEST_NAME].strip("._") or "configuration"


def configured(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment of one configuration."""
    tables = copy.deepcopy(dict(experiment.tables))
    tables.pop("sweep", None)
    for dotted, value in settings.items():
        _set(tables, path_in(dotted), copy.deepcopy(value))
    changes = (f"{key}={text_of(value)}" for key, value in settings.items())
    return Experiment(
        tables,
        text=experiment.text,
        path=experiment.path,
        overrides=(*changes, *experiment.overrides),
        changed_by="",
    )


def _set(tables: dict[str, Any], path: Iterable[str], value: object) -> None:
    """Write one value of a sweep into the tables of an experiment."""
    slot, *inner = path
    heading = HEADINGS.get(slot)
    if not inner:
        is_name = heading is not None and isinstance(value, str)
        tables[slot] = {heading: value} if is_name else value
        return
    part = dict(tables.get(slot, {"name": DEFAULTS[slot]} if slot in DEFAULTS else {}))
    if slot in RUN_SLOTS and inner == ["name"] and part.get("name") != value:
        part = {}  # the options of the file are those of another part
    tables[slot] = part
    for step in inner[:-1]:
        following = part.get(step)
        if following is None:
            following = {}
        if not isinstance(following, dict):
            raise InvalidOption(
                f"cannot sweep over {'.'.join((slot, *inner))}: {step} is no table",
                where=("over", slot, *inner),
            )
        part[step] = following
        part = following
    part[inner[-1]] = value
