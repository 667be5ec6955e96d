"""The gradient oracle against a second implementation: a deep copy per client and a plain PyTorch
optimiser.

The naive loop shares nothing with the library but the numbers of the samples in each batch
(`BatchPlan`) and the initial vector.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poise
from parameters import thorough_except
from poise.backends import Local
from poise.core.algorithm_state import AlgorithmState
from poise.core.arrivals import UPDATE, Arrivals
from poise.core.batches import BatchPlan
from poise.core.protocols import WorkOrder
from poise.core.rng import keys
from poise.core.threads import one_thread
from poise.core.types import Assignment
from poise.core.vectors import Layout
from poise.engine.client_batches import ClientBatch, client_batches, cut_rows
from poise.engine.local_work import LocalWork, WorkGroup
from poise.solvers import SGD
from poise.tasks import Task
from poise.tasks import dense as dense_module
from poise.tasks.layers import use_generator
from poise.testing import SampleFederation

SIZES = [7, 4, 10, 5, 1]
REPORTS = frozenset({"loss_before", "loss_after"})
SOLVERS = {
    "plain": SGD(lr=0.1, steps=4, batch_size=3),
    "epochs": SGD(lr=0.1, epochs=2, batch_size=4),
    "all": SGD(
        lr=0.05,
        epochs=2,
        batch_size=4,
        momentum=0.9,
        weight_decay=0.01,
        clip=0.5,
        decay=0.8,
    ),
    "full-batch": SGD(lr=0.1, steps=2, momentum=0.5),
}


def tanh_and_gelu() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3)
    )


class Norms(nn.Module):
    """Batch norm in one dimension, a frozen layer, and a parameter that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5).requires_grad_(False)
        self.norm = nn.BatchNorm1d(5, momentum=None)
        self.last = nn.Linear(5, 3)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.norm(self.first(x)))
        return scores


