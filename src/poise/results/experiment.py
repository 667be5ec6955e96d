"""`ExperimentText`: the experiment of a run as a text with attributes for its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from poise.core.errors import LedgerError, suggest
from poise.core.slots import DEFAULTS, RUN_SLOTS

TABLES = ("data", "task", *RUN_SLOTS, "attacks", "unlearning", "run", "expected")
"""The tables that an experiment may have."""


class OptionTable(Mapping[str, Any]):
    """One table of an experiment; its options are attributes, too.

    >>> table = OptionTable("solver", {"name": "sgd", "lr": 0.1})
    >>> table.lr, table["name"], sorted(table)
    (0.1, 'sgd', ['lr', 'name'])
    >>> table.momentun
    Traceback (most recent call last):
    ...
    AttributeError: the experiment sets no 'momentun' under [solver] (it sets lr, name)
    """

    def __init__(self, title: str, values: Mapping[str, Any]) -> None:
        self._title = title
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            known = ", ".join(sorted(self._values)) or "nothing"
            raise AttributeError(
                f"the experiment sets no {name!r} under [{self._title}] (it sets {known})"
            )
        return self[name]

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        if isinstance(value, Mapping):
            return OptionTable(f"{self._title}.{name}", value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self._values.items())
        return f"[{self._title}] {options}"


class ExperimentText(str):
    r"""The text of an experiment file; its tables are attributes.

    Options at their defaults are not written, so they are no attributes. A slot
    without a table has its default part. The value is a ``str`` for code that reads the
    text; ``text`` says so.

    >>> experiment = ExperimentText("[solver]\nname = 'sgd'\nlr = 0.1")
    >>> experiment.solver.lr, experiment.sampler.name
    (0.1, 'full')
    >>> experiment.text.splitlines()[0]
    '[solver]'
    """

    @property
    def text(self) -> str:
        """The experiment file as it was written."""
        return str(self)

    @cached_property
    def tables(self) -> Mapping[str, Any]:
        """The tables by name, as in the file."""
        import tomllib  # takes milliseconds to import

        try:
            return tomllib.loads(str(self))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise LedgerError(
                f"the experiment file of the run is not TOML: {error}",
                "restore it from a backup",
            ) from error

    def __getattr__(self, name: str) -> Any:
        if name not in TABLES:
            hint = suggest(name, TABLES)
            raise AttributeError(f"an experiment has no table {name!r} ({hint})")
        value = self.tables.get(name, {})
        if name == "attacks":
            return [OptionTable("attacks", table) for table in value]
        if not value and name in DEFAULTS:
            value = {"name": DEFAULTS[name]}
        return OptionTable(name, value)

    def options(self) -> dict[str, Any]:
        r"""Return every option by its dotted name, such as ``solver.lr``.

        >>> ExperimentText("[data]\nsource = 'digits'").options()["data.source"]
        'digits'
        """
        flat: dict[str, Any] = {}
        for slot, part in DEFAULTS.items():
            if slot not in self.tables:
                flat[f"{slot}.name"] = part
        for name, value in self.tables.items():
            flat.update(_flattened(name, value))
        return flat


def _flattened(name: str, value: Any) -> dict[str, Any]:
    """Return a value, or those of a table, by dotted names; lists of tables by number."""
    flat: dict[str, Any] = {}
    if isinstance(value, Mapping):
        for key, item in value.items():
            flat.update(_flattened(f"{name}.{key}", item))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for k, item in enumerate(value):
            flat.update(_flattened(f"{name}.{k}", item))
    else:
        flat[name] = value
    return flat
