"""The verbs of ``poise data``."""

from __future__ import annotations

from dataclasses import asdict

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from poise.apps.cli.terminal import console, notes, print_json
from poise.data import fetch, listing, verify
from poise.data.catalogue import entry

BUILT_IN = {
    "digits": "8x8 digits, ships with scikit-learn",
    "synthetic": "logistic data with controllable heterogeneity, generated on the fly",
}


def show_datasets(json: bool) -> None:
    """Print a table of the data sets and their locations."""
    lines = listing()
    if json:
        print_json({"built-in": BUILT_IN, "files": [asdict(line) for line in lines]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "content", "size", "location"):
        table.add_column(column, no_wrap=column in ("name", "size"))
    for name, about in BUILT_IN.items():
        table.add_row(name, about, "", "built in")
    for line in lines:
        absent = "missing"
        if line.fetchable:
            absent = f"missing; download with: poise data fetch {line.name}"
        size = ""
        if line.size:
            size = f"{line.size / 1e6:.1f} MB"
        table.add_row(line.name, line.about, size, line.folder or absent)
    console.print(table)


def fetch_dataset(name: str, json: bool) -> None:
    """Download a data set and show a progress bar."""
    entry(name)  # an unknown name stands alone, without a bar
    columns = (
        TextColumn(name),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=notes, disable=json) as bar:
        task = bar.add_task(name, total=None)
        files = fetch(
            name,
            progress=lambda done, total: bar.update(
                task, completed=done, total=total or None
            ),
        )
    if json:
        print_json({"name": name, "files": [str(f) for f in files]})
        return
    for file in files:
        console.print(f"ok  {file}")


def verify_dataset(name: str, json: bool) -> None:
    """Verify the checksums of a data set; an error names the file that differs."""
    checked = [str(path) for path in verify(name)]
    if json:
        print_json({"name": name, "verified": checked})
        return
    for path in checked:
        console.print(f"ok  {path}")
