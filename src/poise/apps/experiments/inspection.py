"""Inspection of a federation before training: sizes, classes and similarity of its clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from poise.config.experiment import load, parse, refuse_missing_file
from poise.core.errors import IncompatibleParts, InvalidOption, suggest
from poise.core.federations import HasClasses, ReadableFederation, SaysAssumed
from poise.core.types import Floats, Ints
from poise.data import Federation
from poise.data.sources import SOURCES
from poise.graph import SimilarityGraph, similarity
from poise.graph.divergence import jensen_shannon, total_variation
from poise.ledger.store import begun
from poise.training import federation_in, reads_files

MAX_CLIENTS = 2000
"""Largest number of clients for which the similarity graph is computed."""


@dataclass(frozen=True)
class Inspection:
    """Sizes, classes and similarity of the clients of a federation."""

    name: str
    sizes: Ints
    label_counts: Ints | None
    graph: SimilarityGraph
    assumed: str = ""

    @cached_property
    def divergences(self) -> dict[str, Floats]:
        """Distances of the clients' class distributions from the overall one, by name."""
        if self.label_counts is None:
            return {}
        counts = self.label_counts
        return {
            "Jensen-Shannon": jensen_shannon(counts),
            "total variation": total_variation(counts),
        }

    def as_data(self) -> dict[str, Any]:
        """The inspection as ``--json`` prints it."""
        theta, phi = self.graph.fit()
        order = self.graph.typical()
        sizes = self.sizes
        samples_per_class = None
        classes_per_client = None
        if self.label_counts is not None:
            samples_per_class = self.label_counts.sum(axis=0).tolist()
            classes_per_client = float((self.label_counts > 0).sum(axis=1).mean())
        return {
            "federation": self.name,
            "assumed": self.assumed,
            "clients": len(sizes),
            "samples": int(sizes.sum()),
            "size": {
                "smallest": int(sizes.min()),
                "median": float(np.median(sizes)),
                "largest": int(sizes.max()),
            },
            "classes": samples_per_class,
            "classes per client": classes_per_client,
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
    """Inspect a federation."""
    if federation.on_demand or federation.clients > MAX_CLIENTS:
        raise IncompatibleParts(
            f"{federation.clients:,} clients are too many to compare with each other",
            f"inspect a federation with at most {MAX_CLIENTS:,} clients, not on demand",
        )
    counts: Ints | None = None
    if isinstance(federation, HasClasses) and federation.classes:
        counts = federation.label_counts()
    assumed = ""
    if isinstance(federation, SaysAssumed):
        assumed = federation.assumed
    return Inspection(
        str(federation),
        np.asarray(federation.sizes),
        label_counts=counts,
        graph=similarity(federation, labels),
        assumed=assumed,
    )


def federation_of(target: str, changes: Iterable[str], seed: int = 0) -> Federation:
    """The federation of an experiment file or a data source.

    ``changes`` are ``key=value`` of its table ``[data]``.
    """
    overrides = [c if c.startswith("data.") else f"data.{c}" for c in changes]
    if target in SOURCES:
        text = f'[data]\nsource = "{target}"\n[run]\nrounds = 1\n'
        return federation_in(parse(text, overrides=overrides), seed)
    if not Path(target).exists():
        refuse_missing_file(target)
        raise InvalidOption(
            f"{target!r} is neither an experiment file nor a data source",
            suggest(target, SOURCES),
        )
    experiment = load(target, overrides)
    if begun(Path(target).parent) and reads_files(experiment):
        raise InvalidOption(
            f"{target}: the data of this run are files",
            "a run folder makes poise read files only to resume or unlearn; inspect "
            "your experiment file instead",
        )
    return federation_in(experiment, seed)