class TiedText(nn.Module):
    """Embedding and output layer share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.embedding(x).mean(dim=1))
        return scores


def images(side: int, channels: int = 1, sizes: list[int] = SIZES) -> SampleFederation:
    return SampleFederation.random(sizes, shape=(channels, side, side), classes=3)


def vectors(classes: int = 3, sizes: list[int] = SIZES) -> SampleFederation:
    return SampleFederation.random(sizes, shape=(6,), classes=classes)


def text(classes: int = 3) -> SampleFederation:
    return SampleFederation.random(SIZES, shape=(9,), classes=classes, vocabulary=7)


PROBLEMS: dict[str, tuple[Callable[[], SampleFederation], Task]] = {
    "logistic": (vectors, Task("logistic", dtype="float64")),
    "logistic-rows": (vectors, Task("logistic", dtype="float64", path="rows")),
    "mlp": (vectors, Task("mlp", {"hidden": [5, 4]}, dtype="float64")),
    "mlp-images": (lambda: images(4), Task("mlp", {"hidden": 5}, dtype="float64")),
    "tanh-gelu": (vectors, Task(module=tanh_and_gelu, dtype="float64")),
    "cnn": (lambda: images(10), Task("cnn", dtype="float64")),
    "lstm": (text, Task("lstm", {"hidden": 5, "embedding": 3}, dtype="float64")),
    "tied": (lambda: text(7), Task(module=TiedText, dtype="float64")),
    "resnet20": (lambda: images(8, 3), Task("resnet20", {"width": 2}, dtype="float64")),
    "norms": (
        lambda: vectors(sizes=[7, 4, 10, 6, 2]),
        Task(module=Norms, dtype="float64"),
    ),
    "regression": (lambda: vectors(0), Task("mlp", {"hidden": 4}, dtype="float64")),
    "regression-rows": (
        lambda: vectors(0),
        Task("mlp", {"hidden": 4}, dtype="float64", path="rows"),
    ),
}


def naive(
    module: nn.Module,
    theta: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    batches: list[list[int]],
    solver: SGD,
    version: int,
) -> tuple[dict[str, torch.Tensor], float, float]:
    """One client's work in plain PyTorch: the state after it, and the loss over all its data before
    and after."""
    mine = copy.deepcopy(module).double()
    names = Layout.of_module(mine)
    with torch.no_grad():
        for entry in names.entries:
            value = theta[entry.start : entry.stop].reshape(entry.shape)
            mine.state_dict(keep_vars=True)[entry.name].copy_(value)
    x = x.double() if x.is_floating_point() else x

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if labels.is_floating_point():
            return F.mse_loss(outputs, labels.double().reshape(outputs.shape))
        return F.cross_entropy(outputs, labels)

    def over_everything() -> float:
        mine.eval()
        with torch.no_grad():
            return float(loss(mine(x), y))

    before = over_everything()
    mine.train()
    moving = [p for p in mine.parameters() if p.requires_grad]
    rate = solver.lr * solver.decay**version
    optimiser = torch.optim.SGD(
        moving, rate, momentum=solver.momentum, weight_decay=solver.weight_decay
    )
    for batch in batches:
        optimiser.zero_grad()
        loss(mine(x[batch]), y[batch]).backward()
        for p in moving:
            p.grad = (
                torch.zeros_like(p) if p.grad is None else p.grad
            )  # a zero gradient still decays
        if solver.clip is not None:
            length = torch.nn.utils.get_total_norm(
                [p.grad for p in moving if p.grad is not None]
            )
            for p in moving:
                if p.grad is not None:
                    p.grad.mul_(min(1.0, solver.clip / float(length)))
        optimiser.step()
    return (
        {k: v.detach() for k, v in mine.state_dict(keep_vars=True).items()},
        before,
        over_everything(),
    )


def batches_of(
    fed: SampleFederation, solver: SGD, client: int, version: int, seed: int
) -> list[list[int]]:
    """The batches that a client takes, as positions among its own samples."""
    size = fed.sizes[[client]]
    stream = keys(seed, "work", version, client, 0)
    plan = BatchPlan.draw(
        stream, size, np.zeros(1, dtype=int), solver.steps_for(size), solver.batch_size
    )
    return [
        plan.positions[k, 0, : int(plan.counts[k, 0])].tolist()
        for k in range(len(plan))
    ]


def work(
    fed: Any,
    task: Task,
    solver: SGD,
    clients: list[int],
    version: int = 2,
    seed: int = 5,
    workers: int = 1,
) -> Arrivals:
    """The library's answer through its local backend."""
    oracle = task.bind(fed)
    with one_thread():
        backend = Local(workers=workers).open(
            LocalWork.plain(oracle, solver), fed, seed
        )
        try:
            assignments = [Assignment(1.0, c, version) for c in clients]
            return backend.work(
                WorkOrder(
                    assignments,
                    {version: oracle.initial(seed)},
                    REPORTS,
                    AlgorithmState(),
                )
            )
        finally:
            backend.close()


def cut(fed: SampleFederation, task: Task, solver: SGD) -> list[ClientBatch]:
    """How the work of all clients is divided."""
    assignments = [Assignment(1.0, c, 0) for c in range(fed.clients)]
    return client_batches(
        LocalWork.plain(task.bind(fed), solver), fed.sizes, 0, assignments
    )


HEAVY = {"cnn", "lstm", "resnet20"}  # three of the solvers are enough for these


@pytest.mark.parametrize(
    ("problem", "rule"),
    [(p, r) for p in PROBLEMS for r in SOLVERS if p not in HEAVY or r != "epochs"],
)
def test_local_work_is_that_of_plain_pytorch(problem: str, rule: str) -> None:
    (make, task), solver = PROBLEMS[problem], SOLVERS[rule]
    fed, version, seed = make(), 2, 5
    if problem == "norms":
        solver = SGD(
            **{**vars(solver), "batch_size": solver.batch_size and 4}
        )  # no batch of one sample
        fed = vectors(sizes=[8, 4, 12, 6, 2])
    clients = list(range(fed.clients))
    done = work(fed, task, solver, clients, version, seed)
    theta = task.bind(fed).initial(seed)
    module = task._module(fed.samples, seed)
    for mine, first in zip(
        module.parameters(), task._module(fed.samples, 0).parameters(), strict=True
    ):
        if not mine.requires_grad:
            mine.data.copy_(
                first
            )  # frozen parameters are part of the task, the same for every seed
    layout = Layout.of_module(module)
    assert done.loss_before is not None
    assert done.loss_after is not None
    for c in clients:
        x, y = fed.shards(np.array([c])).take(torch.arange(fed.sizes[c]))
        batches = batches_of(fed, solver, c, version, seed)
        state, before, after = naive(module, theta, x, y, batches, solver, version)
        found = theta + done.payload[UPDATE][c]
        for entry in layout.entries:
            ours, theirs = (
                found[entry.start : entry.stop],
                state[entry.name].reshape(-1).double(),
            )
            gap = float((ours - theirs).abs().max())
            assert gap < 1e-10, f"client {c}, {entry.name}: {gap}"
        assert done.steps[c] == len(batches)
        assert done.samples[c] == fed.sizes[c]
        assert done.norms[c] == pytest.approx(
            float(torch.linalg.vector_norm(done.payload[UPDATE][c])), rel=1e-12
        )
        assert done.loss_before[c] == pytest.approx(before, rel=1e-10)
        assert done.loss_after[c] == pytest.approx(after, rel=1e-10)


