"""API models of deployments: nodes, events, the supervisor's log."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class RefusedReply(BaseModel):
    """A reply of a node that the server refused; aggregations count from 1."""

    at: datetime | None
    job: str
    aggregation: int
    reason: str


class NodeOf(BaseModel):
    """A node of a deployment."""

    client: int
    state: str = Field(
        description="connected, silent, never connected, revoked, or unknown."
    )
    last_seen: datetime | None = Field(description="Its last heartbeat.")
    ago: str
    here: bool = Field(description="Whether this deployment's supervisor starts it.")
    restarts: int
    release: str | None = Field(
        description="Its version of poise; null before its first run."
    )
    certificate: datetime | None = Field(
        description="End of the certificate of its local port; null if it is elsewhere."
    )
    refused: list[RefusedReply] = Field(
        description="Its refused replies in the latest jobs."
    )


class NodeEvent(BaseModel):
    """An event of a deployment."""

    at: datetime
    text: str
    client: int | None
    trouble: bool


class DeploymentOf(BaseModel):
    """A deployment: processes, nodes, certificates, and the latest events first."""

    number: int
    name: str = Field(description="Name of its folder.")
    folder: str
    status: str
    warnings: list[str]
    watched: datetime | None = Field(
        description="When the supervisor looked at the nodes last."
    )
    processes: dict[str, int] = Field(
        description="Numbers of starts of the server's processes."
    )
    certificate: datetime | None
    authority: datetime | None
    nodes: list[NodeOf]
    events: list[NodeEvent]


class NodeLog(BaseModel):
    """The end of the supervisor's log."""

    file: str
    text: str
