"""The policy of a node: which requests it accepts, and what leaves it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

from poise.core.algorithm_state import NamedVectors, memory_of
from poise.core.arrivals import UPDATE, Arrivals
from poise.core.capabilities import CountsEpochs
from poise.core.errors import InvalidOption, PoiseError, require, suggest
from poise.core.objects import MODULE
from poise.core.parts import describe
from poise.core.protocols import Channel, Solver
from poise.core.traits import ChannelTraits, traits_of
from poise.core.types import Floats

LEAVES = {
    "hello": (
        "client",
        "samples",
        "shape",
        "classes",
        "labels",
        "inputs",
        "data",
        "boot",
        "alters",
        "poise",
    ),
    "work": (
        "client",
        "versions",
        "occurrences",
        "samples",
        "steps",
        "loss_before",
        "loss_after",
        "boot",
        "alters",
    ),
    "measure": ("client", "metrics"),
    "graph": ("client",),
    "curvature": ("client", "kind", "smoothness", "convexity", "exact"),
    "call": ("client", "boot"),
}
"""All facts that can leave a node, by kind of request. Beside them, only the updates of
``work`` and the direction of ``graph`` leave it."""

CURVATURE = "bounds of the curvature of its loss (curvature = false)"
GRAPH = "messages for the similarity graph (graph = false)"


class PolicyRefused(PoiseError):
    """A request goes beyond the policy of a node."""


@dataclass(frozen=True)
class Policy:
    """Limits of a node on the requests of a server, and on what leaves the node.

    Args:
        solvers: names of the allowed local solvers.
        allow: packages, or modules in them, whose code the node runs for a server; none
            by default.
        max_steps: most local steps in one assignment.
        max_epochs: most epochs in one assignment.
        min_cohort: smallest number of clients at work at the same time, as the server
            states it.
        losses: whether the node reports its mean losses before and after the work.
        metrics: whether the node reports metrics of a model on its data.
        graph: whether the node sends the main direction of its data, for the similarity
            graph.
        graph_noise: standard deviation of Gaussian noise on each entry of that
            direction, which has length 1.
        curvature: whether the node reports L and mu, bounds of the curvature of its
            loss, for certificates of unlearning. L of a linear model is a multiple of
            the largest eigenvalue of the second moments of its data; with batches, of
            the largest squared length of a sample.
        clip: the node clips updates to this length; 0 for no clipping.
        noise: standard deviation of Gaussian noise on each entry of an update, in units
            of ``clip``.

    >>> Policy(noise=1.0)
    Traceback (most recent call last):
    ...
    poise.core.errors.InvalidOption: policy: noise is in units of clip, which is 0 (for example
    clip = 1.0)
    """

    solvers: tuple[str, ...] = ("adagrad", "adam", "adamw", "prox", "rmsprop", "sgd")
    allow: tuple[str, ...] = ()
    max_steps: int = 10_000
    max_epochs: int = 20
    min_cohort: int = 2
    losses: bool = True
    metrics: bool = False
    graph: bool = False
    graph_noise: float = 0.0
    curvature: bool = False
    clip: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_epochs", "min_cohort"):
            value = vars(self)[name]
            require(
                type(value) is int and value >= 1,
                f"policy: {name} must be a whole number above 0, not {value!r}",
            )
        for name in ("losses", "metrics", "graph", "curvature"):
            require(
                isinstance(vars(self)[name], bool),
                f"policy: {name} must be true or false",
            )
        for name in ("clip", "noise", "graph_noise"):
            value = vars(self)[name]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            require(
                is_number and 0 <= value < math.inf,
                f"policy: {name} must be 0 or more, not {value!r}",
            )
        are_names = all(isinstance(solver, str) for solver in self.solvers)
        require(
            are_names and bool(self.solvers),
            "policy: solvers must name at least one solver",
        )
        require(
            all(isinstance(p, str) and MODULE.fullmatch(p) for p in self.allow),
            f"policy: allow must be a list of packages, not {list(self.allow)!r}",
            'for example allow = ["my_package"]',
        )
        require(
            not self.noise or self.clip > 0,
            "policy: noise is in units of clip, which is 0",
            "for example clip = 1.0",
        )

    @property
    def alters(self) -> bool:
        """Whether updates leave the node clipped or noisy: noise needs clipping."""
        return self.clip > 0

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Policy:
        """The policy in a table of ``policy.toml``; unknown keys are errors."""
        known = [f.name for f in fields(cls)]
        for key in table:
            if key not in known:
                raise InvalidOption(f"policy: unknown key {key!r}", suggest(key, known))
        options = dict(table)
        for key in ("solvers", "allow"):
            if key in options:
                require(
                    isinstance(options[key], list),
                    f"policy: {key} must be a list of names",
                )
                options[key] = tuple(options[key])
        return cls(**options)

    def table(self) -> dict[str, Any]:
        """The policy as a table that `of` reads."""
        lists = {"solvers": list(self.solvers), "allow": list(self.allow)}
        return {**asdict(self), **lists}

    def check_module(self, module: str) -> None:
        """Raise `PolicyRefused` unless ``allow`` lists the package of a module."""
        if not any(f"{module}.".startswith(f"{package}.") for package in self.allow):
            allowed = ", ".join(f'"{package}"' for package in self.allow)
            _refuse(f"the package {module.partition('.')[0]!r} (allow = [{allowed}])")

    def check_request(
        self,
        solver: Solver,
        samples: int,
        cohort: int,
        reports: Sequence[str],
        metrics: Sequence[str],
        graph: bool = False,
    ) -> None:
        """Raise `PolicyRefused` with the limit that a request exceeds, if any."""
        name = str(describe(solver)["name"])
        steps = int(solver.steps_for(np.array([samples]))[0])
        if name not in self.solvers:
            _refuse(f"the solver {name!r} (allowed: {', '.join(self.solvers)})")
        if steps > self.max_steps:
            _refuse(f"{steps} local steps (at most {self.max_steps})")
        if isinstance(solver, CountsEpochs) and (solver.epochs or 0) > self.max_epochs:
            _refuse(f"{solver.epochs} epochs (at most {self.max_epochs})")
        if cohort < self.min_cohort:
            _refuse(f"a cohort of {cohort} (at least {self.min_cohort})")
        if reports and not self.losses:
            _refuse(f"reports of {', '.join(sorted(reports))} (losses = false)")
        if self.clip and memory_of(solver) is not None:
            _refuse(
                f"the solver {name!r}, which keeps client state, with clipped updates"
            )
        if metrics and not self.metrics:
            _refuse(
                f"metrics on its data: {', '.join(sorted(metrics))} (metrics = false)"
            )
        if graph and not self.graph:
            _refuse(GRAPH)

    def allow_channel(self, channel: Channel | None) -> None:
        """Refuse a channel that encodes updates if the policy clips them.

        Clipping limits the length of an update, not of its encoding.
        """
        if (
            self.clip
            and channel is not None
            and not traits_of(channel, ChannelTraits).identity
        ):
            name = str(describe(channel)["name"])
            _refuse(f"the channel {name!r}, with clipped updates")


def _refuse(request: str) -> NoReturn:
    raise PolicyRefused(f"its policy does not allow {request}")


class Outgoing(NamedTuple):
    """Facts and payloads that leave a node in one reply."""

    facts: dict[str, Any]
    payloads: list[NamedVectors]


def outgoing(
    policy: Policy,
    kind: str,
    facts: Mapping[str, Any],
    arrivals: Sequence[Arrivals] = (),
    direction: Floats | None = None,
    secret: bytes = b"",
) -> Outgoing:
    """Everything that leaves a node in reply to a request; no other code sends.

    The facts are those that `LEAVES` lists for this kind of request, without those that
    the policy withholds. Updates are clipped and made noisy as the policy says. Their
    noise comes from the system's entropy, so nobody can reproduce it. The noise of the
    graph's direction is derived from the node's ``secret``: a second request returns
    the same noise and reveals nothing more.
    """
    withheld: set[str] = set()
    if not policy.losses:
        withheld |= {"loss_before", "loss_after"}
    if not policy.metrics:
        withheld.add("metrics")
    if not policy.curvature:
        withheld |= {"smoothness", "convexity"}
    allowed = {
        name: facts[name]
        for name in LEAVES[kind]
        if name in facts and name not in withheld
    }
    payloads: list[NamedVectors] = []
    if kind == "work":
        for arrived in arrivals:
            payload = {
                name: _protect(rows[0], policy)
                for name, rows in arrived.payload.items()
            }
            payloads.append(payload)
    if kind == "graph" and policy.graph and direction is not None:
        noisy = _add_graph_noise(direction, policy, secret)
        payloads = [{UPDATE: torch.from_numpy(noisy)}]
    return Outgoing(allowed, payloads)


def _protect(delta: torch.Tensor, policy: Policy) -> torch.Tensor:
    """An update, clipped and noisy as the policy says."""
    if not policy.clip:
        return delta
    length = float(torch.linalg.vector_norm(delta.double()))
    if length > 0:
        clipped = delta * min(1.0, policy.clip / length)
    else:
        clipped = delta.clone()
    if not policy.noise:
        return clipped
    noise = np.random.default_rng().normal(
        0.0, policy.noise * policy.clip, size=len(delta)
    )
    return clipped + torch.from_numpy(noise).to(clipped)


def _add_graph_noise(direction: Floats, policy: Policy, secret: bytes) -> Floats:
    """A noisy direction of length 1; the same inputs and secret give the same noise."""
    if not policy.graph_noise:
        return direction
    level = f"{policy.graph_noise!r}".encode()
    digest = hashlib.blake2b(level + direction.tobytes(), key=secret).digest()
    rng = np.random.default_rng()
    if secret:
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
    noisy = direction + policy.graph_noise * rng.standard_normal(len(direction))
    return np.asarray(noisy / np.linalg.norm(noisy))
