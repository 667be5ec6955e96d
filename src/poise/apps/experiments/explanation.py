"""Explanations of experiment files, runs and reproductions by the theory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from poise.analysis.explain import Explanation, explain_composition, left_out
from poise.analysis.explain.bounds_vs_run import BoundsVsRun, bounds_vs_run
from poise.apps.experiments.reproduction import Reproduction, load_reproduction, presets
from poise.apps.experiments.runner import folders_in
from poise.config.experiment import load, refuse_missing_file
from poise.core.capabilities import LimitsSensitivity
from poise.core.errors import InvalidOption, suggest
from poise.results import open_run
from poise.training import Composition, compose, reads_files, recorded


def explain_named(
    target: str,
    changes: Iterable[str] = (),
    seed: int | None = None,
    cell: str = "",
    arm: str = "",
    scale: str = "small",
) -> Explanation:
    """Explain an experiment file, a run folder, or a reproduction by its name.

    Args:
        target: the file, the folder, or the name of a preset.
        changes: ``table.key=value``, for a file.
        seed: the seed of the federation and the initial model; by default, the
            experiment's first.
        cell: the cell of a reproduction; its first by default.
        arm: the arm of a reproduction; its first by default.
        scale: the scale of a reproduction.
    """
    path = Path(target)
    is_preset_file = (
        path.suffix == ".toml" and path.stem in presets() and "papers" in path.parts
    )
    if target in presets() or is_preset_file:
        reproduction = load_reproduction(path.stem if is_preset_file else target, scale)
        return _explain_preset(reproduction, seed, cell=cell, arm=arm)
    composition = _composition(target, changes, seed)
    explanation = explain_composition(composition, name=target)
    if path.is_dir() and isinstance(composition.parts.sampler, LimitsSensitivity):
        run = open_run(folders_in(path)[0])
        remark = left_out(run).remark()
        run.close()
        return replace(explanation, remarks=(*explanation.remarks, remark))
    return explanation


def _composition(target: str, changes: Iterable[str], seed: int | None) -> Composition:
    """The composition of an experiment file or a run folder."""
    path = Path(target)
    if path.is_dir():
        experiment = recorded(folders_in(path)[0])
        if reads_files(experiment):
            raise InvalidOption(
                f"{target}: explaining this run needs its data file",
                "a run folder makes poise read files only to resume or unlearn; explain "
                "your experiment file instead",
            )
    elif path.exists():
        experiment = load(path, changes)
    else:
        refuse_missing_file(target)
        raise InvalidOption(
            f"{target!r} is neither an experiment file nor a run nor a reproduction",
            suggest(target, presets()),
        )
    return compose(experiment, experiment.seeds[0] if seed is None else seed)


def bounds_of(
    target: str,
    explanation: Explanation,
    changes: Iterable[str] = (),
    seed: int | None = None,
) -> BoundsVsRun | None:
    """Bound, predicted bias and, for a run folder, the measured curve.

    None for a reproduction, and if the explanation has no optimum of the problem.
    """
    constants = explanation.constants
    if target in presets() or constants is None or constants.optimum is None:
        return None
    run = open_run(folders_in(target)[0]) if Path(target).is_dir() else None
    return bounds_vs_run(_composition(target, changes, seed), explanation, run)


def _explain_preset(
    reproduction: Reproduction, seed: int | None, cell: str, arm: str
) -> Explanation:
    """Explain one arm in one cell of a reproduction."""
    cells = reproduction.cells
    cell = cell or cells[0]
    if cell not in cells:
        raise InvalidOption(
            f"{reproduction.name} has no cell {cell!r}", suggest(cell, cells)
        )
    arms = reproduction.arms_of(cell)
    arm = arm or arms[0]
    if arm not in arms:
        raise InvalidOption(
            f"{reproduction.name} has no arm {arm!r} in cell {cell!r}",
            suggest(arm, arms),
        )
    experiment = reproduction.experiment(cell, arm)
    name = " · ".join(part for part in (reproduction.name, cell, arm) if part)
    composition = compose(experiment, experiment.seeds[0] if seed is None else seed)
    return explain_composition(composition, name)
