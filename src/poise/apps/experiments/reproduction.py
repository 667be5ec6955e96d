"""Reproductions: the comparisons of a paper as data (cells, arms, published figures, claims).

A preset is a TOML file with these keys:

    title, source, notes
    [base.*]                      tables of the experiment that all runs share
    [cells.NAME.*]                settings to compare in (for example, data): changes to [base];
                                  arms = [...] if the cell has only some arms
    [arms.NAME.*]                 methods to compare: changes to [base]
    [cells.NAME.scales.SCALE.*]   changes of a scale in one cell (for example, its model)
    [cells.NAME.arms.ARM.*]       changes of an arm in one cell (for example, its learning rate)
    [scales.NAME.*]               changes of a scale (small, paper) to everything; seeds under run;
                                  cells.NAME.* for one cell
    [scales.NAME] leaves_out      cells and arms that the scale does not have
    [base.requests]               unlearning requests after the training (`Requests`); also in
                                  cells, arms and scales; whole_training = true trains for all
                                  rounds of [run], not only until the target
    [[expected]]                  cell, arm, score, paper: the published figure, as a number or an
                                  interval
    also = [...]                  more scores to show
    [[claims]]                    claims of the paper, as relations between two arms
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from poise.apps.experiments.unlearning_arms import (
    WHOLE_TRAINING,
    Observe,
    Requests,
    fulfil_all,
    trained,
)
from poise.config.experiment import Experiment
from poise.config.presets import PAPERS
from poise.core.errors import InvalidOption, suggest
from poise.ledger.store import DATABASE
from poise.results import Run, open_run
from poise.training import begin, compose, federation_in, resume

FOLDER = PAPERS
PRESET_KEYS = ("arms", "cells", "takes", "leaves_out")  # not tables of an experiment


@dataclass(frozen=True)
class Selection:
    """The part of a preset to run: seeds, cells and arms; empty means all."""

    seeds: tuple[int, ...] = ()
    cells: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A preset at one scale, or a selection of it."""

    name: str
    scale: str
    preset: Mapping[str, Any]
    selection: Selection = Selection()

    @property
    def cells(self) -> list[str]:
        """The settings in which the methods are compared."""
        absent = self.preset["scales"][self.scale].get("leaves_out", ())
        cells = [
            cell for cell in self.preset.get("cells", {"": {}}) if cell not in absent
        ]
        return _selected(cells, self.selection.cells)

    @property
    def claims(self) -> list[Mapping[str, Any]]:
        """The claims of the paper about the selected cells and arms of this scale."""
        return [c for c in self.preset.get("claims", ()) if self._has_runs_of(c)]

    @property
    def unchecked_claims(self) -> int:
        """How many claims of the preset need cells or arms that are not here."""
        return len(self.preset.get("claims", ())) - len(self.claims)

    def _has_runs_of(self, claim: Mapping[str, Any]) -> bool:
        """Whether every cell and arm of a claim is selected."""
        cell = claim.get("cell", "")
        others = ("right_cell", "than_cell", "headroom_cell")
        cells = {cell, *(claim[key] for key in others if key in claim)}
        arms = {claim[side] for side in ("left", "right") if side in claim}
        if not cells <= set(self.cells):
            return False
        if not self.selection.arms:
            return True
        return arms <= set(self.selection.arms)

    @property
    def forgets(self) -> bool:
        """Whether its runs are histories of unlearning requests."""
        return "requests" in self.experiment(self.cells[0], self.arms[0]).tables

    @property
    def arms(self) -> list[str]:
        """The methods to compare."""
        return _selected(list(self.preset["arms"]), self.selection.arms)

    def arms_of(self, cell: str) -> list[str]:
        """The methods of one cell: all, unless the cell lists its arms."""
        arms = self.preset.get("cells", {}).get(cell, {}).get("arms", self.arms)
        if isinstance(arms, Mapping):  # changes of arms in this cell, not a list
            arms = self.arms
        absent = self.preset["scales"][self.scale].get("leaves_out", ())
        return _selected([a for a in arms if a not in absent], self.selection.arms)

    @property
    def seeds(self) -> list[int]:
        """The seeds of every cell and arm."""
        if self.selection.seeds:
            return list(self.selection.seeds)
        return list(self.experiment(self.cells[0], self.arms[0]).seeds)

    @property
    def minutes(self) -> str:
        """The approximate duration, as measured."""
        return str(self.preset["scales"][self.scale].get("takes", "unknown"))

    def experiment(self, cell: str, arm: str) -> Experiment:
        """The experiment of one arm in one cell."""
        scale = self.preset["scales"][self.scale]
        cell_tables = dict(self.preset.get("cells", {}).get(cell, {}))
        cell_arms = cell_tables.pop("arms", {})
        cell_scales = cell_tables.pop("scales", {})
        layers = (
            self.preset["base"],
            cell_tables,
            cell_scales.get(self.scale, {}),
            self.preset["arms"][arm],
            cell_arms.get(arm, {}) if isinstance(cell_arms, Mapping) else {},
            scale,
            scale.get("cells", {}).get(cell, {}),
        )
        tables: dict[str, Any] = {}
        for layer in layers:
            for table, values in layer.items():
                if table not in PRESET_KEYS:
                    tables[table] = _merge(tables.get(table, {}), values)
        return Experiment(tables)

    def runs(
        self, out: Path, observe: Observe, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[str, str, int, Run]]:
        """All runs with cell, arm and seed, in ``out/cell/arm/seed-k``; existing runs are reused.

        An arm with unlearning requests yields the run of its last request; its training
        is in ``out/training``.
        """
        for seed in self.seeds:
            for cell in self.cells:
                for arm in self.arms_of(cell):
                    if stop():
                        return
                    run = self._run(
                        cell, arm, seed=seed, out=out, observe=observe, stop=stop
                    )
                    if run is None:
                        return
                    yield cell, arm, seed, run

    def _run(
        self,
        cell: str,
        arm: str,
        seed: int,
        out: Path,
        observe: Observe,
        stop: Callable[[], bool],
    ) -> Run | None:
        """One run, new, resumed or finished before; None if stopped."""
        folder = out / (cell or "all") / arm / f"seed-{seed}"
        experiment = self.experiment(cell, arm)
        label = " · ".join(part for part in (cell, arm, f"seed {seed}") if part)
        if "requests" in experiment.tables:
            training_folder = (
                out / "training" / self.training_of(cell, arm) / f"seed-{seed}"
            )
            training = trained(
                experiment,
                seed,
                folder=training_folder,
                label=label,
                observe=observe,
                stop=stop,
            )
            if training is None:
                return None
            return fulfil_all(
                Requests.of(experiment.tables["requests"]),
                training,
                folder=folder,
                federation=federation_in(experiment, seed),
                stop=stop,
            )
        if (folder / DATABASE).exists():
            existing = open_run(folder)
            if existing.meta["status"] in ("done", "diverged"):
                return existing
            existing.close()
            return resume(folder, progress=False)
        composition = compose(experiment, seed)
        return begin(composition, folder, observe(label, composition))

    def training_of(self, cell: str, arm: str) -> str:
        """The name of an arm's training, after the first cell and arm with the same training."""
        wanted = _training_tables(self.experiment(cell, arm))
        whole = replace(self, selection=Selection())  # a selection has the same folders
        for other_cell in whole.cells:
            arms = whole.arms_of(other_cell)
            for other_arm in arms:
                if _training_tables(self.experiment(other_cell, other_arm)) != wanted:
                    continue
                if other_arm == arms[0]:
                    return other_cell or "all"
                return "-".join(filter(None, (other_cell, other_arm)))
        raise InvalidOption(f"{self.name} has no arm {arm!r} in cell {cell!r}")


