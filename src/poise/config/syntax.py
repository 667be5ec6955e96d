"""Say what is wrong with the text of a TOML file, in which line, and how to write it."""

from __future__ import annotations

import re
import tomllib
from typing import NamedTuple

_PLACE = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)$")
_TWICE = re.compile(r"Cannot (?:declare|overwrite|mutate)")
_KEY = re.compile(r"\s*[\w.\"'-]+\s*=\s*(.*?)\s*(?:#.*)?$")
_CURLY = "“”„‟‘’‚«»"


class SyntaxProblem(NamedTuple):
    """A mistake in a TOML text: the line, a message and a hint."""

    line: int
    message: str
    hint: str


def problem_of(error: tomllib.TOMLDecodeError, text: str) -> SyntaxProblem:
    r"""Return the mistake that Python's parser found.

    >>> wrong = "[task]\nmodel = mlp"
    >>> try:
    ...     tomllib.loads(wrong)
    ... except tomllib.TOMLDecodeError as error:
    ...     problem_of(error, wrong)
    SyntaxProblem(line=2, message='cannot read the value mlp', hint='put texts into quotes: "mlp"')
    """
    place = _PLACE.search(str(error))
    reason = _PLACE.sub("", str(error))
    lines = text.splitlines() or [""]
    at_end = place is None or place[1] is None
    number = len(lines)
    if place is not None and place[1] is not None:
        number = min(int(place[1]), number)
    message, hint = _explained(reason, lines[number - 1])
    if at_end and message == _lowered(reason):
        message = f"the file ends too early: {message}"
    return SyntaxProblem(number, message, hint)


def _explained(reason: str, line: str) -> tuple[str, str]:
    """Return message and hint for a mistake in this line."""
    stripped = line.strip()
    if any(sign in line for sign in _CURLY):
        return f"typographic quotes in {stripped}", 'use straight quotes: "…"'
    if _TWICE.match(reason):
        if stripped.startswith("["):
            return f"the table {stripped} appears twice", "merge the two tables"
        key = stripped.partition("=")[0].strip()
        return f"{key} is set twice", "remove one of the lines"
    if "Expected '='" in reason:
        if "=" not in stripped and ":" not in stripped:
            return (
                f"{stripped!r} is neither a key with a value nor a table",
                f"write key = value, or a table in brackets: [{stripped.split()[0]}]",
            )
        return f"cannot read {stripped!r}", "write key = value, with one ="
    value = _KEY.match(line)
    if "Invalid value" in reason and value is not None:
        return f"cannot read the value {value[1]}", _value_hint(value[1])
    return _lowered(reason), ""


def _value_hint(value: str) -> str:
    """Return how to write a value that cannot be read."""
    if value in ("True", "False"):
        return f"write {value.lower()}"
    if value in ("None", "null", ""):
        return "remove the line to use the default"
    if re.fullmatch(r"\.\d+|\d+\.", value):
        return "write a digit before and after the point"
    if re.fullmatch(r"[^\W\d][\w.:/-]*", value):
        return f'put texts into quotes: "{value}"'
    return ""


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
