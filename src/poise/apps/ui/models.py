"""API models of clients, federations, unlearning requests, audits and actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from poise.config.entries import OptionEntry, entries_of
from poise.config.unlearn_request import UnlearnRequest

Verification = Literal["unknown", "running", "holds", "broken", "stale"]
"""State of a certificate; ``stale``: it or its ledgers changed since verification."""


LARGEST = {int: 10**9, float: 1e6}
"""Upper limit of the API for options that declare only a lower limit."""

LONGEST = 100_000
"""Maximum length of a text option."""


def fields_of(kind: type, without: Iterable[str] = ()) -> dict[str, Any]:
    """The declared options of a dataclass as fields of an API model."""
    return {
        key: (entry.type, _field(entry))
        for key, entry in entries_of(kind, without).items()
    }


def _field(entry: OptionEntry) -> Any:
    """Default, limits and description of one option."""
    declared = entry.option.declared
    limits: dict[str, Any] = {
        "gt": declared.above,
        "ge": declared.least,
        "lt": declared.below,
        "le": declared.most,
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    if entry.kind is float:
        limits["allow_inf_nan"] = False
    if (
        entry.kind in LARGEST
        and {"gt", "ge"} & set(limits)
        and not {"lt", "le"} & set(limits)
    ):
        limits["le"] = LARGEST[entry.kind]
    if entry.kind is str:
        limits["max_length"] = LONGEST
    default = entry.default
    if entry.option.required:
        default = ...
    return Field(default, description=entry.help, **limits)


class Fact(BaseModel):
    """A named fact in words."""

    name: str
    value: str


def facts(pairs: Iterable[tuple[str, str]]) -> list[Fact]:
    """(name, value) pairs as facts."""
    return [Fact(name=name, value=value) for name, value in pairs]


class RefusedUpdate(BaseModel):
    """An update that the server refused; aggregations count from 1."""

    aggregation: int
    reason: str


class Profile(BaseModel):
    """The data of a client; null if the ledger has no client table."""

    client: int
    name: str = Field(description="Its name; `client 3` without a name.")
    clients: int
    owner: int = Field(
        description=(
            "Number among all data owners; differs if owners left before the run."
        )
    )
    samples: int | None
    share: float | None = Field(description="Share of the samples of all clients.")
    importance: float | None
    classes: list[int] | None
    divergence: dict[str, float] = Field(
        description="Divergence of its class distribution from that of all clients."
    )
    traits: dict[str, float]


class Neighbour(BaseModel):
    """Another client of the similarity graph."""

    client: int
    misalignment: float


class GraphPosition(BaseModel):
    """The position of a client in the similarity graph."""

    degree: float
    rank: int = Field(description="Rank by degree; 1 is the most typical client.")
    clients: int
    outlier: bool
    nearest: list[Neighbour]


class Participation(BaseModel):
    """The participation of a client in a run."""

    rounds: int = Field(description="Number of aggregations with this client.")
    of: int
    first: int | None
    last: int | None
    mean_weight: float = Field(
        description="Mean over all aggregations; those without the client count as 0."
    )
    weight_per_contribution: float | None = Field(
        description="Mean over the contributions of the client."
    )
    mean_staleness: float | None
    largest_staleness: int | None
    samples: int = Field(description="Samples processed in all rounds.")
    steps: int
    refused: int


class ContributionRow(BaseModel):
    """The contribution of a client to one aggregation; aggregations count from 1."""

    aggregation: int
    version: int
    staleness: int
    base: float
    weight: float
    norm: float | None
    samples: int
    steps: int
    loss_before: float | None
    loss_after: float | None


class Contributions(BaseModel):
    """A page of a client's contributions, newest first."""

    page: int
    pages: int
    total: int
    rows: list[ContributionRow]


class AuditResult(BaseModel):
    """The audit result of a client."""

    client: int
    name: str
    score: float
    p: float
    why: str
    suspected: bool


class Ranked(AuditResult):
    """A line of the ranking; ``free_rider`` is null if the truth is unknown."""

    rank: int
    free_rider: bool | None


class Ranking(BaseModel):
    """A page of the clients, most suspicious first."""

    page: int
    pages: int
    total: int
    suspects: int
    rows: list[Ranked]


class Threshold(BaseModel):
    """Number of suspects at a false-alarm rate, and the hits if the truth is known."""

    alarm: float
    suspected: int
    chosen: bool
    found: int | None = None
    free_riders: int | None = None
    false_alarms: int | None = None


