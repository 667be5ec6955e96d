"""What drawing clients costs: tables of a million clients, and clustering by similarity round by
round.

python benchmarks/samplers.py [--repeats 5] [--write docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import put
from scipy.spatial.distance import pdist

import poise
from poise.core.gradients import Gradients
from poise.core.history import History
from poise.core.rng import generator
from poise.core.threads import one_thread
from poise.core.types import Setting
from poise.samplers import MD, ClusteredBySimilarity, ClusteredBySize, Uniform
from poise.samplers.clustered_by_similarity import subtrees
from poise.solvers import SGD

MILLION, DRAWN = 10**6, 100

CLUSTERED = (500, 1000, 2000, 5000)
"""Numbers of clients to cluster."""

ANEW = 2000
"""Up to so many clients, the benchmark also computes all distances anew."""


def crowd(clients: int) -> Setting:
    """So many clients of unequal size, importance by size."""
    sizes = np.random.default_rng(0).integers(10, 1000, clients)
    return Setting(clients, sizes, sizes / sizes.sum())


def timed(function: Callable[[], Any]) -> float:
    """Seconds of a call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def logistic_rounds(rounds: int) -> list[float]:
    """Seconds of rounds of 100 of a million logistic clients, 10 steps of batch 50, without what
    the draw takes.
    """
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(0, 256, (10_000, 1, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 10_000),
    )
    fed = poise.federation(
        (x, y), partition="iid", clients=MILLION, on_demand=True, samples_per_client=500
    )
    return waits(
        fed, "logistic", SGD(lr=0.01, steps=10, batch_size=50), Uniform(DRAWN), rounds
    )[1]


