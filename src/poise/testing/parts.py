"""The contract of all parts, in every slot."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any, get_type_hints

import tomli_w

from poise.core.errors import InvalidOption
from poise.core.parts import Part, build, describe, is_part, parts_of
from poise.testing.clauses import holds, quietly, refused


class _Nonsense:
    """A value that fits no option."""

    def __repr__(self) -> str:
        return "nonsense"


def check_part(part: object) -> None:
    """Check that a part is frozen, registered, comparable and rebuilt by its table.

    >>> from poise.servers import Add
    >>> check_part(Add(lr=0.5))
    """
    holds(is_part(part), part, "declared with @part")
    assert is_part(part)  # tells type checkers what the clause above checks
    holds(
        parts_of(part.slot).get(part.name) is type(part),
        part,
        "registered under its name",
    )
    _frozen(part)
    _round_trip(part)
    _refuses_unknown_options(part)
    _refuses_wrong_types(part)


def _frozen(part: Part) -> None:
    for name in [f.name for f in dataclasses.fields(part)] or ["anything"]:
        try:
            setattr(part, name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(
            f"{part!r} breaks the clause 'frozen': {name} could be set"
        )


def _round_trip(part: Part) -> None:
    table = quietly(lambda: describe(part), part, "describes itself")
    text = quietly(
        lambda: tomli_w.dumps(table), part, "its table can be written as TOML"
    )
    again = quietly(
        lambda: build(part.slot, tomllib.loads(text)),
        part,
        "can be built from its own table",
    )
    holds(
        type(again) is type(part),
        part,
        "build(describe(part)) is the same kind of part",
        type(again).__name__,
    )
    holds(
        describe(again) == table,
        part,
        "build(describe(part)) has the same options",
        f"{describe(again)} != {table}",
    )
    holds(
        quietly(lambda: again == part, part, "comparable"),
        part,
        "build(describe(part)) == part",
        repr(again),
    )
    holds(quietly(lambda: part == part, part, "comparable"), part, "equal to itself")


def _refuses_unknown_options(part: Part) -> None:
    with refused(
        part,
        "an unknown option is refused by name",
        InvalidOption,
        naming="no_such_option",
    ):
        build(part.slot, {**describe(part), "no_such_option": 1})


def _refuses_wrong_types(part: Part) -> None:
    hints = get_type_hints(type(part))
    for f in dataclasses.fields(part):
        if hints[f.name] is not Any:
            with refused(
                part,
                f"a wrong type of {f.name} is refused by name",
                InvalidOption,
                naming=f.name,
            ):
                dataclasses.replace(part, **{f.name: _Nonsense()})