def _selected(names: list[str], wanted: tuple[str, ...]) -> list[str]:
    """Return the wanted names in the order of the preset; all if none is wanted."""
    if not wanted:
        return names
    return [name for name in names if name in wanted]


def load_reproduction(
    name: str, scale: str = "small", selection: Selection = Selection()
) -> Reproduction:
    """A preset by its name, or a selection of it."""
    known = presets()
    if name not in known:
        raise InvalidOption(f"there is no reproduction {name!r}", suggest(name, known))
    preset = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    if (
        "same_runs_as" in preset
    ):  # other figures and claims for the runs of another preset
        other = tomllib.loads(
            (FOLDER / f"{preset['same_runs_as']}.toml").read_text(encoding="utf-8")
        )
        shared: dict[str, Any] = {
            key: other[key]
            for key in ("base", "cells", "arms", "scales")
            if key in other
        }
        preset = {**shared, **preset}
    if scale not in preset["scales"]:
        raise InvalidOption(
            f"{name} has no scale {scale!r}", suggest(scale, preset["scales"])
        )
    whole = Reproduction(str(preset.get("same_runs_as", name)), scale, preset)
    _check_names("cell", selection.cells, whole.cells, preset=name)
    _check_names("arm", selection.arms, whole.arms, preset=name)
    chosen = replace(whole, selection=selection)
    empty = [cell for cell in chosen.cells if not chosen.arms_of(cell)]
    if empty:
        raise InvalidOption(
            f"cell {empty[0]!r} of {name} has none of the arms "
            f"{', '.join(selection.arms)}",
            f"it has {', '.join(whole.arms_of(empty[0]))}",
        )
    return chosen


def _check_names(
    kind: str, wanted: tuple[str, ...], known: list[str], preset: str
) -> None:
    """Raise for a cell or an arm that the preset lacks."""
    for name in wanted:
        if name not in known:
            raise InvalidOption(
                f"{preset} has no {kind} {name!r}", suggest(name, known)
            )


def presets() -> list[str]:
    """The names of all presets."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def _training_tables(experiment: Experiment) -> dict[str, Any]:
    """The tables that the training depends on: all but the method and the budget of requests."""
    requests = experiment.tables.get("requests", {})
    keys: tuple[str, ...] = ("target", "min_rounds")
    if requests.get(WHOLE_TRAINING):
        keys = (WHOLE_TRAINING,)
    goal = {key: requests[key] for key in keys if key in requests}
    return {**experiment.tables, "requests": goal}


def _merge(below: Any, above: Any) -> Any:
    """Merge two tables key by key; a table with another ``name`` replaces the one below."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    if "name" in above and above["name"] != below.get("name", above["name"]):
        return dict(above)
    return {**below, **above}
