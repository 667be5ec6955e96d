"""What a node does for a server, and what leaves it: decided by the node alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch

from poise.core.algorithm_state import NamedVectors, memory_of
from poise.core.arrivals import UPDATE, Arrivals
from poise.core.capabilities import CountsEpochs
from poise.core.errors import InvalidOption, PoiseError, require, suggest
from poise.core.parts import describe
from poise.core.protocols import Channel, Solver
from poise.core.traits import ChannelTraits, traits_of
from poise.core.types import Floats

LEAVES = {
    "hello": ("client", "samples", "shape", "classes", "data", "boot"),
    "work": (
        "client",
        "versions",
        "occurrences",
        "samples",
        "steps",
        "loss_before",
        "loss_after",
        "boot",
    ),
    "measure": ("client", "metrics"),
    "graph": ("client",),
    "call": ("client", "boot"),
}
"""All facts that ever leave a node, by the kind of request; beside them, only the updates of
``work`` and the message of ``graph``."""

GRAPH = "messages for the similarity graph (graph = false)"


class PolicyRefused(PoiseError):
    """A node was asked for what its policy does not allow."""


@dataclass(frozen=True)
class Policy:
    """What a server may ask of a node.

    Args:
        solvers: names of the local solvers that may be used.
        max_steps: most local steps in one piece of work.
        max_epochs: most epochs in one piece of work.
        min_cohort: fewest clients that work at the same time, as the server says.
        losses: whether the mean losses before and after the work may be reported.
        metrics: whether metrics of a model on the node's data may be reported.
        graph: whether the main direction of the node's data may be told, for the similarity graph.
        graph_noise: standard deviation of Gaussian noise on each entry of that direction, which has
            length 1.
        clip: the longest update that leaves; 0 for any length.
        noise: standard deviation of Gaussian noise on each entry of an update, in units of
            ``clip``.

    >>> Policy(noise=1.0)
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: policy: noise needs clip: it is in units of it (for example
    clip = 1.0)
    """

    solvers: tuple[str, ...] = ("prox", "sgd")
    max_steps: int = 10_000
    max_epochs: int = 20
    min_cohort: int = 2
    losses: bool = True
    metrics: bool = False
    graph: bool = False
    graph_noise: float = 0.0
    clip: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_epochs", "min_cohort"):
            value = vars(self)[name]
            require(
                type(value) is int and value >= 1,
                f"policy: {name} must be a whole number above 0, not {value!r}",
            )
        for name in ("losses", "metrics", "graph"):
            require(isinstance(vars(self)[name], bool), f"policy: {name} must be true or false")
        for name in ("clip", "noise", "graph_noise"):
            value = vars(self)[name]
            number = isinstance(value, int | float) and not isinstance(value, bool)
            require(
                number and 0 <= value < math.inf, f"policy: {name} must be 0 or more, not {value!r}"
            )
        named = all(isinstance(s, str) for s in self.solvers)
        require(named and bool(self.solvers), "policy: solvers must name at least one solver")
        require(
            not self.noise or self.clip > 0,
            "policy: noise needs clip: it is in units of it",
            "for example clip = 1.0",
        )

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Policy:
        """From a policy file; a key that it does not know is an error, never ignored."""
        known = [f.name for f in fields(cls)]
        for key in table:
            if key not in known:
                raise InvalidOption(f"policy: unknown key {key!r}", suggest(key, known))
        given = dict(table)
        if "solvers" in given:
            require(isinstance(given["solvers"], list), "policy: solvers must be a list of names")
            given["solvers"] = tuple(given["solvers"])
        return cls(**given)

    def table(self) -> dict[str, Any]:
        """What `of` reads."""
        return {**asdict(self), "solvers": list(self.solvers)}

    def allow(
        self,
        solver: Solver,
        samples: int,
        cohort: int,
        reports: Sequence[str],
        metrics: Sequence[str],
        graph: bool = False,
    ) -> None:
        """Refuse what goes beyond this policy, by naming it."""
        name = str(describe(solver)["name"])
        steps = int(solver.steps_for(np.array([samples]))[0])
        epochs = solver.epochs if isinstance(solver, CountsEpochs) else None
        beyond = {
            f"the solver {name!r} (allowed: {', '.join(self.solvers)})": name not in self.solvers,
            f"{steps} local steps (at most {self.max_steps})": steps > self.max_steps,
            f"{epochs} epochs (at most {self.max_epochs})": epochs is not None
            and epochs > self.max_epochs,
            f"a cohort of {cohort} (at least {self.min_cohort})": cohort < self.min_cohort,
            f"reports of {', '.join(sorted(reports))} (losses = false)": bool(reports)
            and not self.losses,
            f"the solver {name!r}, which remembers what clients sent, where updates are clipped": (
                bool(self.clip) and memory_of(solver) is not None
            ),
            f"metrics on its data: {', '.join(sorted(metrics))} (metrics = false)": bool(metrics)
            and not self.metrics,
            GRAPH: graph and not self.graph,
        }
        for what, refused in beyond.items():
            if refused:
                raise PolicyRefused(f"its policy does not allow {what}")

    def allow_channel(self, channel: Channel | None) -> None:
        """Refuse a channel that encodes updates where they are clipped: the limit is on the update,
        not on its code.
        """
        if self.clip and channel is not None and not traits_of(channel, ChannelTraits).identity:
            name = str(describe(channel)["name"])
            raise PolicyRefused(
                f"its policy does not allow the channel {name!r}, where updates are clipped"
            )


def outgoing(
    policy: Policy,
    kind: str,
    facts: Mapping[str, Any],
    answers: Sequence[Arrivals] = (),
    message: Floats | None = None,
    secret: bytes = b"",
) -> tuple[dict[str, Any], list[NamedVectors]]:
    """All that leaves a node in answer to one request; nothing is sent that did not come out of
    here.

    Facts are those that `LEAVES` lists for the kind of request, without what the policy withholds;
    updates are clipped and made noisy as it says. The noise is drawn from the system's entropy:
    nobody can draw it again. That of the graph's message is named by the node's ``secret``: whoever
    asks twice learns nothing more.
    """
    withheld = set() if policy.losses else {"loss_before", "loss_after"}
    withheld |= set() if policy.metrics else {"metrics"}
    told = {name: facts[name] for name in LEAVES[kind] if name in facts and name not in withheld}
    payloads: list[NamedVectors] = []
    if kind == "work":
        payloads = [
            {name: _guarded(policy, rows[0]) for name, rows in one.payload.items()}
            for one in answers
        ]
    if kind == "graph" and policy.graph and message is not None:
        payloads = [{UPDATE: torch.from_numpy(_covered(policy, message, secret))}]
    return told, payloads


def _guarded(policy: Policy, delta: torch.Tensor) -> torch.Tensor:
    """An update, clipped and noisy."""
    if not policy.clip:
        return delta
    length = float(torch.linalg.vector_norm(delta.double()))
    kept = delta * min(1.0, policy.clip / length) if length > 0 else delta.clone()
    if not policy.noise:
        return kept
    noise = np.random.default_rng().normal(0.0, policy.noise * policy.clip, size=len(delta))
    return kept + torch.from_numpy(noise).to(kept)


def _covered(policy: Policy, message: Floats, secret: bytes) -> Floats:
    """A message of length 1, noisy; the noise is the same for the same message, amount and
    secret.
    """
    if not policy.graph_noise:
        return message
    named = hashlib.blake2b(
        f"{policy.graph_noise!r}".encode() + message.tobytes(), key=secret
    ).digest()
    rng = np.random.default_rng(int.from_bytes(named, "little") if secret else None)
    noisy = message + policy.graph_noise * rng.standard_normal(len(message))
    return np.asarray(noisy / np.linalg.norm(noisy))
