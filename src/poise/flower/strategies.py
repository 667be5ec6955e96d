"""poise's weightings, samplers and servers as strategies for existing Flower apps.

    strategy = FedSoftMax(temperature=0.2)      # instead of Flower's FedAvg()
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

The client app stays the same, unless the weighting needs losses. Then the
``MetricRecord`` of a reply must also contain ``"loss-before"`` (loss of the received
model, mean over the client's samples) and, for `FedExp`, ``"loss-after"``, beside
Flower's usual ``"num-examples"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from poise.core import equation
from poise.core.capabilities import Seeded
from poise.core.errors import IncompatibleParts, InvalidOption, UpdateRefused, require
from poise.core.history import History
from poise.core.parts import describe
from poise.core.protocols import Sampler, Server, ServerState, Weighting
from poise.core.rng import generator
from poise.core.round_updates import RoundUpdates
from poise.core.types import LOSS_REPORTS, Cohort, Floats, Ints, Record, Setting
from poise.core.vectors import Vector
from poise.engine.round import weighed
from poise.engine.validation import Limits, refusals
from poise.samplers import Full
from poise.servers import Add
from poise.weightings import Exp, Proportional, SoftMax

try:
    from flwr.app import (
        ArrayRecord,
        ConfigRecord,
        Message,
        MessageType,
        MetricRecord,
        RecordDict,
    )
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.serverapp.strategy.strategy_utils import sample_nodes
    from flwr.supercore import log
except ImportError as error:
    raise ImportError(
        "poise.flower needs Flower: pip install 'poise[flower]'"
    ) from error

from poise.flower.replies import AVERAGES, ArrayForm, CheckedUpdate, check_reply

__all__ = ["Composed", "FedExp", "FedSoftMax"]

BELIEF_HINT = (
    "bad_updates='drop' continues without the reply; max_ratio= and lowest_loss= set "
    "what the strategy believes"
)


@dataclass(frozen=True)
class _RoundRequest:
    """The requests of a round: the model, the nodes, and their replies' base weights.

    ``nodes`` has one entry per message; a node may get two. ``base`` is (m,), or None
    if a size is unknown: then all nodes work and count by the sizes that they report.
    """

    round: int
    theta: Vector
    nodes: tuple[int, ...]
    base: Floats | None


class _UsableReply(NamedTuple):
    """A reply that passed all checks."""

    row: int  # index of its request in the round
    update: CheckedUpdate
    message: Message


class Composed(FedAvg):
    """A strategy of poise's parts: a sampler, a weighting and a server optimiser.

        theta <- Server( theta,  sum_i  omega_i (theta_i - theta) )

    With default parts this is Flower's FedAvg. As in poise, the weights of nodes that
    do not reply are not redistributed: these nodes count as if they had changed
    nothing. Samplers draw among the connected nodes.

    Args:
        weighting: a weighting of `poise.weightings` that needs only losses and sizes.
        sampler: a sampler of `poise.samplers`.
        server: a server optimiser of `poise.servers`.
        sizes: the number of samples of each node, by node id, if known beforehand; a
            node cannot claim another size. Otherwise a node reports its size with its
            first reply. A round in which the size of a node is unknown (above all, the
            first round) uses all nodes.
        importance: ``size``: p_i = n_i/n; ``equal``: p_i = 1/N, without sizes.
        seed: seed of the sampler's draws.
        bad_updates: ``stop`` ends the run at an invalid reply; ``drop`` continues
            without the reply.
        max_ratio: longest update that the strategy accepts, as a multiple of the median
            length in its round; inf for any length. In a round of one or two nodes,
            the last updates of the other nodes count, too. Losses may be
            ``max_ratio ** 2`` times the median loss.
        lowest_loss: the lowest value that the clients' loss can have; None if it may
            be any number.
        loss_before_key: key of the loss before the work in the metrics of a reply.
        loss_after_key: key of the loss after the work.
        averages: last names of arrays without gradients, which are averaged and not
            moved by the server optimiser.
        flower: options of Flower's FedAvg, for example ``min_available_nodes`` (a
            sampler that draws m nodes without replacement needs at least m).

    After a round, ``record`` holds the values of the equation. Its clients are numbers;
    ``nodes[number]`` is the node id.
    """

    def __init__(
        self,
        *,
        weighting: Weighting = Proportional(),
        sampler: Sampler = Full(),
        server: Server = Add(),
        sizes: Mapping[int, int] | None = None,
        importance: Literal["size", "equal"] = "size",
        seed: int = 0,
        bad_updates: Literal["stop", "drop"] = "stop",
        max_ratio: float = 100.0,
        lowest_loss: float | None = 0.0,
        loss_before_key: str = "loss-before",
        loss_after_key: str = "loss-after",
        averages: Sequence[str] = AVERAGES,
        **flower: Any,
    ) -> None:
        for option in ("fraction_train", "min_train_nodes"):
            require(
                option not in flower,
                f"{option}: the sampler chooses the nodes",
                "use a sampler instead, for example sampler=MD(10)",
            )
        super().__init__(**flower)
        _check_needs(weighting, sampler)
        require(
            importance in ("size", "equal"),
            f"unknown importance {importance!r}",
            "known: 'size', 'equal'",
        )
        require(
            bad_updates in ("stop", "drop"),
            f"unknown bad_updates {bad_updates!r}",
            "known: 'stop', 'drop'",
        )
        require(max_ratio > 1, f"max_ratio must be above 1, not {max_ratio}")
        for node, size in (sizes or {}).items():
            require(size >= 1, f"sizes: node {node} has {size} samples")
        self.weighting = weighting
        self.sampler = sampler
        if isinstance(server, Seeded):
            server = server.seeded(seed)
        self.server = server
        self.importance = importance
        self.seed = seed
        self.bad_updates = bad_updates
        self.limits = Limits(lowest_loss, max_ratio=max_ratio)
        self.averages = averages
        keys = {"loss_before": loss_before_key, "loss_after": loss_after_key}
        self.loss_keys = {
            name: keys[name] for name in sorted(weighting.needs | sampler.needs)
        }
        self.given = dict(sizes or {})
        self.sizes: dict[int, int] = dict(self.given)
        # client number by node id, in the order of the nodes' first connection
        self._numbers: dict[int, int] = {}
        self.history = History()
        self.record: Record | None = None
        self._form: ArrayForm | None = None
        self._state: ServerState | None = None
        self._request: _RoundRequest | None = None
        # connected nodes of the last draw, and the setting to which the parts fit
        self._fitted_nodes: list[int] = []
        self._setting = Setting(0, np.zeros(0, dtype=np.int64), np.zeros(0))

    @property
    def nodes(self) -> list[int]:
        """The node id of each client number."""
        return list(self._numbers)

    def summary(self) -> None:
        """Log the parts."""
        for slot in ("sampler", "weighting", "server"):
            log(INFO, "\t├──> %s: %s", slot, describe(vars(self)[slot]))
        log(
            INFO,
            "\t└──> Reported by clients: %s",
            sorted([self.weighted_by_key, *self.loss_keys.values()]),
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the nodes of this round, and create their messages."""
        # waits until enough nodes are connected
        _, connected = sample_nodes(grid, self.min_available_nodes, 0)
        present = sorted(connected)
        for node in present:
            self._numbers.setdefault(node, len(self._numbers))
        if self._form is None:
            self._form = ArrayForm.of(arrays, self.averages)
        theta = self._form.vector(arrays)
        if self._state is None:
            self._state = self.server.init(theta[: self._form.layout.trainable])
        self._request = self._request_round(present, server_round - 1, theta)
        nodes = self._request.nodes
        log(INFO, "configure_train: %s of %s nodes work", len(set(nodes)), len(present))
        config["server-round"] = server_round
        content = RecordDict(
            {self.arrayrecord_key: arrays, self.configrecord_key: config}
        )
        return [Message(content, node, MessageType.TRAIN) for node in nodes]

    def _request_round(
        self, present: list[int], n: int, theta: Vector
    ) -> _RoundRequest:
        """The requests of round n: to the cohort, or to all if a size is unknown."""
        needs_sizes = self.importance == "size"
        if not present or (
            needs_sizes and any(node not in self.sizes for node in present)
        ):
            return _RoundRequest(n, theta, nodes=tuple(present), base=None)
        cohort = self._draw(present, n)
        nodes = tuple(present[k] for k in cohort.clients.tolist())
        return _RoundRequest(n, theta, nodes=nodes, base=cohort.weights)

    def _draw(self, present: list[int], n: int) -> Cohort:
        """The sampler's cohort among the connected nodes."""
        if self.importance == "equal":
            sizes = np.ones(len(present), dtype=np.int64)
        else:
            sizes = np.array([self.sizes[node] for node in present], dtype=np.int64)
        if self._fitted_nodes != present or not np.array_equal(
            self._setting.sizes, sizes
        ):
            setting = Setting(len(present), sizes, sizes / sizes.sum())
            self.sampler.fit(setting)
            self.weighting.fit(setting)
            self.server.fit(setting)
            self._fitted_nodes = present
            self._setting = setting
        rng = generator(self.seed, "sampler", n)
        return self.sampler.draw(self._setting, rng, n, self._history_of(present))

    def _history_of(self, present: list[int]) -> History:
        """The history of the connected nodes, by their position in this draw."""
        row = {self._numbers[node]: k for k, node in enumerate(present)}
        past = self.history
        return History(
            lowest_loss={
                row[c]: loss for c, loss in past.lowest_loss.items() if c in row
            },
            last_loss={row[c]: loss for c, loss in past.last_loss.items() if c in row},
            last_norm={row[c]: norm for c, norm in past.last_norm.items() if c in row},
            taken_part={
                row[c]: times for c, times in past.taken_part.items() if c in row
            },
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check and weight replies, apply the direction; no model without replies."""
        if self._request is None or self._form is None or self._state is None:
            raise InvalidOption(
                "aggregate_train was called before configure_train",
                "call configure_train first",
            )
        valid, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        usable = self._check_replies(valid, self._request, self._form)
        usable = self._believed(usable, self._request)
        if not usable:
            return None, None
        checked = [reply.update for reply in usable]
        self.sizes |= {update.node: update.samples for update in checked}
        if self._request.base is None:
            base = _by_size(checked)
        else:
            base = self._request.base[[reply.row for reply in usable]]
        updates = self._round_updates(base, checked)
        weights = weighed(updates, self.weighting)
        direction = equation.combine(weights, updates.stack)
        updates = updates.combined(weights, direction)
        moving = equation.Moving(
            self._request.theta, self._form.layout.trainable, self._state
        )
        theta, self._state = equation.step(moving, direction, weights, self.server)
        self.record = Record(
            updates.round,
            time=float(updates.round + 1),
            contributions=updates.contributions(),
            metrics={},
            bytes_up=0,
            bytes_down=0,
        )
        self.history.add(self.record)
        metrics = self.train_metrics_aggr_fn(
            [reply.message.content for reply in usable], self.weighted_by_key
        )
        return self._form.arrays(theta), metrics

    def _check_replies(
        self, replies: Sequence[Message], request: _RoundRequest, form: ArrayForm
    ) -> list[_UsableReply]:
        """The valid replies, in the order of their requests."""
        waiting: dict[int, list[int]] = {}
        for row, node in enumerate(request.nodes):
            waiting.setdefault(node, []).append(row)
        usable = []
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if not waiting.get(node):
                    raise UpdateRefused("a reply without a request")
                update = check_reply(
                    reply,
                    form,
                    theta=request.theta,
                    size_key=self.weighted_by_key,
                    loss_keys=self.loss_keys,
                    known_size=self.given.get(node),
                )
            except UpdateRefused as error:
                self._refuse(node, error, request)
                continue
            usable.append(_UsableReply(waiting[node].pop(0), update, message=reply))
        return sorted(usable, key=lambda reply: reply.row)

    def _believed(
        self, usable: list[_UsableReply], request: _RoundRequest
    ) -> list[_UsableReply]:
        """The replies whose lengths and losses can be, compared with each other."""
        if not usable:
            return usable
        checked = [reply.update for reply in usable]
        updates = RoundUpdates.of_columns(
            np.ones(len(usable)),
            clients=self._client_numbers(checked),
            occurrences=np.arange(len(usable)),  # tells the refusals apart
            stack=torch.stack([update.delta for update in checked]),
            norms=np.array([update.norm for update in checked]),
            **self._losses(checked),
        )
        refused = refusals(updates, request.theta, self.limits, self.history)
        for refusal in refused:
            node = usable[refusal.occurrence].update.node
            self._refuse(node, UpdateRefused(refusal.reason, BELIEF_HINT), request)
        bad_rows = {refusal.occurrence for refusal in refused}
        return [reply for row, reply in enumerate(usable) if row not in bad_rows]

    def _refuse(self, node: int, error: UpdateRefused, request: _RoundRequest) -> None:
        """End the run because of a reply, or log that the round goes on without it."""
        refusal = f"round {request.round + 1}: node {node} sent {error.message}"
        if self.bad_updates == "stop":
            hint = error.hint or "bad_updates='drop' continues without the reply"
            raise UpdateRefused(refusal, hint) from error
        log(WARNING, "dropped: %s", refusal)

    def _client_numbers(self, checked: Sequence[CheckedUpdate]) -> Ints:
        """The client number of each update."""
        numbers = [self._numbers[update.node] for update in checked]
        return np.array(numbers, dtype=np.int64)

    def _losses(self, checked: Sequence[CheckedUpdate]) -> dict[str, Any]:
        """The columns of losses that the parts need."""
        return {
            name: np.array([update.losses[name] for update in checked])
            for name in self.loss_keys
        }

    def _round_updates(
        self, base: Floats, checked: Sequence[CheckedUpdate]
    ) -> RoundUpdates:
        """The updates of the round, with the history of their nodes."""
        assert self._request is not None
        assert self._form is not None
        n = self._request.round
        numbers = self._client_numbers(checked)
        if self.importance == "equal":
            known = dict.fromkeys(self._numbers, 1)
        else:
            known = self.sizes
        shares = np.array([known[update.node] for update in checked])
        return RoundUpdates.of_columns(
            base,
            clients=numbers,
            versions=np.full(len(checked), n),
            occurrences=Cohort(numbers, base).occurrences(),
            importance=shares / sum(known.values()),
            stack=torch.stack([update.delta for update in checked]),
            norms=np.array([update.norm for update in checked]),
            samples=np.array([update.samples for update in checked]),
            steps=np.zeros(len(checked), dtype=np.int64),
            lowest_loss=self.history.lowest(numbers),
            participations=self.history.participations(numbers) + 1,
            identical_weights=base,
            reached=self.history.reached,
            round=n,
            trainable=self._form.layout.trainable,
            **self._losses(checked),
        )


def _check_needs(weighting: Weighting, sampler: Sampler) -> None:
    """Raise if a part needs more than losses."""
    for chosen in (weighting, sampler):
        unavailable = sorted(chosen.needs - LOSS_REPORTS)
        if unavailable:
            raise IncompatibleParts(
                f"{type(chosen).__name__} needs {', '.join(unavailable)}, "
                "which a strategy of Flower does not have",
                "run the experiment in poise: poise deploy run",
            )


def _by_size(checked: Sequence[CheckedUpdate]) -> Floats:
    """Base weights in proportion to the reported sizes."""
    sizes = np.array([update.samples for update in checked], dtype=np.float64)
    return np.asarray(sizes / sizes.sum(), dtype=np.float64)


class FedSoftMax(Composed):
    """Clients with larger losses get larger weights: ``omega_i ~ p_i exp(F_i/T)``.

    Clients must report ``"loss-before"``.

    Args:
        temperature: T; the larger, the closer to FedAvg.
        cap: the largest share of the weight that one node can get, whatever loss it
            reports; None for no cap.
        options: options of `Composed`.

    Source: [Mansour 2022, §3.1] (see `poise.weightings.SoftMax`).
    """

    def __init__(
        self, temperature: float = 0.2, cap: float | None = None, **options: Any
    ) -> None:
        super().__init__(weighting=SoftMax(temperature, cap=cap), **options)


class FedExp(Composed):
    """Clients that improve a lot on their own data get smaller weights (Exp-alpha).

    Clients must report ``"loss-before"`` and ``"loss-after"``.

    Args:
        alpha: the larger, the closer to FedAvg.
        cap: the largest share of the weight of one node, as in `FedSoftMax`.
        options: options of `Composed`.

    Source: [Exp-α 2023, eq. 3] (see `poise.weightings.Exp`).
    """

    def __init__(
        self, alpha: float = 0.2, cap: float | None = None, **options: Any
    ) -> None:
        super().__init__(weighting=Exp(alpha, cap=cap), **options)
