"""The console with many long runs: how long its pages take, and what its server holds in memory.

    python benchmarks/console.py --write docs/benchmarks.md

writes 100 runs of 1,000 aggregations of 100 clients each (in a temporary folder, about 2 GB),
starts ``poise ui`` on them as a user would, and asks for its pages: first by themselves, then in
Chromium where that is installed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np
import torch
from page import publish

from poise.apps.ui.views.drawing import OF_A_RUN
from poise.core.types import Contribution, Record
from poise.ledger import Ledger

CHROMIUM = Path("/usr/bin/chromium")
CLASSES, SEEDS, COMPARED = 10, 10, 20

EXPERIMENT = """\
[data]
source = "digits"
clients = {clients}
seed = {seed}

[solver]
name = "sgd"
lr = {lr}
steps = 10

[sampler]
name = "full"

[clock]
name = "asynchronous"

[run]
rounds = {rounds}
seeds = [{seed}]
metrics = ["client_loss"]
"""


def write_run(folder: Path, rounds: int, clients: int) -> Path:
    """One run in which everybody contributes to every aggregation, from models of different age."""
    rng = np.random.default_rng(0)
    text = EXPERIMENT.format(clients=clients, seed=0, lr=0.1, rounds=rounds)
    meta = {
        "seed": 0,
        "clients": clients,
        "keep": "last",
        "status": "running",
        "experiment": text,
        "trainable": 8,
    }
    counts = rng.integers(0, 50, (clients, CLASSES))
    importance = counts.sum(axis=1) / counts.sum()
    arrays = {
        "sizes": counts.sum(axis=1),
        "importance": importance,
        "label_counts": counts,
    }
    ledger, theta = Ledger.create(folder, meta, arrays, text), torch.zeros(8)
    ledger.start(theta)
    for n in range(rounds):
        ages, losses, norms = (
            rng.integers(0, min(n, 9) + 1, clients),
            rng.gamma(2.0, 1 / (1 + n), clients),
            rng.random(clients),
        )
        parts = tuple(
            Contribution(
                i,
                n - int(ages[i]),
                0,
                importance[i],
                importance[i] / (1 + ages[i]),
                norms[i],
                50,
                10,
                losses[i],
                losses[i],
            )
            for i in range(clients)
        )
        metrics: dict[str, Any] = {
            "accuracy": 1 - 1 / (2 + n),
            "loss": float(losses.mean()),
            "client_loss": losses,
        }
        ledger.append(
            Record(n, n + 1.0, parts, metrics, 10**6, 10**6, seconds=0.5), theta, {}
        )
    ledger.set("status", "done")
    ledger.close()
    return folder


def write_runs(root: Path, runs: int, rounds: int, clients: int) -> None:
    """Copies of one run as the seeds of several experiments."""
    first = write_run(root / "first", rounds, clients)
    for k in range(runs):
        folder = root / f"experiment-{k // SEEDS}" / f"seed-{k % SEEDS}"
        shutil.copytree(first, folder)
        text = EXPERIMENT.format(
            clients=clients, seed=k % SEEDS, lr=0.1 + k // SEEDS, rounds=rounds
        )
        ledger = Ledger.open(folder, writing=True)
        ledger.set_experiment(text)
        ledger.set("seed", k % SEEDS)
        ledger.close()
    shutil.rmtree(first)


@contextmanager
def console(root: Path) -> Iterator[tuple[str, str, int, float]]:
    """``poise ui`` as a process: address, link with the token, process id, and the seconds until
    its first answer.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "poise", "ui", str(root), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        found = re.search(r"http://\S+", server.stderr.readline())
        assert found is not None
        home = found[0].partition("?")[0]
        asked(home + "unlock")
        start = time.perf_counter() - began
        asked(found[0].replace("/?", "/unlock?"))  # logs in
        yield home, found[0], server.pid, start
    finally:
        server.terminate()
        server.wait(20)


browser = build_opener(HTTPCookieProcessor())
"""Keeps the cookie of the console."""


def asked(address: str) -> bytes:
    with browser.open(address, timeout=120) as answer:
        return bytes(answer.read())


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def memory(pid: int, what: str = "VmRSS") -> float:
    """What a process holds now (or held at most, ``VmHWM``), in MB."""
    found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def run_page(home: str, name: str) -> int:
    """Everything that the page of a run asks for; gives the bytes of it."""
    answers = [
        asked(f"{home}run/{quote(name)}"),
        *(asked(f"{home}api/figures/{f}/{quote(name)}") for f in OF_A_RUN),
    ]
    return sum(map(len, answers))


def in_browser(home: str, link: str, name: str) -> dict[str, float] | None:
    """Seconds until the list is shown, until the first figures of a run are drawn, and until all
    are.
    """
    if not CHROMIUM.exists():
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        listed = timed(lambda: page.goto(link))
        began = time.perf_counter()
        page.goto(f"{home}run/{quote(name)}")
        page.locator("[data-src][data-drawn]").first.wait_for(timeout=120_000)
        first = time.perf_counter() - began
        places = page.locator("[data-src]")
        for k in range(places.count()):
            places.nth(k).scroll_into_view_if_needed()
            places.nth(k).and_(page.locator("[data-drawn]")).wait_for(
                state="attached", timeout=120_000
            )
        whole = time.perf_counter() - began
        browser.close()
    return {"list": listed, "first": first, "whole": whole}


def measured(runs: int, rounds: int, clients: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_runs(root, runs, rounds, clients)
        size = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) / 1e9
        with console(root) as (home, link, pid, start):
            empty = memory(pid)
            cold, warm = timed(lambda: asked(home)), timed(lambda: asked(home))
            names = [line["name"] for line in json.loads(asked(f"{home}api/runs"))]
            sent = run_page(home, names[0])
            first = timed(lambda: run_page(home, names[1]))
            again = timed(lambda: run_page(home, names[1]))
            some = names[2:12]
            for name in some:
                run_page(home, name)
            after = memory(pid)
            query = "&".join(f"run={quote(name)}" for name in names[:COMPARED])
            together = timed(
                lambda: (
                    asked(f"{home}compare?{query}"),
                    asked(f"{home}api/compare/figures?{query}"),
                )
            )
            drawn = in_browser(home, link, names[20 % len(names)])
            most = memory(pid, "VmHWM")
    words = (
        ""
        if drawn is None
        else f"""
In Chromium without a graphics card, including Plotly's script: the list {drawn["list"]:.2f} s, the
first figures of a
run {drawn["first"]:.2f} s, all figures after scrolling {drawn["whole"]:.2f} s.
"""
    )
    return f"""## The console

Measured on {date.today()} with `python benchmarks/console.py`: {os.cpu_count()} cores,
Python {platform.python_version()}, {runs} runs × {rounds:,} aggregations × {clients} clients that
all contribute
every time ({size:.1f} GB of ledgers); each time was measured once.

| | | goal |
|---|---|---|
| from `poise ui` to its first answer | {start:.2f} s | |
| list of all runs, first request | {cold:.2f} s | < 1 s |
| list of all runs, repeated | {warm:.2f} s | |
| page of a run, all figures ({sent / 1e6:.1f} MB), first request | {first:.2f} s | < 2 s |
| page of a run, all figures, repeated | {again:.2f} s | |
| comparison of {COMPARED} runs with its curves | {together:.2f} s | |
| server memory at start | {empty:.0f} MB | |
| after the list and {len(some) + 2} runs | {after:.0f} MB | bounded |
| maximum, including the comparison | {most:.0f} MB | bounded |
{words}"""


if __name__ == "__main__":
    publish(__doc__, "console", measured, runs=100, rounds=1000, clients=100)
