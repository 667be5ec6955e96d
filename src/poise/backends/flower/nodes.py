"""The backend ``flower``: local work on real nodes, with checks of every reply."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import torch

from poise.backends.flower.messages import NodeMessage, TensorBytes
from poise.backends.flower.reply_checks import (
    PayloadForm,
    WorkRequest,
    identity_error,
    refusal_reason,
)
from poise.backends.flower.reply_table import NO_VERSION, CheckedReply, ReplyTable
from poise.backends.flower.transport import PAUSE, Outbox, Transport, current
from poise.core.algorithm_state import AlgorithmState, memory_of
from poise.core.arrivals import Arrivals
from poise.core.errors import require
from poise.core.federations import KnowsAltered
from poise.core.local_models import LocalModel, no_local_model
from poise.core.neighbours import MEAN
from poise.core.parts import describe, part
from poise.core.protocols import HasSetMetrics, Owners, WorkOrder
from poise.core.rng import keys
from poise.core.types import HELD, Assignment
from poise.core.vectors import Stack, Vector
from poise.engine.local_work import LocalWork
from poise.engine.realtime import Key

OF_CLIENTS = ("client_", "train_")  # prefixes of metrics on the data of clients


@part("backend", "flower")
class Flower:
    """Run on the nodes of a deployment (``poise deploy``), one client per node.

    The data never leave the nodes. The server measures held-out metrics; nodes measure
    ``client_*`` and ``train_*`` metrics if their policy allows it. Client state between
    rounds (`Scaffold`, personal layers, …) stays on the nodes.

    Args:
        patience: seconds that a node may take for one assignment, including time
            offline.
        max_norm: longest update that the server accepts; None for any length.
        max_ratio: longest update that the server accepts, as a multiple of the median
            length of the updates in its round; inf for any length. It applies to
            rounds with three or more updates. A client with more local steps than the
            median client may send a longer update by that factor. A reported loss may
            be ``max_ratio ** 2`` times the median loss of the round.
        time: ``real``: the clock uses the seconds that nodes really take, whatever
            durations it names; ``simulated``: the clock uses its own durations, as
            without nodes.
    """

    patience: float = 600.0
    max_norm: float | None = None
    time: Literal["real", "simulated"] = "real"
    max_ratio: float = 100.0

    @property
    def device(self) -> str:
        """The device of the server's own computations."""
        return "cpu"

    def __post_init__(self) -> None:
        require(
            self.patience > 0, f"Flower: patience must be above 0, not {self.patience}"
        )
        require(
            self.max_norm is None or self.max_norm > 0,
            f"Flower: max_norm must be above 0, not {self.max_norm}",
        )
        require(
            self.max_ratio > 1,
            f"Flower: max_ratio must be above 1, not {self.max_ratio}",
        )
        require(
            self.time in ("real", "simulated"),
            f"Flower: time = {self.time!r}",
            "known: real, simulated",
        )

    def open(self, local: LocalWork, clients: Owners, seed: int) -> FlowerNodes:
        """Connect to the nodes of the enclosing `connected` block."""
        return FlowerNodes(local, clients, seed=seed, transport=current(), options=self)


