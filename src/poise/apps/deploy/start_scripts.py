"""What starts a deployment without ``poise deploy up``: scripts, systemd units, containers.

Nothing here names this machine; the deployment's own folder is named where systemd and Flower want
it whole.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from poise._version import __version__

_SCRIPT = """#!/bin/sh
# {what}, in the foreground, until it is told to end (SIGTERM, Ctrl-C).
# POISE names the program where it is not on the PATH.
cd "$(dirname "$0")" || exit 1
exec "${{POISE:-poise}}" deploy {verb}
"""

_UNIT = """# For the user who owns this folder: systemctl --user enable --now "$PWD/{name}"
# (loginctl enable-linger keeps it running when nobody is logged in.)
[Unit]
Description={what}

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart=/bin/sh start.sh
# Where poise is not on the PATH of services:
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

_COMPOSE = """# Server and nodes as containers, from an image that you build (see Dockerfile): docker compose up -d
# They use the machine's own network: addresses and ports are those of deployment.toml and node.toml.
# A node on a machine of its own needs its folder and, of this file, its own service.
x-poise: &poise
  image: poise:{version}
  pull_policy: never
  network_mode: host
  user: "${{POISE_USER:-{owner}}}"  # who may read the keys
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

_IMAGE = """# The image of server and nodes. Docker is sent the folder of poise's sources, never this one with its keys:
#   docker build -t poise:{version} -f Dockerfile PATH/TO/POISE
FROM python:{python}-slim
COPY . /opt/poise
RUN pip install --no-cache-dir -c /opt/poise/constraints.txt '/opt/poise[flower,parquet]'
ENV HOME=/tmp USER=poise PYTHONUNBUFFERED=1
"""


def write_starters(folder: Path, nodes: int) -> None:
    """Write start scripts and systemd units beside what they start, and a compose file with its
    Dockerfile.
    """
    about = f"of the poise deployment {folder.name}"
    _beside(folder / "server", f"The server {about}", "server ..", _unit_name(folder, "server"))
    names = [f"node-{client}" for client in range(nodes)]
    for name in names:
        _beside(folder / name, f"{name.capitalize()} {about}", "node .", _unit_name(folder, name))
    (folder / "compose.yaml").write_text(_compose(folder, names), encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "Dockerfile").write_text(
        _IMAGE.format(version=__version__, python=python), encoding="utf-8"
    )


def _beside(folder: Path, what: str, verb: str, name: str) -> None:
    """A script and a unit that runs it."""
    script = folder / "start.sh"
    script.write_text(_SCRIPT.format(what=what, verb=verb), encoding="utf-8")
    script.chmod(0o755)
    place = str(folder).replace("%", "%%")  # in a unit, % stands before what systemd fills in
    (folder / name).write_text(
        _UNIT.format(what=what.replace("%", "%%"), folder=place, name=name), encoding="utf-8"
    )


def _unit_name(folder: Path, name: str) -> str:
    """Several deployments may be known to one systemd."""
    return f"poise-{re.sub('[^A-Za-z0-9_.-]', '-', folder.name)}-{name}.service"


def _compose(folder: Path, names: list[str]) -> str:
    """The server sees the whole folder, where Flower expects it; a node its own, and nothing
    else.
    """
    whole = _quoted(str(folder))
    parts = [_SERVICE.format(name="server", verb="server", inside=whole, outside=whole)]
    for name in names:
        parts.append(
            _SERVICE.format(
                name=name, verb="node", inside=_quoted("/node"), outside=_quoted(f"./{name}")
            )
        )
    return _COMPOSE.format(version=__version__, owner=f"{os.getuid()}:{os.getgid()}") + "".join(
        parts
    )


def _quoted(text: str) -> str:
    """A string in YAML; compose would fill in what stands after a dollar."""
    return json.dumps(text.replace("$", "$$"))
