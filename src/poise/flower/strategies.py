"""poise's weightings, samplers and server optimisers as strategies of Flower, for whoever has a
Flower app already.

    strategy = FedSoftMax(temperature=0.2)      # instead of Flower's FedAvg()
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

The client's part of the app stays as it is, but for what a weighting needs to know: for losses, the
``MetricRecord`` of a reply has ``"loss-before"`` (of the model as received, mean over the client's
own samples) and, for `FedExp`, ``"loss-after"``, beside Flower's usual ``"num-examples"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any, Literal

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
from poise.samplers import Full
from poise.servers import Add
from poise.weightings import Exp, Proportional, SoftMax

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.serverapp.strategy.strategy_utils import sample_nodes
    from flwr.supercore import log
except ImportError as error:
    raise ImportError("poise.flower needs Flower: pip install 'poise[flower]'") from error

from poise.flower.replies import AVERAGES, Form, Told, examined

__all__ = ["Composed", "FedExp", "FedSoftMax"]


@dataclass(frozen=True)
class _Asked:
    """What was sent in a round, to whom, and how much each answer counts."""

    round: int
    theta: Vector
    nodes: tuple[int, ...]  # one per message; a node may be asked twice
    base: (
        Floats | None
    )  # (m,); None where sizes are not known: everybody was asked, and counts by what it reports


class Composed(FedAvg):
    """A strategy of poise's parts: who works, how much each counts, how the direction is applied.

        theta <- Server( theta,  sum_i  omega_i (theta_i - theta) )

    With the parts left out this is Flower's FedAvg. As in poise, weights are not made up for nodes
    that were asked and did not answer: they count as if they had changed nothing. Samplers draw
    among the nodes that are connected.

    Args:
        weighting: of `poise.weightings`, one that needs losses and sizes only.
        sampler: of `poise.samplers`.
        server: of `poise.servers`.
        sizes: the number of samples of each node, by node id, where it is known beforehand; then no
            node can claim another. Otherwise a node tells its own when it first works, and a round
            in which there is a node whose size nobody knows, the first one above all, asks
            everybody.
        importance: ``size``: p_i = n_i/n; ``equal``: p_i = 1/N, and sizes need not be known.
        seed: names the draws of the sampler.
        bad_updates: ``stop`` ends the run at a reply that must not be averaged; ``drop`` goes on
            without it.
        loss_before_key: where a reply's metrics have the loss before the work.
        loss_after_key: likewise after it.
        averages: last names of arrays that gradients do not move: averaged, untouched by the server
            optimiser.
        flower: options of Flower's FedAvg, for example ``min_available_nodes`` (a sampler that
            draws m nodes without replacement needs so many).

    After a round, ``record`` is what the equation used: its clients are numbers, ``nodes[number]``
    is the node id.
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
        loss_before_key: str = "loss-before",
        loss_after_key: str = "loss-after",
        averages: Sequence[str] = AVERAGES,
        **flower: Any,
    ) -> None:
        for option in ("fraction_train", "min_train_nodes"):
            require(
                option not in flower,
                f"{option}: who works is up to the sampler",
                "for example sampler=MD(10)",
            )
        super().__init__(**flower)
        beyond = sorted((weighting.needs | sampler.needs) - LOSS_REPORTS)
        if beyond:
            who = weighting if weighting.needs - LOSS_REPORTS else sampler
            raise IncompatibleParts(
                (
                    f"{type(who).__name__} needs {', '.join(beyond)}, which a strategy of Flower does "
                    "not have"
                ),
                "use it in poise: poise deploy run",
            )
        require(
            importance in ("size", "equal"), f"importance {importance!r}", "known: 'size', 'equal'"
        )
        require(
            bad_updates in ("stop", "drop"), f"bad_updates {bad_updates!r}", "known: 'stop', 'drop'"
        )
        for node, size in (sizes or {}).items():
            require(size >= 1, f"sizes: node {node} has {size} samples")
        self.weighting = weighting
        self.sampler = sampler
        self.server = server.seeded(seed) if isinstance(server, Seeded) else server
        self.importance, self.seed, self.bad_updates, self.averages = (
            importance,
            seed,
            bad_updates,
            averages,
        )
        keys = {"loss_before": loss_before_key, "loss_after": loss_after_key}
        self.loss_keys = {name: keys[name] for name in sorted(weighting.needs | sampler.needs)}
        self.given = dict(sizes or {})
        self.sizes: dict[int, int] = dict(self.given)
        self._numbers: dict[
            int, int
        ] = {}  # by node id, in the order in which nodes were first seen
        self.history = History()
        self.record: Record | None = None
        self._form: Form | None = None
        self._state: ServerState | None = None
        self._asked: _Asked | None = None
        self._setting: tuple[list[int], Setting] = (
            [],
            Setting(0, np.zeros(0, dtype=np.int64), np.zeros(0)),
        )

    @property
    def nodes(self) -> list[int]:
        """The node id of each client number."""
        return list(self._numbers)

    def summary(self) -> None:
        """Log the parts."""
        for slot, made in (
            ("sampler", self.sampler),
            ("weighting", self.weighting),
            ("server", self.server),
        ):
            log(INFO, "\t├──> %s: %s", slot, describe(made))
        log(
            INFO,
            "\t└──> Reported by clients: %s",
            sorted([self.weighted_by_key, *self.loss_keys.values()]),
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw who works in this round."""
        _, connected = sample_nodes(
            grid, self.min_available_nodes, 0
        )  # waits until so many are there
        present = sorted(connected)
        for node in present:
            self._numbers.setdefault(node, len(self._numbers))
        if self._form is None:
            self._form = Form.of(arrays, self.averages)
        theta = self._form.vector(arrays)
        if self._state is None:
            self._state = self.server.init(theta[: self._form.layout.trainable])
        if not present or (
            self.importance == "size" and any(node not in self.sizes for node in present)
        ):
            self._asked = _Asked(server_round - 1, theta, tuple(present), None)
        else:
            cohort = self._drawn(present, server_round - 1)
            chosen = tuple(present[k] for k in cohort.clients.tolist())
            self._asked = _Asked(server_round - 1, theta, chosen, cohort.weights)
        log(INFO, "configure_train: %s of %s nodes work", len(set(self._asked.nodes)), len(present))
        config["server-round"] = server_round
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return [Message(content, node, MessageType.TRAIN) for node in self._asked.nodes]

    def _drawn(self, present: list[int], n: int) -> Cohort:
        """The sampler's cohort among the nodes that are there."""
        equal = self.importance == "equal"
        sizes = np.array([1 if equal else self.sizes[node] for node in present], dtype=np.int64)
        nodes, setting = self._setting
        if nodes != present or not np.array_equal(
            setting.sizes, sizes
        ):  # else its tables are there already
            setting = Setting(len(present), sizes, sizes / sizes.sum())
            for chosen in (self.sampler, self.weighting, self.server):
                chosen.fit(setting)
            self._setting = present, setting
        return self.sampler.draw(
            setting, generator(self.seed, "sampler", n), n, self._past(present)
        )

    def _past(self, present: list[int]) -> History:
        """What the sampler looks back on, with the numbers that nodes have in this draw."""
        row = {self._numbers[node]: k for k, node in enumerate(present)}
        past = self.history
        return History(
            lowest_loss={row[c]: loss for c, loss in past.lowest_loss.items() if c in row},
            last_loss={row[c]: loss for c, loss in past.last_loss.items() if c in row},
            last_norm={row[c]: norm for c, norm in past.last_norm.items() if c in row},
            taken_part={row[c]: times for c, times in past.taken_part.items() if c in row},
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Examine every reply, weigh, and apply the direction; no model where nobody answered."""
        if self._asked is None or self._form is None or self._state is None:
            raise InvalidOption("aggregate_train before configure_train: nobody was asked yet")
        answers, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        taken = self._examined(answers, self._asked, self._form)
        if not taken:
            return None, None
        rows, told = [k for k, _, _ in taken], [t for _, t, _ in taken]
        self.sizes |= {t.node: t.samples for t in told}
        base = _by_size(told) if self._asked.base is None else self._asked.base[rows]
        updates = self._updates(base, told)
        weights = weighed(updates, self.weighting)
        direction = equation.combine(weights, updates.stack)
        updates = updates.combined(weights, direction)
        moving = equation.Moving(self._asked.theta, self._form.layout.trainable, self._state)
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
            [reply.content for _, _, reply in taken], self.weighted_by_key
        )
        return self._form.arrays(theta), metrics

    def _examined(
        self, answers: Sequence[Message], asked: _Asked, form: Form
    ) -> list[tuple[int, Told, Message]]:
        """Row, content and message of each reply that may be used, in the order in which they were
        asked.
        """
        waiting: dict[int, list[int]] = {}
        for row, node in enumerate(asked.nodes):
            waiting.setdefault(node, []).append(row)
        found = []
        for reply in answers:
            node = reply.metadata.src_node_id
            try:
                if not waiting.get(node):
                    raise UpdateRefused("a reply that nobody asked for")
                told = examined(
                    reply,
                    form,
                    theta=asked.theta,
                    size_key=self.weighted_by_key,
                    loss_keys=self.loss_keys,
                    known=self.given.get(node),
                )
            except UpdateRefused as error:
                words = f"round {asked.round + 1}: node {node} sent {error.message}"
                if self.bad_updates == "stop":
                    raise UpdateRefused(
                        words, error.hint or "bad_updates='drop' goes on without it"
                    ) from error
                log(WARNING, "left out: %s", words)
                continue
            found.append((waiting[node].pop(0), told, reply))
        return sorted(found, key=lambda item: item[0])

    def _updates(self, base: Floats, told: Sequence[Told]) -> RoundUpdates:
        """What the nodes sent, with what is known of them."""
        assert self._asked is not None
        assert self._form is not None
        n = self._asked.round
        numbers: Ints = np.array([self._numbers[t.node] for t in told], dtype=np.int64)
        losses: dict[str, Any] = {
            name: np.array([t.losses[name] for t in told]) for name in self.loss_keys
        }
        known = dict.fromkeys(self._numbers, 1) if self.importance == "equal" else self.sizes
        return RoundUpdates.of_columns(
            base,
            clients=numbers,
            versions=np.full(len(told), n),
            occurrences=Cohort(numbers, base).occurrences(),
            importance=np.array([known[t.node] for t in told]) / sum(known.values()),
            stack=torch.stack([t.delta for t in told]),
            norms=np.array([t.norm for t in told]),
            samples=np.array([t.samples for t in told]),
            steps=np.zeros(len(told), dtype=np.int64),
            lowest_loss=self.history.lowest(numbers),
            participations=self.history.participations(numbers) + 1,
            identical_weights=base,
            reached=self.history.reached,
            round=n,
            trainable=self._form.layout.trainable,
            **losses,
        )


def _by_size(told: Sequence[Told]) -> Floats:
    sizes = np.array([t.samples for t in told], dtype=np.float64)
    return np.asarray(sizes / sizes.sum(), dtype=np.float64)


class FedSoftMax(Composed):
    """Clients with larger losses count more: ``omega_i ~ p_i exp(F_i/T)``; they report
    ``"loss-before"``.

    Args:
        temperature: T; high is mild, infinity is FedAvg.
        options: of `Composed`.

    Source: [Mansour 2022, §3.1] (see `poise.weightings.SoftMax`).
    """

    def __init__(self, temperature: float = 0.2, **options: Any) -> None:
        super().__init__(weighting=SoftMax(temperature), **options)


class FedExp(Composed):
    """Clients that improve a lot on their own data count less (Exp-alpha); they report losses
    before and after.

    Args:
        alpha: high is mild, infinity is FedAvg.
        options: of `Composed`.

    Source: [Exp-α 2023, eq. 3] (see `poise.weightings.Exp`).
    """

    def __init__(self, alpha: float = 0.2, **options: Any) -> None:
        super().__init__(weighting=Exp(alpha), **options)
