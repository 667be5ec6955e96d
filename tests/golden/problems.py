"""The federations and tasks of the golden cases: few clients, few samples, tiny models."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor, nn

import poise

Problem = tuple[Any, Any]


def digits(partition: str = "dirichlet", **options: Any) -> Any:
    """Eight clients that share 200 digits of 8x8 pixels, by default in unequal shares."""
    given = {"clients": 8, "samples": 200, "test_samples": 40, **options}
    if partition == "dirichlet":
        given.setdefault("alpha", 0.5)
        if not given.get("on_demand"):
            given.setdefault("sizes", [13, 40, 21, 30, 8, 25, 35, 28])
    return poise.federation("digits", partition, **given)


def mlp(**options: Any) -> Any:
    """Eight hidden units."""
    return poise.task("mlp", hidden=8, **options)


def images(side: int, clients: int) -> Any:
    """Eight random images for each client, in three classes."""
    rng = np.random.default_rng(side)
    x = rng.integers(0, 256, (8 * clients, 1, side, side), dtype=np.uint8)
    return poise.federation(
        (x, np.arange(len(x)) % 3), clients=clients, test_share=0.25
    )


def text() -> Any:
    """Windows of five letters, and the next letter."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 6, (40, 5))
    return poise.federation(
        (x, x.sum(axis=1) % 6), clients=4, vocabulary=6, test_share=0.2
    )


def numbers() -> Any:
    """A regression with four inputs."""
    rng = np.random.default_rng(7)
    x = rng.integers(-8, 9, (60, 4)).astype(np.float32) / 4
    y = (x @ np.array([1.0, -0.5, 0.25, 2.0], dtype=np.float32)).astype(np.float32)
    return poise.federation((x, y), clients=5, test_share=0.2)


def quadratics(curvature: Any = (1.0, 2.0, 0.5, 1.0, 3.0, 1.0)) -> Problem:
    """Six clients of unequal size in four dimensions."""
    optima = (np.arange(24) * 7 % 11 / 4 - 1).reshape(6, 4)
    fed = poise.quadratics(optima, curvature=curvature, sizes=[1, 2, 3, 4, 5, 6])
    return fed, fed.task


def dropping() -> nn.Module:
    """A custom module, with dropout and a layer that no batched kernel knows."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 10)
    )


def margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """A custom loss: the multi-class hinge, one value per sample."""
    return nn.functional.multi_margin_loss(outputs, labels, reduction="none")


def shifted(client: int, values: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A custom domain: images move to the right by a shift that depends on the client."""
    return values.roll(client % 3, dims=-1), labels


PROBLEMS: dict[str, Callable[[], Problem]] = {
    # batched kernels
    "digits": lambda: (digits(), mlp()),
    "digits-equal": lambda: (digits(importance="equal"), mlp()),
    "digits-weighed": lambda: (
        digits("iid", importance=[1, 2, 3, 4, 4, 3, 2, 1]),
        mlp(),
    ),
    "digits-own-tests": lambda: (digits(client_test_share=0.3), mlp()),
    "digits-two-layers": lambda: (digits(), poise.task("mlp", hidden=[6, 5])),
    "digits-double": lambda: (digits(), mlp(dtype="float64")),
    "digits-logistic": lambda: (
        digits("iid", clients=10, samples=400),
        poise.task("logistic"),
    ),
    "digits-riders": lambda: (
        digits("iid", clients=6, free_riders=2),
        poise.task("logistic"),
    ),
    "digits-without": lambda: (digits(without=[1, 4]), poise.task("logistic")),
    "ridge": lambda: (digits(), poise.ridge("random", count=12)),
    "ridge-numbers": lambda: (numbers(), poise.ridge()),
    "numbers": lambda: (numbers(), poise.task("mlp", hidden=5)),
    "quadratics": quadratics,
    "quadratics-steep": lambda: quadratics((1.0, 2.0, 1e200, 1.0, 3.0, 1.0)),
    # one row at a time
    "rows": lambda: (digits(), mlp(path="rows")),
    "norm": lambda: (digits("iid", client_test_share=0.25), mlp(norm=True)),
    "own-module": lambda: (digits(), poise.Task(module=dropping)),
    "own-loss": lambda: (
        digits(),
        poise.Task("mlp", {"hidden": 8}, loss=margins, metrics=("accuracy",)),
    ),
    "cnn-small": lambda: (images(18, 3), poise.task("cnn-small", dropout=0.2)),
    "cnn": lambda: (images(10, 4), poise.task("cnn", width=2, norm=True)),
    "resnet": lambda: (images(8, 3), poise.task("resnet20", width=2)),
    "text": lambda: (text(), poise.task("lstm", embedding=3, hidden=4, layers=2)),
    # partitions
    "shards": lambda: (digits("shards", shard_size=10), mlp()),
    "one-class": lambda: (digits("one-class"), mlp()),
    "by-class": lambda: (digits("dirichlet-by-class", kappa=0.5, phi2=0.2), mlp()),
    "imbalanced": lambda: (
        digits("imbalanced", ratios=[1.0, 0.5, 0.1] * 2 + [0.3, 0.2]),
        mlp(),
    ),
    "by-key": lambda: (
        poise.federation(
            "synthetic", "by-key", clients=6, size=20, features=5, classes=3
        ),
        mlp(),
    ),
    # clients made on demand
    "crowd-iid": lambda: (
        digits("iid", clients=10**6, on_demand=True, samples_per_client=12),
        mlp(),
    ),
    "crowd-dirichlet": lambda: (
        digits(clients=5000, on_demand=True, samples_per_client=12),
        mlp(),
    ),
    "crowd-one-class": lambda: (
        digits("one-class", clients=5000, on_demand=True, samples_per_client=12),
        mlp(),
    ),
    "crowd-imbalanced": lambda: (
        digits(
            "imbalanced",
            clients=5000,
            on_demand=True,
            samples_per_client=20,
            equal_sizes=True,
        ),
        mlp(),
    ),
    # corruptions
    "flipped": lambda: (
        digits(corruption={"name": "flip-labels", "rate": 0.5, "ratio": 0.6}),
        mlp(),
    ),
    "signed": lambda: (
        digits(corruption={"name": "watermark", "pixels": 4, "clients": [0, 3]}),
        mlp(),
    ),
    "domains": lambda: (
        digits(
            corruption=[
                {"name": "domain", "seed": 2},
                {"name": "flip-labels", "rate": 0.3},
            ],
            client_test_share=0.2,
        ),
        mlp(),
    ),
    "own-domain": lambda: (
        digits().with_corruption("domain", transforms=shifted),
        mlp(),
    ),
}


@cache
def problem(name: str) -> Problem:
    """Return a federation and its task by name."""
    return PROBLEMS[name]()