@pytest.mark.parametrize("path", ["dense", "rows", "functional"])
@pytest.mark.parametrize("clients", [[2], [0, 1, 2]])
def test_local_work_leaves_the_received_model_as_it_was(
    path: Any, clients: list[int]
) -> None:
    oracle = Task("mlp", {"hidden": 4}, path=path).bind(vectors())
    theta = oracle.initial(0)
    received = theta.clone()
    start = theta.expand(len(clients), -1)
    group = WorkGroup(np.array(clients), 0, streams=keys(0, "work", 0, clients))
    done = LocalWork.plain(oracle, SOLVERS["plain"]).run(start, group)
    assert torch.equal(theta, received)
    assert bool((done.payload[UPDATE] != 0).any(dim=1).all())


def renormed() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(7, 4, max_norm=0.5), nn.Flatten(), nn.Linear(36, 3)
    )


def test_what_a_forward_pass_does_to_parameters_counts_however_steps_are_made() -> None:
    fed, task = text(), Task(module=renormed, dtype="float64")
    plain, general = (
        work(fed, task, SGD(lr=1e-6, steps=2, batch_size=4, momentum=m), [0, 1, 2])
        for m in (0.0, 1e-30)
    )
    assert torch.allclose(
        plain.payload[UPDATE], general.payload[UPDATE], rtol=0, atol=1e-12
    )
    assert (plain.norms > 1).all(), (
        "steps of 1e-6 are not what moves the model: the embedding is made shorter"
    )


def test_clipping_is_that_of_pytorch_up_to_its_guard() -> None:
    """``clip_grad_norm_`` divides by (norm + 1e-6); poise divides by the norm."""
    from poise.solvers.base import clipped

    gradients = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    ours = clipped(2.0)(gradients.clone(), gradients)
    for row, g in zip(ours, gradients, strict=True):
        p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        p.grad = g.clone()
        torch.nn.utils.clip_grad_norm_([p], 2.0)
        assert torch.allclose(row, p.grad, rtol=1e-6)
    assert torch.linalg.vector_norm(ours[0]) == pytest.approx(2.0)


def test_batch_norm_counts_its_batches() -> None:
    fed, task = images(8, 3), PROBLEMS["resnet20"][1]
    oracle = task.bind(fed)
    counters = [
        e.start for e in oracle.layout.entries if e.name.endswith("num_batches_tracked")
    ]
    done = work(fed, task, SOLVERS["epochs"], [2, 4])
    assert done.payload[UPDATE][:, counters].T.unique(dim=0).tolist() == [[6.0, 2.0]], (
        "10 samples by 4 twice, 1 sample twice"
    )


@pytest.mark.parametrize("problem", ["logistic", "mlp", "tanh-gelu", "regression"])
def test_the_two_paths_agree_after_twenty_rounds(problem: str) -> None:
    make, task = PROBLEMS[problem]
    rows = Task(
        task.model, task.options, module=task.module, dtype="float64", path="rows"
    )
    runs = [
        poise.train(make(), t, SOLVERS["all"], rounds=20, seed=1) for t in (task, rows)
    ]
    assert np.linalg.norm(runs[0].model - runs[1].model) <= 1e-10 * np.linalg.norm(
        runs[1].model
    )
    assert np.allclose(runs[0].metric("loss"), runs[1].metric("loss"), rtol=1e-9)


# ------------------------------------------------------------------------------------------------
# workers and chunks


