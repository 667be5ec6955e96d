"""What the theory says of an experiment file, a run, or one arm of a reproduction."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from poise.analysis.explain import Explanation, explain_composition
from poise.analysis.explain.bounds_vs_run import BoundsVsRun, bounds_vs_run
from poise.apps.experiments.reproduction import Reproduction, load_reproduction, presets
from poise.apps.experiments.runner import folders_in
from poise.config.experiment import load
from poise.core.errors import InvalidOption, suggest
from poise.ledger.run import open_run
from poise.training import Composition, compose, recorded


def explain_named(
    what: str,
    changes: Iterable[str] = (),
    seed: int | None = None,
    cell: str = "",
    arm: str = "",
    scale: str = "small",
) -> Explanation:
    """Explain an experiment file, a run folder, or a reproduction by its name.

    Args:
        what: the file, the folder, or the name of a preset.
        changes: ``table.key=value``, for a file.
        seed: of the federation and the first model; the first of the experiment by default.
        cell: of a reproduction; its first by default.
        arm: of a reproduction; its first by default.
        scale: of a reproduction.
    """
    path = Path(what)
    if what in presets() or (
        path.suffix == ".toml" and path.stem in presets() and "papers" in path.parts
    ):
        return _of_preset(
            load_reproduction(path.stem if path.suffix == ".toml" else what, scale), seed, cell, arm
        )
    return explain_composition(_composition(what, changes, seed), name=what)


def _composition(what: str, changes: Iterable[str], seed: int | None) -> Composition:
    """What a file or a run folder describes."""
    path = Path(what)
    if path.is_dir():
        experiment = recorded(folders_in(path)[0])
    elif path.exists():
        experiment = load(path, changes)
    else:
        raise InvalidOption(
            f"{what!r} is no experiment file, no run and no reproduction", suggest(what, presets())
        )
    return compose(experiment, experiment.seeds[0] if seed is None else seed)


def measure_bounds(
    what: str, found: Explanation, changes: Iterable[str] = (), seed: int | None = None
) -> BoundsVsRun | None:
    """Bounds, predicted bias and the measured curve of a run folder; None without an optimum."""
    if what in presets() or found.constants is None or found.constants.optimum is None:
        return None
    run = open_run(folders_in(what)[0]) if Path(what).is_dir() else None
    return bounds_vs_run(_composition(what, changes, seed), found, run)


def _of_preset(found: Reproduction, seed: int | None, cell: str, arm: str) -> Explanation:
    where = cell or found.cells[0]
    if where not in found.cells:
        raise InvalidOption(f"{found.name} has no cell {where!r}", suggest(where, found.cells))
    arms = found.arms_of(where)
    who = arm or arms[0]
    if who not in arms:
        raise InvalidOption(
            f"{found.name} has no arm {who!r} in cell {where!r}", suggest(who, arms)
        )
    experiment = found.experiment(where, who)
    name = " · ".join(part for part in (found.name, where, who) if part)
    return explain_composition(
        compose(experiment, experiment.seeds[0] if seed is None else seed), name
    )
