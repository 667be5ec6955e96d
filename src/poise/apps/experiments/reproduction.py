"""Reproductions: a paper's comparison as data — cells, arms, published figures, claims.

A preset is a TOML file with

    title, source, notes
    [base.*]              the tables of an experiment that all runs share
    [cells.NAME.*]        settings to compare in (data, say); tables that change [base]; arms =
    [...] where only some do [arms.NAME.*]         methods to compare; tables that change [base]
    [cells.NAME.scales.SCALE.*]   what a scale changes in that cell alone (its model, say)
    [cells.NAME.arms.ARM.*]       what a method changes in that cell alone (its own learning rate,
    say) [scales.NAME.*]       tables that change everything at a scale (small, paper); seeds under
    run; cells.NAME.* for one [scales.NAME] leaves_out = [...]   cells and arms that a scale does
    not have [base.requests], and likewise in cells, arms and scales: who is to be forgotten after
    training, and how (`Requests`) [[expected]]          cell, arm, score, paper: the published
    figure, as a number or an interval also = [...]          more scores to show
    [[claims]]            what the paper says, as a relation between two arms that can fail
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.apps.experiments.unlearning_arms import Observe, Requests, honoured, trained
from poise.config.experiment import Experiment
from poise.config.presets import PAPERS
from poise.core.errors import InvalidOption, suggest
from poise.ledger.run import Run, open_run
from poise.ledger.store import DATABASE
from poise.training import begin, compose, federation_in, resume

FOLDER = PAPERS


@dataclass(frozen=True)
class Reproduction:
    """A preset at one scale."""

    name: str
    scale: str
    preset: Mapping[str, Any]

    @property
    def cells(self) -> list[str]:
        """The settings to compare in."""
        absent = self.preset["scales"][self.scale].get("leaves_out", ())
        return [cell for cell in self.preset.get("cells", {"": {}}) if cell not in absent]

    @property
    def claims(self) -> list[Mapping[str, Any]]:
        """What the paper says of the cells that there are at this scale."""
        return [
            claim for claim in self.preset.get("claims", ()) if claim.get("cell", "") in self.cells
        ]

    @property
    def forgets(self) -> bool:
        """Whether its runs are histories of requests to forget."""
        return "requests" in self.experiment(self.cells[0], self.arms[0]).tables

    @property
    def arms(self) -> list[str]:
        """The methods to compare."""
        return list(self.preset["arms"])

    def arms_of(self, cell: str) -> list[str]:
        """The methods that are compared in one cell: all, unless it names some."""
        named = self.preset.get("cells", {}).get(cell, {}).get("arms", self.arms)
        absent = self.preset["scales"][self.scale].get("leaves_out", ())
        return [
            arm for arm in (self.arms if isinstance(named, Mapping) else named) if arm not in absent
        ]

    @property
    def seeds(self) -> list[int]:
        """The seeds of every cell and arm."""
        return list(self.experiment(self.cells[0], self.arms[0]).seeds)

    @property
    def minutes(self) -> str:
        """About how long it takes, as measured."""
        return str(self.preset["scales"][self.scale].get("takes", "unknown"))

    def experiment(self, cell: str, arm: str) -> Experiment:
        """The experiment of one arm in one cell."""
        own, scale = (
            dict(self.preset.get("cells", {}).get(cell, {})),
            self.preset["scales"][self.scale],
        )
        arms, sized = own.pop("arms", {}), own.pop("scales", {}).get(self.scale, {})
        there = arms.get(arm, {}) if isinstance(arms, Mapping) else {}
        layers = (
            self.preset["base"],
            own,
            sized,
            self.preset["arms"][arm],
            there,
            scale,
            scale.get("cells", {}).get(cell, {}),
        )
        tables: dict[str, Any] = {}
        for layer in layers:
            for table, values in layer.items():
                if table not in (
                    "arms",
                    "cells",
                    "takes",
                    "leaves_out",
                ):  # these are about the preset, not of an experiment
                    tables[table] = _merged(tables.get(table, {}), values)
        return Experiment(tables)

    def runs(
        self, out: Path, observe: Observe, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[str, str, int, Run]]:
        """Every run, kept in ``out/cell/arm/seed-k``; one that is there already is not done again.

        Of an arm with requests to forget it is the run of the last request; trainings lie in
        ``out/training``.
        """
        for seed in self.seeds:
            for cell in self.cells:
                for arm in self.arms_of(cell):
                    if stop():
                        return
                    made = self._run(cell, arm, seed=seed, out=out, observe=observe, stop=stop)
                    if made is None:
                        return
                    yield cell, arm, seed, made

    def _run(
        self, cell: str, arm: str, seed: int, out: Path, observe: Observe, stop: Callable[[], bool]
    ) -> Run | None:
        folder = out / (cell or "all") / arm / f"seed-{seed}"
        experiment = self.experiment(cell, arm)
        label = " · ".join(part for part in (cell, arm, f"seed {seed}") if part)
        if "requests" in experiment.tables:
            home = out / "training" / self.training_of(cell, arm) / f"seed-{seed}"
            training = trained(
                experiment, seed, folder=home, label=label, observe=observe, stop=stop
            )
            if training is None:
                return None
            federation = federation_in(experiment, seed)
            return honoured(
                Requests.of(experiment.tables["requests"]), training, folder, federation, stop
            )
        if (folder / DATABASE).exists():
            there = open_run(folder)
            if there.meta["status"] == "done":
                return there
            there.close()
            return resume(folder)
        composition = compose(experiment, seed)
        return begin(composition, folder, observe(label, composition))

    def training_of(self, cell: str, arm: str) -> str:
        """The name of the training of an arm: that of the first cell where some arm trains the
        same.
        """
        wanted = _training(self.experiment(cell, arm))
        return next(
            (c or "all") if a == self.arms_of(c)[0] else "-".join(filter(None, (c, a)))
            for c in self.cells
            for a in self.arms_of(c)
            if _training(self.experiment(c, a)) == wanted
        )


def load_reproduction(name: str, scale: str = "small") -> Reproduction:
    """A preset by its name."""
    known = presets()
    if name not in known:
        raise InvalidOption(f"there is no reproduction {name!r}", suggest(name, known))
    preset = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    if "same_runs_as" in preset:  # another look at the runs of another preset
        other = tomllib.loads(
            (FOLDER / f"{preset['same_runs_as']}.toml").read_text(encoding="utf-8")
        )
        preset = {
            **{k: other[k] for k in ("base", "cells", "arms", "scales") if k in other},
            **preset,
        }
    if scale not in preset["scales"]:
        raise InvalidOption(f"{name} has no scale {scale!r}", suggest(scale, preset["scales"]))
    return Reproduction(str(preset.get("same_runs_as", name)), scale, preset)


def presets() -> list[str]:
    """The names of all presets."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def _training(experiment: Experiment) -> dict[str, Any]:
    """The tables of an experiment that its training depends on: all but the method and the budget
    of requests.
    """
    ends = {
        k: v
        for k, v in experiment.tables.get("requests", {}).items()
        if k in ("target", "min_rounds")
    }
    return {**experiment.tables, "requests": ends}


def _merged(below: Any, above: Any) -> Any:
    """Tables are merged key by key, except that a table with another name replaces the one below
    it.
    """
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    if "name" in above and above["name"] != below.get("name", above["name"]):
        return dict(above)
    return {**below, **above}
