"""Every citation points to the bibliography, and every work in the bibliography is cited."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from documentation.blocks import ROOT

PAGE = ROOT / "docs" / "references.md"
BIBLIOGRAPHY = ROOT / "src" / "poise" / "exports" / "references.bib"
SUFFIXES = {".py", ".md", ".toml", ".html", ".js"}
KEY = re.compile(r"\[([A-Z][\w-]*)\s+((?:19|20)\d\d)(?:,[^\[\]]*)?\]")
LINK = re.compile(
    r"\[\[([A-Z][\w-]*) ((?:19|20)\d\d)(?:,[^\[\]]*)?\]\]\(([^)#]*)#([^)]+)\)"
)
PLACE = (
    r"(?:§|[Ee]q\.|[Ss]ections?|[Tt]heorems?|Thm|[Cc]orollar(?:y|ies)|Cor\.|[Pp]ropositions?"
    r"|Lemmas?|Definition|[Aa]ssumption|Ass\.|[Aa]lgorithms?|Alg\.|[Tt]ables?|[Ff]igures?|Fig\."
    r"|[Cc]hapters?|ch\.|[Aa]ppendix|App\.|Example|footnote)\s*(?:[A-E]\.)?\d+(?:\.\d+)*"
)
LETTER = re.compile(
    rf"(?<![\w\[.$\\])(?:[A-E](?:'s)?,?\s+{PLACE}|{PLACE}\s+of\s+[A-E]\b(?![\w'(])"
    r"|[Pp]apers?\s+[A-E]\b|\((?:[A-E], )+[A-E]\))"
)
"""A letter that stands for a paper, as in "E §4.4.3"."""


def slug(name: str, year: str) -> str:
    """The anchor of a key."""
    return f"{name.lower().replace('α', 'alpha')}-{year}"


def texts(*places: str) -> Iterator[tuple[Path, str]]:
    """Every text file below these places, without the bibliography itself and this test."""
    for place in places:
        path = ROOT / place
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in found:
            if file.suffix in SUFFIXES and file not in (PAGE, Path(__file__)):
                yield file, file.read_text(encoding="utf-8")


def where(file: Path, text: str, at: int) -> str:
    """File and line."""
    return f"{file.relative_to(ROOT).as_posix()}:{text.count(chr(10), 0, at) + 1}"


def anchors() -> set[str]:
    """The works of the page."""
    return set(re.findall(r'<a id="([^"]+)"></a>', PAGE.read_text(encoding="utf-8")))


def entries() -> dict[str, dict[str, str]]:
    """The works of the bibliography with their fields."""
    found = {}
    for entry in BIBLIOGRAPHY.read_text(encoding="utf-8").split("\n@"):
        head = re.match(r"@?\w+\{([^,]+),", entry)
        assert head, entry
        found[head[1]] = dict(
            re.findall(r"^  (\w+) = \{(.*)\},$", entry, flags=re.MULTILINE)
        )
    return found


def test_the_page_and_the_bibliography_have_the_same_works() -> None:
    assert anchors() == set(entries())


def test_every_entry_is_complete() -> None:
    """The fields that a reader needs to find a work, and the page names the same numbers."""
    page = PAGE.read_text(encoding="utf-8")
    for key, fields in entries().items():
        assert {"author", "title", "year"} <= set(fields), key
        assert key.endswith(fields["year"]), key
        places = {"doi", "eprint", "url", "journal", "school", "institution"}
        assert places & set(fields), f"{key}: say where it is published"
        for name in ("doi", "eprint", "url"):
            assert fields.get(name, "") in page, f"{key}: the page has another {name}"


def test_every_key_resolves() -> None:
    known = anchors()
    unknown = [
        f"{where(file, text, m.start())}: {m[0]}"
        for file, text in texts(
            "src", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"
        )
        for m in KEY.finditer(text)
        if slug(m[1], m[2]) not in known
    ]
    assert not unknown, unknown


def test_keys_in_pages_link_to_their_own_work() -> None:
    for file, text in texts("docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        for m in LINK.finditer(text):
            target = (file.parent / m[3]).resolve() if m[3] else file
            place = where(file, text, m.start())
            assert target == PAGE.resolve(), place
            assert m[4] == slug(m[1], m[2]), place


def test_every_work_is_cited() -> None:
    places = ("src", "docs", "README.md", "examples", "benchmarks", "tests")
    cited = {slug(m[1], m[2]) for _, text in texts(*places) for m in KEY.finditer(text)}
    assert anchors() <= cited, anchors() - cited


def test_no_letter_stands_for_a_paper() -> None:
    left = []
    for file, text in texts(
        "src", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"
    ):
        for m in LETTER.finditer(text):
            left.append(f"{where(file, text, m.start())}: {m[0]}")
    assert not left, left


@pytest.mark.parametrize(
    "words", ["(E §4.4.3)", "A eq. 17", "Theorem 1 of B", "paper C", "(A, D)"]
)
def test_the_pattern_finds_letters(words: str) -> None:
    assert LETTER.search(words)


@pytest.mark.parametrize(
    "words",
    [
        "A client",
        "A section in words",
        "E[ω] = 1",
        "GNU C library",
        "[Li 2020, App. C.1]",
    ],
)
def test_the_pattern_leaves_other_letters_alone(words: str) -> None:
    assert not LETTER.search(words)
