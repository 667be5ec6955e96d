"""The code blocks of the documentation, and what is said about those that are not run.

A block is run unless the line before it says ``<!-- not run: why -->``, or, for shell blocks,
unless the page says ``<!-- shell not run: why -->`` anywhere. Commands that are not run are checked
all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELL = ("console", "sh")
LANGUAGES = ("python", "toml", "text", *SHELL)
FENCE = re.compile(r"^```(\S*)\s*(?:title=\"([^\"]*)\")?\s*$")
MARKER = re.compile(r"<!-- not run: (.+) -->")
PAGE_MARKER = re.compile(r"<!-- shell not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, its title if it is a file, and why it is not
    run."""

    page: str
    line: int
    language: str
    title: str
    text: str
    excuse: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Everything that is documentation."""
    below = [
        page
        for folder in ("docs", "examples")
        for page in sorted((ROOT / folder).rglob("*.md"))
    ]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *below]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page."""
    return parse(page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix())


def parse(text: str, page: str = "page.md") -> list[Block]:
    """The blocks of a text; an open fence at its end is an error."""
    whole = PAGE_MARKER.search(text)
    found: list[Block] = []
    before, opened, inside = "", None, []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None and line.startswith("```"):
            assert fence, f"{page}:{number}: {line} is no fence that this test knows"
            opened, inside = (number, fence[1], fence[2] or ""), []
        elif opened is not None and line.strip() == "```":
            own = MARKER.search(before)
            excuse = own[1] if own else whole[1] if whole and opened[1] in SHELL else ""
            found.append(Block(page, *opened, "\n".join(inside) + "\n", excuse))
            opened, before = None, ""
        elif opened is not None:
            inside.append(line)
        elif line.strip():
            before = line
    assert opened is None, (
        f"{page}: the block of line {opened and opened[0]} does not end"
    )
    return found


@dataclass(frozen=True)
class Command:
    """A line that a reader types, and what it is said to print (``...`` for anything)."""

    text: str
    expected: str


def commands(block: Block) -> list[Command]:
    """The commands of a shell block: after ``$`` in a console, every line in a script; comments are
    left out."""
    if block.language == "sh":
        return [
            Command(_bare(line), "") for line in block.text.splitlines() if _bare(line)
        ]
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(_bare(line[2:]), ""))
        elif line.strip():
            assert found, f"{block.place}: output before the first command"
            found[-1] = Command(found[-1].text, found[-1].expected + line + "\n")
    return found


def _bare(line: str) -> str:
    return re.sub(r"(^|\s)#.*$", "", line).strip()
