"""Files that start a deployment without ``poise deploy up``: scripts, systemd units, containers.

The files do not name this machine. They name the deployment's folder by its absolute
path only where systemd and Flower require it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from poise._version import __version__

_SCRIPT = """#!/bin/sh
# {description}, in the foreground, until SIGTERM or Ctrl-C.
# Set POISE to the path of the program if it is not on the PATH.
cd "$(dirname "$0")" || exit 1
exec "${{POISE:-poise}}" deploy {verb}
"""

_UNIT = """# For the user who owns this folder: systemctl --user enable --now "$PWD/{name}"
# (loginctl enable-linger keeps it running after logout.)
[Unit]
Description={description}

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart=/bin/sh start.sh
# If poise is not on the PATH of services:
# Environment=POISE=/opt/poise/bin/poise
Restart=always
RestartSec=10
KillMode=mixed
TimeoutStopSec=30
NoNewPrivileges=yes
UMask=0077

[Install]
WantedBy=default.target
"""

_COMPOSE = """# Server and nodes as containers: docker compose up -d
# Build their image first (see Dockerfile).
# They use the host's network, with the addresses and ports of deployment.toml and node.toml.
# A node on another machine needs its folder, and its own service of this file.
x-poise: &poise
  image: poise:{version}
  pull_policy: never
  network_mode: host
  user: "${{POISE_USER:-{owner}}}"  # the user who may read the keys
  init: true
  restart: unless-stopped
  stop_grace_period: 30s

services:
"""

_SERVICE = """  {name}:
    <<: *poise
    command: ["poise", "deploy", "{verb}", {inside}]
    volumes:
      - {{type: bind, source: {outside}, target: {inside}}}
"""

_IMAGE = """# The image of server and nodes.
# Build it from the folder of poise's sources, not from this folder, which contains the keys:
#   docker build -t poise:{version} -f Dockerfile PATH/TO/POISE
FROM python:{python}-slim
COPY . /opt/poise
RUN pip install --no-cache-dir -c /opt/poise/constraints.txt '/opt/poise[flower,parquet]'
ENV HOME=/tmp USER=poise PYTHONUNBUFFERED=1
"""


def write_starters(folder: Path, nodes: int) -> None:
    """Write start scripts and systemd units, a compose file and a Dockerfile."""
    deployment = f"of the poise deployment {folder.name}"
    _write_script_and_unit(
        folder / "server",
        f"The server {deployment}",
        command="server ..",
        unit=_unit_name(folder, "server"),
    )
    names = [f"node-{client}" for client in range(nodes)]
    for name in names:
        _write_script_and_unit(
            folder / name,
            f"{name.capitalize()} {deployment}",
            command="node .",
            unit=_unit_name(folder, name),
        )
    (folder / "compose.yaml").write_text(_compose(folder, names), encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "Dockerfile").write_text(
        _IMAGE.format(version=__version__, python=python), encoding="utf-8"
    )


def _write_script_and_unit(
    folder: Path, description: str, command: str, unit: str
) -> None:
    """Write a start script and the systemd unit that runs it."""
    script = folder / "start.sh"
    script.write_text(
        _SCRIPT.format(description=description, verb=command), encoding="utf-8"
    )
    script.chmod(0o755)
    # systemd expands %, unless it is doubled
    text = _UNIT.format(
        description=description.replace("%", "%%"),
        folder=str(folder).replace("%", "%%"),
        name=unit,
    )
    (folder / unit).write_text(text, encoding="utf-8")


def _unit_name(folder: Path, name: str) -> str:
    """The name of a unit, unique if several deployments share one systemd."""
    return f"poise-{re.sub('[^A-Za-z0-9_.-]', '-', folder.name)}-{name}.service"


def _compose(folder: Path, names: list[str]) -> str:
    """The compose file; the server mounts the whole folder, each node only its own."""
    whole = _quoted(str(folder))
    services = [
        _SERVICE.format(name="server", verb="server", inside=whole, outside=whole)
    ]
    for name in names:
        service = _SERVICE.format(
            name=name,
            verb="node",
            inside=_quoted("/node"),
            outside=_quoted(f"./{name}"),
        )
        services.append(service)
    owner = f"{os.getuid()}:{os.getgid()}"
    return _COMPOSE.format(version=__version__, owner=owner) + "".join(services)


def _quoted(text: str) -> str:
    """A quoted YAML string; dollar signs are doubled against expansion by compose."""
    return json.dumps(text.replace("$", "$$"))
