"""Parts are frozen dataclasses, and they are the configuration.

``@part("sampler", "uniform")`` makes a class a frozen dataclass whose values are checked against its
annotations, and puts it under its name in the register of its slot. `build` makes a part from a table of an
experiment file and refuses unknown keys by naming the nearest known one; `describe` is its inverse.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import numpy as np

from poise.core.errors import InvalidOption, suggest

T = TypeVar("T")

SLOTS = ("solver", "sampler", "clock", "weighting", "server", "attack", "backend", "durations")

_register: dict[str, dict[str, type]] = {slot: {} for slot in SLOTS}


@dataclass_transform(frozen_default=True)
def part(slot: str, name: str) -> Callable[[type[T]], type[T]]:
    """Declare a class to be the part ``name`` of a slot."""

    def declare(cls: type[T]) -> type[T]:
        check_values = getattr(cls, "__post_init__", None)

        def check(self: Any) -> None:
            for f in dataclasses.fields(self):  # values that can be compared, hashed and never changed
                object.__setattr__(self, f.name, _frozen(getattr(self, f.name)))
            _check_types(self)
            if check_values is not None:
                check_values(self)

        cls.__post_init__ = check  # type: ignore[attr-defined]
        made = dataclasses.dataclass(frozen=True)(cls)
        made.slot, made.name = slot, name  # type: ignore[attr-defined]
        _register[slot][name] = made
        return made

    return declare


def parts_of(slot: str) -> dict[str, type]:
    """The parts of a slot by name, sorted."""
    return dict(sorted(_register[slot].items()))


def build(slot: str, table: Mapping[str, Any], where: str = "") -> Any:
    """Make a part from ``{"name": …, option: value, …}``."""
    where = where or f"[{slot}]"
    options = dict(table)
    name = options.pop("name", None)
    known = parts_of(slot)
    if name is None:
        raise InvalidOption(f"{where} has no name", f"known {slot}s: {', '.join(known)}")
    if not isinstance(name, str) or name not in known:
        raise InvalidOption(f"{where} unknown {slot} {name!r}", suggest(str(name), known))
    cls = known[name]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in options:
        if key not in fields:
            raise InvalidOption(f"{where} {name!r} has no option {key!r}", suggest(key, fields) if fields else "")
    missing = [n for n, f in fields.items() if n not in options and _required(f)]
    if missing:
        raise InvalidOption(f"{where} {name!r} needs {', '.join(missing)}")
    return cls(**{key: _revive(value) for key, value in options.items()})


def describe(made: Any) -> dict[str, Any]:
    """The table that `build` makes this part from; options at their default are left out."""
    if not is_part(made):
        return {"name": type(made).__name__}  # the user's own object: the file can only say what it was
    table: dict[str, Any] = {"name": made.name}
    for f in dataclasses.fields(made):
        value = getattr(made, f.name)
        if _required(f) or value != f.default:
            table[f.name] = _plain(value)
    return table


def is_part(value: Any) -> bool:
    """Whether a value was made from a class declared with `part`."""
    return hasattr(value, "slot") and dataclasses.is_dataclass(value)


def _required(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _frozen(value.tolist())
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """A value that an experiment file can hold."""
    if is_part(value):
        return {"slot": value.slot, **describe(value)}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _revive(value: Any) -> Any:
    """Nested parts inside the value of an experiment file."""
    if isinstance(value, Mapping) and "slot" in value and "name" in value:
        return build(str(value["slot"]), {k: v for k, v in value.items() if k != "slot"})
    if isinstance(value, list):
        return tuple(_revive(v) for v in value)
    return value


def _check_types(made: Any) -> None:
    hints = get_type_hints(type(made))
    for f in dataclasses.fields(made):
        value, hint = getattr(made, f.name), hints[f.name]
        if not _fits(value, hint):
            kind = type(made).__name__
            raise InvalidOption(f"{kind}: {f.name} must be {_words(hint)}, not {value!r}")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, h) for h in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if hint is float:
        return isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if origin in (tuple, list, Sequence):
        return isinstance(value, list | tuple | np.ndarray)
    return isinstance(value, origin or hint)


def _words(hint: Any) -> str:
    """An annotation in words.

    >>> _words(int | None), _words(Literal["a", "b"])
    ('a whole number or nothing', "'a' or 'b'")
    """
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_words(h) for h in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(repr(a) for a in get_args(hint))
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(hint, str(getattr(hint, "__name__", hint)))
