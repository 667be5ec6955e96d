"""`load`: one table over many runs, with the options of their experiments as columns."""

from __future__ import annotations

import glob
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from poise.core.errors import InvalidOption, PoiseError, require, suggest
from poise.core.parts import parts_of
from poise.core.slots import RUN_SLOTS
from poise.ledger.files import REQUEST
from poise.ledger.store import DATABASE
from poise.ledger.summary import read_summary
from poise.results.frames import pandas_frame
from poise.results.run import Run, open_run
from poise.results.tables import TABLES, table

if TYPE_CHECKING:
    import pandas

SEEDS = "run.seeds"
"""The option that the column ``seed`` replaces."""


def load(
    runs: str | Path | Iterable[str | Path],
    what: Literal["runs", "rounds", "contributions", "clients"] = "runs",
    *,
    branches: bool = False,
) -> pandas.DataFrame:
    """Return one table over runs, with every option of their experiments as a column.

    Options have dotted names, such as ``solver.lr``. An option that only some runs set
    has its default in the others, where the part declares one. Of each metric of the
    model there are the last and the best value (``accuracy.final``, ``accuracy.best``)
    and the round of the best (``accuracy.best_round``).

    A folder that cannot be read is named in a warning and left out. Needs pandas: ``pip
    install 'poise[pandas]'``.

    Args:
        runs: a pattern (``"runs/**"``), a folder with runs in it, or several of these.
        what: ``"runs"`` has a row per run; ``"rounds"``, ``"contributions"`` and
            ``"clients"`` have the rows of `Run.to_pandas`, with the path, the seed and
            the options that differ.
        branches: include the branches of unlearning requests.

    >>> import poise, tempfile
    >>> fed = poise.federation("digits", clients=5)
    >>> folder = tempfile.mkdtemp()
    >>> for lr in (0.01, 0.1):
    ...     solver = poise.solvers.SGD(lr=lr, steps=5, batch_size=20)
    ...     out = f"{folder}/lr-{lr}"
    ...     _ = poise.train(fed, poise.task("logistic"), solver, rounds=3, out=out)
    >>> poise.load(folder)[["solver.lr", "seed", "state", "rounds"]]
       solver.lr  seed state  rounds
    0       0.01     0  done       3
    1       0.10     0  done       3
    """
    known = ("runs", *TABLES)
    require(
        what in known,
        f"load: what = {what!r} is unknown",
        suggest(what, known),
        where="what",
    )
    opened = []
    for folder in run_folders(runs, branches=branches):
        try:
            opened.append((folder, _read(folder, what)))
        except PoiseError as error:
            warnings.warn(f"{folder} is left out: {error}", stacklevel=2)
    if not opened:
        raise InvalidOption(
            f"no run of {runs!s:.200} can be read", "the warnings name the reasons"
        )
    options = _with_defaults([facts["options"] for _, facts in opened])
    if what == "runs":
        rows = [
            {"path": str(folder), **facts["row"], **chosen, **facts["metrics"]}
            for (folder, facts), chosen in zip(opened, options, strict=True)
        ]
        return pandas_frame(_columns(rows))
    return _long(opened, options)


