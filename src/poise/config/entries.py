"""Options on command lines, in forms and in the JSON API, from their declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from poise.core.errors import InvalidOption
from poise.core.options import Option, alternatives, describe_type, options_of

TRUE = ("on", "true", "1")


@dataclass(frozen=True)
class OptionEntry:
    """One option as users give it, and its conversion to the value of the field."""

    option: Option

    @property
    def key(self) -> str:
        """The name in forms and the JSON API; with dashes, that of the flag."""
        return self.option.key

    @property
    def flag(self) -> str:
        """The name on a command line."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        """Whether the bare option sets it."""
        return self.option.type is bool or self.option.declared.switch is not None

    @property
    def kind(self) -> Any:
        """The type of a value, without None."""
        if self.is_switch:
            return bool
        if self.option.declared.parser is not None:
            return str
        kinds = [
            kind for kind in alternatives(self.option.type) if kind is not type(None)
        ]
        if len(kinds) == 1:
            return kinds[0]
        return self.option.type

    @property
    def type(self) -> Any:
        """The type of a value; it includes None if the option may be left out."""
        if self.default is None and not self.option.required:
            return Optional[self.kind]  # noqa: UP045 - the kind is a value here
        return self.kind

    @property
    def default(self) -> Any:
        """The value of an option left out; None if the training may declare it."""
        if self.is_switch:
            return False
        if self.option.declared.inherits:
            return None
        return self.option.default

    @property
    def help(self) -> str:
        """The help text on a command line: the option, and its default."""
        declared = self.option.declared
        source = declared.help
        if declared.switch is not None:
            source = declared.label
        text = re.sub(r"``?", "", source).rstrip(".")
        if not source.startswith("`"):
            text = text[:1].upper() + text[1:]
        if declared.parser is not None and declared.example:
            text = f"{text}: {declared.example}"
        if declared.inherits and self.option.default is not None:
            return (
                f"{text}; by default as declared at training time, or "
                f"{self.option.default}."
            )
        return f"{text}."

    @property
    def label(self) -> str:
        """The option's label in forms."""
        return self.option.declared.label or self.key.replace("_", " ").capitalize()

    def from_text(self, text: str) -> Any:
        """Return the value of a text in a form."""
        if self.is_switch:
            return text.lower() in TRUE
        if self.kind not in (int, float):
            return text
        try:
            return self.kind(text)
        except ValueError as error:
            message = (
                f"{self.label_in_errors} must be {describe_type(self.kind)}, "
                f"not {text!r}"
            )
            raise InvalidOption(message, where=(self.key,)) from error

    @property
    def label_in_errors(self) -> str:
        """The option's name in a sentence."""
        return self.key.replace("_", " ")

    def as_text(self, value: object) -> str:
        """Return a value as a form shows it; empty if it is not given."""
        if value is None or value is False:
            return ""
        if value is True:
            return "on"
        return f"{value}"

    def arguments(self, value: object) -> list[str]:
        """Return the option's arguments on a command line; none for its default."""
        if value == self.default and not self.option.required:
            return []
        if value is True:
            return [self.flag]
        return [self.flag, str(value)]

    def value(self, given: object) -> Any:
        """Return the field's value for the value that a user gave."""
        declared = self.option.declared
        if declared.switch is not None:
            return declared.switch
        if declared.parser is not None and isinstance(given, str):
            return declared.parser(given)
        return given


def entries_of(kind: type, without: Iterable[str] = ()) -> dict[str, OptionEntry]:
    """Return the options of a dataclass by key, required ones first."""
    left_out = set(without)
    entries = [
        OptionEntry(option)
        for name, option in options_of(kind).items()
        if name not in left_out
    ]
    entries.sort(key=lambda entry: not entry.option.required)
    return {entry.key: entry for entry in entries}


def values_of(
    given: Mapping[str, Any], entries: Mapping[str, OptionEntry]
) -> dict[str, Any]:
    """Return field values by name for the values that a user gave by key.

    None, and False for a switch, count as not given.
    """
    values = {}
    for key, entry in entries.items():
        value = given.get(key)
        if value is not None and not (entry.is_switch and value is False):
            values[entry.option.name] = entry.value(value)
    return values
