"""Clients by name: the names that a ledger records, and the number of a named client."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from numbers import Integral

from poise.core.errors import InvalidOption, LedgerError, suggest

NUMBERS = re.compile(r"\d+(\.\.\d+)?|")
"""A number or a range of clients in a text; an empty word is left to the parser."""

NAMES = "client names"
"""The entry of the ledger with the names of the clients; absent if they have none."""


def client_number(given: int | str, clients: int, names: Sequence[str] = ()) -> int:
    """Return the number of a client that is given by number or by name.

    >>> client_number("budapest", 2, ["cleveland", "budapest"])
    1
    >>> client_number("clevland", 2, ["cleveland", "budapest"])
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: there is no client 'clevland' (did you mean 'cleveland'?)
    """
    if isinstance(given, str):
        return _named(given, names, clients=clients)
    if type(given) is bool or not _is_whole(given):
        raise InvalidOption(
            f"{given!r:.60} is neither the number nor the name of a client",
            "write 3 or 'cleveland'",
            where=("clients",),
        )
    if not 0 <= given < clients:
        raise InvalidOption(
            f"there is no client {given}",
            f"clients are 0 to {clients - 1}",
            where=("clients",),
        )
    return int(given)


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number, also one of NumPy."""
    return isinstance(value, Integral)


def _named(name: str, names: Sequence[str], *, clients: int) -> int:
    """Return the number of the client with this name."""
    numbers = [number for number, known in enumerate(names) if known == name and name]
    if len(numbers) == 1:
        return numbers[0]
    hint = suggest(name, [known for known in names if known])
    if not any(names):
        hint = f"the clients have no names; their numbers are 0 to {clients - 1}"
    message = f"there is no client {name!r}"
    if len(numbers) > 1:
        message = f"{len(numbers)} clients have the name {name!r}"
        hint = f"name one by its number: {', '.join(map(str, numbers))}"
    raise InvalidOption(message, hint, where=("clients",))


def client_title(number: int, names: Sequence[str] = ()) -> str:
    """Return the name of a client for tables and figures; its number without a name.

    >>> client_title(1, ["cleveland", "budapest"]), client_title(1)
    ('budapest', 'client 1')
    """
    if number < len(names) and names[number]:
        return names[number]
    return f"client {number}"


def numbers_in(text: str, clients: int, names: Sequence[str]) -> str:
    """Return a list of clients with numbers for names; a whole number is no name here.

    >>> numbers_in("budapest, 0..1", 3, ["cleveland", "budapest", "zurich"])
    '1,0..1'
    """
    numbers = []
    for item in text.split(","):
        word = item.strip()
        if not NUMBERS.fullmatch(word):
            word = str(client_number(word, clients, names))
        numbers.append(word)
    return ",".join(numbers)


def names_text(names: Sequence[str]) -> str:
    """Return the ledger's entry for these names."""
    return json.dumps(list(names), ensure_ascii=False)


def recorded_names(meta: Mapping[str, str], clients: int) -> tuple[str, ...]:
    """Return the names in the metadata of a run; empty if its clients have none."""
    text = meta.get(NAMES)
    if text is None:
        return ()
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not listed or len(names) != clients:
        raise LedgerError(
            f"the ledger's entry {NAMES!r} is not a list of {clients} names",
            "restore the ledger from a backup",
        )
    return tuple(names)


def without_names(text: str, clients: Sequence[int]) -> str:
    """Return an entry of names in which those of some clients are empty.

    >>> without_names('["cleveland", "budapest"]', [0])
    '["", "budapest"]'
    """
    names = json.loads(text)
    for client in clients:
        if client < len(names):
            names[client] = ""
    return names_text(names)
