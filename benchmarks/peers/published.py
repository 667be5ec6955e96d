"""Tables, plot and remarks of the benchmark page, from what the driver has measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import (
    DEVIATIONS,
    NATS,
    POINTS,
    ahead,
    allowed,
    along,
    best_other,
    disagreements,
    goal,
    ratios,
    summary,
)
from page import put
from plot import drawn
from process import PEERS, TITLES
from works import PUBLIC_WORK, ROWS, TARGET, WORKS

Rows = Mapping[str, Mapping[str, Any]]

INTRODUCTION = """## Comparison with other frameworks

Measured on {dates} with `make bench-peers` on {cores} cores ({processor}), poise at {commits}.
Every peer is its
released package in its own environment, driven by a small adapter (`benchmarks/peers/adapters`):
Python {python};
{versions}.

Each peer uses its fastest configuration, chosen by its first rounds without the very first (in
brackets: processes,
devices or threads; `c`: channels last in memory). All peers get the same samples, clients of each
round, model, initial
weights, local steps, batch size and learning rate. Each client owns only the samples of its steps,
and all clients count
the same. A row names one round as *clients × local steps × batch*. Times are medians of
{repeats} repetitions with quartiles. Peers take turns of about a second or one round; while one
works, the others
are stopped. Start-up and the first round (which compiles or starts workers) are listed
separately below. The
*lower bound* runs the same samples through one PyTorch model at the best batch size and layout,
with one thread, two
threads or (`w`) two workers with a thread each, without any federated learning. poise stores images
as bytes and
converts them to floats batch by batch; the adapters of the other peers store floats, as their users
do.

