"""Sections of a page, between marks, that benchmarks write anew."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def publish(
    doc: str | None, name: str, measured: Callable[..., str], **numbers: int
) -> None:
    """Measure as the command line says, print the text, and put it into a page where ``--write``
    names one.

    ``numbers`` are the options of ``measured``, with their defaults.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default in numbers.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--write", type=Path)
    options = vars(parser.parse_args())
    page = options.pop("write")
    found = measured(**options)
    print(found)
    if page:
        put(page, name, found)


def put(file: Path, name: str, text: str) -> None:
    """Put a text into its section of a page, or at the end where there is none of this name."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    page = file.read_text(encoding="utf-8")
    before, after = (
        page.partition(start)[0].rstrip("\n"),
        page.partition(end)[2].lstrip("\n"),
    )
    file.write_text(f"{before}\n\n{start}{text}{end}\n{after}", encoding="utf-8")
