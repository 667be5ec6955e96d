"""Modules that users write: whatever path the layers choose, the result is the module's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.backends import Local
from poise.core.errors import IncompatibleParts
from poise.core.samples import Samples
from poise.solvers import SGD
from poise.tasks import Task
from poise.testing import SampleFederation

SOLVER = SGD(lr=0.2, epochs=1, batch_size=4)


def federation(shape: tuple[int, ...] = (6,), classes: int = 3) -> SampleFederation:
    return SampleFederation.random([7, 4, 9], shape=shape, classes=classes)


def shared_activation() -> nn.Module:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(6, 5), act, nn.Linear(5, 5), act, nn.Linear(5, 3))


def shared_layer() -> nn.Module:
    square = nn.Linear(6, 6)
    return nn.Sequential(square, nn.Tanh(), square, nn.Linear(6, 3))


def tied_layers() -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    made[2].weight = made[0].weight
    return made


class Halved(nn.Linear):
    """A linear layer with a forward pass of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


class Shifted(nn.ReLU):
    """An activation with a forward pass of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x - 0.1)


def hooked() -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 3))
    made[0].register_forward_hook(lambda module, given, outputs: 2 * outputs)
    return made


def with_buffer() -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 3))
    made.register_buffer("version", torch.ones(1))
    return made


class WithSpare(nn.Module):
    """A chain of dense layers, and a layer that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(6, 3)
        self.spare = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "bare linear": lambda: nn.Linear(6, 3),
    "one activation used twice": shared_activation,
    "one layer used twice": shared_layer,
    "tied weights": tied_layers,
    "subclass of Linear": lambda: nn.Sequential(Halved(6, 3)),
    "subclass of ReLU": lambda: nn.Sequential(
        nn.Linear(6, 5), Shifted(), nn.Linear(5, 3)
    ),
    "forward hook": hooked,
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))
    ),
    "extra buffer": with_buffer,
    "unused layer": WithSpare,
    "no bias": lambda: nn.Sequential(
        nn.Linear(6, 4, bias=False), nn.ReLU(), nn.Linear(4, 3, bias=False)
    ),
    "in-place activation": lambda: nn.Sequential(
        nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)
    ),
    "activation first and last": lambda: nn.Sequential(
        nn.Tanh(), nn.Linear(6, 3), nn.Softplus()
    ),
    "nested": lambda: nn.Sequential(
        nn.Sequential(nn.Linear(6, 4), nn.SiLU()),
        nn.Sequential(nn.Identity(), nn.Linear(4, 3)),
    ),
    "leaky": lambda: nn.Sequential(
        nn.Linear(6, 4), nn.LeakyReLU(0.3), nn.ELU(), nn.Linear(4, 3)
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_both_paths_give_the_modules_own_result(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    runs = [
        poise.train(
            federation(), Task(module=module, dtype="float64", path=p), SOLVER, rounds=2
        )
        for p in (None, "rows")
    ]
    assert np.allclose(runs[0].model, runs[1].model, rtol=0, atol=1e-12)
    assert np.allclose(runs[0].metric("loss"), runs[1].metric("loss"), rtol=1e-10)


def test_the_users_module_is_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).train()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    poise.train(
        SampleFederation.random([8, 4], shape=(6,)),
        Task(module=module),
        SOLVER,
        rounds=1,
    )
    assert module.training
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


class Counts(nn.Module):
    """A buffer that is not saved but changes what the module computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
        scores: torch.Tensor = self.layer(x) * (1 + self.seen / 10)
        return scores


def test_nothing_passes_from_one_client_to_the_next_inside_a_module() -> None:
    runs = [
        poise.train(
            federation(),
            Task(module=Counts),
            SOLVER,
            rounds=2,
            backend=Local(workers=w),
        )
        for w in (1, 2)
    ]
    assert runs[0].digest == runs[1].digest


def test_samples_and_modules_in_double_precision_are_taken() -> None:
    fed = federation()
    doubled = SampleFederation(
        Samples(fed.samples.raw.double(), fed.samples.labels, classes=3),
        fed.sizes,
        fed.held_out,
    )
    for data, task in (
        (doubled, Task("logistic", dtype="float64")),
        (doubled, Task("logistic")),
        (fed, Task(module=nn.Sequential(nn.Linear(6, 3)).double(), dtype="float64")),
    ):
        assert np.isfinite(poise.train(data, task, SOLVER, rounds=1).model).all()


@pytest.mark.parametrize(
    ("module", "shape", "options"),
    [
        (nn.Sequential(nn.Linear(7, 3)), (6,), {}),
        (nn.Sequential(nn.Linear(7, 3)), (6,), {"path": "rows"}),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(4, 3)), (6,), {}),
        (nn.Sequential(nn.Linear(6, 2)), (6,), {}),
    ],
    ids=["dense", "rows", "convolution", "too few outputs"],
)
def test_a_module_that_does_not_fit_the_data_is_refused(
    module: nn.Module, shape: Any, options: Any
) -> None:
    with pytest.raises(IncompatibleParts, match="Task: "):
        poise.train(federation(shape), Task(module=module, **options), SOLVER, rounds=1)


def test_a_linear_layer_on_the_last_dimension_is_not_flattened() -> None:
    """The batched path flattens samples; a module that does not must not take it."""
    pool = federation((3, 4), classes=0).samples
    fed = SampleFederation(
        Samples(pool.raw, torch.randn(len(pool), 3, 1)), np.array([7, 4, 9])
    )
    tasks = [
        Task(module=nn.Sequential(nn.Linear(4, 1)), loss="mse", dtype="float64", path=p)
        for p in (None, "rows")
    ]
    models = [poise.train(fed, task, SOLVER, rounds=1).model for task in tasks]
    assert models[0].shape == models[1].shape


def test_a_module_that_cannot_be_copied_is_named() -> None:
    computed = nn.Linear(6, 3)
    computed.scale = computed.weight.abs().max()
    for module in (computed, lambda: computed):
        with pytest.raises(IncompatibleParts) as error:
            poise.train(federation(), Task(module=module), SOLVER, rounds=1)
        assert "Task: Linear cannot be copied: Only Tensors created" in str(error.value)
        assert "parametrizations.weight_norm" in str(error.value)


class Reader(nn.Module):
    """One score per class of the tokens 0 to 8."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(9, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.embed(tokens)


def test_an_embedding_smaller_than_the_vocabulary_is_refused_before_training() -> None:
    tokens = np.zeros((20, 4), dtype=np.int64)
    tokens[19, 1] = 11
    fed = poise.federation((tokens, np.arange(20) % 2), clients=2, vocabulary=12)
    with pytest.raises(IncompatibleParts) as error:
        poise.train(fed, Task(module=Reader), SOLVER, rounds=1)
    assert "Reader does not take token 11 of 12: Index 3 of input" in str(error.value)
    assert "give its embedding 12 rows; the tokens are 0 … 11" in str(error.value)


def test_a_metric_that_fails_on_some_data_only_is_named() -> None:
    x = np.arange(20, dtype=np.float32)[:, None]
    y = np.arange(20) % 2

    def picky(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if len(labels) > 6:
            raise ValueError("too many")
        return labels.float()

    task = poise.task("logistic", metrics={"picky": picky})
    fed = poise.federation((x, y), clients=2, test=(x, y))
    with pytest.raises(IncompatibleParts) as error:
        poise.train(fed, task, SOLVER, rounds=1)
    assert "the metric 'picky' fails while poise measures it: ValueError: too many" in (
        str(error.value)
    )
