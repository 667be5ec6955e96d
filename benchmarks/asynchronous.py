"""Asynchronous simulation against the synchronous run of the same engine, and against a plain event
loop.

Run it with ``python benchmarks/asynchronous.py [--repeats 5] [--write docs/benchmarks.md]``.
Logistic regression 784 -> 10, 100 clients, scenario F80, 10 local
steps of batch 50; the three take turns, medians of several repeats. Memory is counted in models.
"""

from __future__ import annotations

import copy
import heapq
import statistics
import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from page import publish

import poise
from poise.core.arrivals import UPDATE
from poise.core.durations import scenario
from poise.engine import loop
from poise.engine.executor import LazyExecutor

CLIENTS, SAMPLES, STEPS, BATCH, LR = 100, 600, 10, 50, 0.01
EVENTS = 2000


def federation() -> Any:
    """Random images: what is learned does not matter here."""
    rng = np.random.default_rng(0)
    count = CLIENTS * SAMPLES
    x = rng.integers(0, 256, (count, 1, 28, 28), dtype=np.uint8)
    return poise.federation(
        (x, rng.integers(0, 10, count)), np.array_split(np.arange(count), CLIENTS)
    )


def simulated(fed: Any, clock: Any, rounds: int, weighting: Any = None) -> float:
    """Samples per second of a run."""
    solver = poise.solvers.SGD(lr=LR, steps=STEPS, batch_size=BATCH)
    began = time.perf_counter()
    run = poise.train(
        fed,
        poise.task("logistic"),
        solver,
        clock=clock,
        weighting=weighting,
        rounds=rounds,
        evaluate_every=10**9,
    )
    return len(run.contributions) * STEPS * BATCH / (time.perf_counter() - began)


def event_loop(clients: list[tuple[torch.Tensor, torch.Tensor]], events: int) -> float:
    """Samples per second of a queue of arrivals in which one client is trained per event."""
    tau = scenario("F80", CLIENTS)
    d = (1 / tau).sum() * tau / CLIENTS
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    received = [copy.deepcopy(model.state_dict()) for _ in range(CLIENTS)]
    queue = [(t, i) for i, t in enumerate(tau)]
    heapq.heapify(queue)
    began = time.perf_counter()
    for _ in range(events):
        now, i = heapq.heappop(queue)
        local = copy.deepcopy(model)
        local.load_state_dict(received[i])
        optimiser = torch.optim.SGD(local.parameters(), lr=LR)
        x, y = clients[i]
        order = torch.randperm(len(x))
        for k in range(STEPS):
            rows = order[k * BATCH : (k + 1) * BATCH]
            optimiser.zero_grad()
            F.cross_entropy(local(x[rows]), y[rows]).backward()
            optimiser.step()
        with torch.no_grad():
            for p, new in zip(model.parameters(), local.parameters(), strict=True):
                old = received[i]["1.weight" if p.ndim == 2 else "1.bias"]
                p += d[i] * (new - old)
        received[i] = copy.deepcopy(model.state_dict())
        heapq.heappush(queue, (now + tau[i], i))
    return events * STEPS * BATCH / (time.perf_counter() - began)


def models_held(fed: Any) -> dict[str, float]:
    """The most memory that versions in flight and updates took at once in an asynchronous run,
    in models.
    """
    most = {"versions": 0.0, "updates": 0.0}

    class Watched(LazyExecutor):
        def collect(self, arrived: Any, state: Any) -> Any:
            found = super().collect(arrived, state)
            held = [found, *(arrivals for arrivals, _ in self._done.values())]
            stores = [arrivals.payload[UPDATE].untyped_storage() for arrivals in held]
            size = len(state.theta) * state.theta.element_size()
            most["versions"] = max(most["versions"], len(state.models))
            total = sum({store.data_ptr(): store.nbytes() for store in stores}.values())
            most["updates"] = max(most["updates"], total / size)
            return found

    loop.LazyExecutor = Watched  # type: ignore[misc]
    try:
        simulated(fed, poise.clocks.Asynchronous("F80"), 600)
    finally:
        loop.LazyExecutor = LazyExecutor  # type: ignore[misc]
    return most


def measure(repeats: int = 5) -> dict[str, float]:
    """Medians of samples per second, in turns, and the memory."""
    fed = federation()
    clients = [
        (torch.from_numpy(x), torch.from_numpy(y))
        for x, y in (fed.client(i) for i in range(CLIENTS))
    ]
    weighting = poise.weightings.TimeBased()
    found: dict[str, list[float]] = {
        "synchronous": [],
        "asynchronous": [],
        "event loop": [],
    }
    simulated(fed, poise.clocks.Synchronous("F80"), 3)
    for _ in range(repeats):
        found["synchronous"].append(
            simulated(fed, poise.clocks.Synchronous("F80"), EVENTS // CLIENTS)
        )
        found["asynchronous"].append(
            simulated(fed, poise.clocks.Asynchronous("F80"), EVENTS, weighting)
        )
        found["event loop"].append(event_loop(clients, EVENTS // 4))
    return {
        **{name: statistics.median(values) for name, values in found.items()},
        **models_held(fed),
    }


def text(found: dict[str, float]) -> str:
    """What was measured, as a paragraph of the benchmark page."""
    a, s, e = (found[name] for name in ("asynchronous", "synchronous", "event loop"))
    return f"""## Asynchronous runs

Measured on {datetime.now(UTC).date()} with `python benchmarks/asynchronous.py`: 2 cores, torch
{torch.__version__};
medians, in turns.
Asynchronous FedAvg (`logistic` 784 → 10, {CLIENTS} clients, scenario F80, {STEPS} steps of batch
{BATCH}, time-based
weights, {EVENTS:,} arrivals): {a / 1000:.0f} k samples/s, **{a / s:.2f} ×** the synchronous run of
the same engine
({s / 1000:.0f} k; goal ≥ 0.5) and **{a / e:.1f} ×** an event loop that trains one client per
arrival in plain PyTorch
({e / 1000:.0f} k; goal ≥ 5: {"met" if a >= 5 * e else "missed"}).
At most {found["versions"]:.0f} model versions and {found["updates"]:.0f} updates were in memory at
once for
{CLIENTS} clients at work (goal: versions in flight + 2 models + one stack).
"""


if __name__ == "__main__":
    publish(__doc__, "asynchronous", lambda **given: text(measure(**given)), repeats=5)
