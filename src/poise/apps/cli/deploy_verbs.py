"""The verbs of ``poise deploy``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from poise.apps.cli.options import (
    AsJson,
    Erase,
    GoBack,
    OptionValues,
    Plan,
    Training,
    declared_options,
)
from poise.config.unlearn_request import UnlearnRequest

deploy = typer.Typer(
    no_args_is_help=True,
    help="Set up real nodes (connected by Flower) and train on them.",
)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the deployment.")
]
Client = Annotated[
    int, typer.Argument(metavar="K", help="Number of the client whose node it is.")
]
PassphraseFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        help="File whose first line encrypts the keys in DIR/authority; default: plain."
    ),
]
To = Annotated[Path, typer.Option(help="Folder of the deployment.")]


@deploy.command()
def init(
    folder: Folder,
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 4,
    like: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help=(
                "Experiment file with one client per node; default: digits, split "
                "evenly."
            )
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address where the nodes reach the server.")
    ] = "127.0.0.1",
    passphrase_file: PassphraseFile = None,
    json: AsJson = False,
) -> None:
    """Create a deployment folder: certificates, keys, node configuration and start scripts.

    Each node gets node.toml (its data) and policy.toml (its permissions).
    """
    from poise.apps.cli import deploy

    deploy.init(
        folder,
        nodes,
        like=like,
        host=host,
        passphrase_file=passphrase_file,
        json=json,
    )


@deploy.command("add-node")
def add_node(folder: Folder, json: AsJson = False) -> None:
    """Add a node to a deployment, and register its key."""
    from poise.apps.cli import deploy

    deploy.add_node(folder, json)


@deploy.command()
def revoke(folder: Folder, client: Client, json: AsJson = False) -> None:
    """Unregister the key of a node: it can no longer connect."""
    from poise.apps.cli import deploy

    deploy.revoke(folder, client, json)


@deploy.command()
def rotate(folder: Folder, client: Client, json: AsJson = False) -> None:
    """Give a node a new key, and unregister the old one."""
    from poise.apps.cli import deploy

    deploy.rotate(folder, client, json)


@deploy.command()
def renew(
    folder: Folder, passphrase_file: PassphraseFile = None, json: AsJson = False
) -> None:
    """Renew the server's certificate, and sign the app again (after an update)."""
    from poise.apps.cli import deploy

    deploy.renew(folder, passphrase_file, json)


@deploy.command()
def up(
    folder: Folder,
    server_only: Annotated[
        bool,
        typer.Option(
            "--server-only", help="Start no nodes; start them with `poise deploy node`."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Start the server and all nodes as processes on this machine; restart them if they end."""
    from poise.apps.cli import deploy

    deploy.up(folder, server_only, json)


@deploy.command()
def server(folder: Folder) -> None:
    """Run only the server, in the foreground, for a systemd unit or a container."""
    from poise.apps.cli import deploy

    deploy.server(folder)


@deploy.command()
def node(
    folder: Annotated[
        Path,
        typer.Argument(metavar="NODE", help="Folder of the node, e.g. DIR/node-0."),
    ],
) -> None:
    """Run one node in the foreground; restart it if it ends.

    Before starting, the node checks its data, keys, port and files, and reports any
    problem.
    """
    from poise.apps.cli import deploy

    deploy.node(folder)


@deploy.command()
def status(folder: Folder, json: AsJson = False) -> None:
    """Show the processes of a deployment and the nodes that are connected."""
    from poise.apps.cli import deploy

    deploy.status(folder, json)


@deploy.command()
def down(folder: Folder, json: AsJson = False) -> None:
    """Stop all processes of a deployment."""
    from poise.apps.cli import deploy

    deploy.down(folder, json)


@deploy.command()
def run(
    file: Annotated[Path, typer.Argument(help="Experiment file (TOML).")],
    to: To,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="TABLE.KEY=VALUE", help="Override a value of the file."
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Seeds that replace those of the file: 0..4 or 0,2,5.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; default runs/<file>.")
    ] = (None),
    json: AsJson = False,
) -> None:
    """Run an experiment on the nodes; the run folders are like those of `poise run`."""
    from poise.apps.cli import deploy

    deploy.run(file, to, changes=set or [], seeds=seeds, out=out, json=json)


@deploy.command()
def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    to: To,
    go_back: GoBack = False,
    json: AsJson = False,
) -> None:
    """Continue a stopped run of the nodes from its last good round."""
    from poise.apps.cli import deploy

    deploy.resume(path, to, go_back=go_back, json=json)


@deploy.command()
@declared_options(UnlearnRequest, without=("measure_forgotten",))
def unlearn(
    run: Training,
    to: To,
    options: OptionValues,
    plan: Plan = False,
    erase: Erase = False,
    keep_nodes: Annotated[
        bool,
        typer.Option("--keep-nodes", help="Leave the clients' nodes registered."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Unlearn clients of a run of the nodes: the remaining nodes retrain.

    Afterwards, the nodes of the unlearned clients can no longer connect.

    Branches and certificates are like those of `poise unlearn`; `poise verify` checks
    them.
    """
    from poise.apps.cli.deploy import revoke_unlearned
    from poise.apps.cli.unlearn import run_request

    run_request(run, options, plan=plan, json=json, to=to, erase=erase)
    if not plan and not keep_nodes:
        revoke_unlearned(run, options, to=to, quiet=json)
