"""What the API says of clients, federations, requests to forget, audits and actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from poise.config.entries import OptionEntry, entries_of
from poise.config.unlearn_request import UnlearnRequest

Verification = Literal["unknown", "running", "holds", "broken", "stale"]
"""What is known of a certificate: ``stale`` where it or the ledgers changed since it was looked
at."""


LARGEST = {int: 10**9, float: 1e6}
"""The largest numbers that the API takes for an option with a lower bound and no upper one."""

LONGEST = 100_000
"""The longest text that the API takes for an option."""


def fields_of(kind: type, without: Iterable[str] = ()) -> dict[str, Any]:
    """The declared options of a dataclass as fields of a model of the API."""
    return {key: (entry.type, _field(entry)) for key, entry in entries_of(kind, without).items()}


def _field(entry: OptionEntry) -> Any:
    """Default, bounds and description of one option."""
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
    if entry.kind in LARGEST and {"gt", "ge"} & set(limits) and not {"lt", "le"} & set(limits):
        limits["le"] = LARGEST[entry.kind]
    if entry.kind is str:
        limits["max_length"] = LONGEST
    default = ... if entry.option.required else entry.default
    return Field(default, description=entry.help, **limits)


class Fact(BaseModel):
    """Something in words."""

    name: str
    value: str


def facts(pairs: Iterable[tuple[str, str]]) -> list[Fact]:
    """Names and values as the API tells them."""
    return [Fact(name=name, value=value) for name, value in pairs]


class Refusal(BaseModel):
    """An update that was not averaged in; aggregations are counted from 1."""

    aggregation: int
    reason: str


class Profile(BaseModel):
    """What a client holds; null where the ledger has no table of the clients."""

    client: int
    clients: int
    owner: int = Field(
        description="Its number among all owners of the data, where some had left before the run."
    )
    samples: int | None
    share: float | None = Field(description="Of the samples of all clients.")
    importance: float | None
    classes: list[int] | None
    divergence: dict[str, float] = Field(description="Of its class composition from that of all.")
    traits: dict[str, float]


class Neighbour(BaseModel):
    """Another client of the similarity graph."""

    client: int
    misalignment: float


class Place(BaseModel):
    """Where a client stands in the similarity graph."""

    degree: float
    rank: int = Field(description="By degree; 1 is the most typical.")
    clients: int
    outlier: bool
    nearest: list[Neighbour]


class Participation(BaseModel):
    """A client's part in a run."""

    rounds: int = Field(description="Aggregations it took part in.")
    of: int
    first: int | None
    last: int | None
    mean_weight: float | None
    mean_staleness: float | None
    largest_staleness: int | None
    samples: int = Field(description="Worked on, all rounds together.")
    steps: int
    refused: int


class Contribution(BaseModel):
    """A client's part in one aggregation, counted from 1."""

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
    """A page of a client's contributions, the newest first."""

    page: int
    pages: int
    total: int
    rows: list[Contribution]


class Verdict(BaseModel):
    """What the audit says of a client."""

    client: int
    score: float
    p: float
    why: str
    suspected: bool


class Ranked(Verdict):
    """A line of the ranking; ``free_rider`` is null where nobody knows."""

    rank: int
    free_rider: bool | None


class Ranking(BaseModel):
    """A page of the clients, from the most suspected on."""

    page: int
    pages: int
    total: int
    suspects: int
    rows: list[Ranked]


class Threshold(BaseModel):
    """How many are suspected at a false-alarm rate and, where it is known, how many rightly."""

    alarm: float
    suspected: int
    chosen: bool
    found: int | None = None
    free_riders: int | None = None
    false_alarms: int | None = None


class Sensitivity(BaseModel):
    """How far a client has moved the model; ``psi`` is null where it is beyond every limit or
    cannot be counted.
    """

    psi: float | None
    limit: float
    beyond: bool
    trouble: str = ""


class ClientOf(BaseModel):
    """Everything about one client of a run."""

    profile: Profile
    place: Place | None
    participation: Participation
    refused: list[Refusal]
    contributions: Contributions
    sensitivity: Sensitivity
    verdict: Verdict | None
    no_verdict: str = Field(description="Why there is none.")
    events: list[str]


class FederationOf(BaseModel):
    """The clients of a run together: facts in words."""

    facts: list[Fact]
    graph: list[Fact] = Field(
        description="What the similarity graph says; empty where none was made."
    )
    typical: dict[str, list[int]]
    same_data: bool | None = Field(
        description="Whether the graph was made of the data that the run has."
    )
    no_graph: str = Field(description="Why no graph can be made here; empty where it can.")


class JobOf(BaseModel):
    """An action that was started."""

    id: str
    kind: str
    title: str
    command: str
    began: str
    state: Literal["running", "done", "failed"]
    error: str
    hint: str
    log: str
    rounds: int | None = Field(description="Rounds so far of the run that it makes.")
    of: int | None


class CertificateOf(BaseModel):
    """A request that was honoured: its certificate, and whether it was verified here."""

    request: int
    summary: dict[str, str]
    verification: Verification
    verification_words: str
    certificate: dict[str, object]


class UnlearningOf(BaseModel):
    """What a run was asked to forget."""

    training: str
    forgotten: list[int]
    limit: float
    budget: dict[str, float | str | None] = Field(
        description="What requests are promised, unless they say otherwise."
    )
    requests: list[CertificateOf]
    open: dict[str, str] | None = Field(
        description="The options of a request that is not finished."
    )


# The fields of a wish are the options of UnlearnRequest, so that the API cannot drift from the
# command.
_Request: Any = create_model("_Request", **fields_of(UnlearnRequest, without=("out",)))


class Wish(_Request):  # type: ignore[misc]
    """A request to forget: the options of ``poise unlearn``; null is as the training declared it,
    or as usual.
    """

    model_config = ConfigDict(extra="forbid")


class Cost(BaseModel):
    """What a request would cost; nothing is changed by looking."""

    restart: list[int] = Field(description="Branch and round of the model it would restart from.")
    ideal: list[int] = Field(description="Likewise, if every model had been kept.")
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
    auc: float | None = Field(description="Where it is known who free-rides.")
    news: list[str] = Field(description="What the audit said while the run went on.")


class Verb(BaseModel):
    """A decision about a client."""

    model_config = ConfigDict(extra="forbid")

    client: int
    action: Literal["quarantine", "release"] = "quarantine"
    who: str = Field(max_length=200)
    why: str = Field(max_length=2000)


class DecisionOf(Verb):
    """A decision as it is kept beside the run."""

    owner: int
    when: str
    rounds: int
    score: float | None
    p: float | None


class QuarantineOf(BaseModel):
    """Who is in quarantine, how it came to that, and how to go on without them."""

    excluded: list[int]
    decisions: list[DecisionOf]
    experiment: str = Field(description="The experiment file without them; empty where nobody is.")
    command: str
    trouble: str
