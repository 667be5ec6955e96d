"""The folder of a deployment: who listens where, who is who, and what each node may be asked."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from poise.apps.deploy.certificates import check_installed, make_certificates, make_node_key
from poise.apps.deploy.policy import Policy
from poise.apps.deploy.start_scripts import write_starters
from poise.core.errors import DataError, InvalidOption, require

LOOPBACK = "127.0.0.1"
# the variable that tells every process of a deployment which folder it belongs to
MARK = "POISE_DEPLOY"
BOOT = "POISE_BOOT"  # names one start of a process, for itself and all that it starts
NODE = "POISE_NODE"  # and every process of a node which node it is

# one file each: a node starts a process for every message, and must not import what only the server
# needs
_APPS = {
    "client": "from poise.apps.deploy.node import client_app\n\napp = client_app()\n",
    "server": "from poise.apps.deploy.server import server_app\n\napp = server_app()\n",
}
_PROJECT: dict[str, Any] = {
    "project": {"name": "poise", "version": "1.0.0", "license": "Apache-2.0", "dependencies": []},
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
    """A deployment's folder and what its ``deployment.toml`` says."""

    path: Path
    nodes: int
    port: int
    host: str = LOOPBACK  # where the server listens

    @property
    def server(self) -> Path:
        """What the server needs: certificate, database, jobs."""
        return self.path / "server"

    @property
    def jobs(self) -> Path:
        """Runs that were asked for, and how they go."""
        return self.server / "jobs"

    @property
    def logs(self) -> Path:
        """What the processes say."""
        return self.path / "logs"

    def node(self, client: int) -> Path:
        """All that a node needs: it can be handed over as it is."""
        return self.path / f"node-{client}"

    @property
    def environment(self) -> dict[str, str]:
        """What Flower's programs need to work without asking anybody outside."""
        return environment(self.path, self.server / "flwr")

    def files(self) -> list[str]:
        """What there is in the folder, by name."""
        return sorted(str(f.relative_to(self.path)) for f in self.path.rglob("*") if f.is_file())

    def registered(self) -> dict[int, int]:
        """Flower's number of the node of each client, as its key was registered."""
        file = self.server / "nodes.json"
        if not file.exists():
            return {}
        return {
            int(client): int(node)
            for client, node in json.loads(file.read_text(encoding="utf-8")).items()
        }

    def state(self) -> dict[str, Any]:
        """What the supervisor wrote down last; empty where none ever ran."""
        file = self.path / "state.json"
        found: dict[str, Any] = (
            json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        )
        return found


def environment(marked: Path, home: Path) -> dict[str, str]:
    """Of a process that belongs to the folder ``marked``; ``home`` is where Flower keeps its own
    files.
    """
    return {
        **os.environ,
        MARK: str(marked),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def open_deployment(path: str | Path) -> Deployment:
    """A folder that `make_deployment` made."""
    folder = Path(path).resolve()
    table = read_toml(folder / "deployment.toml", "make one: poise deploy init DIR --nodes 4")
    return Deployment(folder, int(table["nodes"]), int(table["port"]), str(table["host"]))


def make_deployment(
    path: str | Path, nodes: int, data: Mapping[str, Any], host: str = LOOPBACK
) -> Deployment:
    """Write certificates, keys, one configuration and one policy per node, and what starts them.

    Args:
        path: a folder that is not there yet, or is empty.
        nodes: how many.
        data: what node k holds in a trial: client k of ``poise.federation(**data)``.
        host: the address at which nodes find the server; the loopback for a trial.
    """
    check_installed()
    require(nodes >= 1, f"--nodes must be at least 1, not {nodes}")
    folder = Path(path).resolve()
    require(
        str(folder).isprintable(),
        f"the folder {str(folder)!r} has characters that files cannot name",
    )
    if folder.exists() and any(folder.iterdir()):
        raise InvalidOption(f"{folder} is not empty", "choose another folder")
    ports = free_ports(nodes + 1)
    made = Deployment(folder, nodes, ports[0], host)
    clients = range(nodes)
    for part in (
        made.server / "flwr",
        made.server / "app" / "poise_app",
        made.jobs,
        made.logs,
        *map(made.node, clients),
    ):
        part.mkdir(parents=True)
    for private in (made.server, *map(made.node, clients)):
        private.chmod(0o700)
    make_certificates(
        made.server, [made.server, *map(made.node, clients)], sorted({LOOPBACK, "localhost", host})
    )
    _write_server(made)
    for client in clients:
        make_node_key(made.node(client))
        facts = {"client": client, "superlink": f"{host}:{made.port}", "port": ports[client + 1]}
        _write_toml(made.node(client) / "node.toml", {**facts, "data": {**data, "client": client}})
        _write_toml(made.node(client) / "policy.toml", Policy().table())
    write_starters(folder, nodes)
    _write_toml(folder / "deployment.toml", {"nodes": nodes, "host": host, "port": made.port})
    return made


def _write_server(made: Deployment) -> None:
    """The server's secret, the address its own tools connect to, and the app that Flower starts."""
    (made.server / "secret").write_bytes(secrets.token_bytes(32))
    (made.server / "secret").chmod(0o600)
    connection = {
        "address": f"{made.host}:{made.port}",
        "root-certificates": str(made.server / "ca.crt"),
    }
    _write_toml(
        made.server / "flwr" / "config.toml",
        {"superlink": {"default": "poise", "poise": connection}},
    )
    app = made.server / "app"
    _write_toml(app / "pyproject.toml", _PROJECT)
    (app / "poise_app" / "__init__.py").write_text(
        '"""Poise as an app of Flower."""\n', encoding="utf-8"
    )
    for name, text in _APPS.items():
        (app / "poise_app" / f"{name}.py").write_text(text, encoding="utf-8")


def read_toml(file: Path, hint: str = "") -> dict[str, Any]:
    """A table from a file; errors name it."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}", hint) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {error}", hint) from error


def _write_toml(file: Path, table: Mapping[str, Any]) -> None:
    file.write_text(tomli_w.dumps(table), encoding="utf-8")


def free_ports(count: int) -> list[int]:
    """Ports on the loopback that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for place in held:
            place.bind((LOOPBACK, 0))
        return [place.getsockname()[1] for place in held]
    finally:
        for place in held:
            place.close()