"""

FLUTE = """FLUTE's README reports for this row, on its authors' machine and with clients of unequal
size: Flower 1.0.0
30:14 minutes and FLUTE 3:20 minutes on CPUs. These figures were not measured here.
"""


def publish(page: Path, results: Rows) -> None:
    """Put all that was measured into its section of the page, and the plot beside it."""
    rows = {name: results[name] for name in ROWS if name in results}
    text = _introduction(rows) + _speeds(rows)
    text += "\n![Seconds per round of every peer and work, on a logarithmic axis](peers.svg)\n"
    text += (
        _missing(results)
        + _goals(rows)
        + _ahead(rows)
        + _others(rows)
        + _same(rows)
        + _memory(rows)
    )
    if "target" in results:
        text += f"\n### Time to {TARGET:.0%} accuracy\n\n" + _whole(results["target"])
    if PUBLIC_WORK in results:
        text += (
            "\n### LR-MNIST, 100 rounds\n\n1,000 clients, 10 per round, batch 10, learning rate "
            "0.03, one local epoch"
            " (60 samples for every client).\n\n"
            + _whole(results[PUBLIC_WORK])
            + "\n"
            + FLUTE
        )
    page.with_name("peers.svg").write_text(drawn(rows, TITLES), encoding="utf-8")
    put(page, "peers", text)


def _missing(results: Rows) -> str:
    """What `make bench-peers` would measure and was not."""
    left = [WORKS[name].label for name in ROWS if name not in results]
    left += [f"time to {TARGET:.0%} accuracy"] if "target" not in results else []
    left += ["LR-MNIST"] if PUBLIC_WORK not in results else []
    return f"\nNot measured: {'; '.join(left)}.\n" if left else ""


def _introduction(rows: Rows) -> str:
    found = {
        p: f["about"]
        for row in rows.values()
        for p, f in row["peers"].items()
        if not PEERS[p].reference
    }
    versions = [
        f"{TITLES[p]}: "
        + ", ".join(f"{k} {v}" for k, v in a.items() if isinstance(v, str))
        for p, a in found.items()
    ]
    counts = sorted(
        {len(p["seconds"]) for row in rows.values() for p in row["peers"].values()}
    )
    one = next(iter(rows.values()))
    return INTRODUCTION.format(
        dates=_some(rows, "date"),
        commits=_commits(rows),
        cores=one["cores"],
        processor=one["processor"],
        versions="; ".join(versions),
        python=_some(rows, "python"),
        repeats=" to ".join(str(n) for n in sorted({counts[0], counts[-1]})),
    )


def _commits(rows: Rows) -> str:
    """The commit of all rows, or of each."""
    by: dict[str, list[str]] = {}
    for row in rows.values():
        by.setdefault(row["commit"], []).append(row["label"])
    return (
        next(iter(by))
        if len(by) == 1
        else ", ".join(f"{c} ({'; '.join(labels)})" for c, labels in by.items())
    )


def _some(rows: Rows, key: str) -> str:
    return ", ".join(sorted({str(row[key]) for row in rows.values()}))


def _speeds(rows: Rows) -> str:
    lines = [
        "| one round | "
        + " | ".join(TITLES[p] for p in PEERS)
        + " | over Flower | over the best other |",
        "|---" * (len(PEERS) + 3) + "|",
    ]
    for row in rows.values():
        cells = [_seconds(row["peers"].get(peer)) for peer in PEERS]
        best, flower = best_other(row), ratios(row).get("flower")
        last = ["" if flower is None else f"**{flower:.1f} ×**"]
        last.append("" if best is None else f"**{best[1]:.2f} ×** ({TITLES[best[0]]})")
        lines.append("| " + " | ".join([row["label"], *cells, *last]) + " |")
    return "\n".join(lines) + "\n"


def _seconds(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    s = summary(found["seconds"])
    variant = f" [{found['variant']}]" if found["variant"] else ""
    return f"{s.median:.3f} s ({s.low:.3f}–{s.high:.3f}){variant}"


def _goals(rows: Rows) -> str:
    told = [
        f"- {row['label']}: {goal(name, row)}"
        for name, row in rows.items()
        if goal(name, row)
    ]
    return "\nGoals:\n\n" + "\n".join(told) + "\n" if told else ""


def _ahead(rows: Rows) -> str:
    found = ahead(rows)
    if not found:
        return "\nNo peer was ahead of poise on any of these rows.\n" + _close(rows)
    told = [
        f"- {rows[work]['label']}: {TITLES[peer]} takes {ratio:.2f} × poise's time"
        for work, peer, ratio in found
    ]
    return "\nRows where a peer is ahead:\n\n" + "\n".join(told) + "\n" + _close(rows)


def _close(rows: Rows) -> str:
    """Rows on which the repetitions of poise and of another overlap, so that neither is shown to be
    faster.
    """
    told = []
    for row in rows.values():
        poise = summary(row["peers"]["poise"]["seconds"])
        for peer, found in row["peers"].items():
            other = summary(found["seconds"])
            if (
                peer != "poise"
                and not PEERS[peer].reference
                and other.low <= poise.high
                and poise.low <= other.high
            ):
                told.append(f"{row['label']} ({TITLES[peer]})")
    return (
        f"\nQuartiles overlap, so the benchmark shows no difference: {', '.join(told)}.\n"
        if told
        else ""
    )


def _others(rows: Rows) -> str:
    """The configurations that were tried and not kept."""
    told = []
    for row in rows.values():
        left = [
            f"{TITLES[peer]} [{variant or 'usual'}] {seconds:.2f} s"
            for peer, f in row["peers"].items()
            for variant, seconds in f["tried"].items()
            if variant != f["variant"]
        ]
        told += [f"- {row['label']}: {', '.join(left)}"] if left else []
    return (
        "\nConfigurations that were slower and not used:\n\n" + "\n".join(told) + "\n"
        if told
        else ""
    )


def _same(rows: Rows) -> str:
    """Whether all have computed the same."""
    learning = [p for p in PEERS if not PEERS[p].reference]
    lines = [
        "\n**Agreement.** Held-out accuracy and loss after the same number of rounds. A peer "
        f"agrees if its accuracy is within {POINTS}",
        f"percentage points and its loss within {NATS} of the median of the peers, or within "
        f"{DEVIATIONS} standard",
        "deviations of poise's results with other batches (*allowed*; from five seeds: one in a "
        "thousand is",
        "further away by chance).\n",
        "| one round | rounds | "
        + " | ".join(TITLES[p] for p in learning)
        + " | allowed | agree |",
        "|---" * (len(learning) + 4) + "|",
    ]
    for row in rows.values():
        found = [row["peers"].get(p, {}) for p in learning]
        cells = [
            f"{f['accuracy']:.2%}, {f['loss']:.3f}" if "accuracy" in f else "–"
            for f in found
        ]
        points, nats = allowed(row)
        last = f"{points:.1f} points, {nats:.3f} | {'; '.join(disagreements(row)) or 'yes'}"
        lines.append(
            f"| {row['label']} | {row.get('rounds', '')} | "
            + " | ".join(cells)
            + f" | {last} |"
        )
    failed = [
        (row["label"], TITLES[p], why)
        for row in rows.values()
        for p, why in row["failed"].items()
    ]
    return (
        "\n".join(lines)
        + "\n"
        + "".join(f"\n{label}: {peer} failed ({why})\n" for label, peer, why in failed)
    )


def _memory(rows: Rows) -> str:
    """Start-up, first round and peak memory."""
    lines = [
        "\n**Start-up + first round, and peak memory** (sum over a peer's processes, shared "
        "pages in each):\n",
        "| one round | " + " | ".join(TITLES[p] for p in PEERS) + " |",
        "|---" * (len(PEERS) + 1) + "|",
    ]
    for row in rows.values():
        cells = []
        for peer in PEERS:
            f = row["peers"].get(peer)
            cells.append(
                f"{f['startup']:.1f} + {f['first']:.1f} s, {f['peak_mb']:.0f} MB"
                if f
                else "–"
            )
        lines.append("| " + " | ".join([row["label"], *cells]) + " |")
    return (
        "\n".join(lines)
        + "\n\n"
        + _lighter(rows, "startup", "Faster start-up")
        + _lighter(rows, "peak_mb", "Less memory")
        + _waiting(rows)
    )


def _waiting(rows: Rows) -> str:
    """What peers take of a core while it is another's turn."""
    told = []
    for peer in PEERS:
        found = [
            row["peers"][peer]
            for row in rows.values()
            if row["peers"].get(peer, {}).get("waited")
        ]
        share = (
            sum(f["waiting"] for f in found) / sum(f["waited"] for f in found)
            if found
            else 0.0
        )
        told += [f"{TITLES[peer]} {share:.1%}"] if share >= 0.001 else []
    return f"Share of a core used while waiting: {', '.join(told) or 'none'}.\n"


