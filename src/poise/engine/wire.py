"""What travels between server and clients, and how many bytes it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from poise.core.algorithm_state import AlgorithmState, NamedVectors
from poise.core.arrivals import UPDATE
from poise.core.errors import IncompatibleParts
from poise.core.payloads import payload_bytes
from poise.core.protocols import Channel, Encoded
from poise.core.rng import U64, child, keys
from poise.core.traits import ChannelTraits, traits_of
from poise.core.vectors import Layout, Stack, Vector

BUFFERS = "poise/buffers"
"""The name under which batch-norm statistics and other buffers travel beside an encoded update."""

STATE = "channel/"
"""How the names begin under which a client keeps what its channel remembers."""

REPORT_BYTES = 8  # a loss that a client reports is one double


@dataclass(frozen=True)
class Wire:
    """The way of an update: personal entries stay, the channel encodes what is trained, buffers
    travel as they are.

    Args:
        layout: where each tensor lies in the model.
        channel: encodes and decodes; None where updates travel as they are.
        stays: names of the tensors of the model that stay with each client.
    """

    layout: Layout
    channel: Channel | None = None
    stays: tuple[str, ...] = ()

    @cached_property
    def personal(self) -> torch.Tensor | None:
        """Positions of the model that stay with each client, in order; None where there are
        none.
        """
        return self.layout.positions(self.stays) if self.stays else None

    @cached_property
    def identity(self) -> bool:
        """Whether the channel changes nothing."""
        return self.channel is None or traits_of(self.channel, ChannelTraits).identity

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names under which each client keeps what its channel remembers."""
        return () if self.channel is None else tuple(STATE + name for name in self.channel.keeps)

    @cached_property
    def direct(self) -> bool:
        """Whether whole updates arrive as they were made: then payload and update are one stack."""
        return self.identity and self.personal is None

    @cached_property
    def travelling(self) -> torch.Tensor:
        """The positions of the model that travel."""
        stays = torch.zeros(self.layout.size, dtype=torch.bool)
        if self.personal is not None:
            stays[self.personal] = True
        return torch.nonzero(~stays).flatten()

    @cached_property
    def encoded(self) -> torch.Tensor:
        """The positions that the channel encodes."""
        return self.travelling[self.travelling < self.layout.trainable]

    @cached_property
    def buffers(self) -> torch.Tensor:
        """The positions that travel as they are beside the encoded ones."""
        return self.travelling[self.travelling >= self.layout.trainable]

    def encode(self, rows: Stack, kept: Mapping[str, Stack], streams: U64) -> Encoded:
        """What is sent for each update, and what each client keeps under names that begin with
        `STATE`.
        """
        if self.direct:
            return Encoded({UPDATE: rows})
        if self.identity or self.channel is None:
            return Encoded({UPDATE: rows[:, self.travelling]})
        before = {name.removeprefix(STATE): kept[name] for name in self.keeps}
        moving = rows[:, self.encoded] if self.stays else rows[:, : self.layout.trainable]
        sent = self.channel.encode(moving, before, child(streams, "channel"))
        if set(sent.kept) != set(self.channel.keeps):
            returned = ", ".join(sorted(sent.kept)) or "nothing"
            raise IncompatibleParts(
                (
                    f"{type(self.channel).__name__}: encode returned {returned} to keep, keeps is "
                    f"{self.channel.keeps}"
                ),
                "return one tensor for each name in keeps",
                where=("channel",),
            )
        payload = dict(sent.payload)
        if len(self.buffers):
            payload[BUFFERS] = rows[:, self.buffers]
        return Encoded(payload, {STATE + name: values for name, values in sent.kept.items()})

    def decode(self, payload: Mapping[str, torch.Tensor], like: Vector) -> Stack:
        """The updates (m, d) that a payload stands for, 0 where entries are personal."""
        if self.direct:
            return payload[UPDATE]
        if self.identity or self.channel is None:
            stack = like.new_zeros((len(payload[UPDATE]), self.layout.size))
            stack[:, self.travelling] = payload[UPDATE]
            return stack
        encoded = {name: values for name, values in payload.items() if name != BUFFERS}
        updates = self.channel.decode(encoded, len(self.encoded))
        if len(self.encoded) == self.layout.size:
            return updates
        stack = like.new_zeros((len(updates), self.layout.size))
        stack[:, self.encoded] = updates
        if len(self.buffers):
            stack[:, self.buffers] = payload[BUFFERS]
        return stack

    def kept(
        self, algorithm_state: AlgorithmState, clients: list[int], like: Vector
    ) -> dict[str, Stack]:
        """What the channel of each client remembers, one row each; zeros for a client that
        remembers nothing yet.
        """
        if not self.keeps:
            return {}
        zeros = like.new_zeros((len(clients), len(self.encoded)))
        return algorithm_state.rows(self.keeps, clients, zeros)

    def template(self, like: Vector) -> Mapping[str, torch.Tensor]:
        """The payload of an update that changes nothing: names, shapes and number types of all
        payloads of a run.
        """
        nothing = like.new_zeros((1, self.layout.size))
        return self.encode(
            nothing, self.kept(AlgorithmState(), [0], like), keys(0, "template", 0)
        ).payload

    def bytes_up(self, payload: Mapping[str, torch.Tensor], reports: int) -> int:
        """Bytes that all rows of a payload take on their way, with so many reported losses each."""
        rows = len(next(iter(payload.values()), ()))
        return rows * (payload_bytes(payload) + reports * REPORT_BYTES)

    def bytes_down(self, theta: Vector, shared: NamedVectors) -> int:
        """Bytes of a model on its way to one client, with what the server shares beside it."""
        beside = sum(v.element_size() * v.numel() for v in shared.values())
        return len(self.travelling) * theta.element_size() + beside
