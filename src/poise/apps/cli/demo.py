"""The verb ``poise demo``: six acts on data that needs no download."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from poise.apps.cli.terminal import (
    INTERRUPTED,
    Bar,
    console,
    print_json,
    remark,
    stoppable,
)
from poise.apps.demo import ACTS, Act, DemoStopped, Stage, write_story
from poise.apps.demo.stage import Counter, prepare
from poise.config.experiment import load
from poise.config.presets import DEMO
from poise.config.run_options import parse_seeds
from poise.core.errors import LedgerError

WIDTH = 80
"""Tables are at most this wide, as a terminal usually is."""


def run_demo(out: Path, page: Path, seeds: str, json: bool) -> None:
    """Run the acts, print a table after each, and write the page."""
    chosen = load(DEMO / "choice.toml").seeds
    if seeds:
        chosen = parse_seeds(seeds)
    if page.is_dir():
        raise LedgerError(f"{page} is a folder", "give --page the name of a file")
    prepare(out)
    acts: list[Act] = []
    with stoppable(json) as stop:
        for number, make in enumerate(ACTS, 1):
            with Bar(quiet=json) as bar:
                stage = Stage(out, tuple(chosen), _counter(bar), stop)
                try:
                    acts.append(make(stage))
                except DemoStopped:
                    _stopped(out)
            if not json:
                _print_act(number, acts[-1])
    written = write_story(acts, chosen, page)
    if json:
        _print_document(acts, out, page=written)
        return
    console.print(f"report: {written.resolve()}", soft_wrap=True, highlight=False)


def _counter(bar: Bar) -> Counter:
    return lambda label, total: bar.counter(label, total)


def _stopped(out: Path) -> None:
    remark(f"the demo has not finished and wrote no page; its runs are in {out}")
    raise typer.Exit(INTERRUPTED)


def _print_document(acts: list[Act], out: Path, page: Path) -> None:
    runs = sorted(str(folder) for folder in out.glob("*/seed-*"))
    acts_as_data = [act.as_data() for act in acts]
    print_json({"page": str(page), "runs": runs, "acts": acts_as_data})


def _print_act(number: int, act: Act) -> None:
    """Print the table of an act and the commands that repeat it."""
    table = Table(
        title=Text(f"{number} · {act.title}", style="bold"), title_justify="left"
    )
    first, *others = act.table.heading
    table.add_column(Text(first), overflow="fold")
    for name in others:
        table.add_column(Text(name), overflow="fold")
    for line in act.table.body:
        table.add_row(*map(Text, line))
    width = min(console.width, WIDTH)
    console.print(table, width=width)
    for command in act.commands:
        console.print(
            f"$ {command}", markup=False, highlight=False, soft_wrap=True, style="dim"
        )
    console.print()
