"""``poise ui``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import socket


def ui(
    runs: Annotated[
        Path, typer.Argument(metavar="[RUNS_DIR]", help="Folder with runs, at any depth.")
    ] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; off loopback, others can read.")
    ] = "127.0.0.1",
    deployment: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a deployment whose nodes may be asked to forget."),
    ] = None,
) -> None:
    """Look at runs in a browser, also while they go on. Ctrl-C ends the console, never a run."""
    import threading

    from poise.core.errors import InvalidOption, require

    try:
        import uvicorn

        from poise.apps.ui.app import create_app
        from poise.apps.ui.guard import LOOPBACK, Keys
        from poise.apps.ui.views.drawing import warm_up
    except ImportError as error:
        raise InvalidOption(f"the console needs {error.name}", "pip install 'poise[ui]'") from error
    from poise.apps.cli.terminal import remark

    require(
        runs.is_dir(),
        f"{runs} is not a folder",
        "give the folder that the runs are in, e.g. poise ui runs",
    )
    keys = Keys()
    listener = _listener(host, port)
    shown = f"[{host}]" if ":" in host else host
    remark(f"console of {runs}: http://{shown}:{listener.getsockname()[1]}/")
    remark(f"token for actions (shown once): {keys.token}")
    if host not in LOOPBACK:
        remark(

                f"warning: everyone who can reach {host} can read these runs; the connection is not "
                "encrypted"

        )
    threading.Thread(target=warm_up, daemon=True).start()
    app = create_app(runs, keys, host, deployment or [])
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
    """The socket that the console listens on; a port that is taken is told."""
    import socket

    from poise.core.errors import InvalidOption

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise InvalidOption(
            f"cannot listen on {host}:{port}: {error}", "choose another --port or --host"
        ) from error
    listener.listen(128)
    return listener
