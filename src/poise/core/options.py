"""Options of runs and requests, declared once as fields of a frozen dataclass.

`option` declares a field with its default, help text and bounds. `check_options` checks
an instance against its declarations. Python signatures, tables of experiment files,
command lines, the JSON API and forms are derived from `options_of`.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from numbers import Integral, Real
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from poise.core.errors import InvalidOption, suggest, without_quotes

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass(frozen=True)
class OptionDeclaration:
    """The declaration of an option beside its type and default.

    Args:
        help: one sentence for command lines, forms and the JSON API.
        least: the smallest valid value.
        above: values must be larger than this.
        most: the largest valid value.
        below: values must be smaller than this.
        example: a valid value, for error messages.
        key: the option's name in files, on command lines and in forms; the field's name
            by default.
        label: the option's label in forms; its name by default.
        switch: the value that the bare option sets on a command line; ``True`` by
            default.
        parser: converts the text of command lines, forms and the JSON API to the value.
        inherits: whether a request without the option uses the value declared at
            training time.
        advanced: whether forms hide the option at first.
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
        """The valid values of an option with a fixed list of them; otherwise empty."""
        choices: list[Any] = []
        for kind in alternatives(self.type):
            if get_origin(kind) is Literal:
                choices += get_args(kind)
        return tuple(choices)

    def checked(self, value: object) -> Any:
        """Return the value as plain Python data; raise if type or range is wrong."""
        if not fits(value, self.type):
            raise self._wrong_type(value)
        checked = plain(value)
        is_number = isinstance(checked, int | float) and not isinstance(checked, bool)
        if is_number and not self._in_range(checked):
            raise InvalidOption(
                f"{self.name} must be {self._range()}, not {checked}", where=(self.key,)
            )
        return checked

    def _wrong_type(self, value: object) -> InvalidOption:
        """Return the error for a value of the wrong type."""
        if self.choices:
            hint = suggest(str(value), map(str, self.choices))
            return InvalidOption(
                f"{self.name} = {value!r} is not known", hint, where=(self.key,)
            )
        if self.declared.example:
            example = f"for example {self.declared.example}"
        else:
            example = without_quotes(value)
        return InvalidOption(
            f"{self.name} must be {describe_type(self.type)}, not {value!r}",
            example,
            where=(self.key,),
        )

    def _in_range(self, value: float) -> bool:
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
        """Return the bounds in words."""
        bounds = self.declared
        if bounds.above is not None and bounds.below is not None:
            return f"between {bounds.above:g} and {bounds.below:g}"
        if bounds.above is not None:
            return f"above {bounds.above:g} and finite"
        if bounds.least is not None:
            if self.type in (int, int | None):
                return f"at least {bounds.least:g}"
            return f"{bounds.least:g} or more"
        return "finite"


def option(default: object = MISSING, help: str = "", **more: Any) -> Any:
    """Declare an option as a dataclass field; ``more`` goes to `OptionDeclaration`."""
    declaration = OptionDeclaration(help, **more)
    return dataclasses.field(default=default, metadata={"declared": declaration})


def options_of(kind: type) -> dict[str, Option]:
    """Return the options that a dataclass declares, by name, in their order."""
    hints = get_type_hints(kind)
    options = {}
    for field in dataclasses.fields(kind):
        declared = field.metadata.get("declared")
        if declared is not None:
            options[field.name] = Option(
                field.name, hints[field.name], default=field.default, declared=declared
            )
    return options


def values_of(instance: DataclassInstance) -> dict[str, Any]:
    """Return the field values of a dataclass by name, in the order of the fields."""
    return {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}


def check_options(instance: DataclassInstance) -> None:
    """Check all options of a frozen dataclass, and make their values plain Python."""
    values = values_of(instance)
    for name, declared in options_of(type(instance)).items():
        object.__setattr__(instance, name, declared.checked(values[name]))


def check_keys(table: Mapping[str, Any], known: Iterable[str], title: str) -> None:
    """Raise for a key of a table that is no option; ``title`` names the table."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InvalidOption(
                f"{title} has no key {key!r}", suggest(key, names), where=(key,)
            )


def plain(value: object) -> Any:
    """Convert NumPy numbers to Python numbers, and lists to tuples.

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


def fits(value: object, hint: Any) -> bool:
    """Return whether a value has the annotated type; a bool is no whole number."""
    origin = get_origin(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, kind) for kind in get_args(hint))
    if origin is Literal:
        return any(_same(value, choice) for choice in get_args(hint))
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if origin in (tuple, list, Sequence):
        item = _item_type(hint)
        return isinstance(value, list | tuple) and all(
            fits(entry, item) for entry in value
        )
    return isinstance(value, origin or hint)


def _same(value: object, choice: object) -> bool:
    """Return whether a value is a choice of a Literal: equal, and of the same type."""
    return value is choice or (type(value) is type(choice) and value == choice)


def alternatives(hint: object) -> tuple[Any, ...]:
    """Return the types that an annotation allows."""
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _item_type(hint: object) -> Any:
    """Return the item type of a sequence of numbers or texts; Any for all others."""
    kinds = [kind for kind in get_args(hint) if kind is not Ellipsis]
    if len(kinds) == 1 and kinds[0] in (int, float, str):
        return kinds[0]
    return Any


def describe_type(hint: object) -> str:
    """Describe an annotation in words.

    >>> describe_type(int | None), describe_type(tuple[str, ...])
    ('a whole number or nothing', 'a list of texts')
    >>> describe_type(Literal["a", "b"])
    "'a' or 'b'"
    """
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe_type(kind) for kind in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if get_origin(hint) in (tuple, list, Sequence):
        items = {int: "whole numbers", float: "numbers", str: "texts"}
        return f"a list of {items.get(_item_type(hint), 'values')}"
    names: dict[object, str] = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        type(None): "nothing",
    }
    if hint in names:
        return names[hint]
    name = str(getattr(hint, "__name__", hint))
    if name.endswith("Part"):
        return "a part"
    return {"ndarray": "an array"}.get(name, name)
