"""The verbs of ``poise deploy``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from poise.apps.cli.options import AsJson, Given, Plan, Training, asks
from poise.config.unlearn_request import UnlearnRequest

deploy = typer.Typer(
    no_args_is_help=True, help="Real nodes, carried by Flower: set them up, run on them."
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the deployment.")]
To = Annotated[Path, typer.Option(help="Folder of the deployment.")]


@deploy.command()
def init(
    folder: Folder,
    nodes: Annotated[int, typer.Option(help="How many nodes.")] = 4,
    like: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help=(
                "Experiment file whose clients the nodes are; the digits, dealt evenly, by default."
            )
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address at which nodes find the server.")
    ] = "127.0.0.1",
    json: AsJson = False,
) -> None:
    """Write certificates, keys, what each node holds (node.toml) and allows (policy.toml), and what
    starts them.
    """
    from poise.apps.cli import deploy

    deploy.init(folder, nodes, like, host, json)


@deploy.command()
def up(
    folder: Folder,
    server_only: Annotated[
        bool, typer.Option("--server-only", help="Nodes run elsewhere: poise deploy node.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Start server and nodes on this machine as real processes; whatever ends is started again."""
    from poise.apps.cli import deploy

    deploy.up(folder, server_only, json)


@deploy.command()
def server(folder: Folder) -> None:
    """Run the server in the foreground: what a unit or a container starts. Nodes run elsewhere."""
    from poise.apps.cli import deploy

    deploy.server(folder)


@deploy.command()
def node(
    folder: Annotated[Path, typer.Argument(metavar="NODE", help="A node's folder, DIR/node-0.")],
) -> None:
    """Run one node in the foreground, from its folder; it is started again whenever it ends."""
    from poise.apps.cli import deploy

    deploy.node(folder)


@deploy.command()
def status(folder: Folder, json: AsJson = False) -> None:
    """Which processes run, and which nodes the server sees."""
    from poise.apps.cli import deploy

    deploy.status(folder, json)


@deploy.command()
def down(folder: Folder, json: AsJson = False) -> None:
    """End all processes of a deployment."""
    from poise.apps.cli import deploy

    deploy.down(folder, json)


@deploy.command()
def run(
    file: Annotated[Path, typer.Argument(help="Experiment file (TOML).")],
    to: To,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds instead of the file's: 0..4 or 0,2,5.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; runs/<file> by default.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run an experiment on the nodes; the run folder is that of `poise run`."""
    from poise.apps.cli import deploy

    deploy.run(file, to, changes=set or [], seeds=seeds, out=out, json=json)


@deploy.command()
def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    to: To,
    json: AsJson = False,
) -> None:
    """Take a run of the nodes up at its last good round."""
    from poise.apps.cli import deploy

    deploy.resume(path, to, json)


@deploy.command()
@asks(UnlearnRequest, without=("measure_forgotten",))
def unlearn(
    run: Training, to: To, options: Given, plan: Plan = False, json: AsJson = False
) -> None:
    """Forget clients of a run of the nodes: retrain on those that stay; the others are not asked
    any more.

    Branches and certificates are those of `poise unlearn`, and `poise verify` checks them.
    """
    from poise.apps.cli.unlearn import forget

    forget(run, options, plan, json, to)
