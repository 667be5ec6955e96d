"""Augmentation: the same bits whatever the workers, the grouping, and the interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise.apps.experiments.runner import run_experiment
from poise.config.experiment import parse
from poise.core.batches import BatchPlan
from poise.core.errors import IncompatibleParts, PoiseError
from poise.core.rng import keys
from poise.tasks.opened import Opened
from poise.tasks.oracle import SampleOracle
from poise.tasks.transforms import crop, flip, noise

SIZES = [3, 9, 5, 12, 7]
N = sum(SIZES)
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 1, 8, 8)).astype(np.float32)
Y = RNG.integers(0, 3, N)
OWNERS = np.split(np.arange(N), np.cumsum(SIZES)[:-1])
SOLVER = poise.solvers.SGD(lr=0.1, epochs=2, batch_size=4)


def federation() -> poise.Federation:
    return poise.federation((X, Y), OWNERS, test=(X, Y), classes=3)


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def stream() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def test_flip_mirrors_about_half_of_the_images() -> None:
    x = torch.arange(400.0 * 6).view(400, 1, 2, 3)
    flipped = flip(x, stream())
    mirrored = (flipped == x.flip(3)).flatten(1).all(1)
    kept = (flipped == x).flatten(1).all(1)
    assert bool((mirrored ^ kept).all())
    assert 160 <= int(mirrored.sum()) <= 240


def test_crop_shifts_each_image_and_fills_with_zeros() -> None:
    x = torch.zeros(300, 2, 16, 8)
    x[:, :, 8, 4] = 1.0
    shifted = crop(x, stream())
    places = torch.nonzero(shifted[:, 0] == 1.0)
    assert len(places) == 300
    assert torch.equal(shifted[:, 0], shifted[:, 1])
    assert sorted(set((places[:, 1] - 8).tolist())) == [-2, -1, 0, 1, 2]
    assert sorted(set((places[:, 2] - 4).tolist())) == [-1, 0, 1]


def test_noise_has_its_standard_deviation() -> None:
    added = noise(torch.ones(200, 100), stream()) - 1
    assert float(added.std()) == pytest.approx(0.1, rel=0.02)
    assert float(added.mean()) == pytest.approx(0.0, abs=0.003)


@pytest.mark.parametrize("transform", ["flip+crop", "noise"])
@pytest.mark.parametrize("path", [None, "rows"])
def test_the_same_bits_on_any_number_of_workers(transform: str, path: Any) -> None:
    models = []
    for workers in (1, 2, 4):
        backend = poise.backends.Local(workers=workers)
        task = poise.Task(module=dense(), transform=transform, path=path)
        run = poise.train(federation(), task, SOLVER, rounds=2, backend=backend)
        models.append(run.model)
    assert np.array_equal(models[0], models[1])
    assert np.array_equal(models[0], models[2])
    still = poise.train(
        federation(), poise.Task(module=dense(), path=path), SOLVER, rounds=2
    )
    assert not np.array_equal(models[0], still.model)


def opened(clients: list[int]) -> tuple[SampleOracle, Opened, BatchPlan]:
    oracle = poise.Task(module=dense(), transform="flip+crop").bind(federation())
    numbers = np.array(clients)
    streams = keys(0, "work", 3, numbers, 0)
    data = oracle.open(numbers, streams)
    steps = SOLVER.steps_for(data.sizes)
    return (
        oracle,
        data,
        BatchPlan.draw(streams, data.sizes, data.offsets[:-1], steps, 4),
    )


def test_batched_and_row_path_see_the_same_samples_alone_or_in_a_group() -> None:
    order = [3, 1, 4, 2, 0]  # most steps first
    _, data, plan = opened(order)
    stacked: dict[int, list[torch.Tensor]] = {client: [] for client in order}
    for x, _, batch in data.follow(plan):
        for k, count in enumerate(batch.counts.tolist()):
            stacked[order[k]].append(x[k, :count].clone())
    _, data, plan = opened(order)
    for client, steps in zip(order, data.apart(plan), strict=True):
        rows = [x.clone() for x, _ in steps]
        assert len(rows) == len(stacked[client]) >= 2
        assert all(map(torch.equal, rows, stacked[client]))
    for client in order:
        _, data, plan = opened([client])
        alone = [x[0].clone() for x, _, _ in data.follow(plan)]
        for own, together, batch in zip(alone, stacked[client], plan, strict=True):
            assert torch.equal(own[: int(batch.counts[0])], together)
        _, data, plan = opened([client])
        for step, batch in enumerate(plan):
            x = data.take_batch(batch)[0][0, : int(batch.counts[0])]
            assert torch.equal(x, stacked[client][step])


@pytest.mark.parametrize("solver", [SOLVER, poise.solvers.Prox(0.1, lr=0.1, epochs=2)])
def test_a_resumed_run_has_the_same_bits(solver: Any, tmp_path: Path) -> None:
    task = poise.Task(module=dense(), transform="flip+noise")
    whole = poise.train(federation(), task, solver, rounds=4)
    part = tmp_path / "run"
    poise.train(federation(), task, solver, rounds=2, out=part)
    resumed = poise.resume(part, federation=federation(), task=task, rounds=4)
    assert np.array_equal(whole.model, resumed.model)


def test_measurements_see_the_samples_as_they_are() -> None:
    calls: list[int] = []

    def count(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        calls.append(len(x))
        return x + 100.0

    task = poise.Task(module=dense(), transform=count)
    oracle = task.bind(federation())
    calls.clear()
    theta = oracle.initial(0)
    plain = poise.Task(module=dense()).bind(federation())
    names = frozenset({"loss", "accuracy", "client_loss"})
    here = lambda f, items: [f(item) for item in items]
    measured = oracle.measure(theta, names, here)
    for name, value in plain.measure(theta, names, here).items():
        assert np.array_equal(measured[name], value)
    assert calls == []


def test_transforms_have_names_in_files() -> None:
    task = poise.task("logistic", transform="flip+crop")
    assert task.spec == {"model": "logistic", "transform": "flip+crop"}
    assert task.traits.convex is None
    assert poise.Task("logistic", transform=lambda x, g: x).spec is None


def test_a_transform_with_one_argument_is_told_what_to_write() -> None:
    fed = poise.federation("digits", clients=2, samples=40, seed=0)
    for wrong in (lambda x: x, lambda x, generator, more: x):
        task = poise.task("logistic", transform=wrong)
        with pytest.raises(IncompatibleParts, match="the transform fails") as no:
            poise.train(fed, task, poise.solvers.SGD(lr=0.1, steps=1), rounds=1)
        assert no.value.hint.startswith("write f(x, generator)")
    broken = poise.task("logistic", transform=lambda x, generator: x + "no")
    with pytest.raises(IncompatibleParts, match="the transform fails") as no:
        poise.train(fed, broken, poise.solvers.SGD(lr=0.1, steps=1), rounds=1)
    assert no.value.hint == ""


def test_a_file_names_a_transform() -> None:
    text = """
    [data]
    source = "digits"
    clients = 4
    [task]
    model = "logistic"
    transform = "{}"
    [solver]
    name = "sgd"
    lr = 0.1
    epochs = 1
    batch_size = 32
    [run]
    rounds = 1
    """
    run = run_experiment(parse(text.format("flip+crop")), None)[0]
    fed = poise.federation("digits", clients=4)
    solver = poise.solvers.SGD(lr=0.1, epochs=1, batch_size=32)
    task = poise.task("logistic", transform="flip+crop")
    assert np.array_equal(run.model, poise.train(fed, task, solver, rounds=1).model)
    with pytest.raises(PoiseError, match="unknown transform 'flop'"):
        run_experiment(parse(text.format("flop")), None)
