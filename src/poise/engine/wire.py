"""`Wire`: encode and decode updates, and count the bytes of the traffic."""

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
"""The name of buffers such as batch-norm statistics, beside an encoded update."""

STATE = "channel/"
"""The prefix of the channel's vectors in the state of a client."""

REPORT_BYTES = 8  # a reported loss is one double


@dataclass(frozen=True)
class Wire:
    """How updates travel.

    Personal entries stay with the client, the channel encodes trainable entries, and
    buffers travel unchanged.

    Args:
        layout: the position of each tensor in the model.
        channel: encodes and decodes; None if updates travel unchanged.
        stays: names of the tensors of the model that stay with each client.
    """

    layout: Layout
    channel: Channel | None = None
    stays: tuple[str, ...] = ()

    @cached_property
    def personal(self) -> torch.Tensor | None:
        """Positions of the model that stay with each client, in order, or None."""
        if self.stays:
            return self.layout.positions(self.stays)
        return None

    @cached_property
    def identity(self) -> bool:
        """Whether the channel changes nothing."""
        return self.channel is None or traits_of(self.channel, ChannelTraits).identity

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of the channel's vectors in the state of a client."""
        if self.channel is None:
            return ()
        return tuple(STATE + name for name in self.channel.keeps)

    @cached_property
    def direct(self) -> bool:
        """Whether updates arrive unchanged: payload and update are then one stack."""
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
        """The positions that travel unchanged beside the encoded ones."""
        return self.travelling[self.travelling >= self.layout.trainable]

    def encode(self, rows: Stack, kept: Mapping[str, Stack], streams: U64) -> Encoded:
        """Encode updates; the names of the vectors to keep begin with `STATE`."""
        if self.direct:
            return Encoded({UPDATE: rows})
        if self.identity or self.channel is None:
            return Encoded({UPDATE: rows[:, self.travelling]})
        before = {name.removeprefix(STATE): kept[name] for name in self.keeps}
        if self.stays:
            trainable = rows[:, self.encoded]
        else:
            trainable = rows[:, : self.layout.trainable]
        sent = self.channel.encode(trainable, before, child(streams, "channel"))
        if set(sent.kept) != set(self.channel.keeps):
            name = type(self.channel).__name__
            returned = ", ".join(sorted(sent.kept)) or "nothing"
            raise IncompatibleParts(
                (
                    f"{name}: encode returned {returned} to keep, keeps is "
                    f"{self.channel.keeps}"
                ),
                "return one tensor for each name in keeps",
                where=("channel",),
            )
        payload = dict(sent.payload)
        if len(self.buffers):
            payload[BUFFERS] = rows[:, self.buffers]
        return Encoded(
            payload, {STATE + name: values for name, values in sent.kept.items()}
        )

    def decode(self, payload: Mapping[str, torch.Tensor], like: Vector) -> Stack:
        """Return the updates (m, d) of a payload, with 0 for personal entries."""
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
        """Return the channel's vectors of each client, one row each; zeros at first."""
        if not self.keeps:
            return {}
        zeros = like.new_zeros((len(clients), len(self.encoded)))
        return algorithm_state.rows(self.keeps, clients, zeros)

    def template(self, like: Vector) -> Mapping[str, torch.Tensor]:
        """Return the payload of an update of zeros.

        All payloads of a run have its names, shapes and number types.
        """
        zeros = like.new_zeros((1, self.layout.size))
        no_state = self.kept(AlgorithmState(), [0], like)
        return self.encode(zeros, no_state, keys(0, "template", 0)).payload

    def bytes_up(self, payload: Mapping[str, torch.Tensor], reports: int) -> int:
        """Return the bytes of all rows of a payload, with ``reports`` losses each."""
        rows = len(next(iter(payload.values()), ()))
        return rows * (payload_bytes(payload) + reports * REPORT_BYTES)

    def bytes_down(self, theta: Vector, shared: NamedVectors) -> int:
        """Return the bytes that one client receives: a model and shared vectors."""
        shared_bytes = sum(v.element_size() * v.numel() for v in shared.values())
        return len(self.travelling) * theta.element_size() + shared_bytes