class Dropped(nn.Module):
    """PyTorch's own dropout, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16),
            nn.Dropout(0.4),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(16, 3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(x)
        return scores


DIGESTED = {
    "logistic": PROBLEMS["logistic"],
    "mlp-float32": (vectors, Task("mlp", {"hidden": 40})),
    "mlp-rows": (vectors, Task("mlp", {"hidden": 8}, path="rows")),
    "cnn": (lambda: images(10), Task("cnn")),
    "cnn-small": (lambda: images(18, sizes=[5, 3, 4]), Task("cnn-small")),
    "dropout": (vectors, Task(module=Dropped)),
    "resnet20": (lambda: images(8, 3, sizes=[5, 3, 4]), Task("resnet20", {"width": 2})),
    "lstm": (text, Task("lstm", {"hidden": 5})),
}


@pytest.mark.parametrize("momentum", thorough_except([0.5], [0.0, 0.5]))
@pytest.mark.parametrize("problem", DIGESTED)
def test_the_number_of_workers_changes_no_bit(problem: str, momentum: float) -> None:
    make, task = DIGESTED[problem]
    solver = SGD(lr=0.1, epochs=1, batch_size=3, momentum=momentum)
    runs = [
        poise.train(make(), task, solver, rounds=3, seed=4, backend=Local(workers=w))
        for w in (1, 2, 3)
    ]
    assert len({r.digest for r in runs}) == 1


def relu_before_pooling() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def test_pooling_before_relu_changes_no_bit() -> None:
    fed, solver = images(10), SGD(lr=0.1, epochs=3, batch_size=4)
    ours, usual = (
        work(fed, task, solver, [0, 1, 2])
        for task in (Task("cnn"), Task(module=relu_before_pooling, path="rows"))
    )
    assert torch.equal(ours.payload[UPDATE], usual.payload[UPDATE])
    assert ours.payload[UPDATE].any()


def test_dropout_draws_from_the_clients_own_stream() -> None:
    fed, task, solver = (
        vectors(),
        Task(module=Dropped),
        SGD(lr=0.1, steps=3, batch_size=3),
    )
    together = work(fed, task, solver, [0, 1, 2, 3], workers=2)
    torch.manual_seed(99)
    torch.rand(7)
    state = torch.get_rng_state()
    alone = work(fed, task, solver, [2])
    assert torch.equal(torch.get_rng_state(), state), (
        "the process's own generator is left as it was"
    )
    assert torch.equal(alone.payload[UPDATE][0], together.payload[UPDATE][2])
    other = work(fed, task, solver, [2], seed=6)
    assert not torch.equal(other.payload[UPDATE][0], alone.payload[UPDATE][0])


@pytest.mark.parametrize("measured_before", [False, True])
def test_dropout_layers_drop_from_the_first_step_on(measured_before: bool) -> None:
    """Whether a worker has measured a model before must not decide whether its module is in
    training mode."""
    fed, solver = images(18, sizes=[5, 3, 4]), SGD(lr=0.1, steps=1)
    changes = []
    for rate in (0.0, 0.5):
        oracle = Task("cnn-small", {"dropout": rate}, dtype="float64").bind(fed)
        backend = Local(workers=1).open(LocalWork.plain(oracle, solver), fed, 0)
        theta = oracle.initial(0)
        if measured_before:
            backend.measure(theta, frozenset({"loss"}), AlgorithmState())
        order = WorkOrder(
            [Assignment(1.0, 0, 0)], {0: theta}, frozenset(), AlgorithmState()
        )
        changes.append(backend.work(order).payload[UPDATE])
        backend.close()
    assert not torch.allclose(changes[0], changes[1], atol=1e-6), (
        "dropout had no effect"
    )


def test_the_workers_use_one_thread_each() -> None:
    threads = torch.get_num_threads()
    fed = vectors()
    torch.set_num_threads(2)
    try:
        backend = Local(workers=2).open(
            LocalWork.plain(Task("logistic").bind(fed), SOLVERS["plain"]), fed, 0
        )
        seen = backend.map_workers(lambda _: torch.__config__.parallel_info(), range(4))
        backend.close()
        assert torch.get_num_threads() == 2, "the caller's setting is left as it was"
    finally:
        torch.set_num_threads(threads)
    assert all("at::get_num_threads() : 1" in text for text in seen)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_first_item_that_fails_is_the_one_that_is_told_of(workers: int) -> None:
    fed, begun = vectors(), []

    def late(item: int) -> int:
        begun.append(item)
        time.sleep(
            0.05 if item == 3 else 0.0
        )  # item 4 fails while item 3 is still at work
        if item >= 3:
            raise ValueError(f"item {item}")
        return 10 * item

    backend = Local(workers=workers).open(
        LocalWork.plain(Task("logistic").bind(fed), SOLVERS["plain"]), fed, 0
    )
    try:
        assert backend.map_workers(late, range(3)) == [0, 10, 20]
        assert backend.map_workers(late, []) == []
        begun.clear()
        with pytest.raises(ValueError, match="item 3"):
            backend.map_workers(late, range(100))
        assert len(begun) <= 3 + workers, "what comes after a failure is let be"
    finally:
        backend.close()


def test_who_is_interrupted_leaves_nobody_at_work() -> None:
    fed, begun = vectors(), []

    def interrupted(item: int) -> None:
        begun.append(item)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.01)

    backend = Local(workers=3).open(
        LocalWork.plain(Task("logistic").bind(fed), SOLVERS["plain"]), fed, 0
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            backend.map_workers(interrupted, range(1000))
        after = len(begun)
        time.sleep(0.1)
        assert len(begun) == after < 1000
    finally:
        backend.close()


def test_modes_of_the_calling_thread_do_not_reach_the_work() -> None:
    """The caller is one of the workers: what it takes must come out as if another had taken it."""
    fed = vectors()
    backend = Local(workers=2).open(
        LocalWork.plain(Task("logistic").bind(fed), SOLVERS["plain"]), fed, 0
    )
    square = torch.eye(3)
    with torch.autocast("cpu"):
        assert (square @ square).dtype == torch.bfloat16
        seen = backend.map_workers(lambda _: (square @ square).dtype, range(6))
    backend.close()
    assert set(seen) == {torch.float32}


def test_workers_may_spread_work_themselves() -> None:
    fed = vectors()
    backend = Local(workers=2).open(
        LocalWork.plain(Task("logistic").bind(fed), SOLVERS["plain"]), fed, 0
    )
    try:
        nested = backend.map_workers(
            lambda k: sum(backend.map_workers(lambda j: 10 * k + j, range(4))), range(6)
        )
    finally:
        backend.close()
    assert nested == [40 * k + 6 for k in range(6)]


def test_dropout_is_switched_off_for_losses() -> None:
    fed, task = vectors(), Task(module=Dropped, dtype="float64")
    oracle = task.bind(fed)
    theta = oracle.initial(0)
    module = task._module(fed.samples, 0).double().eval()
    data = oracle.open(np.array([2]), keys(0, "work", 0, 2, 0))
    x, y = data.shards.take(torch.arange(10))
    use_generator(None)
    with torch.no_grad():
        expected = float(F.cross_entropy(module(x.double()), y))
    assert oracle.losses(theta[None], data)[0] == pytest.approx(expected)


CHUNKED: dict[str, tuple[int, list[int]]] = {
    "equal": (10, [20] * 12),
    "one sample": (
        1,
        [3] * 12,
    ),  # rows of a few bytes: clients lie at different alignments in memory
    "three samples": (3, [6] * 12),
    "short last batch": (10, [25] * 12),
    "unequal": (
        10,
        [1, 4, 9, 13, 20, 25, 31, 3, 17, 8, 40, 2],
    ),  # short batches are padded to their companions' width
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", CHUNKED)
@pytest.mark.parametrize("hidden", [None, 50])
def test_a_clients_change_does_not_depend_on_its_chunk(
    dtype: Any, shape: str, hidden: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: other chunk sizes, other companions, and a client alone give the same change."""
    batch_size, sizes = CHUNKED[shape]
    fed = SampleFederation.random(sizes, shape=(64,), classes=10)
    task = (
        Task("mlp", {"hidden": hidden}, dtype=dtype)
        if hidden
        else Task("logistic", dtype=dtype)
    )
    solver = SGD(lr=0.1, epochs=2, batch_size=batch_size)
    everyone = list(range(len(sizes)))
    together = work(fed, task, solver, everyone).payload[UPDATE]
    monkeypatch.setattr(dense_module, "CACHE", 1)
    small = work(fed, task, solver, everyone).payload[UPDATE]
    alone = torch.cat([work(fed, task, solver, [c]).payload[UPDATE] for c in everyone])
    pairs = torch.cat(
        [
            work(fed, task, solver, everyone[k : k + 3]).payload[UPDATE]
            for k in range(0, len(sizes), 3)
        ]
    )
    different = {
        name: torch.nonzero((found != together).any(dim=1)).flatten().tolist()
        for name, found in {
            "small chunks": small,
            "alone": alone,
            "threes": pairs,
        }.items()
    }
    assert different == {"small chunks": [], "alone": [], "threes": []}, (
        f"clients of sizes {sizes} that differ"
    )


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.4), nn.ReLU(), nn.Linear(16, 3))


