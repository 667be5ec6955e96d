"""Local optimisers, step by step against torch.optim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poise
from poise import solvers
from poise.core.algorithm_state import AlgorithmState
from poise.core.arrivals import UPDATE
from poise.core.capabilities import batches_per_step
from poise.core.errors import IncompatibleParts, InvalidOption
from poise.core.rng import keys
from poise.engine.local_work import LocalWork, WorkGroup
from poise.solvers import optimizers, schedules
from poise.solvers.optimizers.base import fresh_state
from poise.testing.federations import SampleFederation

Make = Callable[[list[torch.Tensor]], torch.optim.Optimizer]

LR = 0.01
CASES: dict[str, tuple[Callable[..., Any], Make]] = {
    "adam": (
        lambda **work: solvers.Adam(LR, beta1=0.8, beta2=0.95, eps=1e-6, **work),
        lambda w: torch.optim.Adam(w, LR, betas=(0.8, 0.95), eps=1e-6),
    ),
    "adam-coupled": (
        lambda **work: solvers.Adam(LR, weight_decay=0.1, **work),
        lambda w: torch.optim.Adam(w, LR, weight_decay=0.1),
    ),
    "adam-decoupled": (
        lambda **work: solvers.Adam(LR, weight_decay=0.1, decoupled=True, **work),
        lambda w: torch.optim.AdamW(w, LR, weight_decay=0.1),
    ),
    "adamw": (
        lambda **work: solvers.AdamW(LR, **work),
        lambda w: torch.optim.AdamW(w, LR),
    ),
    "rmsprop": (
        lambda **work: solvers.RMSprop(LR, alpha=0.9, **work),
        lambda w: torch.optim.RMSprop(w, LR, alpha=0.9),
    ),
    "rmsprop-all": (
        lambda **work: solvers.RMSprop(
            LR, momentum=0.9, centered=True, weight_decay=0.1, **work
        ),
        lambda w: torch.optim.RMSprop(
            w, LR, momentum=0.9, centered=True, weight_decay=0.1
        ),
    ),
    "adagrad": (
        lambda **work: solvers.Adagrad(LR, weight_decay=0.1, **work),
        lambda w: torch.optim.Adagrad(w, LR, weight_decay=0.1),
    ),
    "momentum": (
        lambda **work: solvers.SGD(LR, momentum=0.9, weight_decay=0.1, **work),
        lambda w: torch.optim.SGD(w, LR, momentum=0.9, weight_decay=0.1),
    ),
    "nesterov": (
        lambda **work: solvers.SGD(
            LR, momentum=0.9, nesterov=True, weight_decay=0.1, **work
        ),
        lambda w: torch.optim.SGD(w, LR, momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    "option": (
        lambda **work: solvers.SGD(
            LR, optimizer={"name": "adam", "beta1": 0.8}, **work
        ),
        lambda w: torch.optim.Adam(w, LR, betas=(0.8, 0.999)),
    ),
    "fedfor": (
        lambda **work: solvers.FedFor(0.0, lr=LR, optimizer="rmsprop", **work),
        lambda w: torch.optim.RMSprop(w, LR),
    ),
    "perturbed": (
        lambda **work: solvers.Perturbed(1.0, lr=LR, optimizer="adagrad", **work),
        lambda w: torch.optim.Adagrad(w, LR),
    ),
}
cases = pytest.mark.parametrize("case", CASES)
STEPS = 50


def worked(
    oracle: Any, solver: Any, sizes: np.ndarray, state: AlgorithmState | None = None
) -> tuple[torch.Tensor, Any]:
    """The models of all clients after one piece of work, most steps first."""
    clients = np.argsort(-solver.steps_for(sizes), kind="stable")
    start = oracle.initial(0).expand(len(sizes), -1)
    group = WorkGroup(clients, 0, keys(0, "work", 0, clients, 0))
    done = LocalWork.plain(oracle, solver).run(start, group, state or AlgorithmState())
    rows = np.argsort(clients)
    return start + done.payload[UPDATE][torch.from_numpy(rows)], done


def federation(sizes: list[int]) -> SampleFederation:
    return SampleFederation.random(tuple(sizes), shape=(3,), classes=2, seed=1)


def samples_of(fed: SampleFederation, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    shards = fed.shards(np.array([client]))
    return shards.take(torch.arange(int(shards.sizes[0])))


def descended(
    module: nn.Module, make: Make, data: tuple[torch.Tensor, torch.Tensor], steps: int
) -> torch.Tensor:
    """The weights after steps of torch.optim on all samples of a client."""
    optimizer = make(list(module.parameters()))
    x, y = data
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x.to(torch.float64)), y).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        made = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    return made.to(torch.float64)


@cases
@pytest.mark.parametrize("path", [None, "rows"])
def test_steps_are_those_of_torch(case: str, path: Any) -> None:
    make, theirs = CASES[case]
    fed = federation([9, 4, 6])
    task = poise.Task(module=module(), loss="cross-entropy", dtype="float64", path=path)
    ours, _ = worked(task.bind(fed), make(steps=STEPS), fed.sizes)
    for client in range(3):
        wanted = descended(module(), theirs, samples_of(fed, client), STEPS)
        assert float((ours[client] - wanted).abs().max()) < 1e-6
        assert float((ours[client] - ours[client - 1]).abs().max()) > 1e-3


@cases
def test_steps_on_quadratics_are_those_of_torch(case: str) -> None:
    make, theirs = CASES[case]
    quad = poise.quadratics([[1.0, -2.0], [0.3, 4.0]], curvature=[0.8, 3.0])
    ours, _ = worked(quad.task.bind(quad), make(steps=STEPS), quad.sizes)
    for client, curvature in enumerate([0.8, 3.0]):
        w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimizer = theirs([w])
        for _ in range(STEPS):
            optimizer.zero_grad()
            gap = w - torch.from_numpy(quad.optima[client])
            (curvature / 2 * gap.square().sum()).backward()
            optimizer.step()
        assert float((ours[client] - w.detach()).abs().max()) < 1e-6


@cases
def test_clients_stop_after_their_own_number_of_steps(case: str) -> None:
    make, theirs = CASES[case]
    fed = federation([8, 40, 24])
    task = poise.Task(module=module(), loss="cross-entropy", dtype="float64")
    solver = make(epochs=1, batch_size=8)
    assert solver.steps_for(fed.sizes).tolist() == [1, 5, 3]
    together, _ = worked(task.bind(fed), solver, fed.sizes)
    one_step = descended(module(), theirs, samples_of(fed, 0), 1)
    assert float((together[0] - one_step).abs().max()) < 1e-9
    oracle = task.bind(fed)
    for client in range(3):
        group = np.array([client])
        alone = LocalWork.plain(oracle, solver).run(
            oracle.initial(0)[None], WorkGroup(group, 0, keys(0, "work", 0, group, 0))
        )
        reached = oracle.initial(0) + alone.payload[UPDATE][0]
        assert torch.equal(reached, together[client])  # to the bit


@pytest.mark.parametrize(
    "optimizer",
    [
        optimizers.Adam(),
        optimizers.RMSprop(momentum=0.9, centered=True),
        optimizers.Adagrad(),
        optimizers.Momentum(0.9, nesterov=True),
    ],
)
@pytest.mark.parametrize("width", [7, 33, 1001])
def test_a_row_has_the_same_bits_in_every_stack(optimizer: Any, width: int) -> None:
    source = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 5, width, generator=source)
    start = torch.zeros(5, width)
    whole = optimizer.direction(fresh_state(optimizer, start))
    single = [optimizer.direction(fresh_state(optimizer, start[:1])) for _ in range(5)]
    for gradient in gradients:
        together = whole(gradient.clone(), start)
        for row, alone in enumerate(single):
            one = alone(gradient[row : row + 1].clone(), start[:1])
            assert torch.equal(together[row], one[0])


def test_the_two_ways_to_compute_adam_agree() -> None:
    adam = optimizers.Adam(beta1=0.8, beta2=0.9)
    start = torch.zeros(3, 11, dtype=torch.float64)
    states = [fresh_state(adam, start) for _ in range(2)]
    for state in states:  # clients that have made different numbers of steps
        state["steps"].copy_(torch.tensor([[0.0], [2.0], [7.0]]))
    fused = adam.fused(states[0])
    composed = adam.composed(states[1])
    source = torch.Generator().manual_seed(0)
    for active in (3, 3, 2, 1):
        gradient = torch.randn(active, 11, generator=source, dtype=torch.float64)
        ours = fused(gradient.clone(), start[:active])
        wanted = composed(gradient.clone(), start[:active])
        assert float((ours - wanted).abs().max()) < 1e-12
    assert states[0]["steps"].flatten().tolist() == [4.0, 5.0, 9.0]


@pytest.mark.parametrize(
    ("solver", "optimizer"),
    [
        (lambda **w: solvers.Adam(0.05, **w), lambda p: torch.optim.Adam(p, 0.05)),
        (
            lambda **w: solvers.RMSprop(0.05, momentum=0.5, **w),
            lambda p: torch.optim.RMSprop(p, 0.05, momentum=0.5),
        ),
        (
            lambda **w: solvers.SGD(0.05, momentum=0.9, nesterov=True, **w),
            lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
        ),
        (
            lambda **w: solvers.FedFor(0.0, lr=0.05, optimizer="adagrad", **w),
            lambda p: torch.optim.Adagrad(p, 0.05),
        ),
    ],
)
def test_kept_state_makes_one_long_run(
    solver: Any, optimizer: Make, tmp_path: Any
) -> None:
    quad = poise.quadratics([[1.0, -2.0]], curvature=0.8)
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    theirs = optimizer([w])
    for _ in range(21):
        theirs.zero_grad()
        (0.4 * (w - torch.tensor([1.0, -2.0])).square().sum()).backward()
        theirs.step()
    run = poise.train(quad, quad.task, solver(steps=7, keep_state=True), rounds=3)
    assert np.allclose(run.model, w.detach().numpy(), atol=1e-9)
    reset = poise.train(quad, quad.task, solver(steps=7), rounds=3)
    assert not np.allclose(reset.model, run.model, atol=1e-4)
    folder = tmp_path / "run"
    kept = solver(steps=7, keep_state=True)
    poise.train(quad, quad.task, kept, rounds=2, out=folder).close()
    resumed = poise.resume(folder, federation=quad, task=quad.task, rounds=3)
    assert np.array_equal(resumed.model, run.model)


def test_clients_with_different_counts_keep_their_own() -> None:
    """A client that joins later begins its own moments, beside one that goes on."""
    quad = poise.quadratics([[1.0], [1.0]])
    oracle = quad.task.bind(quad)
    solver = solvers.Adam(0.1, steps=3, keep_state=True)
    _, done = worked(oracle, solver, quad.sizes)
    kept = {name: rows[0] for name, rows in done.client_state.items()}
    assert kept["optimizer_steps"].tolist() == [3.0]
    state = AlgorithmState(client_state={0: kept})
    models, done = worked(oracle, solver, quad.sizes, state)
    assert done.client_state["optimizer_steps"].flatten().tolist() == [6.0, 3.0]
    fresh, _ = worked(oracle, solver, quad.sizes)
    assert torch.equal(models[1], fresh[1])
    assert not torch.equal(models[0], fresh[0])


def test_clients_made_on_demand_cannot_keep_state() -> None:
    x = np.zeros((40, 3), dtype=np.float32)
    y = np.arange(40) % 2
    fed = poise.federation(
        (x, y), partition="iid", clients=8, on_demand=True, samples_per_client=4
    )
    solver = solvers.Adam(0.1, steps=1, batch_size=2, keep_state=True)
    with pytest.raises(IncompatibleParts, match="keep state between rounds"):
        poise.train(fed, poise.task("logistic"), solver, rounds=1)


def test_a_larger_batch_and_accumulated_batches_are_equal() -> None:
    fed = federation([13, 48, 5, 30])
    for path in (None, "rows"):
        task = poise.Task(
            module=module(), loss="cross-entropy", dtype="float64", path=path
        )
        oracle = task.bind(fed)
        for work in ({"steps": 7}, {"epochs": 2}):
            small = solvers.SGD(0.1, batch_size=4, accumulate=3, **work)
            large = solvers.SGD(0.1, batch_size=12, **work)
            assert (small.steps_for(fed.sizes) == large.steps_for(fed.sizes)).all()
            ours, _ = worked(oracle, small, fed.sizes)
            wanted, _ = worked(oracle, large, fed.sizes)
            assert float((ours - wanted).abs().max()) < 1e-12
            other, _ = worked(oracle, solvers.SGD(0.1, batch_size=4, **work), fed.sizes)
            assert float((other - wanted).abs().max()) > 1e-3


def test_accumulated_batches_are_no_larger_than_the_batch_size() -> None:
    fed = federation([13, 48, 5, 30])
    oracle = poise.Task(module=module(), loss="cross-entropy", dtype="float64").bind(
        fed
    )
    seen = []
    original = type(oracle).gradients

    class Watched(type(oracle)):  # type: ignore[misc]
        def gradients(self, rows: Any, data: Any, batch: Any, out: Any) -> None:
            seen.append(batch.positions.shape[1])
            original(self, rows, data, batch, out)

    watched = Watched(**vars(oracle))
    worked(watched, solvers.SGD(0.1, steps=2, batch_size=4, accumulate=3), fed.sizes)
    assert len(seen) == 6
    assert max(seen) <= 4


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (
            schedules.Step(3, gamma=0.5),
            lambda o: torch.optim.lr_scheduler.StepLR(o, 3, gamma=0.5),
        ),
        (
            schedules.Cosine(12, end=0.1),
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 12, eta_min=0.01),
        ),
        (
            schedules.Linear(12, start=0.2, end=0.9),
            lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.2, 0.9, 12),
        ),
        (
            lambda n: 1 / (1 + n),
            lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)),
        ),
    ],
)
def test_schedules_are_those_of_torch(schedule: Any, theirs: Any) -> None:
    quad = poise.quadratics([[1.0, -2.0]], curvature=0.8)
    steps = 12
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([w], 0.1, weight_decay=0.2)
    scheduler = theirs(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        (0.4 * (w - torch.tensor([1.0, -2.0])).square().sum()).backward()
        optimizer.step()
        scheduler.step()
    solver = solvers.AdamW(0.1, steps=steps, weight_decay=0.2, local_schedule=schedule)
    run = poise.train(quad, quad.task, solver, rounds=1)
    assert np.allclose(run.model, w.detach().numpy(), atol=1e-9)
    by_round = solvers.SGD(0.1, steps=1, schedule=schedule)
    assert np.allclose([by_round.rate(n) for n in range(steps)], rates, atol=1e-12)
    kept = solvers.AdamW(
        0.1, steps=1, weight_decay=0.2, schedule=schedule, keep_state=True
    )
    over_rounds = poise.train(quad, quad.task, kept, rounds=steps)
    assert np.allclose(over_rounds.model, w.detach().numpy(), atol=1e-9)


def test_a_warm_up_then_another_schedule() -> None:
    table = {"name": "warm-up", "length": 4, "then": {"name": "cosine", "length": 2}}
    solver = solvers.SGD(0.1, steps=1, decay=0.5, schedule=table)
    factors = [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.0, 0.0]
    wanted = [0.1 * 0.5**n * factor for n, factor in enumerate(factors)]
    assert np.allclose([solver.rate(n) for n in range(8)], wanted, atol=1e-15)


def test_mixed_precision_is_near_and_not_equal() -> None:
    fed = federation([16, 16])
    common = {"loss": "cross-entropy", "path": "rows"}
    exact = poise.Task(module=module().float(), **common)
    mixed = poise.Task(module=module().float(), autocast="bfloat16", **common)
    solver = solvers.Adam(0.01, steps=5)
    ours, _ = worked(mixed.bind(fed), solver, fed.sizes)
    wanted, _ = worked(exact.bind(fed), solver, fed.sizes)
    assert ours.dtype == torch.float32
    assert not torch.equal(ours, wanted)
    assert float((ours - wanted).abs().max()) < 5 * 0.01
    made = module().float()
    optimizer = torch.optim.Adam(made.parameters(), 0.01)
    x, y = samples_of(fed, 0)
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(made(x.float()), y)
        loss.backward()
        optimizer.step()
    theirs = torch.cat([p.detach().reshape(-1) for p in made.parameters()])
    assert float((ours[0] - theirs).abs().max()) < 1e-5


def test_a_device_without_mixed_precision_is_refused() -> None:
    with pytest.raises(InvalidOption, match="mixed precision"):
        poise.Task("logistic", autocast="bfloat16").bind(federation([4]), "meta")
    with pytest.raises(InvalidOption, match="float32"):
        poise.Task("logistic", autocast="bfloat16", dtype="float64")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: solvers.SGD(0.1, steps=1, nesterov=True), "nesterov needs momentum"),
        (
            lambda: solvers.SGD(0.1, steps=1, momentum=0.9, optimizer="adam"),
            "exclude each other",
        ),
        (lambda: solvers.SGD(0.1, steps=1, keep_state=True), "there is none"),
        (lambda: solvers.SGD(0.1, steps=1, accumulate=2), "batch_size is missing"),
        (lambda: solvers.SGD(0.1, steps=1, optimizer="adma"), "did you mean 'adam'"),
        (lambda: solvers.SGD(0.1, steps=1, schedule="a.b:c"), "no module 'a.b'"),
        (
            lambda: solvers.SGD(0.1, steps=1, schedule=lambda n: -1.0),
            "number of 0 or more",
        ),
        (lambda: solvers.Adam(0.1, steps=1, beta2=1.0), "beta2 must be in"),
        (lambda: solvers.AdamW(0.1, steps=1, decoupled=False), "decoupled"),
        (lambda: solvers.Adagrad(0.1, steps=1, eps=0.0), "eps must be above 0"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        make()


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"local_schedule": schedules.Cosine(5)},
        {"schedule": schedules.Cosine(5)},
    ],
)
def test_scaffold_refuses_steps_that_are_no_mean_gradients(options: Any) -> None:
    quad = poise.quadratics([[1.0]])
    solver = solvers.Scaffold(lr=0.1, steps=2, **options)
    with pytest.raises(IncompatibleParts, match="Scaffold"):
        poise.train(quad, quad.task, solver, rounds=1)


def test_a_solver_of_ones_own_may_set_its_batches_per_step_when_it_is_made() -> None:
    class Own:
        def __init__(self, accumulate: int) -> None:
            self.accumulate = accumulate

    plain = solvers.SGD(0.1, steps=1, batch_size=4, accumulate=2)
    assert batches_per_step(Own(3)) == 3  # type: ignore[arg-type]
    assert batches_per_step(plain) == 2
    assert batches_per_step(object()) == 1  # type: ignore[arg-type]
