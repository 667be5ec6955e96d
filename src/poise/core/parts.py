"""Parts: frozen dataclasses that are also the configuration of a run.

``@part("sampler", "uniform")`` turns a class into a frozen dataclass, checks its values
against its annotations, and registers it under its name in the slot. `build` makes a
part from a table of an experiment file and raises for unknown keys, with the nearest
known key as a hint; `describe` is its inverse.
"""

from __future__ import annotations

import dataclasses
import inspect
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

from poise.core.errors import InvalidOption, errors_at, suggest, without_quotes
from poise.core.objects import name_of
from poise.core.options import describe_type, fits, values_of
from poise.core.own_functions import allowed_function
from poise.core.own_parts import import_part, import_parts
from poise.core.slots import RUN_SLOTS
from poise.core.traits import replaced_in

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

SLOTS = (*RUN_SLOTS, "attack", "backend", "durations", "optimizer", "schedule")
"""All kinds of parts."""

OURS = "poise."
"""The prefix of poise's own modules."""

OWN = ":"
"""Separates module and class in the name of an object that is no declared part."""

SLOT = "slot"
"""The key of a field's metadata that names the slot of the part that it holds."""

OBJECT = "object"
"""The key of a field's metadata that says that a file names the object that it holds."""

_register: dict[str, dict[str, type]] = {slot: {} for slot in SLOTS}


class Part(Protocol):
    """An instance of a class declared with `part`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def slot(self) -> str:
        """The slot of its class."""

    @property
    def name(self) -> str:
        """The registered name of its class."""


@dataclass_transform(frozen_default=True)
def part(slot: str, name: str) -> Callable[[type[T]], type[T]]:
    """Declare a class as the part ``name`` of a slot."""

    def declare(cls: type[T]) -> type[T]:
        check_values = getattr(cls, "__post_init__", None)

        def check(self: DataclassInstance) -> None:
            slots = {f.name: f.metadata.get(SLOT, "") for f in dataclasses.fields(self)}
            for name, value in values_of(self).items():
                # comparable and hashable values
                made = _frozen(_built_option(value, slots[name], name))
                object.__setattr__(self, name, made)
            _check_types(self)
            if check_values is not None:
                check_values(self)

        cls.__post_init__ = check  # type: ignore[attr-defined]
        declared = dataclasses.dataclass(frozen=True)(cls)
        declared.slot = slot  # type: ignore[attr-defined]
        declared.name = name  # type: ignore[attr-defined]
        _refuse_name_of_poise(slot, name, cls=declared)
        _register[slot][name] = declared
        return declared

    return declare


def part_option(slot: str) -> Any:
    """Declare an option that holds a part of this slot; None by default.

    The option also accepts the name of a part, or its table: ``{"name": …}``.
    """
    return dataclasses.field(default=None, metadata={SLOT: slot})


def named_function() -> Any:
    """Declare an option that holds a function, or its name ``package.module:function``."""
    return dataclasses.field(metadata={OBJECT: True})


def _built_option(value: object, slot: str, option: str) -> object:
    """Return the part of an option that the user names in Python."""
    table = _table_of(value, slot)
    if table is None:
        return value
    with errors_at(option):
        return _made(slot, table, title=f"{option}:")


def _table_of(value: object, slot: str) -> Mapping[str, Any] | None:
    """Return the table of an option that names its part; None for other values."""
    if isinstance(value, str) and slot and OWN not in value:
        return {"name": value}
    if not slot or not isinstance(value, Mapping):
        return None
    return value


def _refuse_name_of_poise(slot: str, name: str, cls: type) -> None:
    """Raise if a foreign class takes the name of one of poise's parts.

    A file that names one of poise's parts must mean that part in every process.
    """
    if cls.__module__.startswith(OURS):
        return
    known = part_named(slot, name)
    if known is None:
        return
    if known.__module__.startswith(OURS):
        owner = f"poise's {slot} {known.__name__}"
        raise InvalidOption(
            (
                f"{cls.__module__}.{cls.__qualname__}: the name {name!r} belongs to "
                f"{owner}"
            ),
            "declare the class under another name",
        )


def parts_of(slot: str) -> dict[str, type]:
    """Return the parts of a slot by name, sorted; imports all of poise's."""
    import_parts(slot)
    return dict(sorted(_register[slot].items()))


def part_named(slot: str, name: object) -> type | None:
    """Return the part of this name, or None; imports only the module of the part."""
    if not isinstance(name, str):
        return None
    if name not in _register[slot]:
        import_part(slot, name)
    return _register[slot].get(name)


def build(slot: str, table: Mapping[str, Any], title: str = "") -> Any:
    """Make a part from ``{"name": …, option: value, …}``; errors name ``title``.

    The table may come from anybody: it can only name functions that are allowed, see
    `poise.core.own_functions`.
    """
    title = title or f"[{slot}]"
    return _made(slot, table, title=title, read=_read_option)


