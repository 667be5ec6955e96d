"""`Auditor`: takes in a run by rounds; returns a p-value and a reason per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from poise.auditing.count_detectors import EmptyUpdates, InventedLosses
from poise.auditing.detector import AuditedRound, Detector
from poise.auditing.noise_detectors import (
    CohortDirection,
    EntryRatio,
    LayerScales,
    Persistence,
)
from poise.auditing.probe import (
    COHORT,
    ENTRIES,
    INSPECTED,
    LAYERS,
    RECEIVED,
    SKETCH,
    SPREAD,
)
from poise.core.types import Floats, Ints

EVERYONE = 0.05
"""A pattern whose p-value is at most this for all clients is ignored."""

SHORTEST = 8
"""An update with fewer parameters is too short to be called a copy."""


class Pattern(NamedTuple):
    """A pattern of free-riding; all its detectors must agree to suspect a client."""

    label: str
    detectors: tuple[Detector, ...]

    def p_values(self) -> Floats:
        """Return the largest p-value: one detector is enough to clear a client.

        Where the pattern fits all clients, the problem is the cause: every p-value is
        then 1.
        """
        p_values = np.max([d.p_values() for d in self.detectors], axis=0)
        if (p_values <= EVERYONE).all():
            return np.ones_like(p_values)
        return np.asarray(p_values)

    def describe(self, client: int) -> str:
        """Describe the evidence of the detectors."""
        sentences = [detector.describe(client) for detector in self.detectors]
        return "; ".join(sentence for sentence in sentences if sentence)


def patterns() -> tuple[Pattern, ...]:
    """Return the patterns of free-riding; docs/audit.md explains their limits."""
    return (
        Pattern("it sends nothing of its own", (EmptyUpdates(),)),
        Pattern(
            "it sends noise",
            (EntryRatio(), Persistence(), CohortDirection(), LayerScales()),
        ),
        Pattern(
            "it sends what it received, with noise",
            (EntryRatio(of_residual=True), Persistence(of_residual=True)),
        ),
        Pattern("it reports losses it has not computed", (InventedLosses(),)),
    )


@dataclass
class ClientPast:
    """The received versions that a client can have copied, and its norms."""

    first: int
    last: int
    versions: list[int] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


class Residuals(NamedTuple):
    """Sketches without the directions that clients can have copied, and their count."""

    sketch: Floats
    copied: Ints


@dataclass
class Auditor:
    """Takes in rounds in their order; `p_values` follows the order of `clients`.

    A pattern has the largest p-value of its detectors. A client has the smallest
    p-value of the patterns, times their number (Bonferroni):
    ``p = min(1, patterns * min over patterns of max over detectors)``.

    Args:
        dimension: entries of an update that gradients move.
        make: returns the patterns to look for.
    """

    dimension: int
    make: Callable[[], Sequence[Pattern]] = patterns
    clients: list[int] = field(default_factory=list)
    pasts: dict[int, ClientPast] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.patterns = tuple(self.make())
        self._index: dict[int, int] = {}
        # Sketch of theta^n - theta^0 for every version n; of theta^n where models were
        # measured.
        self._moved: list[Floats] = []

    def add(
        self,
        clients: Ints,
        versions: Ints,
        *,
        omega: Floats,
        norms: Floats,
        measurements: Mapping[str, Floats],
        loss_before: Floats,
        loss_after: Floats,
    ) -> None:
        """Take in one round, one row per contribution."""
        sketch = measurements.get(SKETCH)
        if sketch is None or not len(clients):  # nothing measured: the model stays
            self._moved += self._moved[-1:] or [np.zeros(0)] * 2
            return
        rows = sketch.astype(np.float64)
        if not self._moved or not len(self._moved[0]):
            self._moved = [np.zeros(rows.shape[1])] * max(len(self._moved), 1)
        for version, model in zip(
            versions.tolist(), measurements.get(RECEIVED, ()), strict=False
        ):
            self._moved[version] = model
        indices = self._indices(clients)
        residuals = self._residuals(clients, versions, rows)
        audited = AuditedRound(
            versions=versions,
            norms=norms,
            sketch=rows,
            entries=min(ENTRIES, rows.shape[1]),
            geary=measurements[SPREAD],
            inspected=min(INSPECTED, self.dimension),
            cohort=measurements[COHORT],
            dimension=self.dimension,
            residual=residuals.sketch,
            copied=residuals.copied,
            loss_before=loss_before,
            loss_after=loss_after,
            layers=measurements.get(LAYERS, np.zeros((len(rows), 0))),
        )
        for pattern in self.patterns:
            for detector in pattern.detectors:
                detector.add(indices, audited)
        self._moved.append(self._moved[-1] + omega @ rows)
        self._remember(clients, versions, norms)

    def evidence(self) -> Floats:
        """Return the smallest p-value over the patterns, for each of `clients`."""
        if not self.clients:
            return np.zeros(0)
        return np.asarray(
            np.min([pattern.p_values() for pattern in self.patterns], axis=0)
        )

    def p_values(self) -> Floats:
        """Return `evidence`, corrected for the number of patterns."""
        return np.minimum(1.0, len(self.patterns) * self.evidence())

    def explain(self, client: int) -> str:
        """Explain the verdict on a client by its best-fitting pattern and evidence."""
        return self._explanation(
            client, [pattern.p_values() for pattern in self.patterns]
        )

    def explain_all(self, clients: int) -> list[str]:
        """Return `explain` of the clients 0 to ``clients`` - 1; p-values only once."""
        p_values = [pattern.p_values() for pattern in self.patterns]
        return [self._explanation(client, p_values) for client in range(clients)]

    def _explanation(self, client: int, p_values: Sequence[Floats]) -> str:
        if client not in self._index:
            return f"client {client} has not taken part"
        index = self._index[client]
        p = np.array([column[index] for column in p_values])
        overall = min(1.0, len(self.patterns) * float(p.min()))
        if overall > 0.5:
            rounds = len(self.pasts[client].norms)
            plural = "" if rounds == 1 else "s"
            return f"client {client}: nothing against it in {rounds} round{plural}"
        best = self.patterns[int(p.argmin())]
        sentences = [best.describe(index)]
        if best.label.endswith("noise"):
            sentences.insert(0, self._power_law(client))
        reasons = "; ".join(sentence for sentence in sentences if sentence)
        return f"client {client}: {best.label} (p = {overall:.2g}): {reasons}"

    def _power_law(self, client: int) -> str:
        """Return ``norm follows t^-1.02`` if the norms fit a power of t within 5 %."""
        past = self.pasts[client]
        t = np.array(past.versions, dtype=float)
        norm = np.array(past.norms)
        use = (t >= 1) & (norm > 0)
        if use.sum() < 4 or len(np.unique(t[use])) < 4:
            return ""
        x = np.log(t[use])
        y = np.log(norm[use])
        slope, level = np.polyfit(x, y, 1)
        deviation = float(np.std(y - slope * x - level))
        if deviation >= 0.05:
            return ""
        return f"norm follows t^{slope:.2f} to {100 * deviation:.1f} %"

    def _indices(self, clients: Ints) -> Ints:
        """Return the detectors' indices of these clients; new ones get the next."""
        for client in clients.tolist():
            if client not in self._index:
                self._index[client] = len(self.clients)
                self.clients.append(client)
        for pattern in self.patterns:
            for detector in pattern.detectors:
                detector.grow(len(self.clients))
        return np.array([self._index[c] for c in clients.tolist()], dtype=np.int64)

    def _residuals(self, clients: Ints, versions: Ints, rows: Floats) -> Residuals:
        """Remove from the sketches the directions that clients can have copied.

        A client knows how the model changed since it last received it, and since the
        first time.
        """
        residual = rows.copy()
        copied = np.zeros(len(rows), dtype=np.int64)
        for k, client in enumerate(clients.tolist()):
            version = int(versions[k])
            past = self.pasts.get(client)
            if past is None or past.last >= version or self.dimension < SHORTEST:
                continue
            basis = self._known_directions(past, version)
            residual[k] -= basis.T @ (basis @ residual[k])
            copied[k] = len(basis)
        return Residuals(residual, copied)

    def _known_directions(self, past: ClientPast, version: int) -> Floats:
        """Return an orthonormal basis of the model changes a client saw, (0-2, k)."""
        basis = np.zeros((0, self._moved[version].shape[0]))
        for since in {past.last, past.first}:
            step = self._moved[version] - self._moved[since]
            length = np.linalg.norm(step)
            step = step - basis.T @ (basis @ step)
            rest = np.linalg.norm(step)
            if rest > 1e-6 * length:
                basis = np.vstack([basis, step / rest])
        return basis

    def _remember(self, clients: Ints, versions: Ints, norms: Floats) -> None:
        for client, version, norm in zip(
            clients.tolist(), versions.tolist(), norms.tolist(), strict=True
        ):
            past = self.pasts.setdefault(client, ClientPast(version, version))
            past.last = version
            past.versions.append(version)
            past.norms.append(norm)
