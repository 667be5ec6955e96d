"""The source of users' packages: its hash, version and place, without importing it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from poise.core.errors import LedgerError
from poise.core.objects import places_of

MOST_FILES = 1000
"""Of a package with more files than this, only the named modules are hashed."""

IMPORT = "import"
"""The key of an experiment file with the modules that declare parts of the user's own."""

CODE = "code"
"""The entry of the ledger with the code that a run names."""


@dataclass(frozen=True)
class PackageCode:
    """The source of one top-level package or module.

    Args:
        sha256: of all its ``.py`` files, with their names; of the named modules only,
            if it has more than `MOST_FILES`. Empty if there is no source.
        version: of the installed package; empty if it is not installed.
        modules: the SHA-256 of the file of each named module.
    """

    sha256: str
    version: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [self.version] if self.version else []
        return ", ".join([*words, f"sha256 {self.sha256[:12] or 'unknown'}"])


def code_of(modules: Iterable[str]) -> dict[str, PackageCode]:
    """Return the code of the packages of these modules, by package.

    >>> list(code_of(["poise.core.errors", "poise.core.rng"])["poise"].modules)
    ['poise.core.errors', 'poise.core.rng']
    """
    names: dict[str, list[str]] = {}
    for module in sorted(set(modules)):
        names.setdefault(module.partition(".")[0], []).append(module)
    return {package: _package_code(package, named) for package, named in names.items()}


def _package_code(package: str, modules: list[str]) -> PackageCode:
    places = places_of(package)
    hashes = {module: _module_hash(module, places) for module in modules}
    files = dict(_files(places))
    if len(files) > MOST_FILES:
        contents = [f"{name} {digest}" for name, digest in hashes.items()]
    else:
        contents = [f"{name} {_sha256(file)}" for name, file in sorted(files.items())]
    digest = ""
    if contents and places:
        digest = hashlib.sha256("\n".join(contents).encode()).hexdigest()
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = ""
    return PackageCode(digest, installed, hashes)


def _files(places: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the source files of a package, with their names inside it."""
    for place in places:
        if place.is_file():
            yield place.name, place
            continue
        for file in place.rglob("*.py"):
            yield file.relative_to(place).as_posix(), file


def _module_hash(module: str, places: list[Path]) -> str:
    """Return the hash of the file of a module; empty if it has no source file."""
    _, _, below = module.partition(".")
    for place in places:
        path = place.joinpath(*below.split(".")) if below else place
        for file in (path, path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                return _sha256(file)
    return ""


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def code_text(code: Mapping[str, PackageCode]) -> str:
    """Return the entry of the ledger for this code."""
    return json.dumps({package: asdict(known) for package, known in code.items()})


def recorded_code(meta: Mapping[str, Any]) -> dict[str, PackageCode]:
    """Return the code that the ledger of a run names; empty if it names none."""
    try:
        tables = json.loads(meta.get(CODE, "{}"))
        return {str(name): PackageCode(**table) for name, table in tables.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"the ledger's entry {CODE!r} cannot be read: {error}",
            "restore the ledger from a backup",
        ) from error


def changes_between(
    before: Mapping[str, PackageCode], now: Mapping[str, PackageCode]
) -> list[str]:
    """Return a sentence for every package whose source differs.

    >>> before = {"mine": PackageCode("a", modules={"mine.models": "1"})}
    >>> changes_between(before, {"mine": PackageCode("b", modules={"mine.models": "2"})})
    ['the code of mine changed since the start of the run (mine.models)']
    """
    changes = []
    for package in sorted(before.keys() & now.keys()):
        if before[package].sha256 == now[package].sha256:
            continue
        known = now[package].modules
        modules = [
            name
            for name, digest in before[package].modules.items()
            if name in known and known[name] != digest
        ]
        files = ", ".join(modules) or "in a file that the experiment does not name"
        changes.append(
            f"the code of {package} changed since the start of the run ({files})"
        )
    return changes
