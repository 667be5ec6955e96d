"""Check options against the signatures of the functions that take them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from poise.core.errors import InvalidOption, suggest, without_quotes

Registered = TypeVar("Registered")

_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}
_NUMBERS: dict[Any, tuple[type, ...]] = {
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
}


def option_names(taker: Callable[..., Any], *supplied: str) -> list[str]:
    """Return the options of a function or class, without those the caller supplies.

    >>> def rule(labels, clients, *, alpha=1.0): ...
    >>> option_names(rule, "labels", "clients")
    ['alpha']
    """
    return [
        name for name in inspect.signature(taker).parameters if name not in supplied
    ]


def check_options(
    taker: Callable[..., Any], options: Mapping[str, Any], label: str
) -> None:
    """Raise `InvalidOption` for a value that does not fit its annotation.

    >>> def rule(*, alpha: float = 1.0): ...
    >>> check_options(rule, {"alpha": "x"}, "rule")
    Traceback (most recent call last):
    poise.core.errors.InvalidOption: rule: alpha must be a number, not 'x'
    """
    hints = get_type_hints(inspect.unwrap(taker))
    for name, value in options.items():
        kinds = _kinds(hints.get(name, Any))
        if not any(_fits(value, kind) for kind in kinds):
            words = (
                " or ".join(word for kind in kinds for word in _words(kind)) or "a list"
            )
            raise InvalidOption(
                f"{label}: {name} must be {words}, not {value!r}",
                without_quotes(value),
                where=(name,),
            )


def _kinds(hint: object) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _words(kind: object) -> list[str]:
    if get_origin(kind) is Literal:
        return [repr(choice) for choice in get_args(kind)]
    if kind in _WORDS:
        return [_WORDS[kind]]
    return []


def _fits(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if kind in (str, bool):
        return isinstance(value, kind)
    if kind is type(None):
        return value is None
    if get_origin(kind) is Mapping:
        return isinstance(value, Mapping)
    return not isinstance(value, str | bool | Mapping)


def named(name: object, register: Mapping[str, Registered], label: str) -> Registered:
    """Return the entry of a register; raises `InvalidOption` with the nearest name."""
    if not isinstance(name, str) or name not in register:
        raise InvalidOption(
            f"unknown {label} {name!r}",
            suggest(str(name), register),
            where=(label.split()[-1],),
        )
    return register[name]


def sort_options(
    options: Mapping[str, Any],
    takers: Mapping[str, list[str]],
    others: list[str],
    owners: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """Assign every option to the first taker that has it; raises for unknown ones.

    ``owners`` are partitions by an option that only they have, for the hint.

    >>> takers = {"rule": ["alpha"], "source": ["by", "alpha"]}
    >>> sort_options({"alpha": 1, "by": "writer"}, takers, [])
    {'rule': {'alpha': 1}, 'source': {'by': 'writer'}}
    """
    sorted_: dict[str, dict[str, Any]] = {taker: {} for taker in takers}
    for name, value in options.items():
        taker = next((taker for taker, names in takers.items() if name in names), None)
        if taker is None:
            known = [*others, *(name for names in takers.values() for name in names)]
            names = " and ".join(takers)
            hint = suggest(name, known)
            owner = owners.get(name)
            if owner is not None and not hint.startswith("did you mean"):
                hint = f"{name} is an option of partition {owner!r}"
            raise InvalidOption(f"{names}: no option {name!r}", hint, where=(name,))
        sorted_[taker][name] = value
    return sorted_
