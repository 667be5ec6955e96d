"""What pages and the API ask of a run: from its ledger, or from memory where that has not changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poise.core.errors import PoiseError
from poise.ledger.run import Run
from poise.ui.library import Library

if TYPE_CHECKING:
    from poise.reports.graphs import KeptGraph
    from poise.reports.plots import Plot
    from poise.ui.views.audit import Judged
    from poise.unlearning.budget import Budget


def drawn(library: Library, name: str, what: Hashable, make: Callable[[], Sequence[Plot]]) -> list[Plot]:
    """Figures, kept as text: what they weigh counts."""
    from poise.reports.plots import Plot

    text = library.kept(name, ("figures", what), lambda: json.dumps([asdict(plot) for plot in make()]))
    found = json.loads(text)
    return [Plot(**{**plot, "views": tuple((k, v) for k, v in plot["views"])}) for plot in found]


def judged(library: Library, name: str, run: Run) -> Judged:
    """The audit of a run, at the usual false-alarm rate."""
    from poise.ui.views.audit import judge

    return library.kept(name, "audit", lambda: judge(run))


def judged_if_possible(library: Library, name: str, run: Run) -> tuple[Judged | None, str]:
    """The audit, or why there is none."""
    try:
        return judged(library, name, run), ""
    except PoiseError as error:
        return None, str(error)


def graph(folder: Path) -> KeptGraph | None:
    """The similarity graph that was made for a run; None where none was."""
    from poise.reports.graphs import kept_graph
    from poise.ui.views.federation import graph_file

    file = graph_file(folder)
    return kept_graph(file) if file.exists() else None


def graph_stamp(folder: Path) -> int:
    """Another one whenever the graph is made anew; 0 where there is none."""
    from poise.ui.views.federation import graph_file

    try:
        return graph_file(folder).stat().st_mtime_ns
    except OSError:
        return 0


def budget(run: Run) -> Budget:
    """What requests to forget are promised: as the training declared, or as usual."""
    from poise.unlearning.previewing import asked_budget

    return asked_budget(run, {})


def psi(run: Run, client: int, promised: Budget) -> tuple[Any, str]:
    """Psi of one client after each aggregation, (R + 1,), or why it cannot be counted."""
    from poise.unlearning.counting import counted

    try:
        return counted(run, promised, [client])[:, 0], ""
    except PoiseError as error:
        return None, str(error)
