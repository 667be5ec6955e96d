"""Run the peers side by side, in turns, and write what was measured.

python benchmarks/peers/run.py [--work NAME …] [--peer NAME …] [--repeats 5] [--write
docs/benchmarks.md]

A work is a row of the table (`works.py`), ``target`` (time to an accuracy) or ``lr-mnist`` (100
rounds in all); every work is measured by default. Each is written to ``.results/NAME.json`` as it
goes; ``--write`` puts all that lie there into the page, ``--only-write`` without measuring
anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

from evaluate import held_out
from export import export
from figures import along, best_of, disagreements, promising, summary
from process import HERE, PEERS, PeerFailed, Running
from talk import Exported, read
from works import PUBLIC_WORK, ROWS, TARGET, TARGET_WORK, WORKS, Work

RESULTS, DATA = HERE / ".results", HERE / ".data"
HOPELESS = 5.0  # drop a configuration whose first round takes this many times longer
# seconds that a peer works at least before another has its turn: caches are cold when it begins
TURN = 1.0
SEEDS = 5  # of poise's batches, for what they alone change
SETTLE = 0.3  # seconds until a peer's threads lie down
PUBLIC_ROUNDS, MOST_ROUNDS = 100, 100
STRETCH = 20  # rounds of the public work between two looks at the model


def measure(name: str, peers: list[str], repeats: int) -> dict[str, Any]:
    """One row: every peer in its best configuration, blocks of rounds in turns."""
    work, file = WORKS[name], export(WORKS[name], DATA / f"{name}.npz")
    data, row = read(file), _row(work.label)
    at_work: dict[str, Running] = {}
    try:
        for peer in peers:
            if work.model in PEERS[peer].lacks:
                continue
            try:
                at_work[peer], row["peers"][peer] = _best(peer, work, file)
            except PeerFailed as failure:
                _failed(row, peer, failure)
        _compare(data, at_work, row, work.compare)
        row["noise"] = [
            _after(file, data, str(seed), work.compare) for seed in range(1, SEEDS + 1)
        ]
        for _ in range(repeats):
            for peer, running in list(at_work.items()):
                _timed(running, row["peers"][peer])
                _save(name, row)
    finally:
        for running in at_work.values():
            running.close()
    _save(name, row)
    return row


def _best(peer: str, work: Work, file: Path) -> tuple[Running, dict[str, Any]]:
    """The configuration that is fastest for a turn after its first two rounds; the others are
    ended.

    For a turn, or for as many rounds as there are before the peers' models are compared.
    """
    kept: tuple[float, Running, dict[str, Any]] | None = None
    tried = {}
    for variant in PEERS[peer].configurations(work.model):
        running = Running(peer, variant, file)
        first = seconds = running.go(1)
        done = 1
        if kept is None or first < HOPELESS * kept[2]["first"]:
            seconds = running.go(1)
            more = min(ceil(TURN / seconds), work.compare) - 2
            seconds = running.go(more) / more if more > 0 else seconds
            done = 2 + max(0, more)
        tried[variant] = seconds
        print(
            (
                f"  {peer} {variant}: up in {running.startup:.1f} s, rounds {first:.2f} and "
                f"{seconds:.3f} s"
            ),
            flush=True,
        )
        time.sleep(SETTLE)
        if kept is not None and kept[0] <= seconds:
            running.close()
            continue
        if kept is not None:
            kept[1].close()
        about = {
            "about": running.about,
            "variant": variant,
            "startup": running.startup,
            "first": first,
        }
        about |= {"block": max(1, ceil(TURN / seconds)), "done": done}
        kept = (
            seconds,
            running,
            {**about, "seconds": [], "processor": [], "waiting": 0.0, "waited": 0.0},
        )
        running.rest()
    assert kept is not None
    return kept[1], {**kept[2], "tried": tried}


def _compare(
    data: Exported, at_work: dict[str, Running], row: dict[str, Any], rounds: int
) -> None:
    """Held-out accuracy and loss of each peer's model after so many rounds in all."""
    row["rounds"] = rounds
    for peer, running in at_work.items():
        if not PEERS[peer].reference:
            left = rounds - row["peers"][peer].pop("done")
            if left:
                running.go(left)
            row["peers"][peer] |= held_out(data, running.model())
            running.rest()


def _after(file: Path, data: Exported, seed: str, rounds: int) -> dict[str, float]:
    """What poise reaches with other batches."""
    running = Running("poise", seed, file)
    try:
        running.go(rounds)
        return held_out(data, running.model())
    finally:
        running.close()


def _timed(running: Running, found: dict[str, Any]) -> None:
    """One turn of a peer; and what its processes used of the processor since its last one, while
    others worked.
    """
    if "rested" in found:
        found["waiting"] += running.processor_seconds() - found["rested"][0]
        found["waited"] += time.perf_counter() - found["rested"][1]
    before, block = running.processor_seconds(), found["block"]
    found["seconds"].append(running.go(block) / block)
    time.sleep(SETTLE)
    found["peak_mb"] = running.peak_megabytes()
    found["rested"] = running.processor_seconds(), time.perf_counter()
    found["processor"].append((found["rested"][0] - before) / block)
    running.rest()


