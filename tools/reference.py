"""The reference, written from docstrings: one page per public module; a public name without one
fails the build.

A hook of mkdocs (see ``mkdocs.yml``). Pages are made from what Python sees, so that names which
load when they are first used, and values checked by decorators, are shown as a user meets them.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from poise.apps.cli.versions import versions

MODULES = (
    "poise",
    "poise.solvers",
    "poise.samplers",
    "poise.clocks",
    "poise.weightings",
    "poise.aggregators",
    "poise.channels",
    "poise.servers",
    "poise.personal",
    "poise.attacks",
    "poise.recipes",
    "poise.data",
    "poise.tasks",
    "poise.metrics",
    "poise.ledger",
    "poise.results",
    "poise.plot",
    "poise.analysis.explain",
    "poise.theory",
    "poise.theory.free_riders",
    "poise.graph",
    "poise.unlearning",
    "poise.analysis.reports",
    "poise.exports",
    "poise.backends",
    "poise.flower.strategies",
    "poise.testing",
    "poise.core.protocols",
    "poise.core.types",
    "poise.core.round_updates",
    "poise.core.traits",
    "poise.core.parts",
    "poise.core.statistics",
    "poise.core.vectors",
    "poise.core.errors",
)
NEEDS = {"poise.flower.strategies": "flwr"}
"""Modules that can be imported only with a package of an extra."""

CONSTANTS = {
    "__version__": "The version of poise.",
    "Keep": 'Which models a run keeps: `"all"`, `"unlearnable"` (what a request to forget may '
    'need) or `"last"`.',
}
"""What is said of values, which have no docstring of their own."""


class Undocumented(Exception):
    """Public names that have no docstring."""


def page_of(module: str) -> str:
    """The file of a module's page.

    >>> page_of("poise.theory.free_riders"), page_of("poise")
    ('reference/theory.free_riders.md', 'reference/poise.md')
    """
    return f"reference/{module.removeprefix('poise.')}.md"


def pages() -> dict[str, str]:
    """Every page of the reference by its file; raises `Undocumented` with all names that lack a
    docstring.
    """
    missing: list[str] = []
    made = {page_of(name): _page_without(name) for name in MODULES}
    for name in importable():
        made[page_of(name)] = _module_page(name, missing)
    if missing:
        raise Undocumented(
            "public names without documentation: " + ", ".join(sorted(missing))
        )
    return {"reference/index.md": _index(), **made}


def importable() -> list[str]:
    """The modules whose packages are installed: all but those of missing extras."""
    return [name for name in MODULES if name not in NEEDS or find_spec(NEEDS[name])]


def _page_without(name: str) -> str:
    """The page of a module that cannot be imported here."""
    package = NEEDS.get(name, "")
    return (
        f"# {name}\n\nThis site was built without the package `{package}`, which the "
        "module needs.\n"
    )


def public_names(module: types.ModuleType) -> list[str]:
    """``__all__``, or what a module without one defines itself."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and callable(value)
    ]


def documented(value: Any) -> str:
    """The docstring, or nothing: neither a dataclass's signature nor what a builtin says of itself
    counts.
    """
    doc = inspect.getdoc(value) or ""
    made_up = inspect.isclass(value) and doc.startswith(f"{value.__name__}(")
    inherited = not (
        inspect.isclass(value)
        or callable(value)
        or inspect.ismodule(value)
        or isinstance(value, property)
    )
    return "" if made_up or inherited else doc


def _index() -> str:
    rows = "\n".join(
        f"| [`{name}`]({name.removeprefix('poise.')}.md) | {_first(name)} |"
        for name in MODULES
    )
    return (
        "# Reference\n\nWritten from the docstrings, whose examples are run by the tests. "
        "What is not named here may change ([policy](../policy.md)).\n\n"
        f"| module | |\n|---|---|\n{rows}\n"
    )


def _first(module: str) -> str:
    if module in NEEDS and module not in importable():
        return f"needs the package `{NEEDS[module]}`"
    return _cell(documented(importlib.import_module(module)).splitlines()[0])


def _module_page(name: str, missing: list[str]) -> str:
    module = importlib.import_module(name)
    doc = documented(module)
    if not doc:
        missing.append(name)
    parts = [f"# {name}\n\n{markdown(doc)}\n"]
    for each in public_names(module):
        parts.append(_entry(name, each, getattr(module, each), missing))
    return "\n".join(parts)


