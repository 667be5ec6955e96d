"""A similarity graph kept in a file, with what an inspection found beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from poise.core.errors import LedgerError, PoiseError
from poise.graph import SimilarityGraph
from poise.ledger.files import write_whole

MESSAGES, FOUND = "messages", "found"


@dataclass(frozen=True)
class KeptGraph:
    """A graph and the findings of its inspection, as `Inspection.as_data` gives them.

    ``digest`` is that of the federation it was made of, as a run's ledger has it (`federation`);
    empty where unknown.
    """

    graph: SimilarityGraph
    found: Mapping[str, Any]
    digest: str = ""


def keep_graph(kept: KeptGraph, path: Path) -> None:
    """Write a graph to a file, whole or not at all."""
    facts = {FOUND: json.dumps(dict(kept.found)), "digest": kept.digest}
    write_whole(path, save({MESSAGES: np.ascontiguousarray(kept.graph.messages)}, metadata=facts))


def kept_graph(path: Path) -> KeptGraph:
    """The graph in a file."""
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            return KeptGraph(
                SimilarityGraph(file.get_tensor(MESSAGES)),
                json.loads(facts[FOUND]),
                facts.get("digest", ""),
            )
    except (OSError, SafetensorError, ValueError, KeyError, PoiseError) as error:
        raise LedgerError(f"{path} holds no similarity graph: {error}", "make it again") from error
