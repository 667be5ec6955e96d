"""Options declared once: one field has a name, a type, a default, a help text and bounds.

`option` declares a field of a frozen dataclass, and `check_options` checks the values of an
instance against these declarations. Python signatures, tables of experiment files, command lines,
the JSON API and forms read `options_of`.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from poise.core.errors import InvalidOption, suggest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass(frozen=True)
class OptionDeclaration:
    """What an option's field declares beside its type and default.

    Args:
        help: one sentence for command lines, forms and the JSON API.
        least: the smallest value allowed.
        above: a bound that values must exceed.
        most: the largest value allowed.
        below: a bound that values must stay under.
        example: a value to show where a user gave none that fits.
        key: the option's name in files, on command lines and in forms, where that differs from the
            field's.
        label: how a form calls the option; its name by default.
        switch: the value that a command line sets by naming the option alone, where that is not
            ``True``.
        parser: makes the value from the text that command lines, forms and the JSON API take for
            it.
        inherits: whether a request takes the value that its training declared unless it gives its
            own.
        advanced: whether a form hides the option at first.
    """

    help: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    example: str = ""
    key: str = ""
    label: str = ""
    switch: Any = None
    parser: Callable[[str], Any] | None = None
    inherits: bool = False
    advanced: bool = False


@dataclass(frozen=True)
class Option:
    """One declared option."""

    name: str
    type: Any
    default: Any
    declared: OptionDeclaration

    @property
    def key(self) -> str:
        """The name in files, on command lines and in forms."""
        return self.declared.key or self.name

    @property
    def help(self) -> str:
        """One sentence about the option."""
        return self.declared.help

    @property
    def required(self) -> bool:
        """Whether the option has no default."""
        return self.default is MISSING

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values allowed, for an option that lists them; else empty."""
        kinds = (
            get_args(self.type)
            if get_origin(self.type) in (Union, types.UnionType)
            else (self.type,)
        )
        return tuple(
            value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)
        )

    def checked(self, value: Any) -> Any:
        """The value as plain Python data; raises where it has the wrong type or lies out of
        bounds.
        """
        if not fits(value, self.type):
            raise self._wrong(value)
        value = plain(value)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and not self._inside(value)
        ):
            raise InvalidOption(
                f"{self.name} must be {self._range()}, not {value}", where=(self.key,)
            )
        return value

    def _wrong(self, value: Any) -> InvalidOption:
        """The error for a value of the wrong type."""
        if self.choices:
            hint = suggest(str(value), map(str, self.choices))
            return InvalidOption(f"{self.name} = {value!r} is not known", hint, where=(self.key,))
        example = f"for example {self.declared.example}" if self.declared.example else ""
        return InvalidOption(
            f"{self.name} must be {describe_type(self.type)}, not {value!r}",
            example,
            where=(self.key,),
        )

    def _inside(self, value: float) -> bool:
        bounds = self.declared
        if not math.isfinite(value):
            return False
        if bounds.least is not None and value < bounds.least:
            return False
        if bounds.above is not None and value <= bounds.above:
            return False
        if bounds.most is not None and value > bounds.most:
            return False
        return bounds.below is None or value < bounds.below

    def _range(self) -> str:
        """The bounds in words."""
        bounds = self.declared
        if bounds.above is not None and bounds.below is not None:
            return f"between {bounds.above:g} and {bounds.below:g}"
        if bounds.above is not None:
            return f"above {bounds.above:g} and finite"
        if bounds.least is not None:
            return (
                f"at least {bounds.least:g}"
                if self.type in (int, int | None)
                else f"{bounds.least:g} or more"
            )
        return "finite"


def option(default: Any = MISSING, help: str = "", **more: Any) -> Any:
    """Declare an option as a field of a dataclass; ``more`` are further fields of `OptionDeclaration`."""
    return dataclasses.field(
        default=default, metadata={"declared": OptionDeclaration(help, **more)}
    )


def options_of(kind: type) -> dict[str, Option]:
    """The options that a dataclass declares, by name, in the order of its fields."""
    hints = get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        declared = field.metadata.get("declared")
        if declared is not None:
            found[field.name] = Option(field.name, hints[field.name], field.default, declared)
    return found


def values_of(made: DataclassInstance) -> dict[str, Any]:
    """The values of the fields of a dataclass by name, in the order of the fields."""
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}


def check_options(made: DataclassInstance) -> None:
    """Check every option of a frozen dataclass, and replace its values by plain Python data."""
    values = values_of(made)
    for name, declared in options_of(type(made)).items():
        object.__setattr__(made, name, declared.checked(values[name]))


def check_keys(table: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse a key of a table that is not an option."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InvalidOption(f"{what} has no key {key!r}", suggest(key, names), where=(key,))


def plain(value: Any) -> Any:
    """A value without numpy types and lists: whole numbers, numbers and tuples of Python.

    >>> plain([1, 2.5, "a"])
    (1, 2.5, 'a')
    """
    if isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type that an annotation names; whole numbers are numbers, true and
    false are not.
    """
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, kind) for kind in get_args(hint))
    if origin is Literal:
        return any(
            value is choice or (type(value) is type(choice) and value == choice)
            for choice in get_args(hint)
        )
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if origin in (tuple, list, Sequence):
        return isinstance(value, list | tuple) and all(fits(item, _item(hint)) for item in value)
    return isinstance(value, origin or hint)


def _item(hint: Any) -> Any:
    """The type of the items of a sequence of numbers or texts; Any for every other sequence."""
    kinds = [kind for kind in get_args(hint) if kind is not Ellipsis]
    return kinds[0] if kinds[:1] in ([int], [float], [str]) and len(kinds) == 1 else Any


def describe_type(hint: Any) -> str:
    """An annotation in words.

    >>> describe_type(int | None), describe_type(Literal["a", "b"]), describe_type(tuple[str, ...])
    ('a whole number or nothing', "'a' or 'b'", 'a list of texts')
    """
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe_type(kind) for kind in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if get_origin(hint) in (tuple, list, Sequence):
        items = {int: "whole numbers", float: "numbers", str: "texts"}
        return f"a list of {items.get(_item(hint), 'values')}"
    names = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(hint, str(getattr(hint, "__name__", hint)))
