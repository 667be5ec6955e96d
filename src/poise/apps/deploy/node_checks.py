"""Look at a node's folder before it runs: what is wrong with it is told to whoever starts it, not
hours later.
"""

from __future__ import annotations

import errno
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.deploy.certificates import check_key
from poise.apps.deploy.folder import LOOPBACK, read_toml
from poise.apps.deploy.node_data import NodeData, open_node_data
from poise.apps.deploy.policy import Policy
from poise.core.errors import DataError, InvalidOption, require

KEYS = ("node.key", "tls.key")
WHOLE = "it needs the whole folder that poise deploy init made for it"


def check_node(folder: Path) -> NodeData:
    """What the node of this folder holds; raises where it could not run, or could not answer."""
    file = folder / "node.toml"
    config = read_toml(file, "give the folder of a node: DIR/node-0")
    _check_config(file, config)
    for name in (*KEYS, "tls.pem", "ca.crt"):
        _check_file(folder / name, private=name in KEYS)
    for name in KEYS:
        check_key(folder / name)
    try:
        Policy.of(read_toml(folder / "policy.toml", WHOLE))
    except InvalidOption as error:
        raise InvalidOption(f"{folder / 'policy.toml'}: {error.message}", error.hint) from error
    _check_port(file, config["port"])
    try:
        return open_node_data(config["client"], config["data"], folder)
    except InvalidOption as error:
        raise InvalidOption(f"{file}: {error.message}", error.hint) from error


def _check_config(file: Path, config: Mapping[str, Any]) -> None:
    """The keys that every node needs."""
    client, port, link = (config.get(name) for name in ("client", "port", "superlink"))
    require(
        type(client) is int and client >= 0,
        f"{file}: client = {client!r} must be a whole number, 0 or more",
    )
    require(
        type(port) is int and 0 < port < 65536,
        f"{file}: port = {port!r} must be a whole number, 1 to 65535",
    )
    host, _, door = link.rpartition(":") if isinstance(link, str) else ("", "", "")
    fits = bool(host) and door.isdecimal() and 0 < int(door) < 65536
    require(
        fits,
        f"{file}: superlink = {link!r} is not the server's address",
        'for example "10.0.0.5:9092"',
    )
    require(
        isinstance(config.get("data"), Mapping),
        f"{file} has no table [data]",
        "it names what the node holds",
    )


def _check_file(file: Path, private: bool) -> None:
    try:
        mode = file.stat().st_mode
        file.open("rb").close()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}", WHOLE) from error
    if private and stat.S_IMODE(mode) & 0o077:
        raise InvalidOption(
            f"{file} is open to others (mode {stat.S_IMODE(mode):03o})", f"chmod 600 {file}"
        )


def _check_port(file: Path, port: int) -> None:
    """Whether the node can listen on its own port."""
    with socket.socket() as place:
        place.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # one that was just given up is free
        try:
            place.bind((LOOPBACK, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = (
                "is taken: does the node run already?"
                if taken
                else f"cannot be used: {error.strerror}"
            )
            raise InvalidOption(
                f"{file}: port {port} {why}", "end what listens there, or choose another port"
            ) from error
