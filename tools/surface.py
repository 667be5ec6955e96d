"""The public surface of poise: everything that the policy protects, item by item.

python tools/surface.py             list what changed since the stored surface
python tools/surface.py --release   store the surface of a new version

``surface.json`` beside this file has the surface of the version that it names. Between
two releases it stays as it is: the difference to the code is what the section
*Unreleased* of the changelog must name (``docs/policy.md``).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORED = Path(__file__).with_name("surface.json")
CHANGELOG = ROOT / "CHANGELOG.md"

Items = dict[str, str]
"""What an item is, by its name: ``{"poise.train(rounds)": "required"}``."""

Surface = dict[str, Items]
"""Items by kind: python, files, commands, ledger, json."""


@dataclass(frozen=True)
class Change:
    """One item that was added, removed or changed."""

    kind: str
    item: str
    what: str

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the item's name, outermost first.

        >>> Change("files", "[weighting] name = exp-a: alpha", "added").words
        ('weighting', 'exp-a', 'alpha')
        """
        words = re.findall(r"[\w-]+", self.item)
        return tuple(word for word in words if word not in ("name", "poise"))

    def __str__(self) -> str:
        return f"{self.kind}: {self.item} ({self.what})"


def current() -> Surface:
    """Return the surface of the code."""
    from surface_json import documents
    from surface_kinds import commands, files, ledger, python

    return {
        "python": python(),
        "files": files(),
        "commands": commands(),
        "ledger": ledger(),
        "json": documents(),
    }


def stored() -> tuple[str, Surface]:
    """Return the version whose surface is stored, and the surface."""
    document = json.loads(STORED.read_text(encoding="utf-8"))
    return document["version"], document["surface"]


def changes(before: Mapping[str, Items], now: Mapping[str, Items]) -> list[Change]:
    """Return every item that differs; of what is new or gone as a whole, the outermost.

    >>> old = {"python": {"poise.a": "function", "poise.a(x)": "1"}}
    >>> new = {"python": {"poise.a": "function", "poise.a(x)": "2", "poise.b": "value"}}
    >>> [str(change) for change in changes(old, new)]
    ['python: poise.a(x) (changed from 1 to 2)', 'python: poise.b (added)']
    """
    found = [
        change
        for kind in sorted({*before, *now})
        for change in _changes_of_kind(kind, before.get(kind, {}), now.get(kind, {}))
    ]
    whole = {(each.kind, each.item) for each in found if "changed" not in each.what}
    return [each for each in found if not _inside(each, whole)]


def _changes_of_kind(kind: str, before: Items, now: Items) -> Iterator[Change]:
    for item in sorted({*before, *now}):
        if item not in before:
            yield Change(kind, item, "added")
        elif item not in now:
            yield Change(kind, item, "removed")
        elif before[item] != now[item]:
            yield Change(kind, item, f"changed from {before[item]} to {now[item]}")


def _inside(change: Change, whole: set[tuple[str, str]]) -> bool:
    """Whether the item belongs to one that is new or gone itself."""
    return any(
        kind == change.kind
        and change.item != item
        and re.match(re.escape(item) + r"[ .(:\[]", change.item)
        for kind, item in whole
    )


def lines_of(text: str, section: str = "Unreleased") -> list[str]:
    r"""Return the lines of one section of the changelog.

    >>> lines_of("# C\n\n## Unreleased\n\n- `a`\n  more\n- b\n\n## 1.0\n\n- c\n")
    ['`a` more', 'b']
    """
    found = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    bullets = re.split(r"^- ", found, flags=re.MULTILINE)[1:]
    return [" ".join(bullet.partition("\n\n")[0].split()) for bullet in bullets]


def is_named(change: Change, lines: list[str]) -> bool:
    """Whether one line names the item in code, and what the item belongs to.

    >>> change = Change("files", "[run] patience", "added")
    >>> is_named(change, ["`patience` ends a run (`[run]`)."])
    True
    >>> is_named(change, ["Have patience with `[run]`.", "`patience`"])
    False
    """
    *owners, name = change.words
    return any(
        _has(" ".join(re.findall(r"`[^`]+`", line)), name)
        and (not owners or any(_has(line, owner) for owner in owners))
        for line in lines
    )


def _has(text: str, word: str) -> bool:
    """Whether a text has a word; ``clustered-by-size`` is also ``ClusteredBySize``."""
    spellings = {word, word.replace("-", ""), word.replace("_", "-")}
    return any(
        re.search(rf"(?<![\w-]){re.escape(each)}s?(?![\w-])", text, re.IGNORECASE)
        for each in spellings
    )


def unnamed(found: list[Change], *sections: str) -> list[Change]:
    """Return the changes that these sections of the changelog do not name."""
    text = CHANGELOG.read_text(encoding="utf-8")
    lines = [line for section in sections for line in lines_of(text, section)]
    return [each for each in found if not is_named(each, lines)]


def release(version: str) -> None:
    """Store the surface of a new version, if the changelog names all its changes."""
    now = current()
    if STORED.exists():
        before_version, before = stored()
        if before_version == version:
            sys.exit(
                f"{STORED.name} has the surface of {version} already. Name what changed "
                "in CHANGELOG.md, or raise the version in src/poise/_version.py first."
            )
        missing = unnamed(changes(before, now), "Unreleased", version)
        if missing:
            sys.exit("CHANGELOG.md does not name:\n" + "\n".join(map(str, missing)))
    document = {"version": version, "surface": now}
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True)
    STORED.write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """List the changes, or store the surface of a new version."""
    from poise._version import __version__

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--release", action="store_true", help="store the surface of a new version"
    )
    if parser.parse_args().release:
        release(__version__)
        return
    version, before = stored()
    found = changes(before, current())
    missing = unnamed(found, "Unreleased")
    for change in found:
        mark = "not in the changelog" if change in missing else "named"
        print(f"{change}: {mark}")
    print(f"{len(missing)} changes since {version} have no line in CHANGELOG.md")


if __name__ == "__main__":
    main()
