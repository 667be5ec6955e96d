"""One HTML file that shows what was run and what came of it: no network, no other file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from poise.analysis.reports import sections
from poise.analysis.reports.compare import compare
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import Plot, plots
from poise.analysis.reports.style import SCRIPT, STYLE
from poise.core.errors import InvalidOption, LedgerError

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


def write_page(
    groups: Sequence[Group],
    path: str | Path,
    title: str = "Report",
    targets: Sequence[float] | None = None,
    first: Sequence[Plot] = (),
) -> Path:
    """Write a report of groups of runs as one self-contained HTML file, whole or not at all.

    Args:
        groups: the first is the baseline of the comparison.
        path: of the file; an existing one is replaced.
        title: headline of the page.
        targets: values of the main metric to reach (see `score_table`).
        first: figures of the caller's, shown before those of the runs.

    Returns:
        the path of the file.
    """
    return write_whole_page(path, render_page(groups, title, targets, first))


def write_whole_page(path: str | Path, text: str) -> Path:
    """Write a page, whole or not at all."""
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        hint = (
            "it is a folder: name a file in it"
            if target.is_dir()
            else "choose a folder that can be written to"
        )
        raise LedgerError(f"cannot write the report {target}: {error.strerror}", hint) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return target


def render_page(
    groups: Sequence[Group],
    title: str = "Report",
    targets: Sequence[float] | None = None,
    first: Sequence[Plot] = (),
) -> str:
    """The page as text (see `write_page`)."""
    if not groups:
        raise InvalidOption("there is nothing to report", "give at least one run")
    comparison = compare(groups, targets)
    drawn = [*first, *plots(groups)]
    body = [
        sections.headline(title, groups),
        sections.findings(comparison),
        sections.what_was_run(groups),
        sections.scores(comparison.rows),
        sections.figures(drawn),
        sections.runs(groups),
        sections.experiments(groups),
        sections.footer(groups),
    ]
    return document(title, "".join(body), bool(drawn))


def document(title: str, body: str, drawn: bool) -> str:
    """A page around a body; with plotly inside where something is drawn."""
    from plotly.offline import get_plotlyjs

    script = f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script>" if drawn else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{sections.text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{body}</main>
{script}
</body>
</html>
"""
