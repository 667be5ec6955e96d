"""``poise inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from poise.cli.terminal import Bar, console, print_json
from poise.experiments.inspection import federation_of, inspect
from poise.reports.heterogeneity import write_inspection


def show_inspection(what: str, changes: list[str], seed: int, labels: bool, out: Path, json: bool) -> None:
    """Look at a federation, print what was found, write the page."""
    with Bar(quiet=json) as bar:
        advance = bar.counter(f"inspecting {what}", 2)
        federation = federation_of(what, changes, seed)
        advance()
        found = inspect(federation, labels)
        advance()
    data = found.as_data()
    page = write_inspection(found.name, data, found.graph, found.label_counts, out)
    if json:
        print_json({**data, "page": str(page)})
        return
    console.print(_table(data))
    console.print(str(page), markup=False, highlight=False, soft_wrap=True)


def _table(data: dict[str, Any]) -> Table:
    table = Table(title=data["federation"], title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in rows(data):
        table.add_row(name, value)
    return table


def rows(data: dict[str, Any]) -> list[tuple[str, str]]:
    """The findings in words."""
    size, values = data["size"], data["spectrum"]
    found = [
        ("clients", f"{data['clients']:,} with {data['samples']:,} samples"),
        ("samples per client", f"{size['smallest']:,} to {size['largest']:,}, median {size['median']:g}"),
    ]
    if data["classes"] is not None:
        found.append(("classes per client", f"{data['classes per client']:.1f} of {len(data['classes'])}"))
    for name, one in data["divergence"].items():
        found.append((f"{name} from all", f"mean {one['mean']:.3f}, largest {one['largest']:.3f} (0 … 1)"))
    found += [
        ("homogeneity", f"{data['homogeneity']:.4f} (higher: more alike)"),
        ("-ln misalignment", f"mean {data['theta']:.3f}, standard deviation {data['phi']:.3f}"),
        ("spectrum", f"{values[1]:.3g} to {values[-1]:.3g}"),
        ("most typical clients", ", ".join(map(str, data["most typical"]))),
        ("least typical clients", ", ".join(map(str, data["least typical"]))),
        ("outliers", ", ".join(map(str, data["outliers"])) or "none"),
    ]
    return found
