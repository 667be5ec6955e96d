"""Write the data of a work, who works in which round and the initial weights into one neutral file,
once.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from works import Work

import poise
from poise.core.vectors import Layout

ROUNDS, HELD_OUT = 500, 10_000


def export(work: Work, file: Path) -> Path:
    """The file of a work, made where there is none of just this work.

    ``x`` (population, samples, …) bytes or token numbers, ``y`` (population, samples), ``test_x``,
    ``test_y``, ``cohorts`` (rounds, clients), ``w:name`` the initial weights under PyTorch's names,
    ``about`` the rest as JSON.
    """
    wanted = json.dumps(asdict(work))
    if file.exists():
        with np.load(file) as found:
            if "work" in found and str(found["work"]) == wanted:
                return file
    x, y, test = _dealt(work)
    fed = federation(work, x, y)
    oracle = poise.task(work.model).bind(fed, "cpu")
    weights = _named(oracle.layout, oracle.initial(0))
    rng = np.random.default_rng(0)
    cohorts = np.stack(
        [
            np.sort(rng.choice(work.population, work.clients, replace=False))
            for _ in range(ROUNDS)
        ]
    )
    about = {
        name: getattr(work, name)
        for name in ("model", "steps", "batch", "lr", "clients")
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part.npz")
    np.savez(
        part,
        x=x,
        y=y,
        test_x=test[0],
        test_y=test[1],
        cohorts=cohorts,
        about=json.dumps(about),
        work=wanted,
        **{f"w:{name}": value for name, value in weights.items()},
    )
    part.rename(file)
    return file


def federation(work: Work, x: np.ndarray, y: np.ndarray) -> poise.Federation:
    """The arrays of a work as a federation of poise."""
    rows = np.arange(y.size).reshape(y.shape)
    options = {"vocabulary": 100} if work.source == "shakespeare" else {}
    classes = 100 if options else 10
    flat = x.reshape(-1, *x.shape[2:])
    return poise.federation(
        (flat, y.reshape(-1)), list(rows), classes=classes, **options
    )


def _dealt(work: Work) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Images dealt at random; text by its roles, those that say enough. Each client's samples in
    random order.

    Where there are fewer roles than clients, a role that says more is several of them. A peer that
    does not shuffle has batches like everybody's only if the order of the file means nothing, and a
    federation's does: it goes through the classes in turn.
    """
    shakespeare = work.source == "shakespeare"
    fed = poise.federation(
        work.source,
        **({"partition": "by-key"} if shakespeare else {"clients": work.population}),
    )
    shares = fed.sizes // work.samples
    who = [
        (i, part)
        for part in range(shares.max())
        for i in np.flatnonzero(shares > part).tolist()
    ][: work.population]
    if len(who) < work.population:
        raise ValueError(
            f"{work.source}: samples for {len(who)} clients of {work.samples}, not "
            f"{work.population}"
        )
    rng = np.random.default_rng(1)
    owned = {i: fed.client(i) for i, _ in who}
    orders = {i: rng.permutation(len(y)) for i, (_, y) in owned.items()}
    mine = [
        (i, orders[i][part * work.samples : (part + 1) * work.samples])
        for i, part in who
    ]
    x = np.stack([_bytes(owned[i][0][order]) for i, order in mine])
    y = np.stack([np.asarray(owned[i][1][order], np.int64) for i, order in mine])
    tests, labels = fed.test
    chosen = rng.permutation(len(labels))[:HELD_OUT]
    return x, y, (_bytes(tests[chosen]), np.asarray(labels[chosen], np.int64))


def _bytes(x: np.ndarray) -> np.ndarray:
    """Images in [0, 1] back as bytes, which is how all peers get them; token numbers fit as they
    are.
    """
    return (
        np.rint(np.asarray(x) * 255).astype(np.uint8)
        if x.dtype.kind == "f"
        else x.astype(np.uint8)
    )


def _named(layout: Layout, theta: torch.Tensor) -> dict[str, np.ndarray]:
    return {name: view.numpy().copy() for name, view in layout.views(theta).items()}