def end_to_end(
    name: str, label: str, peers: list[str], repeats: int, target: float | None
) -> dict[str, Any]:
    """Start-up and rounds until an accuracy, or for a number of rounds: every time a new process,
    in turns.

    Handing out a model and measuring it is done between rounds and not counted. Of the
    configurations of a peer the one with the best median stays; those that are much slower are not
    tried again.
    """
    work = WORKS[TARGET_WORK if target else PUBLIC_WORK]
    file = export(work, DATA / f"{TARGET_WORK if target else PUBLIC_WORK}.npz")
    data, row = read(file), _row(label)
    tried: dict[str, dict[str, list[dict[str, Any]]]] = {
        peer: {} for peer in peers if not PEERS[peer].reference
    }
    for _ in range(repeats):
        for peer, runs in tried.items():
            for variant in promising(PEERS[peer].variants, runs):
                try:
                    done = _whole(peer, variant, file, data, target)
                    runs.setdefault(variant, []).append(done)
                except PeerFailed as failure:
                    _failed(row, peer, failure)
            if runs:
                row["peers"][peer] = best_of(runs)
        _save(name, row)
    row["noise_curves"] = [
        _whole("poise", str(seed), file, data, target)["curve"]
        for seed in range(1, SEEDS + 1)
    ]
    _save(name, row)
    return row


def _whole(
    peer: str, variant: str, file: Path, data: Exported, target: float | None
) -> dict[str, Any]:
    """One run from the start of its process to the target."""
    running = Running(peer, variant, file)
    try:
        seconds, rounds, curve = 0.0, 0, []
        stretch, most = (1, MOST_ROUNDS) if target else (STRETCH, PUBLIC_ROUNDS)
        while rounds < most and not (
            target and curve and curve[-1]["accuracy"] >= target
        ):
            seconds, rounds = seconds + running.go(stretch), rounds + stretch
            curve.append({"rounds": rounds, **held_out(data, running.model())})
        peak = running.peak_megabytes()
    finally:
        running.close()
    found = {
        "total": running.startup + seconds,
        "startup": running.startup,
        "peak_mb": peak,
        "curve": curve,
    }
    print(
        f"  {peer} {variant}: {found['total']:.2f} s, {rounds} rounds, {curve[-1]['accuracy']:.4f}",
        flush=True,
    )
    return {**found, **curve[-1], "about": running.about}


def _row(label: str) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    processor = next(
        (line.partition(":")[2].strip() for line in lines if "model name" in line),
        "unknown processor",
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
    ).stdout
    return {
        "label": label,
        "date": str(datetime.now(UTC).date()),
        "cores": os.cpu_count(),
        "processor": processor,
        "python": platform.python_version(),
        "commit": commit.strip(),
        "load": os.getloadavg()[0],
        "peers": {},
        "failed": {},
    }


def _failed(row: dict[str, Any], peer: str, failure: PeerFailed) -> None:
    """A peer that cannot do a work is told, not hidden."""
    print(f"  {failure}", flush=True)
    row["failed"][peer] = str(failure).splitlines()[-1]


def _save(name: str, row: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    part = RESULTS / f"{name}.part"
    part.write_text(json.dumps(row, indent=1), encoding="utf-8")
    part.rename(RESULTS / f"{name}.json")


def _tell(row: dict[str, Any]) -> None:
    for peer, found in row["peers"].items():
        s = summary(found["seconds"])
        waiting = found["waiting"] / found["waited"] if found.get("waited") else 0.0
        used = summary(found.get("processor") or [0.0]).median
        print(
            f"  {peer:7} {found['variant']:2} {s.median:.4f} s ({s.low:.4f} to {s.high:.4f}), "
            f"processor {used:.3f} s,"
            f" start-up {found['startup']:.1f} s, first {found.get('first', 0):.2f} s, "
            f"{found['peak_mb']:.0f} MB,"
            f" waiting {waiting:.2f} cores, accuracy {found.get('accuracy', 0):.4f}, loss "
            f"{found.get('loss', 0):.4f}"
        )
    for line in (
        line for point in along(row) or [row] for line in disagreements(point)
    ):
        print(f"  DISAGREES {line}")


def main() -> None:
    """Measure what was asked for, print it, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", action="append", choices=[*ROWS, "target", PUBLIC_WORK]
    )
    parser.add_argument("--peer", action="append", choices=list(PEERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only-write", action="store_true")
    options = parser.parse_args()
    peers = options.peer or list(PEERS)
    for name in (
        () if options.only_write else options.work or [*ROWS, "target", PUBLIC_WORK]
    ):
        print(name, flush=True)
        if name == "target":
            label = f"{WORKS[TARGET_WORK].label} until {TARGET:.0%}"
            row = end_to_end(name, label, peers, options.repeats, TARGET)
        elif name == PUBLIC_WORK:
            row = end_to_end(
                name, f"LR-MNIST, {PUBLIC_ROUNDS} rounds", peers, options.repeats, None
            )
        else:
            row = measure(name, peers, options.repeats)
        _tell(row)
    if options.write:
        sys.path.append(
            str(HERE.parent)
        )  # the page's sections are written as those of the other benchmarks
        from published import publish

        publish(
            options.write,
            {
                f.stem: json.loads(f.read_text(encoding="utf-8"))
                for f in RESULTS.glob("*.json")
            },
        )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
