"""Ridge regression on fixed features: the model of a federation is the mean of clients' sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from poise.core.batches import Batch, BatchPlan
from poise.core.errors import IncompatibleParts, require, suggest
from poise.core.samples import Inputs, Samples
from poise.core.traits import TaskTraits
from poise.core.types import Floats
from poise.core.vectors import Layout, Stack, Vector
from poise.tasks.devices import device_named
from poise.tasks.features import (
    FeatureMap,
    entries_of,
    module_features,
    random_features,
)
from poise.tasks.losses import METRICS, squared_error
from poise.tasks.opened import Opened
from poise.tasks.oracle import HasShards, SampleOracle, blocks
from poise.tasks.trained import TrainedModule

BLOCK = 2048
"""Samples whose features are in memory at once."""

NAMED = ("random",)


@dataclass(frozen=True)
class Ridge:
    """A linear head on fixed features (`poise.ridge` is the short form)."""

    features: Literal["random"] | nn.Module | None = None
    count: int = 500
    seed: int = 0
    penalty: float = 1e-3

    traits = TaskTraits(sums=True, lowest_loss=0.0)

    def __post_init__(self) -> None:
        known = self.features is None or isinstance(self.features, nn.Module)
        require(
            known or self.features in NAMED,
            f"ridge: unknown features {self.features!r}",
            f"{suggest(str(self.features), NAMED)}, or give a module",
            where="features",
        )
        for name, least in (("count", 1), ("seed", 0)):
            value = getattr(self, name)
            require(
                type(value) is int and value >= least,
                f"ridge: {name} must be a whole number of at least {least}, not {value!r}",
                where=name,
            )
        penalty = self.penalty
        is_number = isinstance(penalty, int | float) and not isinstance(penalty, bool)
        require(
            is_number and penalty > 0 and isfinite(penalty),
            f"ridge: penalty must be above 0, not {penalty!r}",
            "without a penalty the head may not be unique",
            where="penalty",
        )

    @property
    def spec(self) -> dict[str, Any] | None:
        """The table of an experiment file, or None if the features are a module."""
        if isinstance(self.features, nn.Module):
            return None
        table: dict[str, Any] = {"model": "ridge"}
        if self.features is not None:
            table |= {"features": self.features, "count": self.count, "seed": self.seed}
        return {**table, "penalty": self.penalty}

    def bind(self, federation: HasShards, device: str = "cpu") -> RidgeOracle:
        """Return the oracle of the clients' sums on a federation."""
        samples = federation.shards(np.zeros(1, dtype=np.int64)).samples
        if samples.target_shape or len(samples.pools) > 1:
            raise IncompatibleParts(
                "ridge needs one input and one class or number per sample",
                "train a model instead",
                where=("model",),
            )
        target = device_named(device)
        kernel = RidgeKernel(
            self._feature_map(samples, target), samples.classes, self.penalty
        )
        classification = samples.classes > 0
        score = "accuracy" if classification else "mae"

        def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return squared_error(outputs, kernel.targets(labels))

        return RidgeOracle(
            federation,
            kernel,
            start=lambda seed: torch.zeros(kernel.layout.size, dtype=torch.float64),
            loss=loss,
            scores={score: METRICS[score]},
            device=target,
            module=None,
        )

    def trained(self, samples: Samples, theta: Vector) -> TrainedModule:
        """Return the features and the head of a model, as one module."""
        kernel = RidgeKernel(
            self._feature_map(samples, torch.device("cpu")),
            samples.classes,
            self.penalty,
        )
        if kernel.layout.size != len(theta):
            raise IncompatibleParts(
                f"the model of the run has {len(theta)} entries, this task "
                f"{kernel.layout.size}",
                "give the task that the run began with",
                where=("task",),
            )
        head = kernel.head(theta)
        linear = nn.Linear(kernel.map.size, kernel.outcomes, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(head[:-1].T)
            linear.bias.copy_(head[-1])
        module = nn.Sequential()
        module.add_module("features", kernel.map.module)
        module.add_module("head", linear)
        return TrainedModule(
            module.requires_grad_(False).eval(), kernel.layout, kernel.map.digest
        )

    def _feature_map(self, samples: Samples, device: torch.device) -> FeatureMap:
        if isinstance(self.features, nn.Module):
            return module_features(samples, self.features, device=device)
        if self.features == "random":
            return random_features(samples, self.count, seed=self.seed, device=device)
        return entries_of(samples)


@dataclass
class RidgeKernel:
    """The head of a vector of sums, and its outputs.

    The vector has the upper triangle of ``sum p_i F_i^T F_i / n_i`` (``gram``) and
    ``sum p_i F_i^T Y_i / n_i`` (``cross``).
    """

    map: FeatureMap
    classes: int
    penalty: float
    _solved: tuple[Vector, torch.Tensor] | None = field(default=None, repr=False)

    block = BLOCK
    random = False

    def __post_init__(self) -> None:
        self.width = self.map.size + 1  # with the bias
        self.outcomes = max(self.classes, 1)
        self._rows, self._columns = torch.triu_indices(self.width, self.width)
        self.layout = Layout.of_shapes(
            {"gram": (len(self._rows),), "cross": (self.width, self.outcomes)}
        )

    def rows(self, batch_size: int) -> int:
        """Return how many clients to put into one call."""
        return 1

    def begin(self) -> None:
        """Do nothing: there is no state to prepare."""

    def gradients(
        self,
        rows: Stack,
        x: Inputs,
        y: torch.Tensor,
        counts: torch.Tensor,
        full: bool,
        generators: list[torch.Generator] | None,
        out: Stack,
    ) -> None:
        """Raise: the oracle computes gradients from sums, not from batches."""
        raise TypeError("ridge has no gradients of batches")

    def targets(self, labels: torch.Tensor) -> torch.Tensor:
        """Return Y: one column per class, or the numbers themselves."""
        if self.classes:
            return F.one_hot(labels, self.classes).to(torch.float64)
        return labels.reshape(-1, 1).to(torch.float64)

    def mean_sums(self, x: torch.Tensor, y: torch.Tensor, total: int) -> Vector:
        """Return ``(F^T F, F^T Y) / total`` of some samples, as a vector."""
        features = self.map.with_bias(x)
        gram = features.T @ features
        cross = features.T @ self.targets(y)
        packed = torch.cat([gram[self._rows, self._columns], cross.reshape(-1)])
        return packed / total

    def head(self, theta: Vector) -> torch.Tensor:
        """Return ``(gram + penalty I)^-1 cross``, (features + 1, outputs), the bias last."""
        solved = self._solved
        if solved is not None and torch.equal(solved[0], theta):
            return solved[1]
        gram = theta.new_zeros(self.width, self.width)
        triangle = theta[: len(self._rows)]
        gram[self._rows, self._columns] = triangle
        gram[self._columns, self._rows] = triangle
        gram.diagonal().add_(self.penalty)
        cross = theta[len(self._rows) :].reshape(self.width, self.outcomes)
        head: torch.Tensor = torch.linalg.solve(gram, cross)
        self._solved = (theta.clone(), head)
        return head

    def outputs(self, theta: Vector, x: Inputs) -> torch.Tensor:
        """Return the outputs of the head on samples (n, …)."""
        assert isinstance(x, torch.Tensor)
        return self.map.with_bias(x) @ self.head(theta)


@dataclass(frozen=True)
class RidgeOracle(SampleOracle):
    """The sums of every client, as the optimum of ``|theta - S_i / n_i|^2 / 2``."""

    kernel: RidgeKernel

    batches = False

    @property
    def frozen(self) -> str:
        """A hash of the numbers of the features; empty if there are none."""
        return self.kernel.map.digest

    def head(self, theta: Vector | Floats) -> torch.Tensor:
        """Return the head of a model (``run.model``), (features + 1, outputs), the bias last."""
        return self.kernel.head(torch.as_tensor(theta, device=self.device))

    def gradients(self, rows: Stack, data: Opened, batch: Batch, out: Stack) -> None:
        """Write ``theta - S_i / n_i`` of each row into ``out``."""
        for k in range(len(rows)):
            torch.sub(rows[k], self._client_sums(data, k), out=out[k])

    def descend(
        self, start: Stack, data: Opened, plan: BatchPlan, rate: float, out: Stack
    ) -> None:
        """Write each row after the steps ``theta - rate (theta - S_i / n_i)`` into ``out``."""
        out.copy_(start)
        for k in range(len(out)):
            sums = self._client_sums(data, k)
            for batch in plan:
                if k < len(batch.counts):
                    out[k].sub_(out[k] - sums, alpha=rate)

    def _client_sums(self, data: Opened, k: int) -> Vector:
        """Return S_i / n_i of the k-th client, block by block in the order of its samples."""
        start, stop = data.offsets[k : k + 2].tolist()
        total = torch.zeros(self.layout.size, dtype=torch.float64, device=self.device)
        for a, b in blocks(stop, BLOCK, start):
            x, y = self._here(*data.take(torch.arange(a, b)))
            assert isinstance(x, torch.Tensor)
            total += self.kernel.mean_sums(x, y, stop - start)
        return total


def ridge(
    features: Literal["random"] | nn.Module | None = None,
    *,
    count: int = 500,
    seed: int = 0,
    penalty: float = 1e-3,
) -> Ridge:
    """Return ridge regression on fixed features, which one round of sums solves.

    A client with features F_i (with a column of ones) and targets Y_i (one column per
    class, or the numbers) sends ``F_i^T F_i / n_i`` and ``F_i^T Y_i / n_i``. The head is
    ``(sum_i p_i F_i^T F_i / n_i + penalty I)^-1 (sum_i p_i F_i^T Y_i / n_i)``. Train with
    the solver `Sums` for one round; ``task.bind(federation).head(run.model)`` is the head.

    The server learns these sums of every client. Of a client with few samples they reveal
    the samples themselves.

    Args:
        features: None for the entries of a sample, ``"random"`` for ``max(0, W x + b)``
            with random W and b, or a module whose outputs are the features. The weights
            of the module stay fixed.
        count: number of random features.
        seed: of the random features. They are public: every client computes them.
        penalty: added to the diagonal, above 0. It holds for the bias too.

    >>> ridge("random", count=200).spec
    {'model': 'ridge', 'features': 'random', 'count': 200, 'seed': 0, 'penalty': 0.001}
    """
    return Ridge(features, count, seed, penalty)
