"""Report pages: one self-contained HTML file each, without network access."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from poise.analysis.reports import sections
from poise.analysis.reports.compare import compare
from poise.analysis.reports.groups import Group
from poise.analysis.reports.plots import Plot, plots
from poise.analysis.reports.style import SCRIPT, STYLE
from poise.core.disk import write_files
from poise.core.errors import InvalidOption, LedgerError
from poise.ledger.files import no_room

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)


def write_page(
    groups: Sequence[Group],
    path: str | Path,
    title: str = "Report",
    targets: Sequence[float] | None = None,
    first: Sequence[Plot] = (),
) -> Path:
    """Write a report about groups of runs as one self-contained HTML file.

    Args:
        groups: groups of runs; the first is the baseline of the comparison.
        path: the file to write; an existing file is replaced.
        title: headline of the page.
        targets: target values of the main metric (see `score_table`).
        first: extra figures to show before the figures of the runs.

    Returns:
        the path of the file.
    """
    return write_whole_page(
        path, render_page(groups, title, targets=targets, first=first)
    )


def write_whole_page(path: str | Path, text: str) -> Path:
    """Write a page whole or not at all: readers never see a partial file."""
    target = Path(path)
    try:
        write_files({target: text.encode()})
    except OSError as error:
        hint = "choose a writable folder"
        if target.is_dir():
            hint = "this path is a folder: give a file name in it"
        elif no_room(error):
            hint = "free some space, then repeat the command"
        raise LedgerError(
            f"cannot write the report {target}: {error.strerror}", hint
        ) from error
    return target


def render_page(
    groups: Sequence[Group],
    title: str = "Report",
    targets: Sequence[float] | None = None,
    first: Sequence[Plot] = (),
) -> str:
    """The page as text (see `write_page`)."""
    if not groups:
        raise InvalidOption("no runs to report", "give at least one run")
    comparison = compare(groups, targets)
    drawn = [*first, *plots(groups)]
    body = [
        sections.headline(title, groups),
        sections.findings(comparison),
        sections.what_was_run(groups),
        sections.scores(comparison.rows),
        sections.clients(groups),
        sections.figures(drawn),
        sections.runs(groups),
        sections.experiments(groups),
        sections.footer(groups),
    ]
    return document(title, "".join(body), drawn=bool(drawn))


def document(title: str, body: str, drawn: bool) -> str:
    """A complete HTML page around a body; embeds Plotly if ``drawn``."""
    from plotly.offline import get_plotlyjs

    if drawn:
        script = f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script>"
    else:
        script = ""
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
