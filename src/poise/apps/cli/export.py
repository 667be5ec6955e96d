"""``poise export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from poise.ledger.run import Run


def export(
    path: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run folder, or a folder with one run per seed.")
    ],
    tensorboard: Annotated[
        Path | None, typer.Option(help="Folder for event files, one below it per run.")
    ] = None,
    mlflow: Annotated[
        str, typer.Option(metavar="URI", help="Store of MLflow, e.g. sqlite:///mlflow.db.")
    ] = "",
    experiment: Annotated[str, typer.Option(help="MLflow's experiment.")] = "poise",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
    ] = False,
) -> None:
    """Write runs where TensorBoard or MLflow finds them; everything is read from the ledger."""
    from poise.apps.cli.terminal import console, print_json
    from poise.apps.experiments.runner import runs_in
    from poise.core.errors import require

    require(
        tensorboard is not None or bool(mlflow),
        "export where?",
        "give --tensorboard DIR, --mlflow URI, or both",
    )
    done = [_export(run, tensorboard, mlflow, experiment) for run in runs_in(path)]
    if json:
        print_json({"runs": done})
        return
    for one in done:
        places = " · ".join(f"{key} {value}" for key, value in one.items() if key != "run")
        console.print(f"{one['run']}: {places}", markup=False, highlight=False, soft_wrap=True)


def _export(run: Run, folder: Path | None, uri: str, experiment: str) -> dict[str, str]:
    """One run, into each place that was asked for."""
    from poise import exports

    assert run.path is not None  # it was found in a folder
    found = {"run": str(run.path)}
    if folder is not None:
        found["tensorboard"] = str(
            exports.tensorboard(run, folder / run.path.parent.name / run.path.name)
        )
    if uri:
        found["mlflow"] = exports.mlflow(run, uri, experiment)
    run.close()
    return found
