"""Find the line of each table and key in a TOML text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Path = tuple[str, ...]

_KEY = re.compile(r"""\s*(?:([\w-]+)|"((?:[^"\\]|\\.)*)"|'([^']*)')\s*""")
_HEADER = re.compile(r"\s*(\[\[?)(.*?)\]\]?\s*(?:#.*)?$")
_LONG_TEXT = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''")
_TEXT = re.compile(r"""\"\"\"|'''|"(?:[^"\\]|\\.)*"|'[^']*'|#.*""")


def line_of(text: str, where: Sequence[str]) -> int | None:
    r"""Return the line of an option, or of the innermost table around it, or None.

    >>> text = '[sampler]\nname = "uniform"\nm = 3\n[[attacks]]\nname = "mimic"\n'
    >>> line_of(text, ("sampler", "m")), line_of(text, ("sampler", "d"))
    (3, 1)
    >>> line_of(text, ("attacks", "0", "name"))
    5
    """
    lines = lines_in(text)
    for length in range(len(where), 0, -1):
        line = lines.get(tuple(where[:length]))
        if line is not None:
            return line
    return None


def lines_in(text: str) -> dict[Path, int]:
    """Return the first line of every table, array entry and key.

    Entries of arrays of tables count from 0.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
    entries: dict[Path, int] = {}
    for number, line in _statements(text):
        header = _HEADER.match(line)
        if header is not None:
            table = path_in(header[2])
            lines.setdefault(table, number)
            if header[1] == "[[":
                entries[table] = entries.get(table, -1) + 1
                table = (*table, str(entries[table]))
                lines.setdefault(table, number)
            continue
        key = path_in(line.partition("=")[0])
        for length in range(1, len(key) + 1):
            lines.setdefault((*table, *key[:length]), number)
    return lines


def path_in(text: str) -> Path:
    """Split a dotted key into its parts; empty if the text is not a key.

    >>> path_in('run."keep".x'), path_in("= 3")
    (('run', 'keep', 'x'), ())
    """
    parts: list[str] = []
    position = 0
    while match := _KEY.match(text, position):
        parts.append(next(part for part in match.groups() if part is not None))
        position = match.end()
        if position == len(text) or text[position] != ".":
            break
        position += 1
    return tuple(parts)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield headers and first lines of values, numbered from 1."""
    depth = 0
    quote = ""
    for number, line in enumerate(text.splitlines(), start=1):
        inside = depth > 0 or bool(quote)
        rest = line
        if quote:
            _, ended, rest = line.partition(quote)
            if ended:
                quote = ""
        bare = ""
        if not quote:
            bare, quote = _without_texts(rest)
        if inside:
            depth = max(0, depth + _balance(bare))
            continue
        yield number, line
        value = bare.partition("=")[2]
        depth = max(0, _balance(value))


def _without_texts(line: str) -> tuple[str, str]:
    """Return a line without texts and comments, and the quote of an unfinished text."""
    line = _LONG_TEXT.sub("", line)
    for match in _TEXT.finditer(line):
        if match[0] in ('"""', "'''"):
            return _TEXT.sub("", line[: match.start()]), match[0]
    return _TEXT.sub("", line), ""


def _balance(text: str) -> int:
    """Return how many brackets a text opens without closing them."""
    opened = sum(text.count(sign) for sign in "[{")
    closed = sum(text.count(sign) for sign in "]}")
    return opened - closed
