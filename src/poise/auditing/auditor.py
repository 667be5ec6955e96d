"""The audit as a fold over rounds: after each, a p-value for every client seen, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from poise.auditing.count_detectors import Nothing, Reports
from poise.auditing.detector import Detector, Sight
from poise.auditing.noise_detectors import Direction, Entries, Layers, Persistence
from poise.auditing.probe import COHORT, ENTRIES, LAYERS, LOOKED_AT, RECEIVED, SKETCH, SPREAD
from poise.core.types import Floats, Ints

EVERYONE = 0.05
"""A way of free-riding that fits all clients to this degree fits none."""

SHORTEST = 8
"""Parameters below which an update is too short to be called a copy."""


class Way(NamedTuple):
    """A way of free-riding: all of its detectors must find a client odd before it is held against
    it.
    """

    what: str
    detectors: tuple[Detector, ...]

    def p_values(self) -> Floats:
        """The largest p-value of the detectors: a working client is safe as soon as one of them
        vouches for it.

        Where all clients look alike, it is the problem that is so: nothing is held against anyone.
        """
        found = np.max([d.p_values() for d in self.detectors], axis=0)
        return np.ones_like(found) if (found <= EVERYONE).all() else np.asarray(found)

    def words(self, who: int) -> str:
        """What the detectors saw."""
        return "; ".join(w for d in self.detectors if (w := d.words(who)))


def ways() -> tuple[Way, ...]:
    """The ways of free-riding that are looked for; their limits were chosen on data of their own
    (docs/audit.md).
    """
    return (
        Way("it sends nothing of its own", (Nothing(),)),
        Way("it sends noise", (Entries(), Persistence(), Direction(), Layers())),
        Way(
            "it sends what it received, with noise",
            (Entries(of_rest=True), Persistence(of_rest=True)),
        ),
        Way("it reports losses it has not computed", (Reports(),)),
    )


@dataclass
class Past:
    """What one client received and sent, as far as it can have copied it."""

    first: int
    last: int
    versions: list[int] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)


@dataclass
class Auditor:
    """Takes in rounds in their order; `p_values` speaks of the clients in the order of `clients`.

    A way of free-riding has the largest p-value of its detectors, a client the smallest of the
    ways, times their
    number (Bonferroni): ``p = min(1, ways * min over ways of max over detectors)``.

    Args:
        dimension: entries of an update that gradients move.
        make: the ways that are looked for.
    """

    dimension: int
    make: Callable[[], Sequence[Way]] = ways
    clients: list[int] = field(default_factory=list)
    pasts: dict[int, Past] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ways = tuple(self.make())
        self._number: dict[int, int] = {}
        self._moved: list[
            Floats
        ] = []  # sketch of theta^n - theta^0, n = 0, 1, …; by versions, where models were read

    def add(
        self,
        clients: Ints,
        versions: Ints,
        omega: Floats,
        norms: Floats,
        measurements: Mapping[str, Floats],
        loss_before: Floats,
        loss_after: Floats,
    ) -> None:
        """Take in one round, one row for each contribution; a round without measurements moves
        nothing.
        """
        sketch = measurements.get(SKETCH)
        width = self._moved[0].shape[0] if self._moved else 0
        if sketch is None or not len(clients):
            self._moved.append(self._moved[-1] if self._moved else np.zeros(width))
            return
        rows = sketch.astype(np.float64)
        if not self._moved or not width:
            self._moved = [np.zeros(rows.shape[1])] * max(len(self._moved), 1)
        for version, model in zip(versions.tolist(), measurements.get(RECEIVED, ()), strict=False):
            self._moved[version] = model
        who = self._numbers(clients)
        left, copied = self._left(clients, versions, rows)
        sight = Sight(
            versions=versions,
            norms=norms,
            sketch=rows,
            entries=min(ENTRIES, rows.shape[1]),
            spread=measurements[SPREAD],
            looked_at=min(LOOKED_AT, self.dimension),
            cohort=measurements[COHORT],
            dimension=self.dimension,
            left=left,
            copied=copied,
            loss_before=loss_before,
            loss_after=loss_after,
            layers=measurements.get(LAYERS, np.zeros((len(rows), 0))),
        )
        for way in self.ways:
            for detector in way.detectors:
                detector.add(who, sight)
        self._moved.append(self._moved[-1] + omega @ rows)
        self._remember(clients, versions, norms)

    def evidence(self) -> Floats:
        """The smallest p-value over the ways, for every client in `clients`."""
        if not self.clients:
            return np.zeros(0)
        return np.asarray(np.min([way.p_values() for way in self.ways], axis=0))

    def p_values(self) -> Floats:
        """`evidence`, corrected for the number of ways that were tried."""
        return np.minimum(1.0, len(self.ways) * self.evidence())

    def explain(self, client: int) -> str:
        """Why a client is, or is not, suspected: the way of free-riding that fits it best, and what
        was seen.
        """
        return self._said(client, [way.p_values() for way in self.ways])

    def explain_all(self, clients: int) -> list[str]:
        """`explain` of every client, 0 to ``clients`` - 1, in one go."""
        found = [way.p_values() for way in self.ways]
        return [self._said(client, found) for client in range(clients)]

    def _said(self, client: int, found: Sequence[Floats]) -> str:
        if client not in self._number:
            return f"client {client} has not taken part"
        who = self._number[client]
        p = np.array([column[who] for column in found])
        overall, best = min(1.0, len(self.ways) * float(p.min())), self.ways[int(p.argmin())]
        rounds = len(self.pasts[client].norms)
        if overall > 0.5:
            return f"client {client}: nothing against it in {rounds} rounds"
        fading = self._power_law(client) if best.what.endswith("noise") else ""
        seen = [w for w in (fading, best.words(who)) if w]
        return f"client {client}: {best.what} (p = {overall:.2g}): {'; '.join(seen)}"

    def _power_law(self, client: int) -> str:
        """``norm follows t^-1.02`` where the norms lie within 5 % of a power of the round."""
        past = self.pasts[client]
        t, norm = np.array(past.versions, dtype=float), np.array(past.norms)
        use = (t >= 1) & (norm > 0)
        if use.sum() < 4 or len(np.unique(t[use])) < 4:
            return ""
        x, y = np.log(t[use]), np.log(norm[use])
        slope, level = np.polyfit(x, y, 1)
        apart = float(np.std(y - slope * x - level))
        return f"norm follows t^{slope:.2f} to {100 * apart:.1f} %" if apart < 0.05 else ""

    def _numbers(self, clients: Ints) -> Ints:
        """The numbers of these clients, new ones added."""
        for client in clients.tolist():
            if client not in self._number:
                self._number[client] = len(self.clients)
                self.clients.append(client)
        for way in self.ways:
            for detector in way.detectors:
                detector.grow(len(self.clients))
        return np.array([self._number[c] for c in clients.tolist()], dtype=np.int64)

    def _left(self, clients: Ints, versions: Ints, rows: Floats) -> tuple[Floats, Ints]:
        """What is left of the sketches without what a client can have copied, and how many
        directions that were.

        It knows how the model changed since it received it last, and since it received it first.
        """
        left, copied = rows.copy(), np.zeros(len(rows), dtype=np.int64)
        for k, (client, version) in enumerate(
            zip(clients.tolist(), versions.tolist(), strict=True)
        ):
            past = self.pasts.get(client)
            if past is None or past.last >= version or self.dimension < SHORTEST:
                continue
            basis = np.zeros((0, rows.shape[1]))
            for since in {past.last, past.first}:
                step = self._moved[version] - self._moved[since]
                length = np.linalg.norm(step)
                step = step - basis.T @ (basis @ step)
                rest = np.linalg.norm(step)
                if rest > 1e-6 * length:
                    basis = np.vstack([basis, step / rest])
            left[k] -= basis.T @ (basis @ left[k])
            copied[k] = len(basis)
        return left, copied

    def _remember(self, clients: Ints, versions: Ints, norms: Floats) -> None:
        for client, version, norm in zip(
            clients.tolist(), versions.tolist(), norms.tolist(), strict=True
        ):
            past = self.pasts.setdefault(client, Past(version, version))
            past.last = version
            past.versions.append(version)
            past.norms.append(norm)