def waits(
    fed: Any, model: str, solver: Any, sampler: Any, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds per round spent in the sampler, and in all else; the first round warms up."""
    drawing: list[float] = []
    stamps: list[float] = []
    original = type(sampler).draw

    def counted(self: Any, *args: Any) -> Any:
        began = time.perf_counter()
        cohort = original(self, *args)
        drawing.append(time.perf_counter() - began)
        return cohort

    type(sampler).draw = counted
    try:
        poise.train(
            fed,
            poise.task(model),
            solver,
            sampler=sampler,
            rounds=rounds + 2,
            evaluate_every=10**9,
            callbacks=[lambda record: stamps.append(time.perf_counter())],
        )
    finally:
        type(sampler).draw = original
    drawn = drawing[
        2 : rounds + 2
    ]  # that for round k + 1 is drawn at the end of round k
    return drawn, [
        total - draw
        for total, draw in zip(np.diff(stamps).tolist(), drawn, strict=False)
    ]


def drawing(repeats: int) -> dict[str, Any]:
    """Seconds to draw 100 of N clients, against a logistic round of those 100; all in turns."""
    settings = {n: crowd(n) for n in (10**4, 10**5, MILLION)}
    draws: dict[str, tuple[Any, Setting]] = {
        f"uniform-{n}": (Uniform(DRAWN), s) for n, s in settings.items()
    }
    draws |= {
        "md": (MD(DRAWN), settings[MILLION]),
        "size": (ClusteredBySize(DRAWN), settings[MILLION]),
    }
    times: dict[str, list[float]] = {name: [] for name in draws}
    rounds: list[float] = []
    for sampler, setting in draws.values():
        sampler.draw(
            setting, generator(0, "warm", 0), 0, History()
        )  # the tables are made here
    for k in range(repeats):
        for name, (sampler, setting) in draws.items():
            for j in range(20):
                rng = generator(0, "sampler", 20 * k + j)
                draw = partial(sampler.draw, setting, rng, k, History())
                times[name].append(timed(draw))
        rounds += logistic_rounds(3)
    found = {name: statistics.median(values) for name, values in times.items()}
    return {**found, "round": statistics.median(rounds)}


def tables(repeats: int) -> dict[str, dict[str, float]]:
    """Seconds to make the table of a million clients, the bytes per client that stay, and the peak
    on the way.
    """
    found = {}
    setting = crowd(MILLION)
    for name, sampler in (("md", MD(DRAWN)), ("size", ClusteredBySize(DRAWN))):

        def make(sampler: Any = sampler) -> Setting:
            fresh = Setting(setting.clients, setting.sizes, setting.importance)
            sampler.draw(fresh, generator(0, "sampler", 0), 0, History())
            return fresh

        seconds = statistics.median(timed(make) for _ in range(repeats))
        tracemalloc.start()
        kept = make()  # noqa: F841  it holds the table while memory is read
        stays, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found[name] = {
            "seconds": seconds,
            "bytes": stays / MILLION,
            "peak": peak / MILLION,
        }
    return found


def clustering(repeats: int) -> dict[int, dict[str, float]]:
    """Seconds that clustering so many clients takes in a round."""
    return {clients: clustering_of(clients, repeats) for clients in CLUSTERED}


def clustering_of(
    clients: int, repeats: int, m: int = 10, size: int = 100_000
) -> dict[str, float]:
    """Seconds per round, wall and processor, of the parts of a clustering; in turns.

    Update: m rows of similarities and the products of the rows. Ward: the tree and its
    groups. Pairs: the distances of the rows pair by pair, anew. All: all similarities
    anew.
    """
    rows = torch.randn(clients, size, generator=torch.Generator().manual_seed(clients))
    units = np.random.default_rng(0).integers(10, 1000, clients)
    seen = Gradients(clients, "arccos")
    parts: dict[str, Callable[[], Any]] = {
        "update": seen.refreshed_distances,
        "ward": lambda: subtrees(units, seen.distances, m),
    }
    if clients <= ANEW:
        parts["pairs"] = lambda: pdist(seen.alike)
        parts["anew"] = lambda: angles(rows)
    times: dict[str, list[float]] = defaultdict(list)
    with one_thread():  # as in a run
        seen.add(range(clients), rows)
        seen._stale = []  # all at once instead of row by row
        seen.alike[:] = angles(rows)
        seen.distances.changed(range(clients))
        seen.refreshed_distances()
        for k in range(repeats):
            worked = (
                generator(0, "worked", k).choice(clients, m, replace=False).tolist()
            )
            seen.add(worked, rows[worked])
            for name, function in parts.items():
                began = time.thread_time()
                times[name].append(timed(function))
                times[f"{name}-cpu"].append(time.thread_time() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def angles(rows: torch.Tensor) -> np.ndarray:
    """All angles at once, as one matrix product: the fastest way to compute every similarity
    anew.
    """
    lengths = torch.linalg.vector_norm(rows, dim=1)
    cosines = (rows @ rows.T).div_(lengths).div_(lengths[:, None])
    return cosines.clamp_(-1, 1).arccos_().numpy()


def ahead(
    repeats: int, clients: int = 1000, rounds: int = 6
) -> dict[bool, dict[str, float]]:
    """Seconds that a round of 10 of 1,000 clients waits for its draw, with and without clustering
    ahead; in turns.
    """
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(0, 256, (clients * 50, 1, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, clients * 50),
    )
    fed = poise.federation((x, y), partition=np.array_split(np.arange(len(x)), clients))
    times: dict[bool, tuple[list[float], list[float]]] = {
        False: ([], []),
        True: ([], []),
    }
    for _ in range(repeats):
        for early, (drawn, rest) in times.items():
            sampler = ClusteredBySimilarity(10, ahead=early)
            found = waits(
                fed, "mlp", SGD(lr=0.01, steps=200, batch_size=50), sampler, rounds
            )
            drawn += found[0]
            rest += found[1]
    return {
        e: {"draw": statistics.median(d), "rest": statistics.median(r)}
        for e, (d, r) in times.items()
    }


def section(
    repeats: int, draws: dict[str, Any], made: Any, groups: Any, early: Any
) -> str:
    """The part of the benchmark page about samplers, in Markdown."""
    one, rows = draws["round"], ""
    for name, label in (
        ("uniform-1000000", "`Uniform`"),
        ("md", "`MD`"),
        ("size", "`ClusteredBySize`"),
    ):
        table = made.get(name)
        built = "none" if table is None else f"{table['seconds']:.2f} s"
        memory = (
            "0"
            if table is None
            else f"{table['bytes']:.1f} ({table['peak']:.1f} while it is made)"
        )
        rows += (
            f"| {label} | {draws[name] * 1e6:.0f} µs | {draws[name] / one:.2%} | {built} | "
            f"{memory} |\n"
        )
    flat = ", ".join(
        f"{draws[f'uniform-{n}'] * 1e6:.0f} µs with 10^{len(str(n)) - 1}"
        for n in (10**4, 10**5, MILLION)
    )
    lines = "".join(clustering_row(n, found) for n, found in groups.items())
    return TEXT.format(
        date=datetime.now(UTC).date(),
        cores=os.cpu_count(),
        torch=torch.__version__,
        python=platform.python_version(),
        repeats=repeats,
        round=one * 1e3,
        rows=rows,
        flat=flat,
        lines=lines,
        load=os.getloadavg()[0],
        late=early[False]["draw"] * 1e3,
        soon=early[True]["draw"] * 1e3,
        rest=early[False]["rest"] * 1e3,
        rest_ahead=early[True]["rest"] * 1e3,
    )


def clustering_row(clients: int, found: dict[str, float]) -> str:
    """A row of the table about clustering by similarity."""

    def cell(name: str) -> str:
        if name not in found:
            return ""
        return f"{found[name]:.2f} s ({found[f'{name}-cpu']:.2f})"

    both = found["update"] + found["ward"]
    both_cpu = found["update-cpu"] + found["ward-cpu"]
    total = f"**{both:.2f} s** ({both_cpu:.2f})"
    cells = (cell("update"), cell("ward"), total, cell("pairs"), cell("anew"))
    return f"| {clients:,} | " + " | ".join(cells) + " |\n"


TEXT = """
## Samplers

Measured on {date} with `python benchmarks/samplers.py`: {cores} cores, torch {torch}, Python
{python}; medians of
{repeats} repetitions, in turns in one process.

**Drawing 100 of 10⁶ clients**, compared with a round of those clients ({round:.0f} ms: logistic,
784 → 10, 10 steps of batch
50, without the draw). The goals are 5 % of the round and 64 bytes per client.

| sampler | draw | share of a round | time to build the table | bytes per client |
|---|---|---|---|---|
{rows}
The time of `Uniform` does not depend on the number of clients: {flat}.

**Clustering by similarity**, 10 clients per round, updates of 100,000 numbers, one thread; in
brackets the processor time (the load was {load:.0f}). *Update*: the rows of similarities that
change in a round (O(N m d)) and the distances of the rows (O(N² m)). *Ward*: Ward's tree and its
groups (O(N²)). *Pairs*: what the distances of the rows take when computed pair by pair (O(N³)).
*All*: all similarities as one matrix product (O(N² d)). Goals for update and Ward: 0.3 s with
2,000 clients, 3 s with 5,000.

| clients | update of 10 rows | Ward | together | pairs | all |
|---|---|---|---|---|---|
{lines}
**In the background**, 10 of 1,000 clients per round (MLP, 200 steps of batch 50): a round waits
{late:.0f} ms for its draw,
and {soon:.1f} ms with `ahead=True`, which clusters while the clients work. The rest of the round
takes {rest:.0f} and
{rest_ahead:.0f} ms.
"""


def main() -> None:
    """Measure, print, and put the section into a page where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    n = options.repeats
    text = section(n, drawing(n), tables(n), clustering(n), ahead(n))
    print(text)
    if options.write:
        put(options.write, "samplers", text)


if __name__ == "__main__":
    main()
