"""Fixed features of samples, for heads that are solved and not trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod, sqrt

import torch
from torch import nn

from poise.core.errors import IncompatibleParts
from poise.core.rng import torch_generator
from poise.core.samples import Samples
from poise.core.trees import first
from poise.tasks.copies import copy_of
from poise.tasks.oracle import example_of


class FlatDouble(nn.Module):
    """Flattens every sample, and converts it to double precision."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (n, …) as (n, entries)."""
        return _flat(x)


@dataclass(frozen=True)
class FeatureMap:
    """A fixed function of samples, (n, …) -> (n, size) in double precision.

    Args:
        apply: the function.
        size: features per sample.
        module: the same function as a module.
        digest: a hash of its numbers; empty if it has none.
    """

    apply: Callable[[torch.Tensor], torch.Tensor]
    size: int
    module: nn.Module
    digest: str = ""

    def with_bias(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features and a last column of ones, (n, size + 1)."""
        features = self.apply(x)
        return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)


def entries_of(samples: Samples) -> FeatureMap:
    """Return the entries of a sample themselves."""
    return FeatureMap(_flat, _entries(samples), FlatDouble())


def random_features(
    samples: Samples, count: int, *, seed: int, device: torch.device
) -> FeatureMap:
    """Return ``max(0, W x + b)``, with entries of W from N(0, 2/d) and of b from N(0, 0.01)."""
    entries = _entries(samples)
    stream = torch_generator(seed, "random features")
    weights = torch.randn(entries, count, generator=stream, dtype=torch.float64)
    weights *= sqrt(2 / entries)
    shift = 0.1 * torch.randn(count, generator=stream, dtype=torch.float64)
    digest = _digest({"weights": weights, "shift": shift})
    weights = weights.to(device)
    shift = shift.to(device)
    return FeatureMap(
        lambda x: torch.relu(_flat(x) @ weights + shift),
        count,
        _random_module(weights, shift),
        digest,
    )


def _random_module(weights: torch.Tensor, shift: torch.Tensor) -> nn.Module:
    """Return ``max(0, W x + b)`` as a module."""
    entries, count = weights.shape
    linear = nn.Linear(entries, count, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(weights.T)
        linear.bias.copy_(shift)
    return nn.Sequential(FlatDouble(), linear, nn.ReLU())


def module_features(
    samples: Samples, module: nn.Module, *, device: torch.device
) -> FeatureMap:
    """Return the outputs of a module in evaluation mode; its weights are never trained."""
    fixed = copy_of(module).to(device).eval().requires_grad_(False)
    kind = next((p.dtype for p in fixed.parameters()), torch.float32)

    def apply(x: torch.Tensor) -> torch.Tensor:
        given = x.to(kind) if x.is_floating_point() else x
        with torch.no_grad():
            return _flat(fixed(given))

    try:
        size = apply(first(example_of(samples)).to(device)).shape[1]
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise IncompatibleParts(
            (
                f"ridge: {type(module).__name__} does not take samples of shape "
                f"{samples.shape}: {error}"
            ),
            "give a module that fits the data, or reshape the data",
            where=("features",),
        ) from error
    whole = nn.Sequential(fixed, FlatDouble())
    return FeatureMap(apply, size, whole, _digest(fixed.state_dict()))


def _entries(samples: Samples) -> int:
    """Return the number of entries of a sample; raises for token numbers."""
    if samples.tokens:
        raise IncompatibleParts(
            "ridge: the samples are token numbers, which are no quantities",
            "give a module that maps tokens to features",
            where=("features",),
        )
    return prod(samples.shape)


def _flat(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], -1).to(torch.float64)


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    """Return a hash of named tensors; empty if there are none."""
    if not tensors:
        return ""
    total = hashlib.blake2b(digest_size=16)
    for name, tensor in tensors.items():
        stored = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        total.update(name.encode() + stored.numpy().tobytes())
    return total.hexdigest()
