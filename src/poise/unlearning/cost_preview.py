"""Preview a request: where it would restart, and what it would cost. Changes nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poise.config.experiment import Experiment
from poise.config.unlearn_request import Guarantee
from poise.core.curvature import Curvature
from poise.privacy.budget import Budget, UnlearningPlan
from poise.results import Run, open_run
from poise.training import experiment_of, on_nodes, parts_in, reads_files
from poise.unlearning.conditions import conditions_of
from poise.unlearning.histories import Histories, require_ended
from poise.unlearning.methods import (
    CERTIFIED,
    COMPLETE,
    decide,
    grounds_for,
    sensitivity_along,
)
from poise.unlearning.named_clients import numbered
from poise.unlearning.repeated_requests import repaired
from poise.unlearning.request import (
    checked_clients,
    known_clients,
    split_units,
    unit_name,
)
from poise.unlearning.restart_tree import Node
from poise.unlearning.retraining import composition_of, training_curvature


@dataclass(frozen=True)
class Preview:
    """Where a request would restart, and its cost.

    Attributes:
        restart: (branch, round) of the model that it would restart from.
        ideal: where it would restart if every model had been kept.
        given_up: rounds of the present history that the restart discards.
        sigma: noise on the restart model.
        psi: sensitivity of the present model to each client of the request, or to all
            together, counted along the present history.
        limit: Psi*.
        not_proved: the reasons why poise cannot give a guarantee; empty if it can.
        kept: number of models on disk that a request could restart from.
        kept_bytes: their size in bytes.
    """

    restart: Node
    ideal: Node
    given_up: int
    sigma: float
    psi: dict[str, float]
    limit: float
    not_proved: tuple[str, ...]
    kept: int
    kept_bytes: int

    def rows(self) -> list[tuple[str, str]]:
        """Return the preview as rows of a table: label and value."""
        worst = max(self.psi, key=lambda c: self.psi[c])
        rows = [("restart", f"branch {self.restart[0]}, round {self.restart[1]}")]
        if self.ideal != self.restart:
            ideal = f"branch {self.ideal[0]}, round {self.ideal[1]}"
            rows.append(("if every model were kept", ideal))
        sensitivity = f"{self.psi[worst]:.4g} (clients {worst}), limit {self.limit:.4g}"
        rows += [
            ("rounds given up", str(self.given_up)),
            ("noise", f"{self.sigma:g}"),
            ("largest sensitivity", sensitivity),
            (
                "models to restart from",
                f"{self.kept}, {self.kept_bytes / 2**20:.1f} MiB",
            ),
        ]
        return rows + [("not proved", gap) for gap in self.not_proved]


def preview(
    run: Run | str | Path,
    clients: int | str | Iterable[int | str],
    method: str = "sifu",
    budget: Budget | None = None,
    out: str | Path | None = None,
    guarantee: Guarantee = "each",
) -> Preview:
    """Tell what `poise.unlearn` would do with a request, without doing it.

    Args:
        run: the training run (or any branch of it), or its folder.
        clients: the clients to unlearn, by number or by name.
        method: as for `poise.unlearn`.
        budget: the parameters of the guarantee; the default budget otherwise.
        out: folder of the branches; ``unlearning`` in the run's folder by default.
        guarantee: as for `poise.unlearn`.
    """
    trained = open_run(run) if isinstance(run, str | Path) else run
    folder = None if out is None else Path(out)
    histories = Histories.of(trained, folder, repair=True)
    require_ended(histories.root)
    numbers = numbered(histories.root, clients)
    histories = repaired(histories, known_clients(numbers, histories.root.clients))
    requested = checked_clients(numbers, histories.root.clients, histories.unlearned)
    budget = budget or Budget()
    units = split_units(requested, guarantee)
    decision = decide(method, histories, units, budget)
    nodes = [
        *histories.nodes,
        (histories.newest, histories.run(histories.newest).rounds),
    ]
    along = sensitivity_along(histories, nodes, units=units, budget=budget)
    psi = {unit_name(u): float(value) for u, value in zip(units, along, strict=True)}
    rounds_now = sum(n for _, n in nodes)
    rounds_before = sum(n for s, n in histories.nodes if s < decision.node[0])
    given_up = rounds_now - rounds_before - decision.node[1]
    files = _kept_models(histories)
    return Preview(
        restart=decision.node,
        ideal=decision.ideal,
        given_up=0 if method == "exact" else given_up,
        sigma=decision.sigma,
        psi=psi,
        limit=budget.limit,
        not_proved=_gaps(histories, method, budget),
        kept=len(files),
        kept_bytes=sum(f.stat().st_size for f in files if f is not None and f.exists()),
    )


def _gaps(histories: Histories, method: str, budget: Budget) -> tuple[str, ...]:
    """Return the gaps in the proof of a method's guarantee."""
    experiment = experiment_of(histories.root)
    if method not in CERTIFIED or method in COMPLETE:
        return ()
    parts = parts_in(experiment)
    conditions = conditions_of(
        histories.lengths(), parts, _known_curvature(histories.root, experiment)
    )
    return grounds_for(
        method,
        parts,
        histories.root.trainable < len(histories.root.model),
        budget=budget,
        conditions=conditions,
        audit=experiment.table("run").get("audit"),
    ).gaps


def _known_curvature(run: Run, experiment: Experiment) -> Curvature | None:
    """Return the curvature that a training recorded, or measure it on data by name.

    A preview does not read the files that a run folder names.
    """
    named = {"data", "task"} <= set(experiment.tables) and not reads_files(experiment)
    if named and not on_nodes(experiment):
        return training_curvature(run, composition_of(run))
    return Curvature.recorded(run.meta)


def _kept_models(histories: Histories) -> list[Path | None]:
    """Return the files of all kept models; None for models in memory."""
    files = []
    for branch in range(histories.newest + 1):
        run = histories.run(branch)
        files += [run.model_file(n) for n in run.kept]
    return files


def declared_by(run: Run | str | Path) -> dict[str, Any]:
    """Return the table [unlearning] of the training that a run belongs to."""
    trained = open_run(run) if isinstance(run, str | Path) else run
    root = Histories.of(trained, repair=True).root
    experiment = tomllib.loads(root.experiment)
    table: dict[str, Any] = experiment.get("unlearning", {})
    return table


def declared_budget(run: Run | str | Path) -> Budget:
    """Return the budget that the training declared, or the default."""
    return UnlearningPlan.of(declared_by(run)).budget
