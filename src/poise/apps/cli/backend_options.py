"""Command options for the backend: ``--backend``, ``--address`` and ``--workers``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poise.core.errors import InvalidOption

if TYPE_CHECKING:
    from poise.config.experiment import Experiment

Backend = Annotated[
    str,
    typer.Option(
        "--backend", help="Backend: local, or ray (a cluster); default: the file's."
    ),
]
Address = Annotated[
    str,
    typer.Option(
        help="Address of a Ray cluster: auto or HOST:PORT; default: start one here."
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="Number of backend workers; default: one per core.")
]


@dataclass(frozen=True)
class BackendOptions:
    """The backend options of a command; without any, the experiment chooses."""

    backend: Backend = ""
    address: Address = ""
    workers: Workers = None

    def backend_for(self, experiment: Experiment) -> Any:
        """The backend to use, or None for the experiment's own.

        Options that the user left out keep the values of the experiment file.
        """
        from poise.core.parts import build

        if self == BackendOptions():
            return None
        written = experiment.table("run").get("backend", "local")
        table = {"name": written}
        if isinstance(written, Mapping):
            table = dict(written)
        if self.backend and self.backend != table.get("name"):
            table = {"name": self.backend}
        name = table.get("name")
        if name == "flower":
            raise InvalidOption(
                "the backend 'flower' needs the nodes of a deployment",
                "use: poise deploy run exp.toml --to DIR",
            )
        if self.address and name != "ray":
            raise InvalidOption(
                f"--address {self.address}: the backend {name!r} has no cluster",
                f"use: --backend ray --address {self.address}",
            )
        if self.address:
            table["address"] = self.address
        if self.workers is not None:
            table["workers"] = self.workers
        return build("backend", table, "--backend:")