class Sensitivity(BaseModel):
    """How far a client has moved the model; ``psi`` is null if infinite or unknown."""

    psi: float | None
    limit: float
    beyond: bool
    epsilon: float | None
    delta: float | None
    trouble: str = ""


class ClientOf(BaseModel):
    """All data about one client of a run."""

    profile: Profile
    names: list[str] = Field(description="Names of all clients; empty without names.")
    place: GraphPosition | None
    participation: Participation
    refused: list[RefusedUpdate]
    latest: dict[str, float] = Field(
        description="Its last value of each metric that is measured per client."
    )
    measured_on: dict[str, str] = Field(
        description="The model and the data of each of these metrics, in words."
    )
    contributions: Contributions
    sensitivity: Sensitivity
    verdict: AuditResult | None
    no_verdict: str = Field(
        description="Why there is no audit result; empty if there is one."
    )
    events: list[str]


class ClientRanking(BaseModel):
    """How each client fares, the worst first."""

    heading: list[str] = Field(description="Titles of the columns.")
    lines: list[list[str]] = Field(
        description="A line per client: its name, then its values."
    )
    order: list[int] = Field(description="Number of the client of each line.")
    note: str


class FederationOf(BaseModel):
    """Facts about all clients of a run."""

    facts: list[Fact]
    ranking: ClientRanking | None = Field(
        description="How each client fares; null before the first round."
    )
    names: list[str] = Field(
        description="Names of the clients; empty if they have none."
    )
    graph: list[Fact] = Field(
        description="Findings of the similarity graph; empty without a graph."
    )
    typical: dict[str, list[int]]
    same_data: bool | None = Field(
        description="Whether the graph was computed from the data of this run."
    )
    no_graph: str = Field(
        description="Why the console cannot compute the graph; empty if it can."
    )


class JobOf(BaseModel):
    """A started action."""

    id: str
    kind: str
    title: str
    command: str
    began: str
    state: Literal["running", "done", "failed"]
    error: str
    hint: str
    log: str
    rounds: int | None = Field(
        description="Finished rounds of the run that the action makes."
    )
    of: int | None


class CertificateOf(BaseModel):
    """A finished unlearning request: certificate and verification state."""

    request: int
    summary: dict[str, str]
    verification: Verification
    verification_words: str
    certificate: dict[str, object]


class UnlearningOf(BaseModel):
    """The unlearning requests of a run."""

    training: str
    forgotten: list[int]
    limit: float
    budget: dict[str, float | str | None] = Field(
        description="Default privacy budget of requests."
    )
    requests: list[CertificateOf]
    open: dict[str, str] | None = Field(
        description="The options of the unfinished request."
    )


# the fields are the options of UnlearnRequest, as those of the command are
_Request: Any = create_model("_Request", **fields_of(UnlearnRequest, without=("out",)))


class RequestBody(_Request):  # type: ignore[misc]
    """An unlearning request: the options of ``poise unlearn``.

    Null uses the value declared at training time, or the default.
    """

    model_config = ConfigDict(extra="forbid")


class Cost(BaseModel):
    """The cost of an unlearning request; computing it changes nothing."""

    restart: list[int] = Field(
        description="Branch and round of the model to restart from."
    )
    ideal: list[int] = Field(description="The same, if the run had kept every model.")
    given_up: int
    sigma: float
    psi: dict[str, float | None]
    limit: float
    not_proved: list[str]
    words: list[Fact]
    command: str


class AuditOf(BaseModel):
    """The audit of a run."""

    alarm: float
    ranking: Ranking
    thresholds: list[Threshold]
    auc: float | None = Field(
        description="AUC of the scores; null if the truth is unknown."
    )
    news: list[str] = Field(description="Events of the audit during the run.")


class DecisionForm(BaseModel):
    """A quarantine decision about a client."""

    model_config = ConfigDict(extra="forbid")

    client: int
    action: Literal["quarantine", "release"] = "quarantine"
    who: str = Field(max_length=200)
    why: str = Field(max_length=2000)


class DecisionOf(DecisionForm):
    """A recorded quarantine decision."""

    owner: int
    when: str
    rounds: int
    score: float | None
    p: float | None


class QuarantineOf(BaseModel):
    """The clients in quarantine, all decisions, and how to train without these clients."""

    excluded: list[int]
    decisions: list[DecisionOf]
    experiment: str = Field(
        description=(
            "The experiment file without the excluded clients; empty if there are none."
        )
    )
    command: str
    trouble: str
