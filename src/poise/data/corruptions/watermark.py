"""`watermark`: the same bright pixels in all samples of a client."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from poise.core.errors import require
from poise.core.rng import keys, permutations
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data.corruptions.corruption import Span, copied, require_one_input


@dataclass(frozen=True)
class Watermark:
    """Set ``pixels`` random pixels of a client's samples to the data set's maximum.

    A pixel of an image (C, H, W) is one position in all channels; of other features,
    one entry. The clients' own test samples and the federation's stay unchanged.

    Args:
        pixels: how many pixels to set.
        clients: the clients with a watermark; None for all.
        seed: the seed of the random stream; a client's pixels depend on (seed, client)
            only.
        groups: clients with equal numbers modulo ``groups`` share their pixels; None
            gives each client its own.

    >>> import numpy as np
    >>> Watermark(pixels=3).places(np.array([5]), (1, 4, 4)).shape
    (1, 3)

    Source: [Fraboni 2023, §5.5.3] (10 pixels).
    """

    pixels: int = 10
    clients: Sequence[int] | None = None
    seed: int = 0
    groups: int | None = None
    name: ClassVar[str] = "watermark"
    features: ClassVar[bool] = True
    own_tests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require(
            self.pixels >= 1,
            f"watermark: pixels = {self.pixels!r} must be at least 1",
            where="pixels",
        )
        require(
            self.groups is None or self.groups >= 1,
            f"watermark: groups = {self.groups!r} must be at least 1",
            where="groups",
        )

    def fit(self, pool: Samples, clients: int) -> None:
        """Refuse tokens, samples with too few pixels, and clients that do not exist."""
        require_one_input(pool, "watermark")
        require(not pool.tokens, "watermark needs quantities, not tokens")
        places = _places(pool.shape)
        require(
            self.pixels <= places,
            f"watermark: {self.pixels} pixels, but a sample has {places}",
            where="pixels",
        )
        for client in self.clients or ():
            require(
                0 <= client < clients,
                f"watermark: client {client} is not in 0..{clients - 1}",
                where="clients",
            )

    def places(self, clients: Ints, shape: tuple[int, ...]) -> Ints:
        """Return the pixels of each client, (m, pixels), in row-major numbers."""
        owners = clients
        if self.groups is not None:
            owners = clients % self.groups
        return permutations(
            keys(self.seed, "watermark", owners), _places(shape), self.pixels
        )

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return no traits."""
        return {}

    def apply(self, shards: Shards, clients: Ints, span: Span) -> Shards:
        """Set the client's pixels in a copy of its samples."""
        copy = copied(shards)
        shape = copy.samples.shape
        flat = copy.samples.raw.view(len(copy.rows), -1, _places(shape))
        marks = self.places(clients, shape)
        marked = set(clients.tolist())
        if self.clients is not None:
            marked.intersection_update(self.clients)
        for k, client in enumerate(clients.tolist()):
            if client in marked:
                start = copy.offsets[k]
                end = copy.offsets[k + 1]
                flat[start:end, :, marks[k]] = span[1]
        return copy


def _places(shape: tuple[int, ...]) -> int:
    """Return the number of pixels of a sample."""
    if len(shape) == 3:
        return math.prod(shape[1:])
    return math.prod(shape)
