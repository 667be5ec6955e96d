"""A deployment's folder: addresses, keys, configuration and policy of each node."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from poise.apps.deploy.certificates import (
    check_installed,
    make_authority,
    make_local_certificate,
    make_node_key,
    make_server_certificate,
)
from poise.apps.deploy.guard import SIGNATURE, TRUSTED, sign_app, write_trust
from poise.apps.deploy.start_scripts import write_starters
from poise.core.disk import write_files
from poise.core.errors import DataError, InvalidOption, require

LOOPBACK = "127.0.0.1"
# environment variables of the processes of a deployment
DESCRIPTION = "deployment.toml"
MARK = "POISE_DEPLOY"  # the folder that a process belongs to
BOOT = "POISE_BOOT"  # identifies one start of a process and of its children
NODE = "POISE_NODE"  # the folder of the node that a process belongs to

# one file each: the process that a node starts for every message imports no server code
_APPS = {
    "client": "from poise.apps.deploy.node import client_app\n\napp = client_app()\n",
    "server": "from poise.apps.deploy.server import server_app\n\napp = server_app()\n",
}
_PROJECT: dict[str, Any] = {
    "project": {
        "name": "poise",
        "version": "1.0.0",
        "license": "Apache-2.0",
        "dependencies": [],
    },
    "tool": {
        "flwr": {
            "app": {
                "publisher": "poise",
                "components": {
                    "serverapp": "poise_app.server:app",
                    "clientapp": "poise_app.client:app",
                },
                "config": {"job": ""},
            }
        }
    },
}


@dataclass(frozen=True)
class Deployment:
    """A deployment's folder and the values of its ``deployment.toml``."""

    path: Path
    nodes: int
    port: int
    host: str = LOOPBACK  # where the server listens

    @property
    def server(self) -> Path:
        """The folder of the server: certificate, database, jobs."""
        return self.path / "server"

    @property
    def authority(self) -> Path:
        """The folder of the keys that sign certificates and the app; best kept offline."""
        return self.path / "authority"

    @property
    def jobs(self) -> Path:
        """The folder of jobs: requested runs and their progress."""
        return self.server / "jobs"

    @property
    def logs(self) -> Path:
        """The folder of the processes' logs."""
        return self.path / "logs"

    def node(self, client: int) -> Path:
        """The folder of a node, complete: its operator needs nothing else."""
        return self.path / f"node-{client}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment for Flower's programs, without telemetry or update checks."""
        return environment(self.path, self.server / "flwr")

    def files(self) -> list[str]:
        """All files in the folder, relative to it."""
        return sorted(
            str(f.relative_to(self.path)) for f in self.path.rglob("*") if f.is_file()
        )

    def registered(self) -> dict[int, int]:
        """Flower's node id of each client, as registered with its key."""
        file = self.server / "nodes.json"
        if not file.exists():
            return {}
        node_ids = json.loads(file.read_text(encoding="utf-8"))
        return {int(client): int(node) for client, node in node_ids.items()}

    def write_registered(self, node_ids: Mapping[int, int]) -> None:
        """Store Flower's node id of each client."""
        text = json.dumps({str(client): str(node) for client, node in node_ids.items()})
        write_files({self.server / "nodes.json": text.encode()})

    def changes(self) -> dict[str, list[int]]:
        """Clients that were revoked, and node ids that are still to be unregistered."""
        file = self.server / "changes.json"
        changes: dict[str, list[int]] = {"revoked": [], "retired": []}
        if file.exists():
            changes |= json.loads(file.read_text(encoding="utf-8"))
        return changes

    def write_changes(self, changes: Mapping[str, list[int]]) -> None:
        """Store what `changes` reads."""
        text = json.dumps(dict(changes))
        write_files({self.server / "changes.json": text.encode()})

    def admitted(self) -> list[int]:
        """Clients whose nodes were not revoked."""
        revoked = self.changes()["revoked"]
        return [client for client in range(self.nodes) if client not in revoked]

    def require_guard(self) -> None:
        """Raise if the folder is from a version without guard and signed app."""
        files = [self.server / SIGNATURE, self.server / "app.pub"]
        for client in range(self.nodes):
            folder = self.node(client)
            if (folder / "node.key").exists():  # the others are elsewhere
                files += [folder / TRUSTED, folder / "local.crt"]
        for file in files:
            require(
                file.exists(),
                f"{self.path} is not protected against outsiders: {file} is missing",
                "make a new folder: poise deploy init DIR",
            )

    def state(self) -> dict[str, Any]:
        """The supervisor's last state; empty if no supervisor has run."""
        file = self.path / "state.json"
        if not file.exists():
            return {}
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return state


