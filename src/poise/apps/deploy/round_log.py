"""`RoundLog`: writes finished rounds, and news about nodes, into the log of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from poise.backends.flower.transport import Transport
from poise.core.types import Record


@dataclass
class RoundLog:
    """A callback of a run, with a line per round.

    A line also has what the server learned of the nodes since the line before: the
    process that answered (``boots``) and the version of poise (``releases``). Their keys
    and ``refused_nodes`` count clients as the deployment does, ``refused`` as the run.

    Args:
        write: writes a line.
        transport: the connection to the nodes of the run.
    """

    write: Callable[..., None]
    transport: Transport
    _told: dict[str, Mapping[int, str]] = field(default_factory=dict)

    def __call__(self, record: Record) -> None:
        """Write the line of a round."""
        facts: dict[str, object] = {}
        known = {"boots": self.transport.boots, "releases": self.transport.releases}
        for name, by_node in known.items():
            by_client = self._by_client(by_node)
            if by_client != self._told.get(name, {}):
                self._told[name] = by_client
                facts[name] = by_client
        if record.refusals:
            facts["refused_nodes"] = [
                [self.transport.number(refusal.client), refusal.reason]
                for refusal in record.refusals
            ]
        self.write(
            round=record.index,
            seconds=record.seconds,
            metrics={
                k: float(v) for k, v in record.metrics.items() if isinstance(v, float)
            },
            refused=[[refusal.client, refusal.reason] for refusal in record.refusals],
            at=time.time(),
            **facts,
        )

    def _by_client(self, by_node: Mapping[int, str]) -> dict[int, str]:
        """Texts by Flower's node id as texts by client of the deployment."""
        return {
            self.transport.number(client): by_node[node]
            for client, node in self.transport.nodes.items()
            if node in by_node
        }