def run_folders(
    runs: str | Path | Iterable[str | Path], *, branches: bool = False
) -> list[Path]:
    """Return the run folders that patterns and folders name, in order; raise for none."""
    patterns = [runs] if isinstance(runs, str | Path) else list(runs)
    found: dict[Path, None] = {}
    for pattern in patterns:
        below: set[Path] = set()
        for place in glob.glob(str(pattern), recursive=True):
            below.update(file.parent for file in Path(place).rglob(DATABASE))
            if Path(place).name == DATABASE:
                below.add(Path(place).parent)
        found.update(dict.fromkeys(sorted(below, key=_natural)))
    chosen = [folder for folder in found if branches or not (folder / REQUEST).exists()]
    if not chosen:
        raise InvalidOption(
            f"there is no run in {', '.join(map(str, patterns))[:200]}",
            "name a folder with runs, or a pattern such as 'runs/**'",
        )
    return chosen


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``seed-2`` before ``seed-10``."""
    words: list[tuple[int, int, str]] = []
    for part in path.parts:
        for word in part.replace("_", "-").split("-"):
            words.append((0, int(word), "") if word.isdigit() else (1, 0, word))
    return words


def _read(folder: Path, what: str) -> dict[str, Any]:
    """Return the facts of one run; the ledger is closed again."""
    summary = read_summary(folder)
    run = open_run(folder)
    try:
        options = {k: v for k, v in run.experiment.options().items() if k != SEEDS}
        row = {
            "seed": run.meta.seed,
            "state": summary.state,
            "clients": run.clients,
            "rounds": run.rounds,
            "time": float(run.times[-1]) if run.rounds else 0.0,
            "seconds": float(run.seconds.sum()),
            "bytes": float(run.bytes_up.sum() + run.bytes_down.sum()),
        }
        columns = {} if what == "runs" else table(run, what)
        return {
            "options": options,
            "row": row,
            "metrics": _scores(run),
            "columns": columns,
        }
    finally:
        run.close()


def _scores(run: Run) -> dict[str, float]:
    """Return the last and the best value of each metric of the model."""
    scores: dict[str, float] = {}
    for metric in run.metrics:
        if run.is_per_client(metric):
            continue
        values = run.metric(metric)
        measured = np.flatnonzero(~np.isnan(values))
        if not len(measured):
            continue
        known = values[measured]
        best = int(known.argmax())
        if run.directions.lower_is_better(metric):
            best = int(known.argmin())
        scores[f"{metric}.final"] = float(known[-1])
        scores[f"{metric}.best"] = float(known[best])
        scores[f"{metric}.best_round"] = int(measured[best]) + 1
    return scores


def _with_defaults(options: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the options of every run under the same names; None where there is none."""
    names = dict.fromkeys(name for chosen in options for name in chosen)
    complete = []
    for chosen in options:
        complete.append(
            {
                name: _plain(chosen[name] if name in chosen else _default(name, chosen))
                for name in names
            }
        )
    return complete


def _default(name: str, chosen: Mapping[str, Any]) -> Any:
    """Return the default of an option of a part of poise; None if it has none."""
    slot, _, option = name.partition(".")
    if slot not in RUN_SLOTS:
        return None
    cls = _parts_of(slot).get(str(chosen.get(f"{slot}.name")))
    if cls is None or not is_dataclass(cls):
        return None
    defaults = {field.name: field.default for field in fields(cls)}
    value = defaults.get(option)
    if isinstance(value, str | int | float | bool):
        return value
    return None


def _parts_of(slot: str) -> dict[str, type]:
    """Return the parts of a slot; imports those of poise, and nothing of users."""
    from poise import (  # noqa: F401 - importing a package declares its parts
        aggregators,
        channels,
        clocks,
        personal,
        samplers,
        servers,
        solvers,
        weightings,
    )

    return parts_of(slot)


def _plain(value: Any) -> Any:
    """Return a list or a table as text, so that columns can be grouped."""
    if isinstance(value, list | dict):
        return json.dumps(value, default=str)
    return value


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns; None where a row lacks a value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _long(
    opened: Sequence[tuple[Path, Mapping[str, Any]]],
    options: Sequence[Mapping[str, Any]],
) -> pandas.DataFrame:
    """Return the rows of a table of all runs, with the options that differ."""
    import pandas

    differing = [
        name for name in options[0] if len({repr(row[name]) for row in options}) > 1
    ]
    frames = []
    for (folder, facts), chosen in zip(opened, options, strict=True):
        frame = pandas_frame(facts["columns"])
        lead = {"path": str(folder), "seed": facts["row"]["seed"]}
        lead |= {name: chosen[name] for name in differing}
        for place, (name, value) in enumerate(lead.items()):
            frame.insert(place, name, value)
        frames.append(frame)
    return pandas.concat(frames, ignore_index=True)