def _made(
    slot: str,
    table: Mapping[str, Any],
    title: str,
    read: Callable[[object, Mapping[str, Any], str], object] | None = None,
) -> Any:
    """Make a part from its table, with ``read`` from written values to options."""
    options = dict(table)
    cls = _class_named(options.pop("name", None), slot, title)
    fields = {
        f.name: f for f in dataclasses.fields(cast("type[DataclassInstance]", cls))
    }
    for key in options:
        if key not in fields:
            raise InvalidOption(
                f"{title} {table['name']!r} has no option {key!r}",
                suggest(key, fields),
                where=(key,),
            )
    missing = [key for key, f in fields.items() if key not in options and _required(f)]
    if missing:
        raise InvalidOption(
            f"{title} {table['name']!r} needs {', '.join(missing)}", where=("name",)
        )
    values = {}
    for key, value in options.items():
        with errors_at(key):
            revived = _revive(value)
            if read is not None:
                revived = read(revived, fields[key].metadata, key)
            values[key] = revived
    return cls(**values)


def _read_option(value: object, metadata: Mapping[str, Any], option: str) -> object:
    """Return the part or the function that an option of a table names."""
    slot = metadata.get(SLOT, "")
    table = _table_of(value, slot)
    if table is not None:
        return build(slot, table, title=f"{option}:")
    if isinstance(value, str) and (slot or OBJECT in metadata):
        return allowed_function(value)
    return value


def _class_named(name: object, slot: str, title: str) -> type:
    """Return the registered class of a name in an experiment file."""
    found = part_named(slot, name)
    if found is not None:
        return found
    known = parts_of(slot)
    if name is None:
        raise InvalidOption(
            f"{title} has no name", f"known {slot}s: {', '.join(known)}"
        )
    if isinstance(name, str) and OWN in name:
        raise InvalidOption(
            (
                f"{title} {name} is a class without a declared name: poise cannot make it "
                "again"
            ),
            f'declare it with @part("{slot}", "a name") before the run',
            where=("name",),
        )
    raise InvalidOption(
        f"{title} unknown {slot} {name!r}",
        suggest(str(name), known),
        where=("name",),
    )


def option_names(instance: object) -> tuple[str, ...]:
    """Return the names of the options of a part."""
    return tuple(
        f.name for f in dataclasses.fields(cast("DataclassInstance", instance))
    )


def with_options(instance: T, **options: Any) -> T:
    """Return the part with other values of some options."""
    return cast(T, dataclasses.replace(cast("DataclassInstance", instance), **options))


def describe(instance: object) -> dict[str, Any]:
    """Return the table from which `build` makes this part; default values are left out.

    An object that `build` cannot make again is named by its module and class. This
    holds for undeclared classes, and for undeclared subclasses of a part that replace
    one of its methods.
    """
    cls = _rebuilding_class(instance)
    if cls is None or not is_part(instance):
        return {
            "name": f"{type(instance).__module__}{OWN}{type(instance).__qualname__}"
        }
    table: dict[str, Any] = {"name": instance.name}
    values = values_of(instance)
    for f in dataclasses.fields(cls):
        value = values[f.name]
        if _required(f) or value != f.default:
            table[f.name] = _plain(value)
            if f.metadata.get(SLOT):  # the option implies the slot
                table[f.name].pop(SLOT)
    return table


def is_part(value: object) -> TypeGuard[Part]:
    """Return whether a value is an instance of a class declared with `part`."""
    return hasattr(value, "slot") and dataclasses.is_dataclass(value)


def _rebuilding_class(instance: object) -> type | None:
    """Return the declared class that rebuilds an equivalent object, or None."""
    if not is_part(instance):
        return None
    cls: Any = _register.get(instance.slot, {}).get(instance.name)
    if cls is None or not isinstance(instance, cls):
        return None
    added_options = set(option_names(instance)) - {
        f.name for f in dataclasses.fields(cls)
    }
    if added_options or replaced_in(instance, cls):
        return None
    return cast(type, cls)


def _required(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _frozen(value: object) -> Any:
    """Convert arrays and lists to tuples, and NumPy numbers to Python numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return _frozen(value.tolist())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value


def _plain(value: object) -> Any:
    """Convert a value to one that an experiment file can hold."""
    if is_part(value):
        return {"slot": value.slot, **describe(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if inspect.isroutine(value):
        name = name_of(value)
        if name is not None:
            return name
        return f"{value.__module__}{OWN}{value.__qualname__}"
    return value


def _revive(value: object) -> Any:
    """Build the nested parts inside a value of an experiment file."""
    if isinstance(value, Mapping) and "slot" in value and "name" in value:
        table = {key: option for key, option in value.items() if key != "slot"}
        return build(str(value["slot"]), table)
    if isinstance(value, list):
        return tuple(_revive(item) for item in value)
    return value


def _slot_hint(value: object) -> str:
    """Return how to write a part inside a table that lacks its slot; else nothing."""
    if not isinstance(value, Mapping) or "name" not in value:
        return ""
    slots = [slot for slot in SLOTS if part_named(slot, value["name"]) is not None]
    if not slots:
        return ""
    return f'add slot = "{slots[0]}" to the table'


def _check_types(instance: DataclassInstance) -> None:
    """Raise for a value that does not have its annotated type."""
    hints = get_type_hints(type(instance))
    for name, value in values_of(instance).items():
        if not fits(value, hints[name]):
            kind = type(instance).__name__
            raise InvalidOption(
                f"{kind}: {name} must be {describe_type(hints[name])}, not {value!r}",
                without_quotes(value) or _slot_hint(value),
                where=(name,),
            )