def environment(marked: Path, home: Path) -> dict[str, str]:
    """Environment of a process of the folder ``marked``; ``home`` is Flower's."""
    return {
        **os.environ,
        MARK: str(marked),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def is_deployment(path: str | Path) -> bool:
    """Whether `make_deployment` created a folder here."""
    return (Path(path) / DESCRIPTION).exists()


def open_deployment(path: str | Path) -> Deployment:
    """Open a folder that `make_deployment` created."""
    folder = Path(path).resolve()
    table = read_toml(
        folder / DESCRIPTION, "create one: poise deploy init DIR --nodes 4"
    )
    return Deployment(
        folder, int(table["nodes"]), port=int(table["port"]), host=str(table["host"])
    )


def make_deployment(
    path: str | Path,
    nodes: int,
    data: Mapping[str, Any],
    host: str = LOOPBACK,
    passphrase: bytes | None = None,
) -> Deployment:
    """Create a deployment: certificates, keys, configurations, policies and scripts.

    Args:
        path: a new or empty folder.
        nodes: number of nodes.
        data: the initial ``[data]`` of the nodes: node k holds client k of
            ``poise.federation(**data)``.
        host: the address at which nodes reach the server; the loopback for local tests.
        passphrase: encrypts the keys of the authority, if given.
    """
    check_installed()
    require(nodes >= 1, f"--nodes must be at least 1, not {nodes}")
    folder = Path(path).resolve()
    require(
        str(folder).isprintable(),
        f"the path {str(folder)!r} has characters that configuration files cannot hold",
    )
    if folder.exists() and any(folder.iterdir()):
        raise InvalidOption(f"{folder} is not empty", "choose another folder")
    ports = free_ports(nodes + 1)
    deployment = Deployment(folder, nodes, port=ports[0], host=host)
    private_folders = [deployment.server, deployment.authority]
    other_folders = [
        deployment.server / "flwr",
        deployment.server / "app" / "poise_app",
        deployment.jobs,
        deployment.logs,
    ]
    for new_folder in (*private_folders, *other_folders):
        new_folder.mkdir(parents=True)
    for private in private_folders:
        private.chmod(0o700)
    make_authority(deployment.authority, deployment.server, passphrase)
    _write_server(deployment)
    sign(deployment, passphrase)
    for client in range(nodes):
        write_node(deployment, client, port=ports[client + 1], data=data)
    write_deployment(deployment)
    return deployment


def sign(deployment: Deployment, passphrase: bytes | None) -> None:
    """Write a new certificate of the server and a new signature of the app."""
    hosts = sorted({LOOPBACK, "localhost", deployment.host})
    make_server_certificate(
        deployment.server, hosts, authority=deployment.authority, passphrase=passphrase
    )
    sign_app(deployment.server, deployment.authority, passphrase)


def write_deployment(deployment: Deployment) -> None:
    """Write ``deployment.toml``, and the files that start server and nodes."""
    write_starters(deployment.path, deployment.nodes)
    _write_toml(
        deployment.path / DESCRIPTION,
        {"nodes": deployment.nodes, "host": deployment.host, "port": deployment.port},
    )


def write_node(
    deployment: Deployment, client: int, port: int, data: Mapping[str, Any]
) -> None:
    """Create a node's folder: keys, certificates, configuration and policy."""
    folder = deployment.node(client)
    folder.mkdir(mode=0o700)
    make_node_key(folder)
    make_local_certificate(folder)
    shutil.copy(deployment.server / "ca.crt", folder / "ca.crt")
    write_trust(deployment.server, folder)
    config: dict[str, Any] = {
        "client": client,
        "superlink": f"{deployment.host}:{deployment.port}",
        "port": port,
        "data": dict(data),
    }
    if "source" in data:
        config["data"] = {**data, "client": client}
    _write_toml(folder / "node.toml", config)
    from poise.apps.deploy.policy import Policy  # imports PyTorch, which takes seconds

    _write_toml(folder / "policy.toml", Policy().table())


def _write_server(deployment: Deployment) -> None:
    """Write the server's secret, the configuration of Flower's tools, and the app."""
    secret = deployment.server / "secret"
    secret.write_bytes(secrets.token_bytes(32))
    secret.chmod(0o600)
    connection = {
        "address": f"{deployment.host}:{deployment.port}",
        "root-certificates": str(deployment.server / "ca.crt"),
    }
    _write_toml(
        deployment.server / "flwr" / "config.toml",
        {"superlink": {"default": "poise", "poise": connection}},
    )
    app = deployment.server / "app"
    _write_toml(app / "pyproject.toml", _PROJECT)
    (app / "poise_app" / "__init__.py").write_text(
        '"""Poise as an app of Flower."""\n', encoding="utf-8"
    )
    for name, text in _APPS.items():
        (app / "poise_app" / f"{name}.py").write_text(text, encoding="utf-8")


def read_toml(file: Path, hint: str = "") -> dict[str, Any]:
    """Read a TOML file; errors name it."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}", hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {error}", hint) from error


def _write_toml(file: Path, table: Mapping[str, Any]) -> None:
    file.write_text(tomli_w.dumps(table), encoding="utf-8")


def free_ports(count: int) -> list[int]:
    """Free ports on the loopback."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for probe in sockets:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in sockets]
    finally:
        for probe in sockets:
            probe.close()
