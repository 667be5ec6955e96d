"""Files that store a similarity graph together with the findings of its inspection."""

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
from poise.ledger.foreign import check_regular

MESSAGES = "messages"
FINDINGS = "found"


@dataclass(frozen=True)
class KeptGraph:
    """A graph and the findings of its inspection (`Inspection.as_data`).

    ``digest`` is the digest of the federation, as the ledger of a run records it
    (`federation`); empty if unknown.
    """

    graph: SimilarityGraph
    findings: Mapping[str, Any]
    digest: str = ""


def keep_graph(kept: KeptGraph, path: Path) -> None:
    """Write a graph to a file atomically."""
    facts = {FINDINGS: json.dumps(dict(kept.findings)), "digest": kept.digest}
    write_whole(
        path,
        save({MESSAGES: np.ascontiguousarray(kept.graph.messages)}, metadata=facts),
    )


def kept_graph(path: Path) -> KeptGraph:
    """Read a graph from a file."""
    try:
        check_regular(path)
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
            return KeptGraph(
                SimilarityGraph(file.get_tensor(MESSAGES)),
                json.loads(facts[FINDINGS]),
                facts.get("digest", ""),
            )
    except (OSError, SafetensorError, ValueError, KeyError, PoiseError) as error:
        raise LedgerError(
            f"cannot read a similarity graph from {path}: {error}",
            "delete the file and compute the graph again",
        ) from error
