"""Every path gives the gradients of a plain PyTorch loop, for modules as users write them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import poise
from parameters import thorough_except
from poise.backends import Local
from poise.core.rng import keys
from poise.core.threads import one_thread
from poise.core.trees import mapped
from poise.engine.client_batches import cut_rows
from poise.engine.local_work import LocalWork, WorkGroup
from poise.solvers import SGD
from poise.tasks import Task
from poise.tasks.calls import called
from poise.tasks.oracle import SampleOracle
from zoo import ZOO, Animal, Chain, LeNet

SIZES = [4, 7, 4]
STACKED = [name for name, animal in ZOO.items() if animal.path == "functional"]
DTYPE = {"float32": 1e-5, "float64": 1e-11}


def bound(
    animal: Animal, path: str | None = None, dtype: str = "float32"
) -> SampleOracle:
    task = Task(module=animal.make, loss=animal.loss, dtype=dtype, path=path)  # type: ignore[arg-type]
    return task.bind(animal.federation(SIZES))


def plain_gradient(
    oracle: SampleOracle, animal: Animal, row: torch.Tensor, data: tuple, seed: int
) -> torch.Tensor:
    """One client of the loop that a PyTorch user writes."""
    assert oracle.module is not None
    module = copy.deepcopy(oracle.module).to(row.dtype).train()
    module.load_state_dict(oracle.layout.views(row.clone()), strict=False)
    torch.manual_seed(seed)
    x, y = data
    loss = animal.mean_loss(called(module, x), y)
    loss.backward()
    moving = [p for p in module.parameters() if p.requires_grad]
    return torch.cat([p.grad.reshape(-1) for p in moving if p.grad is not None])


@pytest.mark.parametrize("dtype", thorough_except(["float32"], DTYPE))
@pytest.mark.parametrize("name", ZOO)
def test_gradients_equal_those_of_a_plain_loop(name: str, dtype: str) -> None:
    animal = ZOO[name]
    oracle = bound(animal, dtype=dtype)
    kind = getattr(torch, dtype)
    assert oracle.computation.startswith(f"kernel: {animal.path}")
    theta = oracle.initial(3)
    noise = torch.randn(3, len(theta), generator=torch.Generator().manual_seed(1))
    rows = (theta + 0.01 * noise).to(kind)
    samples = animal.federation(SIZES).samples
    places = torch.arange(12).view(3, 4)
    x = samples.features(places)
    x = mapped(lambda v: v.to(kind) if v.is_floating_point() else v, x)
    y = samples.labels[places]
    counts = torch.tensor([4, 3, 4])
    streams = [torch.Generator().manual_seed(k) for k in range(3)]
    seeds = [int(torch.randint(2**62, (), generator=g)) for g in streams]
    streams = [torch.Generator().manual_seed(k) for k in range(3)]
    out = torch.zeros(3, oracle.layout.trainable, dtype=kind)
    wanted = []
    for k, count in enumerate(counts.tolist()):
        own = mapped(lambda v, k=k, count=count: v[k, :count], x)
        data = (own, y[k, :count])
        wanted.append(plain_gradient(oracle, animal, rows[k], data, seeds[k]))
    alone = oracle.kernel.rows(4) == 1  # then each client gets a module of its own
    with one_thread():
        for part in [slice(k, k + 1) for k in range(3)] if alone else [slice(3)]:
            oracle.kernel.begin()
            oracle.kernel.gradients(
                rows[part].clone(),
                mapped(lambda v, part=part: v[part], x),
                y[part],
                counts[part],
                full=False,
                generators=streams[part],
                out=out[part],
            )
    for mine, theirs in zip(out, wanted, strict=True):
        scale = float(theirs.abs().max())
        assert scale > 0
        assert float((mine - theirs).abs().max()) <= DTYPE[dtype] * scale


@pytest.mark.parametrize(
    "name", thorough_except(["lenet", "two inputs", "dict output", "tied weights"], ZOO)
)
def test_training_runs_from_end_to_end(name: str) -> None:
    animal = ZOO[name]
    task = Task(module=animal.make, loss=animal.loss)
    fed = animal.federation([8] * 40)
    solver = SGD(lr=0.05, epochs=1, batch_size=4)
    runs = [
        poise.train(fed, task, solver, rounds=2, backend=Local(workers=w))
        for w in (1, 2)
    ]
    assert runs[0].digest == runs[1].digest
    assert np.isfinite(runs[0].metric("loss")).all()
    assert len(runs[0].model) == task.bind(fed).layout.size


def updates(oracle: SampleOracle, solver: SGD, clients: list[int]) -> torch.Tensor:
    numbers = np.array(clients)
    streams = keys(0, "work", np.zeros_like(numbers), numbers, np.zeros_like(numbers))
    local = LocalWork.plain(oracle, solver)
    start = oracle.initial(0).expand(len(clients), -1)
    with one_thread():
        done = local.run(start, WorkGroup(numbers, 0, streams=streams))
    return done.payload["update"]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize(
    "name", thorough_except(["transformer", "layer norm"], STACKED)
)
def test_the_other_clients_of_a_stack_change_no_bit(name: str, momentum: float) -> None:
    """A node is a stack of one row; a simulation puts 32 or more together."""
    animal = ZOO[name]
    fed = animal.federation([9] * 41)
    oracle = Task(module=animal.make, loss=animal.loss).bind(fed)
    solver = SGD(lr=0.1, epochs=1, batch_size=3, momentum=momentum)
    together = updates(oracle, solver, list(range(41)))
    assert together.any(dim=1).all()
    for clients in ([0], [5, 3], [40, 1, 17], list(range(7, 24))):
        assert torch.equal(updates(oracle, solver, clients), together[clients])


def test_clients_with_fewer_samples_and_steps_are_stacked_correctly() -> None:
    animal = ZOO["transformer"]
    solver = SGD(lr=0.1, epochs=2, batch_size=4)
    fed = animal.federation([12, 11, 8, 8, 6, 5])
    stacked, alone = (
        updates(
            Task(module=animal.make, path=path, dtype="float64").bind(fed),  # type: ignore[arg-type]
            solver,
            list(range(6)),
        )
        for path in ("functional", "rows")
    )
    assert torch.allclose(stacked, alone, rtol=0, atol=1e-12)


def test_a_run_that_stops_and_goes_on_has_the_same_bits(tmp_path) -> None:  # type: ignore[no-untyped-def]
    animal = ZOO["layer norm"]
    fed = animal.federation([6] * 20)
    solver = SGD(lr=0.1, epochs=1, batch_size=3)
    task = Task(module=animal.make)
    whole = poise.train(fed, task, solver, rounds=4, out=tmp_path / "whole")
    poise.train(fed, task, solver, rounds=2, out=tmp_path / "part").close()
    part = poise.resume(tmp_path / "part", fed, task, rounds=4)
    assert np.array_equal(part.model, whole.model)


def test_large_batches_and_models_run_one_client_at_a_time() -> None:
    animal = ZOO["residual"]
    oracle = bound(animal)
    kernel = oracle.kernel
    widest = kernel.cost.widest  # type: ignore[attr-defined]
    # 2 (6·8 + 8·8 + 8·3) operations per sample, in six calls
    assert kernel.cost.flops == 2 * (6 * 8 + 8 * 8 + 8 * 3)  # type: ignore[attr-defined]
    assert kernel.rows(widest) == 32
    assert kernel.rows(widest + 1) == 1
    wide = nn.Sequential(nn.Linear(6, 15_000), nn.Softmax(1), nn.Linear(15_000, 3))
    line = Task(module=wide).bind(animal.federation(SIZES)).computation
    assert line.startswith("kernel: rows")
    assert "150,003 parameters" in line


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_large_batches_are_cut_for_the_workers_as_on_the_row_path(
    momentum: float,
) -> None:
    x = np.random.default_rng(0).normal(size=(128, 3, 32, 32)).astype(np.float32)
    fed = poise.federation((x, np.arange(128) % 3), "iid", 4)
    solver = SGD(lr=0.1, steps=1, batch_size=32, momentum=momentum)
    oracle = Task(module=LeNet).bind(fed)
    assert oracle.computation.startswith("kernel: functional")
    assert not oracle.stacks(32)
    rows = cut_rows(oracle, solver, fed.sizes, np.zeros(4, dtype=int))
    assert [len(chunk) for chunk in rows] == [1, 1, 1, 1]
    ours, alone = (
        poise.train(fed, Task(module=LeNet, path=path), solver, rounds=2, seed=1)
        for path in (None, "rows")
    )
    np.testing.assert_array_equal(ours.model, alone.model)


def test_a_forward_of_ones_own_reaches_the_dense_kernel_with_equal_results() -> None:
    fed = ZOO["dense chain"].federation([8, 6, 5])
    solver = SGD(lr=0.1, epochs=2, batch_size=3)
    chain, rows = (
        poise.train(fed, Task(module=Chain, dtype="float64", path=p), solver, rounds=2)  # type: ignore[arg-type]
        for p in (None, "rows")
    )
    assert np.allclose(chain.model, rows.model, rtol=0, atol=1e-13)
    assert Task(module=Chain).bind(fed).layout.entries[0].name == "fc2.weight"


def test_explain_names_the_kernel_and_the_reason() -> None:
    fed = ZOO["gru"].federation([6] * 4)
    told = poise.explain(
        fed,
        Task(module=ZOO["gru"].make),
        SGD(lr=0.1, steps=1),
        rounds=1,
        estimate=False,
    )
    assert "kernel: rows (one client at a time), because torch.func cannot" in str(told)


def test_modules_and_tasks_in_each_others_place_are_refused() -> None:
    fed = ZOO["residual"].federation(SIZES)
    with pytest.raises(poise.core.errors.PoiseError, match="already a task"):
        Task(module=poise.task("mlp"))  # type: ignore[arg-type]
    for wrong in (nn.Linear(6, 3), nn.Linear):
        with pytest.raises(
            poise.core.errors.PoiseError, match=r"poise.Task\(module=…\)"
        ):
            poise.train(fed, wrong, SGD(lr=0.1, steps=1), rounds=1)  # type: ignore[arg-type]


def test_outputs_that_a_named_loss_cannot_take_are_refused_with_a_way_out() -> None:
    fed = ZOO["dict output"].federation(SIZES)
    with pytest.raises(poise.core.errors.PoiseError, match="loss=f"):
        Task(module=ZOO["dict output"].make).bind(fed)


@pytest.mark.parametrize("path", ["dense", "functional"])
def test_a_path_that_does_not_fit_is_refused(path: str) -> None:
    animal = ZOO["gru"]
    with pytest.raises(poise.core.errors.PoiseError, match=f"path='{path}'"):
        bound(animal, path=path)


def test_lazy_modules_start_from_the_weights_of_the_seed() -> None:
    fed = ZOO["lazy"].federation(SIZES)
    for module in (ZOO["lazy"].make, ZOO["lazy"].make()):
        oracle = Task(module=module).bind(fed)
        assert torch.equal(oracle.initial(1), oracle.initial(1))
        assert not torch.equal(oracle.initial(1), oracle.initial(2))