def _entry(module: str, name: str, value: Any, missing: list[str]) -> str:
    """One public name: heading, signature, docstring, members."""
    full = f"{module}.{name}"
    if inspect.ismodule(value):
        where = (
            f" See [its page]({page_of(value.__name__).removeprefix('reference/')})."
            if value.__name__ in MODULES
            else ""
        )
        return f"## {name}\n\n{_first(value.__name__)}{where}\n"
    doc = CONSTANTS.get(name) or documented(value)
    if not doc:
        missing.append(full)
    signature = f"    {name}{_signature(value)}\n\n" if callable(value) else ""
    members = "".join(_members(full, value, missing)) if inspect.isclass(value) else ""
    return f"## {name}\n\n{signature}{markdown(doc)}\n\n{members}"


def _members(full: str, cls: type, missing: list[str]) -> Iterator[str]:
    """A table of the public methods and properties of a class."""
    owners = [c for c in reversed(cls.__mro__) if c.__module__.startswith("poise")]
    found = {n: v for c in owners for n, v in vars(c).items() if n[0] != "_"}
    values = getattr(
        cls, "__dataclass_fields__", {}
    )  # described by the docstring of their class
    rows = []
    for name, value in found.items():
        if name in values:
            continue
        target = getattr(value, "func", None) or getattr(
            value, "__func__", value
        )  # cached_property, classmethod
        if not (inspect.isfunction(target) or isinstance(target, property)):
            continue
        doc = documented(target)
        if not doc:
            missing.append(f"{full}.{name}")
            continue
        is_value = isinstance(target, property) or hasattr(value, "func")
        shown = name if is_value else f"{name}{_signature(target)}"
        rows.append(f"| `{_cell(shown)}` | {_cell(doc.split(chr(10) * 2)[0])} |\n")
    if rows:
        yield "| method or property | |\n|---|---|\n"
        yield from rows


def _signature(value: Any) -> str:
    """The arguments without the quotes that postponed annotations have, and without ``self``."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    kept = [p for p in signature.parameters.values() if p.name != "self"]
    returned = (
        inspect.Signature.empty
        if inspect.isclass(value)
        else signature.return_annotation
    )
    text = str(signature.replace(parameters=kept, return_annotation=returned))
    text = re.sub(r"<function (\S+) at 0x[0-9a-f]+>", _called, text)
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).replace("typing.", "")


def _called(default: re.Match[str]) -> str:
    """A default that is a function: by its name, where it has one."""
    return "…" if "<lambda>" in default[1] else default[1]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def markdown(doc: str) -> str:
    r"""A docstring as Markdown: arguments as a list, examples as blocks, formulas as they are.

    >>> print(markdown("Adds.\n\nArgs:\n    a: one\n        number.\n    b: another."))
    Adds.
    <BLANKLINE>
    **Arguments**
    <BLANKLINE>
    - `a`: one number.
    - `b`: another.
    """
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", doc.strip("\n")))


def _block(block: str) -> str:
    if block.startswith((">>>", "    >>>")):
        return f"```python\n{inspect.cleandoc(block)}\n```"
    if block.startswith(("Args:\n", "Returns:\n", "Raises:\n")):
        head, _, rest = block.partition("\n")
        title = {"Args:": "Arguments", "Returns:": "Returns", "Raises:": "Raises"}[head]
        return f"**{title}**\n\n" + "\n".join(_items(inspect.cleandoc(rest)))
    return block


def _items(text: str) -> Iterator[str]:
    """Arguments and what is said of them, lines that are indented joined to the one before."""
    for item in re.split(r"\n(?=\S)", text):
        name, colon, what = " ".join(item.split()).partition(": ")
        yield (
            f"- `{name}`: {what}"
            if colon and " " not in name
            else f"- {' '.join(item.split())}"
        )


def on_config(config: Any) -> Any:
    """Name the versions in the footer of every page."""
    config["copyright"] = footer()
    return config


def footer() -> str:
    """One line: the version of poise, and what the site was built with."""
    found = {name: each for name, each in versions().items() if each is not None}
    built = ", ".join(
        f"{name} {found[name]}" for name in found if name not in ("poise", "platform")
    )
    return (
        f"poise {found['poise']}, built with {built}. "
        "The tests of this version run the examples on every page."
    )


def on_files(files: Any, config: Any) -> Any:
    """Put the pages among the files of the site."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
