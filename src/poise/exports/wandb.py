"""Export of runs to Weights & Biases, offline unless the user asks for the network."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from poise.core.disk import make_folder
from poise.core.errors import InvalidOption, require
from poise.exports.scalars import Scalar, export, facts
from poise.results import Run

MODE = "WANDB_MODE"
"""The environment variable that chooses a mode."""

MODES = ("offline", "online", "shared", "disabled")


def wandb(
    run: Run,
    folder: str | Path,
    project: str = "poise",
    name: str | None = None,
    mode: str | None = None,
) -> Path:
    """Write a run into a folder for Weights & Biases; return the folder of its files.

    ``wandb sync FOLDER`` uploads the files. W&B's service completes them a moment after
    this function returns, at the latest when the process ends. Arguments as for `WandB`.
    """
    sink = WandB(folder, project, name=name, mode=mode)
    export(run, sink)
    return sink.files


class WandB:
    """A sink that writes a run of Weights & Biases.

    Options become the configuration, values per round become metrics, digest and status
    become entries of the summary. The files name neither the machine nor the user, its
    packages or its code.

    Args:
        folder: where the files go, in ``wandb/offline-run-…``.
        project: the project of W&B.
        name: the name of W&B's run; by default, that of the run folder.
        mode: ``"offline"`` opens no network, ``"online"`` uploads at once; None is the
            mode of the environment variable ``WANDB_MODE``, else ``"offline"``.
    """

    def __init__(
        self,
        folder: str | Path,
        project: str = "poise",
        *,
        name: str | None = None,
        mode: str | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.project = project
        self.name = name
        self.mode = mode or os.environ.get(MODE, "offline")
        require(
            self.mode in MODES,
            f"W&B has no mode {self.mode!r}",
            f"one of {', '.join(MODES)}",
        )
        self.files = self.folder
        self._run: Any = None

    def begin(self, run: Run) -> None:
        """Create the run, with its configuration."""
        # no reports of failures to the makers of W&B
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        try:
            import wandb as client
        except ImportError as error:
            raise InvalidOption(
                "Weights & Biases is not installed", "pip install 'poise[wandb]'"
            ) from error
        try:
            make_folder(self.folder)
        except OSError as error:
            raise InvalidOption(
                f"cannot write into {self.folder}: {error.strerror}",
                "choose another folder",
            ) from error
        name = self.name
        if not name and run.path is not None:
            name = "-".join(run.path.parts[-2:])
        try:
            self._run = client.init(
                project=self.project,
                name=name,
                dir=str(self.folder),
                config=facts(run),
                mode=self.mode,
                reinit="create_new",  # leaves a run of the user's own script alone
                settings=_settings(client),
            )
        except (client.Error, ValueError) as error:
            raise InvalidOption(
                f"Weights & Biases refuses the run: {error}",
                "check project, name and mode",
            ) from error
        self.files = Path(self._run.dir).parent

    def write(self, numbers: Iterable[Scalar]) -> None:
        """Log the values, one entry per round."""
        for step, of_round in groupby(numbers, key=lambda number: number.step):
            values = {number.name: number.value for number in of_round}
            self._run.log(values, step=step)

    def end(self, run: Run) -> None:
        """Write the summary, and close the files."""
        if self._run is None:
            return
        status = run.meta["status"]
        self._run.summary["poise.digest"] = run.digest
        self._run.summary["poise.status"] = status
        exit_code = 0 if status == "done" else 1
        self._run.finish(exit_code=exit_code)


def _settings(client: ModuleType) -> Any:
    """Return settings without output, and without facts about machine, user and code."""
    return client.Settings(
        silent=True,
        console="off",
        disable_git=True,
        host="",
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
