"""What a request would cost, before it is made."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.ledger.run import Run, open_run
from poise.privacy.budget import Budget
from poise.training import experiment_of, parts_in
from poise.unlearning.histories import Histories, at_rest
from poise.unlearning.methods import CERTIFIED, decide, grounds_for
from poise.unlearning.request import checked_clients
from poise.unlearning.restart_tree import Node


@dataclass(frozen=True)
class Preview:
    """Where a request would restart and what that means; nothing is changed by looking.

    Attributes:
        restart: (branch, round) of the model that it would restart from.
        ideal: where it would restart if every model had been kept.
        given_up: rounds of the present history that would be done for nothing.
        sigma: noise on the restart model.
        psi: sensitivity of the present model to each client asked for, counted along the present
            history.
        limit: Psi*.
        not_proved: why no guarantee can be given, if there is a reason.
        kept: models on disk that a request could restart from.
        kept_bytes: what these weigh.
    """

    restart: Node
    ideal: Node
    given_up: int
    sigma: float
    psi: dict[int, float]
    limit: float
    not_proved: tuple[str, ...]
    kept: int
    kept_bytes: int

    def rows(self) -> list[tuple[str, str]]:
        """The same in words: what, and how much."""
        worst = max(self.psi, key=lambda c: self.psi[c])
        found = [
            ("restart", f"branch {self.restart[0]}, round {self.restart[1]}"),
            ("rounds given up", str(self.given_up)),
            ("noise", f"{self.sigma:g}"),
            (
                "largest sensitivity",
                f"{self.psi[worst]:.4g} (client {worst}), limit {self.limit:.4g}",
            ),
            ("models to restart from", f"{self.kept}, {self.kept_bytes / 2**20:.1f} MiB"),
        ]
        if self.ideal != self.restart:
            found.insert(
                1, ("if every model were kept", f"branch {self.ideal[0]}, round {self.ideal[1]}")
            )
        return found + [("not proved", gap) for gap in self.not_proved]


def preview(
    run: Run | str | Path,
    clients: int | Iterable[int],
    method: str = "sifu",
    budget: Budget | None = None,
    out: str | Path | None = None,
) -> Preview:
    """What `poise.unlearn` would do with a request.

    Args:
        run: the training run (or any branch of it), or its folder.
        clients: who would be forgotten.
        method: as for `poise.unlearn`.
        budget: what would be promised; the default budget otherwise.
        out: folder of the branches, where that is not the run's own.
    """
    trained = open_run(run) if isinstance(run, str | Path) else run
    histories = Histories.of(trained, None if out is None else Path(out))
    at_rest(histories.root)
    wanted = checked_clients(clients, histories.root.clients, histories.forgotten)
    asked = budget or Budget()
    found = decide(method, histories, wanted, asked)
    nodes = [*histories.oracle, (histories.newest, histories.run(histories.newest).rounds)]
    psi = {c: float(sum(histories.psi(s, asked)[n, c] for s, n in nodes)) for c in wanted}
    experiment = experiment_of(histories.root)
    some = histories.run(0)
    buffers = some.trainable < len(some.model)
    gaps: tuple[str, ...] = ()
    if method in CERTIFIED and method != "scratch":
        audit = experiment.table("run").get("audit")
        gaps = grounds_for(method, parts_in(experiment), buffers, asked, audit=audit).gaps
    before = [n for s, n in histories.oracle if s < found.node[0]]
    present = sum(n for _, n in nodes)
    runs = [histories.run(s) for s in range(histories.newest + 1)]
    files = [r.model_file(n) for r in runs for n in r.kept]
    weight = sum(f.stat().st_size for f in files if f is not None and f.exists())
    return Preview(
        restart=found.node,
        ideal=found.ideal,
        given_up=present - sum(before) - found.node[1],
        sigma=found.sigma,
        psi=psi,
        limit=asked.limit,
        not_proved=gaps,
        kept=len(files),
        kept_bytes=weight,
    )


def declared_by(run: Run | str | Path) -> dict[str, Any]:
    """The table [unlearning] of the training that a run belongs to."""
    trained = open_run(run) if isinstance(run, str | Path) else run
    table: dict[str, Any] = tomllib.loads(Histories.of(trained).root.experiment).get(
        "unlearning", {}
    )
    return table


def declared_budget(run: Run | str | Path) -> Budget:
    """The budget that the training declared; the default where it declared none."""
    return Budget.of(declared_by(run))