@dataclass
class FlowerNodes:
    """The nodes of a deployment, as a backend."""

    local: LocalWork
    clients: Owners
    seed: int
    transport: Transport
    options: Flower
    _outbox: Outbox = field(init=False, repr=False)
    # by nonce: the request and the keys of its assignments
    _requested: dict[str, tuple[WorkRequest, list[Key]]] = field(
        default_factory=dict, repr=False
    )
    _replies: dict[Key, CheckedReply] = field(default_factory=dict, repr=False)
    _payload_form: PayloadForm | None = field(default=None, repr=False)
    _answered: set[str] = field(default_factory=set, repr=False)  # nonces

    def __post_init__(self) -> None:
        self._outbox = Outbox(self.transport)

    @property
    def real_time(self) -> bool:
        """Whether the clock uses the seconds that nodes really take."""
        return self.options.time == "real"

    @property
    def real_nodes(self) -> bool:
        """True, whichever seconds the clock uses."""
        return True

    @property
    def keeps_client_state(self) -> bool:
        """Whether clients keep state from one assignment to the next."""
        wire = self.local.wire
        solver_has_state = memory_of(self.local.solver) is not None
        return wire.personal is not None or bool(wire.keeps) or solver_has_state

    def hand_out(self, order: WorkOrder, at_work: int) -> None:
        """Send each client one request for all its assignments."""
        by_client = attrgetter("client")
        in_order = sorted(order.assignments, key=by_client)
        for client, group in groupby(in_order, key=by_client):
            assignments = list(group)
            request = self._work_request(client, assignments, order)
            message = self._work_message(client, request, order=order, at_work=at_work)
            self._outbox.put(client, message, self.options.patience)
            keys_of_request = [assignment.key for assignment in assignments]
            self._requested[request.nonce] = (request, keys_of_request)
        self._outbox.send()

    def answered(self, wait: float) -> list[Key]:
        """Collect and check replies until some arrive or ``wait`` seconds pass."""
        deadline = time.monotonic() + wait
        while True:
            arrived: list[Key] = []
            for nonce, reply in self._outbox.collect().items():
                arrived += self._check_reply(nonce, reply)
            left = deadline - time.monotonic()
            if arrived or left <= 0:
                return arrived
            time.sleep(min(PAUSE, left))

    def _check_reply(self, nonce: str, reply: NodeMessage | str) -> list[Key]:
        """Check and keep the reply to a request; returns the keys of its assignments."""
        request, assignment_keys = self._requested.pop(nonce)
        if isinstance(reply, str):
            reason = reply
        else:
            reason = refusal_reason(reply, request, self._answered)
            reason = reason or self._countersigned(reply)
        self._answered.add(nonce)
        for position, key in enumerate(assignment_keys):
            self._replies[key] = CheckedReply(
                position, request, reply=reply, reason=reason
            )
        return assignment_keys

    def _countersigned(self, reply: NodeMessage) -> str:
        """Check and keep the node's signature; returns what is wrong with it."""
        kept = self.transport.countersignatures
        if kept is None:
            return ""
        tensors = {name: tensor.data for name, tensor in reply.tensors.items()}
        return kept.accept(reply.facts, self.transport.run, tensors)

    def call_off(self, assignments: Iterable[Assignment]) -> None:
        """Stop waiting for these assignments; late replies are refused."""
        cancelled = {assignment.key for assignment in assignments}
        for nonce, (_, assignment_keys) in list(self._requested.items()):
            if cancelled.issuperset(assignment_keys):
                self._outbox.drop(nonce)
                del self._requested[nonce]
        for key in cancelled:
            self._replies.pop(key, None)

    def seconds(self) -> float:
        """The wall clock, in seconds."""
        return time.monotonic()

    def work(self, order: WorkOrder, spare: Stack | None = None) -> Arrivals:
        """Request assignments and wait; a refused reply becomes a row with a reason."""
        known = set(self._replies)
        for _, assignment_keys in self._requested.values():
            known.update(assignment_keys)
        new = [
            assignment
            for assignment in order.assignments
            if assignment.key not in known
        ]
        at_work = len({assignment.client for assignment in new})
        self.hand_out(replace(order, assignments=new), at_work=at_work)
        while any(
            assignment.key not in self._replies for assignment in order.assignments
        ):
            self.answered(self.options.patience)
        table = ReplyTable.empty(
            len(order.assignments), self._form(order), order.reports
        )
        for row, assignment in enumerate(order.assignments):
            table.enter(row, self._replies.pop(assignment.key))
        if not self.keeps_client_state:
            return table.arrivals()
        return table.arrivals([assignment.version for assignment in order.assignments])

    def map_workers(
        self, function: Callable[[Any], Any], items: Iterable[Any]
    ) -> list[Any]:
        """Process the items one by one; a deployment's server has no workers."""
        torch.set_num_threads(1)
        return [function(item) for item in items]

    def _form(self, order: WorkOrder) -> PayloadForm:
        """The form of all payloads of the run."""
        if self._payload_form is None:
            model = next(iter(order.models.values()))
            self._payload_form = PayloadForm(self.local.wire, model)
        return self._payload_form

    def _work_request(
        self, client: int, assignments: Sequence[Assignment], order: WorkOrder
    ) -> WorkRequest:
        """The expectations that the client's reply must meet."""
        steps = int(self.local.solver.steps_for(self.clients.sizes[[client]])[0])
        number = self.transport.number(client)
        may_alter = True
        if isinstance(self.clients, KnowsAltered):
            may_alter = number in self.clients.altered
        return WorkRequest(
            client=number,
            node=self.transport.nodes[client],
            nonce=secrets.token_hex(16),
            versions=tuple(assignment.version for assignment in assignments),
            occurrences=tuple(assignment.occurrence for assignment in assignments),
            form=self._form(order),
            samples=int(self.clients.sizes[client]),
            steps=steps,
            reports=order.reports,
            max_norm=self.options.max_norm or float("inf"),
            may_alter=may_alter,
        )

    def _work_message(
        self, client: int, request: WorkRequest, order: WorkOrder, at_work: int
    ) -> NodeMessage:
        """The message to the node: assignments, models to start from, shared state."""
        streams = keys(
            self.seed,
            "work",
            np.array(request.versions),
            client,
            np.array(request.occurrences),
        )
        facts = {
            **self.transport.common_facts("work", client),
            "nonce": request.nonce,
            "cohort": at_work,
            "versions": request.versions,
            "occurrences": request.occurrences,
            "streams": [int(stream) for stream in streams],
            "solver": describe(self.local.solver),
            **self._channel_facts(),
            "update_bytes": request.form.bytes,
            "reports": sorted(request.reports),
            **self._state_facts(client, order.algorithm_state),
        }
        tensors: dict[str, TensorBytes] = {}
        # client numbers here are those of the run, which differ from the deployment's
        # after a client has left
        mean = order.algorithm_state.client_state.get(client, {}).get(MEAN)
        for version in sorted(set(request.versions)):
            tensors[str(version)] = TensorBytes.of(
                self._sent_entries(order.models[version], facts)
            )
            for name, vector in order.algorithm_state.sent.get(version, {}).items():
                tensors[f"{version}/{name}"] = TensorBytes.of(vector)
            if mean is not None:
                tensors[f"{version}/{MEAN}"] = TensorBytes.of(mean)
        return NodeMessage(facts, tensors)

    def _channel_facts(self) -> dict[str, Any]:
        channel = self.local.wire.channel
        if channel is None:
            return {}
        return {"channel": describe(channel)}

    def _sent_entries(self, model: Vector, facts: Mapping[str, Any]) -> Vector:
        """The entries of a model that travel: all but a client's personal ones."""
        wire = self.local.wire
        if wire.personal is None or facts["held"] == NO_VERSION:
            return model
        return model[wire.travelling]

    def _state_facts(
        self, client: int, algorithm_state: AlgorithmState
    ) -> dict[str, Any]:
        """The stored state to start from: the one after the last work that counted."""
        if not self.keeps_client_state:
            return {}
        version = NO_VERSION
        held = algorithm_state.client_state.get(client, {}).get(HELD)
        if held is not None:
            version = int(held[0])
        return {
            "state": self.transport.state,
            "held": version,
            "personal": list(self.local.wire.stays),
        }

    def measure(
        self,
        theta: Vector,
        names: frozenset[str],
        algorithm_state: AlgorithmState,
        local: LocalModel = no_local_model,
    ) -> dict[str, Any]:
        """Metrics of a model: held-out ones here, those on client data on the nodes.

        Nodes have no test data of their own, so no metric reads ``local``.
        """
        on_nodes = frozenset(name for name in names if name.startswith(OF_CLIENTS))
        held_out = names - on_nodes
        metrics: dict[str, Any] = {}
        if held_out:
            metrics |= self.local.oracle.measure(theta, held_out, self.map_workers)
        if on_nodes:
            wanted = sorted({name.split("_", 1)[1] for name in on_nodes})
            for name, values in self._client_metrics(
                theta, wanted, algorithm_state
            ).items():
                metrics[f"client_{name}"] = values
                metrics[f"train_{name}"] = _weighted_mean(
                    self.clients.importance, values
                )
        return {name: metrics[name] for name in sorted(names)}

    def _client_metrics(
        self, theta: Vector, wanted: list[str], algorithm_state: AlgorithmState
    ) -> dict[str, np.ndarray]:
        """Each metric per client, (N,); nan with a warning if a node sends none."""
        requests = {}
        for client in range(len(self.clients.sizes)):
            facts = {
                **self.transport.common_facts("measure", client),
                "metrics": wanted,
                **self._state_facts(client, algorithm_state),
            }
            requests[client] = NodeMessage(facts, {"0": TensorBytes.of(theta)})
        values = {name: np.full(len(requests), np.nan) for name in wanted}
        for client, reply in self.transport.ask(
            requests, self.options.patience
        ).items():
            error = self._metrics_error(
                reply, requests[client], client=client, wanted=wanted
            )
            if error or isinstance(reply, str):
                number = self.transport.number(client)
                warnings.warn(
                    f"client {number} was asked for metrics and sent {error}",
                    stacklevel=2,
                )
                continue
            for name in wanted:
                values[name][client] = reply.facts["metrics"][name]
        return values

    def _metrics_error(
        self,
        reply: NodeMessage | str,
        request: NodeMessage,
        client: int,
        wanted: list[str],
    ) -> str:
        """What is wrong with a reply that should hold metrics; empty if it is valid."""
        if isinstance(reply, str):
            return reply
        if error := identity_error(
            reply, self.transport.nodes[client], request.facts["nonce"]
        ):
            return error
        metrics = reply.facts.get("metrics")
        if not isinstance(metrics, dict) or set(metrics) != set(wanted):
            return "other metrics than the requested ones"
        for name, value in metrics.items():
            # a metric of a set may be undefined on the data of one client
            undefined = name in self._of_set and value != value
            if not isinstance(value, float) or not (np.isfinite(value) or undefined):
                return "metrics that are not finite"
        return ""

    @property
    def _of_set(self) -> Collection[str]:
        """Names of the metrics of a set, without prefix."""
        oracle = self.local.oracle
        if isinstance(oracle, HasSetMetrics):
            return oracle.set_metrics.keys()
        return ()

    def close(self) -> None:
        """Do nothing: the nodes stay up for the next run."""


def _weighted_mean(importance: np.ndarray, values: np.ndarray) -> float:
    """The mean by importance over clients with a value; nan if no client has one."""
    known = ~np.isnan(values)
    if not known.any():
        return float("nan")
    return float(importance[known] @ values[known] / importance[known].sum())
