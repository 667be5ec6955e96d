"""What a federation is like before anything is trained on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poise.config.experiment import load, parse
from poise.core.errors import IncompatibleParts, InvalidOption, suggest
from poise.core.federations import HasClasses, ReadableFederation
from poise.core.types import Floats, Ints
from poise.data import Federation
from poise.data.sources import SOURCES
from poise.graph import SimilarityGraph, similarity
from poise.graph.divergence import jensen_shannon, total_variation
from poise.training import federation_in

MOST = 2000
"""Clients up to which the similarity graph is made."""


@dataclass(frozen=True)
class Inspection:
    """Sizes, classes and similarity of the clients of a federation."""

    name: str
    sizes: Ints
    label_counts: Ints | None
    graph: SimilarityGraph

    @cached_property
    def divergences(self) -> dict[str, Floats]:
        """Distances of the clients' class compositions from that of all, by name; empty without
        classes.
        """
        if self.label_counts is None:
            return {}
        counts = self.label_counts
        return {
            "Jensen-Shannon": jensen_shannon(counts),
            "total variation": total_variation(counts),
        }

    def as_data(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        theta, phi = self.graph.fit()
        order, n, counts = self.graph.typical(), self.sizes, self.label_counts
        return {
            "federation": self.name,
            "clients": len(n),
            "samples": int(n.sum()),
            "size": {
                "smallest": int(n.min()),
                "median": float(np.median(n)),
                "largest": int(n.max()),
            },
            "classes": None if counts is None else counts.sum(axis=0).tolist(),
            "classes per client": None
            if counts is None
            else float((counts > 0).sum(axis=1).mean()),
            "divergence": {
                name: {"mean": float(v.mean()), "largest": float(v.max())}
                for name, v in self.divergences.items()
            },
            "homogeneity": self.graph.homogeneity,
            "theta": theta,
            "phi": phi,
            "spectrum": self.graph.spectrum.tolist(),
            "most typical": order[:5].tolist(),
            "least typical": order[::-1][:5].tolist(),
            "outliers": self.graph.outliers().tolist(),
        }


def inspect(federation: ReadableFederation, labels: bool = False) -> Inspection:
    """Look at a federation."""
    if federation.on_demand or federation.clients > MOST:
        raise IncompatibleParts(
            f"{federation.clients:,} clients are too many to be compared with each other",
            f"inspect one with the same options and at most {MOST:,} clients, not on demand",
        )
    counts: Ints | None = None
    if isinstance(federation, HasClasses) and federation.classes:
        counts = federation.label_counts()
    graph = similarity(federation, labels)
    return Inspection(
        str(federation), np.asarray(federation.sizes), label_counts=counts, graph=graph
    )


def federation_of(what: str, changes: Iterable[str], seed: int = 0) -> Federation:
    """The federation of an experiment file, or of a data source; ``changes`` are ``key=value`` of
    its [data].
    """
    keys = [c if c.startswith("data.") else f"data.{c}" for c in changes]
    if what in SOURCES:
        return federation_in(
            parse(f'[data]\nsource = "{what}"\n[run]\nrounds = 1\n', overrides=keys), seed
        )
    if not Path(what).exists():
        raise InvalidOption(
            f"{what!r} is neither an experiment file nor a data source", suggest(what, SOURCES)
        )
    return federation_in(load(what, keys), seed)
