"""`watermark`: a client signs all its images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from poise.core.errors import require
from poise.core.rng import keys, permutations
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data.corruptions.corruption import Span, copied


@dataclass(frozen=True)
class Watermark:
    """The same ``pixels`` random pixels of all samples of a client are set to the maximum of the
    data set.

    A pixel of an image (C, H, W) is one place in all channels; of other features, one entry. The
    clients' own test samples and the federation's stay clean.

    Args:
        pixels: how many.
        clients: who is watermarked; None for everyone.
        seed: names the random stream; a client's pixels depend on (seed, client) only.
        groups: clients with the same number modulo this share their pixels; None gives each its
            own.

    >>> Watermark(pixels=3).places(np.array([5]), (1, 4, 4)).shape
    (1, 3)

    Source: E §5.5.3 (10 pixels).
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
        """Needs quantities, and at least as many places as pixels."""
        require(not pool.tokens, "watermark needs quantities, not tokens")
        places = _places(pool.shape)
        require(
            self.pixels <= places,
            f"watermark: {self.pixels} pixels, but a sample has {places}",
            where="pixels",
        )
        bad = [c for c in self.clients or () if not 0 <= c < clients]
        require(
            not bad,
            f"watermark: client {bad[0] if bad else 0} is not in 0..{clients - 1}",
            where="clients",
        )

    def places(self, clients: Ints, shape: tuple[int, ...]) -> Ints:
        """The pixels of each client, (m, pixels), counted along a row-major channel."""
        owners = clients if self.groups is None else clients % self.groups
        return permutations(keys(self.seed, "watermark", owners), _places(shape), self.pixels)

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """None that is a number."""
        return {}

    def apply(self, shards: Shards, clients: Ints, span: Span) -> Shards:
        """Set the client's pixels in a copy of its samples."""
        own = copied(shards)
        shape = own.samples.shape
        flat = own.samples.raw.view(len(own.rows), -1, _places(shape))
        marks = self.places(clients, shape)
        signed = None if self.clients is None else set(self.clients)
        for k, client in enumerate(clients.tolist()):
            if signed is None or client in signed:
                start, end = own.offsets[k], own.offsets[k + 1]
                flat[start:end, :, marks[k]] = span[1]
        return own


def _places(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[1:])) if len(shape) == 3 else math.prod(shape)
