"""Parts are frozen dataclasses, and they are the configuration.

``@part("sampler", "uniform")`` makes a class a frozen dataclass whose values are checked against
its annotations, and puts it under its name in the register of its slot. `build` makes a part from a
table of an experiment file and refuses unknown keys by naming the nearest known one; `describe` is
its inverse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    TypeGuard,
    TypeVar,
    cast,
    dataclass_transform,
    get_type_hints,
)

import numpy as np

from poise.core.errors import InvalidOption, errors_at, suggest
from poise.core.options import describe_type, fits, values_of
from poise.core.slots import RUN_SLOTS
from poise.core.traits import replaced_in

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

SLOTS = (*RUN_SLOTS, "attack", "backend", "durations")
"""All kinds of parts."""

OURS = "poise."
"""How the names of poise's own modules begin."""

OWN = ":"
"""Stands between module and class in the name of an object that was not made from a declared
part."""

_register: dict[str, dict[str, type]] = {slot: {} for slot in SLOTS}


class Part(Protocol):
    """An instance of a class that was declared with `part`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def slot(self) -> str:
        """The slot of its class."""

    @property
    def name(self) -> str:
        """The name of its class in the register of the slot."""


@dataclass_transform(frozen_default=True)
def part(slot: str, name: str) -> Callable[[type[T]], type[T]]:
    """Declare a class to be the part ``name`` of a slot."""

    def declare(cls: type[T]) -> type[T]:
        check_values = getattr(cls, "__post_init__", None)

        def check(self: DataclassInstance) -> None:
            for name, value in values_of(
                self
            ).items():  # values that can be compared, hashed and never changed
                object.__setattr__(self, name, _frozen(value))
            _check_types(self)
            if check_values is not None:
                check_values(self)

        cls.__post_init__ = check  # type: ignore[attr-defined]
        made = dataclasses.dataclass(frozen=True)(cls)
        made.slot, made.name = slot, name  # type: ignore[attr-defined]
        _refuse_name_of_poise(slot, name, made)
        _register[slot][name] = made
        return made

    return declare


def _refuse_name_of_poise(slot: str, name: str, cls: type) -> None:
    """A file that names one of poise's parts must mean that part, in every process."""
    known = _register[slot].get(name)
    ours = known is not None and known.__module__.startswith(OURS)
    if known is not None and ours and not cls.__module__.startswith(OURS):
        raise InvalidOption(
            (
                f"{cls.__module__}.{cls.__qualname__}: the name {name!r} belongs to poise's {slot} "
                f"{known.__name__}"
            ),
            "declare it under a name of its own",
        )


def parts_of(slot: str) -> dict[str, type]:
    """The parts of a slot by name, sorted."""
    return dict(sorted(_register[slot].items()))


def build(slot: str, table: Mapping[str, Any], title: str = "") -> Any:
    """Make a part from ``{"name": …, option: value, …}``; ``title`` is how errors call the
    table.
    """
    title = title or f"[{slot}]"
    options = dict(table)
    name = options.pop("name", None)
    known = parts_of(slot)
    if name is None:
        raise InvalidOption(f"{title} has no name", f"known {slot}s: {', '.join(known)}")
    if isinstance(name, str) and OWN in name:
        raise InvalidOption(
            f"{title} {name} is a class that no file can name: it cannot be made again",
            f'declare it with @part("{slot}", "a name") before the run',
            where=("name",),
        )
    if not isinstance(name, str) or name not in known:
        raise InvalidOption(
            f"{title} unknown {slot} {name!r}", suggest(str(name), known), where=("name",)
        )
    cls = known[name]
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in options:
        if key not in fields:
            hint = suggest(key, fields) if fields else ""
            raise InvalidOption(f"{title} {name!r} has no option {key!r}", hint, where=(key,))
    missing = [n for n, f in fields.items() if n not in options and _required(f)]
    if missing:
        raise InvalidOption(f"{title} {name!r} needs {', '.join(missing)}", where=("name",))
    made = {}
    for key, value in options.items():
        with errors_at(key):
            made[key] = _revive(value)
    return cls(**made)


def option_names(made: object) -> tuple[str, ...]:
    """The names of the options of a part."""
    return tuple(f.name for f in dataclasses.fields(cast("DataclassInstance", made)))


def with_options(made: T, **options: Any) -> T:
    """The same part with other values of some options."""
    return cast(T, dataclasses.replace(cast("DataclassInstance", made), **options))


def describe(made: object) -> dict[str, Any]:
    """The table that `build` makes this part from; options at their default are left out.

    An object that `build` cannot make again is named by its module and class: a class of one's own,
    and a subclass of a part that replaces one of its methods and is not declared itself.
    """
    cls = _stands_for(made)
    if cls is None or not is_part(made):
        return {"name": f"{type(made).__module__}{OWN}{type(made).__qualname__}"}
    table: dict[str, Any] = {"name": made.name}
    values = values_of(made)
    for f in dataclasses.fields(cls):
        value = values[f.name]
        if _required(f) or value != f.default:
            table[f.name] = _plain(value)
    return table


def is_part(value: object) -> TypeGuard[Part]:
    """Whether a value was made from a class declared with `part`."""
    return hasattr(value, "slot") and dataclasses.is_dataclass(value)


def _stands_for(made: object) -> type | None:
    """The declared class that makes an object which behaves like this one; None where there is
    none.
    """
    if not is_part(made):
        return None
    cls: Any = _register.get(made.slot, {}).get(made.name)
    if cls is None or not isinstance(made, cls):
        return None
    more = {f.name for f in dataclasses.fields(made)} - {f.name for f in dataclasses.fields(cls)}
    return None if more or replaced_in(made, cls) else cls


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


def _check_types(made: DataclassInstance) -> None:
    hints = get_type_hints(type(made))
    for name, value in values_of(made).items():
        if not fits(value, hints[name]):
            kind = type(made).__name__
            raise InvalidOption(
                f"{kind}: {name} must be {describe_type(hints[name])}, not {value!r}", where=(name,)
            )
