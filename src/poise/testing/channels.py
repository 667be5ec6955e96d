"""The contract of channels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch

from poise.core.protocols import Channel, Encoded
from poise.core.rng import keys, torch_generator
from poise.core.traits import ChannelTraits, traits_of
from poise.core.types import Setting
from poise.core.vectors import Stack
from poise.testing.clauses import fits, holds, quietly, setting_of

ROWS = 4
ROUNDS = 3
ROUNDING = {torch.float32: 1e-6, torch.float64: 1e-14}
"""Tolerated error of a sum of two numbers, as a share of the largest."""


def check_channel(
    channel: Channel, setting: Setting | None = None, *, seed: int = 0
) -> None:
    """Check the contract of channels, over three rounds of the same clients.

    Clauses: a payload has one row per update, and clients keep the vectors that
    ``keeps`` names; decoding gives updates of the same type and size; nothing that was
    given is modified; the same call gives the same result; a row depends on its own
    update and residual alone; an update of 0 arrives as 0; no updates are survived;
    where clients keep a ``residual``, what arrives plus the residual is the update plus
    the residual before, up to rounding; where ``traits.identity`` is declared, updates
    arrive unchanged.

    Args:
        channel: the channel.
        setting: the setting that it must accept; eight clients by default.
        seed: of the random updates.
    """
    fits(channel, setting or setting_of())
    for dtype in (torch.float32, torch.float64):
        for size in (1, 5, 64):
            _several_rounds(channel, size, dtype=dtype, seed=seed)
            _zero_arrives_as_zero(channel, torch.zeros(ROWS, size, dtype=dtype))
            _survives_nothing(channel, torch.zeros(0, size, dtype=dtype))


def _several_rounds(channel: Channel, size: int, dtype: torch.dtype, seed: int) -> None:
    kept: Mapping[str, Stack] = _nothing(channel, torch.zeros(ROWS, size, dtype=dtype))
    stream = torch_generator(seed, "channel", size)
    for _ in range(ROUNDS):
        deltas = torch.randn(ROWS, size, generator=stream, dtype=dtype)
        deltas[1] = deltas[1].round()  # a row with ties
        encoded = _encoded(channel, deltas, kept)
        _well_formed(channel, deltas, encoded=encoded)
        _repeatable(channel, deltas, kept=kept, encoded=encoded)
        _row_by_row(channel, deltas, kept=kept, encoded=encoded)
        _books_balance(channel, deltas, kept=kept, encoded=encoded)
        _is_identity_if_declared(channel, deltas, encoded=encoded)
        kept = encoded.kept


def _well_formed(channel: Channel, deltas: Stack, encoded: Encoded) -> None:
    for name, rows in encoded.payload.items():
        holds(
            len(rows) == len(deltas), channel, "a payload has one row per update", name
        )
    names = sorted(encoded.kept)
    holds(
        names == sorted(channel.keeps),
        channel,
        "clients keep what `keeps` names",
        names,
    )
    for name, rows in encoded.kept.items():
        same = rows.shape == deltas.shape and rows.dtype == deltas.dtype
        holds(
            same,
            channel,
            "clients keep vectors of the type and size of an update",
            name,
        )
    decoded = _decoded(channel, encoded.payload, deltas.shape[1])
    holds(
        decoded.shape == deltas.shape,
        channel,
        "decoding keeps the shape",
        tuple(decoded.shape),
    )
    holds(
        decoded.dtype == deltas.dtype, channel, "decoding keeps the type", decoded.dtype
    )
    holds(
        bool(torch.isfinite(decoded).all()),
        channel,
        "finite updates arrive as finite updates",
    )


def _repeatable(
    channel: Channel, deltas: Stack, kept: Mapping[str, Stack], encoded: Encoded
) -> None:
    again = _encoded(channel, deltas, kept)
    same = _equal(again.payload, encoded.payload) and _equal(again.kept, encoded.kept)
    holds(same, channel, "same updates, same payload")
    decoded = _decoded(channel, encoded.payload, deltas.shape[1])
    twice = _decoded(channel, encoded.payload, deltas.shape[1])
    holds(torch.equal(decoded, twice), channel, "same payload, same updates")


def _row_by_row(
    channel: Channel, deltas: Stack, kept: Mapping[str, Stack], encoded: Encoded
) -> None:
    size = deltas.shape[1]
    together = _decoded(channel, encoded.payload, size)
    for row in range(len(deltas)):
        alone = _encoded(channel, deltas[row : row + 1], _row(kept, row))
        same = _equal(alone.payload, _row(encoded.payload, row))
        holds(
            same,
            channel,
            "row by row: the payload of an update depends on nothing else",
            row,
        )
        same = _equal(alone.kept, _row(encoded.kept, row))
        holds(
            same,
            channel,
            "row by row: what a client keeps depends on nothing else",
            row,
        )
        arrived = _decoded(channel, _row(encoded.payload, row), size)
        same = torch.equal(arrived, together[row : row + 1])
        holds(same, channel, "row by row: what arrives depends on nothing else", row)


def _books_balance(
    channel: Channel,
    deltas: Stack,
    kept: Mapping[str, Stack],
    encoded: Encoded,
) -> None:
    if "residual" not in encoded.kept:
        return
    wanted = deltas + kept["residual"]
    decoded = (
        _decoded(channel, encoded.payload, deltas.shape[1]) + encoded.kept["residual"]
    )
    off = float((decoded - wanted).abs().max() / wanted.abs().max())
    clause = "what arrives plus the residual is the update plus the residual before"
    holds(off <= ROUNDING[deltas.dtype], channel, clause, f"off by {off:.2g}")


def _is_identity_if_declared(channel: Channel, deltas: Stack, encoded: Encoded) -> None:
    if traits_of(channel, ChannelTraits).identity:
        decoded = _decoded(channel, encoded.payload, deltas.shape[1])
        holds(
            torch.equal(decoded, deltas),
            channel,
            "declared identity: updates arrive unchanged",
        )


def _zero_arrives_as_zero(channel: Channel, zeros: Stack) -> None:
    encoded = _encoded(channel, zeros, _nothing(channel, zeros))
    decoded = _decoded(channel, encoded.payload, zeros.shape[1])
    holds(torch.equal(decoded, zeros), channel, "an update of 0 arrives as 0", decoded)


def _survives_nothing(channel: Channel, empty: Stack) -> None:
    encoded = _encoded(channel, empty, _nothing(channel, empty))
    decoded = _decoded(channel, encoded.payload, empty.shape[1])
    holds(
        decoded.shape == empty.shape,
        channel,
        "no updates are survived",
        tuple(decoded.shape),
    )


def _nothing(channel: Channel, zeros: Stack) -> dict[str, Stack]:
    """Return the zero vectors that clients keep before their first round."""
    return {name: zeros.clone() for name in channel.keeps}


def _encoded(channel: Channel, deltas: Stack, kept: Mapping[str, Stack]) -> Encoded:
    given = deltas.clone()
    before = {name: rows.clone() for name, rows in kept.items()}
    call = partial(
        channel.encode, deltas, kept, keys(0, "channel", np.arange(len(deltas)))
    )
    encoded = quietly(call, channel, f"encodes {len(deltas)} updates")
    holds(torch.equal(deltas, given), channel, "the updates are not modified")
    holds(_equal(kept, before), channel, "what clients keep is not modified")
    return encoded


def _decoded(channel: Channel, payload: Mapping[str, torch.Tensor], size: int) -> Stack:
    given = {name: rows.clone() for name, rows in payload.items()}
    call = partial(channel.decode, payload, size)
    decoded = quietly(call, channel, f"decodes updates of {size} entries")
    holds(_equal(payload, given), channel, "the payload is not modified")
    return decoded


def _row(named: Mapping[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    return {name: rows[row : row + 1] for name, rows in named.items()}


def _equal(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]
) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[n], second[n]) for n in first
    )
