"""The verb ``poise ui``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import socket


def ui(
    runs: Annotated[
        Path,
        typer.Argument(
            metavar="[RUNS_DIR]", help="Folder that contains runs, at any depth."
        ),
    ] = Path("runs"),
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 picks a free port.")
    ] = 8765,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; other machines can reach a non-loopback address."
        ),
    ] = "127.0.0.1",
    deployment: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a deployment: shows its nodes, and lets requests to "
            "unlearn clients reach them; repeatable."
        ),
    ] = None,
) -> None:
    """Show runs in a browser, live while they train.

    Ctrl-C ends the console. Runs continue.
    """
    import threading

    from poise.core.errors import InvalidOption, require

    try:
        import uvicorn

        from poise.apps.ui.app import create_app
        from poise.apps.ui.guard import LOOPBACK, TOKEN, Keys
        from poise.apps.ui.views.drawing import warm_up
    except ImportError as error:
        raise InvalidOption(
            f"the console needs the package {error.name}",
            "install it with: pip install 'poise[ui]'",
        ) from error
    from poise.apps.cli.terminal import remark

    require(
        runs.is_dir(),
        f"{runs} is not a folder",
        "give the folder that contains the runs, e.g. poise ui runs",
    )
    keys = Keys()
    listener = _listener(host, port)
    address = host
    if ":" in host:
        address = f"[{host}]"
    home = f"http://{address}:{listener.getsockname()[1]}/"
    remark(f"console of {runs}: {home}?{TOKEN}={keys.token}")
    if host not in LOOPBACK:
        remark(
            f"warning: other machines can reach {host}, and the connection is not "
            "encrypted: who listens to it can read these runs and the token"
        )
    threading.Thread(target=warm_up, daemon=True).start()
    app = create_app(runs, keys, host=host, deployments=deployment or [])
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        server_header=False,
        lifespan="off",
        ws="none",
    )
    uvicorn.Server(config).run([listener])


def _listener(host: str, port: int) -> socket.socket:
    """Open the socket of the console; raise an error if the port is in use."""
    import socket

    from poise.core.errors import InvalidOption

    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise InvalidOption(
            f"cannot listen on {host}:{port}: {error}",
            "choose another --port or --host",
        ) from error
    listener.listen(128)
    return listener