def _lighter(rows: Rows, what: str, words: str) -> str:
    """In how many rows peers need less of something than poise."""
    told = []
    for peer in PEERS:
        both = [
            row["peers"]
            for row in rows.values()
            if peer in row["peers"] and not PEERS[peer].reference
        ]
        less = sum(found[peer][what] < found["poise"][what] for found in both)
        told += [f"{TITLES[peer]} in {less} of {len(both)} rows"] if less else []
    return f"{words} than poise: {', '.join(told) or 'none'}.\n"


def _whole(row: Mapping[str, Any]) -> str:
    """A table of runs from the start of the process to the end."""
    lines = [
        "| | total seconds | of these start-up | rounds | accuracy | peak |",
        "|---|---|---|---|---|---|",
    ]
    for peer, f in row["peers"].items():
        if "seconds" in f:
            lines.append(
                f"| {TITLES[peer]} | {_seconds(f)} | {f['startup']:.1f} | {f['rounds']} | "
                f"{f['accuracy']:.2%}"
                f" | {f['peak_mb']:.0f} MB |"
            )
    where = f"Measured on {row['date']}, poise at {row['commit']}; a new process for each of"
    where += f" {len(row['peers']['poise']['seconds'])} repetitions, in turns."
    where += " The time includes the first round, but not the export and evaluation of a model."
    where += (
        " Start-up is a median too; accuracy and peak come from the last repetition."
    )
    first = "".join(
        f" {TITLES[p]} is ahead: {ratio:.2f} × poise's time."
        for _, p, ratio in ahead({"": row})
    )
    return "\n".join(lines) + f"\n\n{where}{first}\n" + _curves(row)


def _curves(row: Mapping[str, Any]) -> str:
    """Accuracies on the way, and whether they agree at every point."""
    points = along(row)
    if not points:
        return ""
    peers = list(points[0]["peers"])
    head = ["accuracy after", *(TITLES[p] for p in peers), "allowed"]
    lines = ["\n| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for point in points[:: -(-len(points) // 6)]:
        cells = [
            f"{_rounds(point)} rounds",
            *(f"{point['peers'][p]['accuracy']:.2%}" for p in peers),
        ]
        lines.append(
            "| " + " | ".join([*cells, f"{allowed(point)[0]:.1f} points"]) + " |"
        )
    apart = [
        f"after {_rounds(p)} rounds {'; '.join(disagreements(p))}"
        for p in points
        if disagreements(p)
    ]
    told = (
        f"Accuracy and loss agree by the rule above at {len(points) - len(apart)} of the "
        f"{len(points)} points"
    )
    return (
        "\n".join(lines) + f"\n\n{told}{': not ' if apart else ''}{', '.join(apart)}.\n"
    )


def _rounds(point: Mapping[str, Any]) -> int:
    return int(next(iter(point["peers"].values()))["rounds"])
