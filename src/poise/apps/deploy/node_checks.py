"""Checks before a node starts: configuration, keys, policy, port and data."""

from __future__ import annotations

import errno
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.deploy.certificates import check_key
from poise.apps.deploy.folder import LOOPBACK, read_toml
from poise.apps.deploy.guard import TRUSTED
from poise.apps.deploy.node_data import NodeData, open_node_data
from poise.apps.deploy.policy import Policy
from poise.core.errors import DataError, InvalidOption, require

KEYS = ("node.key", "tls.key")
COMPLETE = "the node needs the complete folder that poise deploy init created for it"


def check_node(folder: Path) -> NodeData:
    """The data of the node in this folder; raises if the node could not work."""
    file = folder / "node.toml"
    config = read_toml(file, "give the folder of a node: DIR/node-0")
    _check_config(file, config)
    for name in (*KEYS, "tls.pem", "ca.crt", "local.crt", TRUSTED):
        _check_file(folder / name, private=name in KEYS)
    for name in KEYS:
        check_key(folder / name)
    try:
        Policy.of(read_toml(folder / "policy.toml", COMPLETE))
    except InvalidOption as error:
        raise InvalidOption(
            f"{folder / 'policy.toml'}: {error.message}", error.hint
        ) from error
    _check_port(file, config["port"])
    try:
        return open_node_data(config["client"], config["data"], folder)
    except InvalidOption as error:
        raise InvalidOption(f"{file}: {error.message}", error.hint) from error


def _check_config(file: Path, config: Mapping[str, Any]) -> None:
    """Check the keys that every ``node.toml`` needs."""
    client = config.get("client")
    port = config.get("port")
    address = config.get("superlink")
    require(
        type(client) is int and client >= 0,
        f"{file}: client = {client!r} must be a whole number, 0 or more",
    )
    require(
        type(port) is int and 0 < port < 65536,
        f"{file}: port = {port!r} must be a whole number, 1 to 65535",
    )
    host, _, server_port = str(address).rpartition(":")
    is_port = server_port.isdecimal() and 0 < int(server_port) < 65536
    require(
        isinstance(address, str) and bool(host) and is_port,
        f"{file}: superlink = {address!r} is not the server's address",
        'for example "10.0.0.5:9092"',
    )
    require(
        isinstance(config.get("data"), Mapping),
        f"{file} has no table [data]",
        "add one that names the data of the node",
    )


def _check_file(file: Path, private: bool) -> None:
    try:
        mode = file.stat().st_mode
        file.open("rb").close()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}", COMPLETE) from error
    if private and stat.S_IMODE(mode) & 0o077:
        raise InvalidOption(
            f"other users can read {file} (mode {stat.S_IMODE(mode):03o})",
            f"chmod 600 {file}",
        )


def _check_port(file: Path, port: int) -> None:
    """Check that the node can listen on its port."""
    with socket.socket() as probe:
        # a port just released is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            reason = f"cannot be used: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                reason = "is taken: is the node already running?"
            raise InvalidOption(
                f"{file}: port {port} {reason}",
                "stop the process that uses the port, or choose another port",
            ) from error
