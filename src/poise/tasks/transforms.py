"""Transforms: random changes of a client's samples while it trains (augmentation).

A client draws them from its own stream, (seed, round, client). The samples are
therefore the same on any number of workers, after a resume, and on a node.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F

from poise.core.errors import IncompatibleParts, InvalidOption, suggest
from poise.core.rng import U64, child
from poise.core.samples import Samples
from poise.core.trees import Inputs, leaves, mapped, row_of

Transform: TypeAlias = Callable[[Inputs, torch.Generator], Inputs]
"""(samples of one client as the model receives them, random stream) -> samples."""

NOISE = 0.1
"""Standard deviation of ``noise``."""


def flip(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirror each image left to right with probability 1/2."""
    chosen = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], x.flip(-1), x)


def crop(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shift each image by up to an eighth of its size; zeros fill the border.

    This is the random crop of an image with a border, 4 pixels wide for 32 pixels.
    """
    n, channels, height, width = x.shape
    up = max(1, height // 8)
    left = max(1, width // 8)
    rows = torch.randint(2 * up + 1, (n, 1), generator=generator)
    columns = torch.randint(2 * left + 1, (n, 1), generator=generator)
    rows = rows + torch.arange(height)
    columns = columns + torch.arange(width)
    wide = F.pad(x, (left, left, up, up))
    return wide[
        torch.arange(n)[:, None, None, None],
        torch.arange(channels)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


def noise(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Add normal noise with standard deviation 0.1 to every entry."""
    return x + NOISE * torch.randn(x.shape, generator=generator, dtype=x.dtype)


Single: TypeAlias = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

TRANSFORMS: dict[str, Single] = {"crop": crop, "flip": flip, "noise": noise}
MOVES = ("crop", "flip")
"""Transforms that move pixels."""


@dataclass(frozen=True)
class Chain:
    """Named transforms, one after the other."""

    names: tuple[str, ...]

    def __call__(self, x: Inputs, generator: torch.Generator) -> Inputs:
        """Apply the transforms to samples with one input."""
        assert isinstance(x, torch.Tensor)  # `chain` refuses other samples
        for name in self.names:
            x = TRANSFORMS[name](x, generator)
        return x


def names_of(transform: str) -> tuple[str, ...]:
    """Return the names in ``"flip+crop"``; raises for unknown ones.

    >>> names_of("flip+crop")
    ('flip', 'crop')
    """
    names = tuple(name.strip() for name in transform.split("+"))
    for name in names:
        if name not in TRANSFORMS:
            raise InvalidOption(
                f"Task: unknown transform {name!r}",
                suggest(name, TRANSFORMS),
                where=("transform",),
            )
    return names


def chain(transform: str, samples: Samples) -> Chain:
    """Return named transforms; raises if they do not fit the samples."""
    names = names_of(transform)
    moving = [name for name in names if name in MOVES]
    if len(samples.pools) > 1 or samples.tokens:
        raise _misfit(f"{transform!r} needs one input of quantities", "give a function")
    if moving and len(samples.shape) != 3:
        raise _misfit(
            f"{moving[0]!r} needs images (C, H, W), not samples of {samples.form}"
        )
    if moving and len(samples.target_shape) > 1:
        raise _misfit(
            f"{moving[0]!r} moves pixels, and would not move those of the labels",
            "use 'noise', or a function that moves no pixels",
        )
    return Chain(names)


def check_transform(transform: Transform, example: Inputs) -> None:
    """Raise unless a transform keeps form, shape and type of two samples."""
    stream = torch.Generator().manual_seed(0)
    try:
        changed = transform(mapped(torch.clone, example), stream)
    except Exception as error:  # the function is the user's: it may raise anything
        raise _misfit(
            f"the transform fails on two samples: {type(error).__name__}: {error}",
            _arguments_hint(transform),
        ) from error
    if type(changed) is not type(example) or len(leaves(changed)) != len(
        leaves(example)
    ):
        raise _misfit(
            f"the transform returns a {type(changed).__name__} instead of a "
            f"{type(example).__name__}"
        )
    for before, after in zip(leaves(example), leaves(changed), strict=True):
        if (
            not isinstance(after, torch.Tensor)
            or after.shape != before.shape
            or after.dtype != before.dtype
        ):
            raise _misfit(
                "the transform changes the shape or type of the samples",
                f"return {before.dtype} of shape (n, {', '.join(map(str, before.shape[1:]))})",
            )


def _arguments_hint(transform: Transform) -> str:
    """Return how to write a function that does not take two arguments; "" if it does."""
    try:
        inspect.signature(transform).bind(None, None)
    except TypeError:
        return "write f(x, generator); generator draws the client's random numbers"
    except ValueError:  # functions of C may not say their arguments
        pass
    return ""


@dataclass(frozen=True)
class Augmentation:
    """A transform and one random stream for each client of a group."""

    transform: Transform
    generators: list[torch.Generator]

    @classmethod
    def of(cls, transform: Transform, streams: U64) -> Augmentation:
        """Return the augmentation of clients with these streams of local work."""
        own = child(streams, "transform")
        generators = [torch.Generator().manual_seed(int(s) >> 1) for s in own.tolist()]
        return cls(transform, generators)

    def one(self, k: int, x: Inputs) -> Inputs:
        """Return the next batch of client k, (n, …), transformed."""
        return self.transform(x, self.generators[k])

    def stack(self, x: Inputs, counts: torch.Tensor) -> Inputs:
        """Transform ``counts[k]`` samples of client k in a stack (a, b, …), in place."""
        for k, count in enumerate(counts.tolist()):
            own = row_of(x, k, count)
            changed = self.one(k, own)
            for place, values in zip(leaves(own), leaves(changed), strict=True):
                place.copy_(values)
        return x


def _misfit(message: str, hint: str = "") -> IncompatibleParts:
    return IncompatibleParts(f"Task: {message}", hint, where=("transform",))
