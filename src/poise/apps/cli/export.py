"""The verb ``poise export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from poise.ledger.run import Run


def export(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run folder, or a folder with one run per seed."
        ),
    ],
    tensorboard: Annotated[
        Path | None,
        typer.Option(help="Folder for TensorBoard event files; one subfolder per run."),
    ] = None,
    mlflow: Annotated[
        str,
        typer.Option(
            metavar="URI", help="MLflow tracking URI, e.g. sqlite:///mlflow.db."
        ),
    ] = "",
    experiment: Annotated[
        str, typer.Option(help="Name of the MLflow experiment.")
    ] = "poise",
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON document on stdout and nothing else."
        ),
    ] = False,
) -> None:
    """Export finished or running runs from their ledgers to TensorBoard or MLflow."""
    from poise.apps.cli.terminal import console, print_json
    from poise.apps.experiments.runner import runs_in
    from poise.core.errors import require

    require(
        tensorboard is not None or bool(mlflow),
        "no export target given",
        "give --tensorboard DIR, --mlflow URI, or both",
    )
    exported = []
    for run in runs_in(path):
        exported.append(_export(run, tensorboard, uri=mlflow, experiment=experiment))
    if json:
        print_json({"runs": exported})
        return
    for targets in exported:
        words = " · ".join(
            f"{key} {value}" for key, value in targets.items() if key != "run"
        )
        console.print(
            f"{targets['run']}: {words}", markup=False, highlight=False, soft_wrap=True
        )


def _export(run: Run, folder: Path | None, uri: str, experiment: str) -> dict[str, str]:
    """Export one run to each given target; returns the targets by name."""
    from poise import exports

    assert run.path is not None  # the run comes from a folder
    targets = {"run": str(run.path)}
    if folder is not None:
        run_folder = folder / run.path.parent.name / run.path.name
        targets["tensorboard"] = str(exports.tensorboard(run, run_folder))
    if uri:
        targets["mlflow"] = exports.mlflow(run, uri, experiment)
    run.close()
    return targets
