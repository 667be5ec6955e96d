"""The verb ``poise export``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from poise.apps.cli.options import AsJson, dataclass_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from poise.exports import CardOptions
    from poise.results import Run


@dataclass(frozen=True)
class ModelFiles:
    """Where the model of one run goes."""

    safetensors: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads the type
        typer.Option(
            metavar="FILE|DIR", help="Weights as a safetensors file, by tensor name."
        ),
    ] = None
    torch: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE|DIR",
            help="State dictionary for torch.load(FILE, weights_only=True).",
        ),
    ] = None
    onnx: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE|DIR",
            help="ONNX file for any number of samples, checked with onnxruntime.",
        ),
    ] = None
    hub_folder: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="Folder for a model hub: weights, config.json and model card.",
        ),
    ] = None
    card: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE|DIR", help="Model card, written from the ledger."),
    ] = None

    @property
    def given(self) -> dict[str, Path]:
        """The targets that the user gave, by name."""
        values = {f.name: vars(self)[f.name] for f in fields(self)}
        return {name: path for name, path in values.items() if path is not None}


@dataclass(frozen=True)
class ModelChoice:
    """Which model, and what its card says."""

    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Seed of the run; default: the best final accuracy or loss."),
    ] = None
    round: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Model after this many aggregations; default: the newest."),
    ] = None
    client: Annotated[
        str,
        typer.Option(
            help="Model of this client (name or number), with its personal layers."
        ),
    ] = ""
    license: Annotated[
        str, typer.Option(help="Licence in the model card, e.g. mit.")
    ] = "unknown"
    title: Annotated[str, typer.Option(help="Headline of the model card.")] = ""
    list_clients: Annotated[
        bool,
        typer.Option(
            "--list-clients/--no-list-clients",
            help="A row for each client in the model card, or only a summary.",
        ),
    ] = True
    with_forgotten: Annotated[
        bool,
        typer.Option(
            "--with-forgotten",
            help="Export a model although clients of it were unlearned later.",
        ),
    ] = False


@dataclass(frozen=True)
class Trackers:
    """Where the values of all runs go."""

    tensorboard: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="Folder for TensorBoard event files; one subfolder per run.",
        ),
    ] = None
    mlflow: Annotated[
        str,
        typer.Option(
            metavar="URI", help="MLflow tracking URI, e.g. sqlite:///mlflow.db."
        ),
    ] = ""
    wandb: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR",
            help="Folder for Weights & Biases; offline unless WANDB_MODE says otherwise.",
        ),
    ] = None
    experiment: Annotated[
        str, typer.Option(help="Name of the MLflow experiment, or of the W&B project.")
    ] = "poise"

    @property
    def given(self) -> bool:
        """Whether the user gave a target."""
        return bool(self.tensorboard or self.mlflow or self.wandb)


@dataclass_options
def export(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Run folder, or a folder with one run per seed."
        ),
    ],
    files: ModelFiles,
    choice: ModelChoice,
    trackers: Trackers,
    json: AsJson = False,
) -> None:
    """Take the model out of a run, or send its values to a tracker.

    Example:  poise export runs/exp --onnx model.onnx --hub-folder hub
    """
    from poise.apps.cli.terminal import print_json
    from poise.apps.experiments.runner import runs_in
    from poise.core.errors import require

    runs = runs_in(path)
    require(
        bool(files.given) or trackers.given,
        "no export target given",
        "give --safetensors, --torch, --onnx, --hub-folder, --card, --tensorboard, "
        "--mlflow or --wandb",
    )
    model: dict[str, str] = {}
    if files.given:
        model = _export_model(runs, files, choice, quiet=json)
    tracked = []
    if trackers.given:
        tracked = [_track(run, trackers) for run in runs]
    for run in runs:
        run.close()
    if json:
        print_json({"model": model or None, "runs": tracked})
        return
    _show([targets for targets in (model, *tracked) if targets])


def _show(exported: Sequence[Mapping[str, str]]) -> None:
    """Print where everything went, one line per run."""
    from poise.apps.cli.terminal import console

    for targets in exported:
        words = " · ".join(
            f"{key.replace('_', ' ')} {value}"
            for key, value in targets.items()
            if key not in ("run", "reason")
        )
        console.print(
            f"{targets['run']}: {words}", markup=False, highlight=False, soft_wrap=True
        )


def _export_model(
    runs: list[Run], files: ModelFiles, choice: ModelChoice, *, quiet: bool
) -> dict[str, str]:
    """Write the model of one run to every given target; return the targets by name."""
    from poise.apps.cli.terminal import notes, remark
    from poise.exports import CardOptions, chosen_seed

    chosen = chosen_seed(runs, choice.seed)
    options = CardOptions(
        choice.license, choice.title, choice.list_clients, chosen=chosen.rule
    )
    if chosen.reason and not quiet:
        remark(chosen.reason)
    if not choice.with_forgotten:
        _refuse_forgotten(chosen.run)
    written = {"run": str(chosen.run.path)}
    if chosen.reason:
        written["reason"] = chosen.reason
    for name, target in files.given.items():
        with notes.status(f"writing {target}"):
            written[name] = str(
                _write(name, target, chosen.run, runs, choice=choice, options=options)
            )
    return written


def _write(
    name: str,
    target: Path,
    run: Run,
    runs: list[Run],
    *,
    choice: ModelChoice,
    options: CardOptions,
) -> Path:
    """Write one target of a model; return what was written."""
    from poise import exports

    n = choice.round
    client = _client(choice.client)
    if name == "hub_folder":
        return exports.hub_folder(
            run, target, runs, n=n, client=client, options=options
        )
    if name == "card":
        return exports.write_card(
            run, target, runs, n=n, client=client, options=options
        )
    writers = {
        "safetensors": exports.safetensors,
        "torch": exports.pytorch,
        "onnx": exports.onnx,
    }
    return writers[name](run, target, n=n, client=client)


def _client(given: str) -> int | str | None:
    """Return the number or the name of a client; None if none is given."""
    if given.isdecimal():
        return int(given)
    return given or None


def _refuse_forgotten(run: Run) -> None:
    """Raise if clients were unlearned after the model of a run was made."""
    from poise.core.client_names import client_title
    from poise.core.errors import IncompatibleParts
    from poise.exports.model_cards.guarantees import forgotten_after, histories_of

    with histories_of(run) as histories:
        forgotten = forgotten_after(run, histories)
        newest = histories.branch_folder(histories.newest)
        known = histories.root.client_names
    if forgotten:
        names = ", ".join(client_title(i, known) for i in forgotten)
        raise IncompatibleParts(
            f"these clients were unlearned later: {names}, and the model of {run.path} still "
            "contains them",
            f"export {newest}, or add --with-forgotten",
        )


def _track(run: Run, trackers: Trackers) -> dict[str, str]:
    """Export one run to each given tracker; return the targets by name."""
    from poise import exports

    assert run.path is not None  # the run comes from a folder
    targets = {"run": str(run.path)}
    if trackers.tensorboard is not None:
        folder = trackers.tensorboard / run.path.parent.name / run.path.name
        targets["tensorboard"] = str(exports.tensorboard(run, folder))
    if trackers.mlflow:
        targets["mlflow"] = exports.mlflow(run, trackers.mlflow, trackers.experiment)
    if trackers.wandb is not None:
        files = exports.wandb(run, trackers.wandb, trackers.experiment)
        targets["wandb"] = str(files)
    return targets