BY_ROWS = {
    **{name: DIGESTED[name] for name in ("mlp-rows", "cnn", "resnet20", "lstm")},
    "dropout": (vectors, Task(module=dropping)),
}


@pytest.mark.parametrize(
    "momentum", [0.0, 0.5]
)  # without it, steps are made inside the module
@pytest.mark.parametrize("problem", BY_ROWS)
def test_on_the_row_path_a_client_does_not_depend_on_its_piece(
    problem: str, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, task = BY_ROWS[problem]
    fed, solver = make(), SGD(lr=0.1, epochs=2, batch_size=3, momentum=momentum)
    everyone = list(range(fed.clients))
    apart = work(fed, task, solver, everyone)
    monkeypatch.setattr("poise.engine.client_batches.LEAST_CHUNKS", 1)
    assert max(len(piece.rows) for piece in cut(fed, task, solver)) > 1
    assert torch.equal(
        work(fed, task, solver, everyone).payload[UPDATE], apart.payload[UPDATE]
    )
    assert apart.payload[UPDATE].any(dim=1).all()


def test_pieces_of_the_row_path_are_many_and_none_is_large() -> None:
    solver = SGD(lr=0.1, epochs=1, batch_size=8)
    for clients, most in ((5, 1), (16, 1), (40, 3), (1000, 8)):
        fed = images(10, sizes=[8] * clients)
        assert max(len(piece.rows) for piece in cut(fed, Task("cnn"), solver)) == most
    fed = vectors(sizes=[8] * 40)
    assert {
        len(piece.rows)
        for piece in cut(fed, Task("mlp", {"hidden": 100_000}, path="rows"), solver)
    } == {1}
    assert {len(piece.rows) for piece in cut(fed, Task(module=Dropped), solver)} == {
        1
    }, "each has a copy of the module"


@pytest.mark.parametrize(
    ("most", "parameters", "pieces"),
    [
        (4, 156_249, [4]),
        (4, 156_250, [2, 2]),  # 4 rows x 8 samples x 156 250 parameters = 5 000 000
        (2, 156_250, [2, 2]),
        (1, 156_250, [1, 1, 1, 1]),
        (1, 1, [1, 1, 1, 1]),
    ],
)
def test_a_large_step_that_fits_into_one_call_is_cut_in_two(
    most: int, parameters: int, pieces: list[int]
) -> None:
    """No call has more clients than the oracle takes, whatever the size of the step."""
    oracle: Any = SimpleNamespace(
        stacks=lambda samples: True,
        rows=lambda batch_size: most,
        layout=SimpleNamespace(size=parameters),
    )
    solver = SGD(lr=0.1, steps=1, batch_size=8)
    found = cut_rows(oracle, solver, np.full(4, 8), np.zeros(4, dtype=int))
    assert [len(rows) for rows in found] == pieces


def test_pytorchs_errors_name_the_client_among_those_of_its_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("poise.engine.client_batches.LEAST_CHUNKS", 1)
    task = Task(
        module=lambda: nn.Sequential(
            nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        )
    )
    fed = vectors(sizes=[6, 6, 5, 6])
    assert [
        piece.clients.tolist()
        for piece in cut(fed, task, SGD(lr=0.1, epochs=1, batch_size=4))
    ] == [[0, 1, 2, 3]]
    with pytest.raises(
        poise.PoiseError,
        match=r"round 2: the local work of client 2 failed: Expected more than 1",
    ):
        work(fed, task, SGD(lr=0.1, epochs=1, batch_size=4), [0, 1, 2, 3])


@pytest.mark.parametrize("hidden", [None, 200])
def test_the_processes_number_of_threads_changes_no_bit(hidden: int | None) -> None:
    fed = SampleFederation.random([20] * 30, shape=(64,), classes=10)
    task = Task("mlp", {"hidden": hidden}) if hidden else Task("logistic")
    threads, digests = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            run = poise.train(fed, task, SGD(lr=0.1, steps=3, batch_size=4), rounds=2)
            digests.append(run.digest)
            assert torch.get_num_threads() == count, (
                "the caller's setting is left as it was"
            )
    finally:
        torch.set_num_threads(threads)
    assert digests[0] == digests[1]


def test_padding_has_no_influence() -> None:
    """Clients whose batches are shorter than their companions' are padded; the padding must weigh
    nothing."""
    fed = vectors(sizes=[9, 2, 5, 1])
    oracle = Task("mlp", {"hidden": 4}, dtype="float64").bind(fed)
    solver = SGD(lr=0.3, steps=3, batch_size=9)
    who = np.arange(4)
    streams = keys(0, "work", 0, who, 0)
    theta = oracle.initial(0)
    local = LocalWork.plain(oracle, solver)
    together = local.run(theta.expand(4, -1), WorkGroup(who, 0, streams)).payload[
        UPDATE
    ]
    for c in range(4):
        alone = local.run(theta[None], WorkGroup(who[[c]], 0, streams[[c]])).payload[
            UPDATE
        ]
        assert torch.allclose(alone[0], together[c], rtol=0, atol=1e-14)


# ------------------------------------------------------------------------------------------------
# losses and refusals


def test_a_users_loss_may_return_samples_or_their_mean() -> None:
    fed, solver = vectors(), SGD(lr=0.1, epochs=1, batch_size=4)
    module = tanh_and_gelu()
    losses: list[Any] = [
        None,
        lambda outputs, labels: F.cross_entropy(outputs, labels, reduction="none"),
        lambda outputs, labels: F.cross_entropy(outputs, labels),
    ]
    done = [
        work(fed, Task(module=module, loss=loss, dtype="float64"), solver, [0, 2])
        for loss in losses
    ]
    for other in done[1:]:
        assert torch.allclose(
            other.payload[UPDATE], done[0].payload[UPDATE], atol=1e-12
        )
        assert np.allclose(other.loss_before, done[0].loss_before)  # type: ignore[arg-type]


def test_measurements_are_those_of_a_plain_pass() -> None:
    fed, task = vectors(), Task("mlp", {"hidden": 4}, dtype="float64")
    run = poise.train(
        fed,
        task,
        SGD(lr=0.1, steps=2),
        rounds=2,
        metrics=["client_loss", "train_accuracy"],
    )
    module = task._module(fed.samples, 0).double()
    layout = Layout.of_module(module)
    module.load_state_dict(layout.views(torch.from_numpy(run.model.copy())))
    shard = fed.test_shard
    assert shard is not None
    x, y = shard.take(torch.arange(16))
    with torch.no_grad():
        assert run.metric("loss")[-1] == pytest.approx(
            float(F.cross_entropy(module(x.double()), y))
        )
        assert run.metric("accuracy")[-1] == float(
            (module(x.double()).argmax(1) == y).double().mean()
        )
        each = []
        for c in range(fed.clients):
            x, y = fed.shards(np.array([c])).take(torch.arange(fed.sizes[c]))
            each.append(
                (
                    float(F.cross_entropy(module(x.double()), y)),
                    float((module(x.double()).argmax(1) == y).double().mean()),
                )
            )
    assert np.allclose(run.metric("client_loss")[-1], [loss for loss, _ in each])
    assert run.metric("train_accuracy")[-1] == pytest.approx(
        fed.importance @ [a for _, a in each]
    )


@pytest.mark.parametrize("path", [None, "rows"])
def test_a_client_that_diverges_is_refused_by_name_with_its_round(path: Any) -> None:
    fed = vectors()
    fed.samples.raw[int(fed.sizes[:3].sum())] = float(
        "nan"
    )  # the first sample of client 3
    task = Task("logistic", path=path)
    with pytest.raises(
        poise.PoiseError, match="round 0: client 3 sent an update that is not finite"
    ):
        poise.train(fed, task, SGD(lr=0.1, epochs=1), rounds=2)
    run = poise.train(fed, task, SGD(lr=0.1, epochs=1), rounds=2, bad_updates="drop")
    assert [(n, c) for n, c, _ in run.refusals] == [(0, 3), (1, 3)]
    assert np.isfinite(run.model).all()
    assert (run.weights[:, 3] == 0).all()
    assert (run.weights[:, :3] > 0).all()
