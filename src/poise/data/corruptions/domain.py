"""`domain`: a different transform of the features for each client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch

from poise.core.errors import InvalidOption, require, suggest
from poise.core.rng import keys, torch_generator, words
from poise.core.samples import Samples, Shards
from poise.core.types import Floats, Ints
from poise.data.corruptions.corruption import Span, copied, require_one_input

Replacement: TypeAlias = Callable[
    [int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]
]
"""(client, stored values, labels) -> (stored values, labels), same shapes and types."""

TRANSFORMS = ("identity", "invert", "rotate", "contrast", "noise")


@dataclass(frozen=True)
class Domain:
    """Transform each client's training and test features by a transform drawn for it.

    With stored values in [lo, hi]: ``identity``; ``invert`` x → lo + hi - x; ``rotate``
    by 90°, 180° or 270°, drawn per client; ``contrast`` x → mid + contrast · (x - mid);
    ``noise`` x → x + noise · (hi - lo) · N(0, 1), clipped to [lo, hi]. Integers are
    rounded. The federation's test set stays unchanged.

    Args:
        transforms: names to draw from; or a callable that replaces the samples of a
            client, for example by a custom transform or by samples of another data set.
            A federation with a callable has no ``spec``.
        contrast: factor of ``contrast``.
        noise: strength of ``noise``.
        seed: the seed of the random streams; a client's transform depends on (seed,
            client) only.

    >>> Domain(("invert", "rotate")).of(3) in ("invert", "rotate")
    True

    Source: [Exp-α 2023, §4.3].
    """

    transforms: str | Sequence[str] | Replacement = TRANSFORMS
    contrast: float = 0.4
    noise: float = 0.2
    seed: int = 0
    name: ClassVar[str] = "domain"
    features: ClassVar[bool] = True
    own_tests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(
            self.contrast > 0,
            f"domain: contrast = {self.contrast!r} must be positive",
            where="contrast",
        )
        require(
            self.noise >= 0,
            f"domain: noise = {self.noise!r} must not be negative",
            where="noise",
        )
        if callable(self.transforms):
            return
        names = self.transforms
        if isinstance(names, str):
            names = (names,)
        require(len(names) > 0, "domain: transforms is empty", where="transforms")
        for name in names:
            if name not in TRANSFORMS:
                raise InvalidOption(
                    f"domain: no transform {name!r}",
                    suggest(str(name), TRANSFORMS),
                    where=("transforms",),
                )
        object.__setattr__(self, "transforms", names)

    def fit(self, pool: Samples, clients: int) -> None:
        """Refuse tokens, and rotations of samples that are not square images."""
        require_one_input(pool, "domain")
        require(not pool.tokens, "domain needs quantities, not tokens")
        square = len(pool.shape) == 3 and pool.shape[1] == pool.shape[2]
        if not callable(self.transforms) and "rotate" in self.transforms:
            require(
                square,
                (
                    "domain: rotate needs square images, not samples of shape "
                    f"{pool.shape}"
                ),
                where="transforms",
            )

    def of(self, client: int) -> str:
        """Return the name of a client's transform."""
        assert not callable(self.transforms)
        return self.transforms[self._draw("domain", client) % len(self.transforms)]

    def _draw(self, purpose: str, client: int) -> int:
        return int(words(keys(self.seed, purpose, client), 1)[0, 0])

    def traits(self, clients: Ints) -> dict[str, Floats]:
        """Return no traits."""
        return {}

    def apply(self, shards: Shards, clients: Ints, span: Span) -> Shards:
        """Transform a copy of the samples, client by client."""
        copy = copied(shards)
        for k, client in enumerate(clients.tolist()):
            part = slice(int(copy.offsets[k]), int(copy.offsets[k + 1]))
            raw = copy.samples.raw[part]
            if callable(self.transforms):
                labels = copy.labels[part]
                replacement = self.transforms(client, raw.clone(), labels)
                _check_replacement(client, raw, labels=labels, replacement=replacement)
                values, copy.labels[part] = replacement
            else:
                values = self._transformed(client, raw, span=span)
            copy.samples.raw[part] = values
        return copy

    def _transformed(self, client: int, raw: torch.Tensor, span: Span) -> torch.Tensor:
        low, high = span
        name = self.of(client)
        if name == "rotate":
            return torch.rot90(
                raw, 1 + self._draw("domain/turns", client) % 3, (-2, -1)
            )
        if name == "invert":
            return _stored(low + high - raw.float(), raw, span)
        if name == "contrast":
            middle = (low + high) / 2
            return _stored(middle + self.contrast * (raw.float() - middle), raw, span)
        if name == "noise":
            stream = torch_generator(self.seed, "domain/noise", client)
            shaken = raw + self.noise * (high - low) * torch.randn(
                raw.shape, generator=stream
            )
            return _stored(shaken, raw, span)
        return raw


def _stored(values: torch.Tensor, like: torch.Tensor, span: Span) -> torch.Tensor:
    """Clip values to the span and convert them to the storage type of ``like``."""
    values = values.clamp(*span)
    if not like.is_floating_point():
        values = values.round()
    return values.to(like.dtype)


def _check_replacement(
    client: int,
    raw: torch.Tensor,
    labels: torch.Tensor,
    replacement: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Raise `InvalidOption` unless a replacement keeps the shapes and types."""
    new_raw, new_labels = replacement
    for name, old, new in (("values", raw, new_raw), ("labels", labels, new_labels)):
        require(
            old.shape == new.shape and old.dtype == new.dtype,
            (
                f"domain: {name} of client {client} must stay {old.dtype} "
                f"{tuple(old.shape)}"
            ),
        )
