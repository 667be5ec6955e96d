"""Where a run is executed, as the command line says: ``--backend``, ``--address``,
``--workers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poise.core.errors import InvalidOption

if TYPE_CHECKING:
    from poise.config.experiment import Experiment

On = Annotated[
    str,
    typer.Option("--backend", help="Where to work: local, or ray (a cluster); as the file says."),
]
Address = Annotated[
    str, typer.Option(help="Of a Ray cluster: auto, or HOST:PORT; without it, ray starts one here.")
]
Workers = Annotated[
    int | None, typer.Option(help="Workers of the backend; one per core by default.")
]


@dataclass(frozen=True)
class Place:
    """What was asked for; with nothing, the experiment's own backend stays."""

    backend: On = ""
    address: Address = ""
    workers: Workers = None

    def backend_for(self, experiment: Experiment) -> Any:
        """The backend instead of the experiment's, or None: options that are not given stay as the
        file has them.
        """
        from poise.core.parts import build

        if self == Place():
            return None
        written = experiment.table("run").get("backend", "local")
        table = dict(written) if isinstance(written, Mapping) else {"name": written}
        if self.backend and self.backend != table.get("name"):
            table = {"name": self.backend}
        name = table.get("name")
        if name == "flower":
            raise InvalidOption(
                "the backend 'flower' works with the nodes of a deployment",
                "poise deploy run exp.toml --to DIR",
            )
        if self.address and name != "ray":
            raise InvalidOption(
                f"--address {self.address}: the backend {name!r} has no cluster",
                f"--backend ray --address {self.address}",
            )
        given = {"address": self.address or None, "workers": self.workers}
        return build(
            "backend", {**table, **{k: v for k, v in given.items() if v is not None}}, "--backend:"
        )
