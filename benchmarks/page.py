"""Sections of a page, between marks, that benchmarks write anew."""

from __future__ import annotations

from pathlib import Path


def put(file: Path, name: str, text: str) -> None:
    """Put a text into its section of a page, or at the end where there is none of this name."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    page = file.read_text(encoding="utf-8")
    before, after = page.partition(start)[0].rstrip("\n"), page.partition(end)[2].lstrip("\n")
    file.write_text(f"{before}\n\n{start}{text}{end}\n{after}", encoding="utf-8")
