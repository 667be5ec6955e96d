"""How well the audit finds free-riders, how often it accuses a client that works, and what its
probe costs.

The limits of the detectors were chosen on digits, Fashion-MNIST, CIFAR-10 and synthetic data with
seeds 1, 100 and 101. What is reported here is MNIST and Shakespeare with seeds 0 to 19. A look at
MNIST with 10 of 40 clients and these seeds then changed one thing, which matters only to clients
seen once (the persistence of a direction is worth 1/2 after one round, not 1); so that setting is
reported with seeds 20 to 39.

python benchmarks/audit.py [--only PIECE] [--minutes 20] [--out runs/audit.jsonl] [--write
docs/audit.md]

Every run is one line of ``--out``; what stands there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import poise
from poise.attacks import FreeRider, Mimic, Scaled, StaleReplay
from poise.core.rng import generator
from poise.core.types import AttackerView, ForgedUpdate, Setting
from poise.samplers import Uniform
from poise.solvers import SGD, Prox

ROUNDS, SHARES = 20, (0.05, 0.1, 0.2, 0.35, 0.5)

ATTACKS: dict[str, Callable[[tuple[int, ...]], list[Any]]] = {
    "honest": lambda c: [],
    "plain": lambda c: [FreeRider(c)],
    **{
        f"disguised γ={g:g} {s:g}σ": (
            lambda c, g=g, s=s: [FreeRider(c, "disguised", gamma=g, scale=s)]
        )  # type: ignore[misc]
        for g in (0.5, 1.0, 2.0)
        for s in (1.0, 3.0)
    },
    "mimic": lambda c: [Mimic(c)],
    "stale replay": lambda c: [StaleReplay(c)],
    "scaled to a tenth": lambda c: [Scaled(c, 0.1)],
}


@dataclass(frozen=True)
class Evasive:
    """Free-riders made to be overlooked: the same noise in every round, or noise with a few large
    entries.
    """

    clients: tuple[int, ...]
    kind: str
    slot, name, works = "attack", "evasive", False

    def fit(self, setting: Setting) -> None:
        """Fits everywhere."""

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """Of the length of a disguised free-rider's noise."""
        rng = generator(
            seed,
            "evasive",
            seen.client,
            *([] if self.kind == "same" else [seen.version]),
        )
        size = seen.trainable
        drawn = (
            rng.standard_normal(size) if self.kind == "same" else rng.laplace(size=size)
        )
        return ForgedUpdate(
            torch.from_numpy(0.01 * drawn / max(seen.version, 1)).to(seen.received)
        )


ATTACKS |= {
    "mimic, noise 0.1": lambda c: [Mimic(c, noise=0.1)],
    "mimic, noise 2": lambda c: [Mimic(c, noise=2.0)],
    "the same noise in every round": lambda c: [Evasive(c, "same")],
    "Laplace noise": lambda c: [Evasive(c, "Laplace")],
}
EVASIVE = (
    "mimic, noise 0.1",
    "mimic, noise 2",
    "the same noise in every round",
    "Laplace noise",
)
SOME = ("honest", "plain", "disguised γ=1 1σ", "mimic", "stale replay")
DATA: dict[str, dict[str, Any]] = {
    "MNIST iid": {"partition": "iid"},
    "MNIST Dir(0.1)": {"partition": "dirichlet", "alpha": 0.1},
    "MNIST one-class": {"partition": "one-class"},
}


def pieces() -> dict[str, list[tuple[str, str, tuple[str, ...], range]]]:
    """Piece -> (data, setting, attacks, seeds)."""
    every = tuple(a for a in ATTACKS if a not in EVASIVE)
    return {
        "fedavg": [(data, "FedAvg", every, range(20)) for data in DATA],
        "fedprox": [(data, "FedProx", SOME, range(20)) for data in DATA],
        "partial": [(data, "10 of 40 clients", SOME, range(20, 40)) for data in DATA],
        "long": [(data, "FedAvg, 100 rounds", ("honest",), range(10)) for data in DATA],
        "evasive": [(data, "FedAvg", EVASIVE, range(10)) for data in DATA],
        "shakespeare": [("Shakespeare", "FedAvg", SOME, range(4))],
    }


def one(data: str, setting: str, attack: str, seed: int) -> dict[str, Any]:
    """One run and what the audit says of it after 5 rounds and at its end."""
    partial, text = setting.startswith("10 of"), data == "Shakespeare"
    clients = 40 if partial else 20
    rounds = 100 if "100 rounds" in setting else ROUNDS
    if text:
        fed = poise.federation(
            "shakespeare", "by-key", clients=clients, seed=seed, **SMALL_TEXT
        )
        task, local = poise.task("lstm"), {"lr": 0.5, "steps": 2, "batch_size": 10}
    else:
        fed = poise.federation(
            "mnist",
            clients=clients,
            seed=seed,
            samples=100 * clients,
            test_samples=200,
            **DATA[data],
        )
        task, local = poise.task("logistic"), {"lr": 0.1, "steps": 5, "batch_size": 20}
    share = SHARES[seed % len(SHARES)]
    rng = np.random.default_rng(seed)
    bad = tuple(
        int(i)
        for i in np.sort(
            rng.choice(clients, max(1, round(share * clients)), replace=False)
        )
    )
    solver = Prox(mu=1.0, **local) if setting == "FedProx" else SGD(**local)
    run = poise.train(
        fed,
        task,
        solver,
        sampler=Uniform(10) if partial else None,
        rounds=rounds,
        seed=seed,
        evaluate_every=1000,
        attacks=ATTACKS[attack](bad),
    )
    audit = poise.audit(run)
    true = bad if attack != "honest" else ()
    good = [i for i in range(clients) if i not in true]
    found: dict[str, Any] = {
        "data": data,
        "setting": setting,
        "attack": attack,
        "seed": seed,
        "share": share,
        "honest": len(good),
        "alarms": sum(i in audit.suspects for i in good),
        "bad": len(true),
        "found": sum(i in audit.suspects for i in true),
    }
    if true:
        found |= {"auc": audit.auc(true), "auc5": audit.auc(true, round=5)}
    return found


SMALL_TEXT: dict[str, Any] = {"stride": 20, "test_samples": 100}


def cases(only: str | None) -> Iterator[tuple[str, str, str, int]]:
    """All that is to be run, seed by seed, so that a table can be made at any time."""
    for name, cells in pieces().items():
        if only in (None, name):
            for k in range(max(len(seeds) for *_, seeds in cells)):
                for data, setting, attacks, seeds in cells:
                    yield from (
                        (data, setting, attack, seeds[k])
                        for attack in attacks
                        if k < len(seeds)
                    )


def interval(values: list[float]) -> str:
    """Mean and 95 % interval of the mean by bootstrap over runs, and the worst run."""
    x = np.array(values)
    rng = np.random.default_rng(0)
    low, high = np.quantile(rng.choice(x, (4000, len(x))).mean(axis=1), [0.025, 0.975])
    return f"{x.mean():.3f} ({low:.3f}–{high:.3f}), {x.min():.3f}"


def rate(hits: int, of: int) -> str:
    """A rate with its exact 95 % interval (Clopper-Pearson)."""
    from scipy.stats import beta

    if not of:
        return ""
    low = float(beta.ppf(0.025, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, of - hits)) if hits < of else 1.0
    return f"{100 * hits / of:.1f} % ({100 * low:.1f}–{100 * high:.1f})"


def family(line: dict[str, Any]) -> tuple[str, str, str]:
    """The row of the table that a run belongs to: the six disguises of the first piece share
    one.
    """
    six = line["attack"].startswith("disguised") and (
        line["setting"],
        line["data"] in DATA,
    ) == (
        "FedAvg",
        True,
    )
    return (
        line["data"],
        line["setting"],
        "disguised: γ = 0.5, 1, 2; 1σ, 3σ" if six else line["attack"],
    )


def tables(lines: list[dict[str, Any]]) -> str:
    """The detection table and the table of false alarms."""
    out = [
        "| data | setting | attack | runs | AUC, 20 rounds: mean (95 %), worst | AUC, 5 rounds | "
        "found at 1 % |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = list(dict.fromkeys(family(r) for r in lines))
    for key in (k for k in keys if k[2] != "honest"):
        rows = [r for r in lines if family(r) == key]
        caught = rate(sum(r["found"] for r in rows), sum(r["bad"] for r in rows))
        cells = [
            *key,
            str(len(rows)),
            interval([r["auc"] for r in rows]),
            interval([r["auc5"] for r in rows]),
            caught,
        ]
        out.append("| " + " | ".join(cells) + " |")
    out += [
        "",
        "| data | setting | working clients audited | accused at 1 % (95 %) |",
        "|---|---|---|---|",
    ]
    for data, setting in dict.fromkeys(k[:2] for k in keys):
        rows = [r for r in lines if (r["data"], r["setting"]) == (data, setting)]
        alarms, honest = sum(r["alarms"] for r in rows), sum(r["honest"] for r in rows)
        out.append(
            f"| {data} | {setting} | {honest:,} | {alarms}: {rate(alarms, honest)} |"
        )
    return "\n".join(out)


def cost(repeats: int = 8) -> str:
    """What the probe adds to a round of mlp(50) with 100 clients: CPU time with and without it, in
    turn.
    """
    from poise.auditing.probe import AuditProbe
    from poise.training import Composition

    whole: Any = Composition.probes

    def without(self: Any, layout: Any) -> Any:
        probes = whole(self, layout)
        return tuple(probe for probe in probes if not isinstance(probe, AuditProbe))

    fed = poise.federation("mnist", clients=100, sizes=500)
    task, solver = poise.task("mlp", hidden=50), SGD(lr=0.01, steps=10, batch_size=50)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for k in range(repeats + 1):
        for probed in (True, False) if k % 2 else (False, True):
            Composition.probes = whole if probed else without  # type: ignore[method-assign]
            marks: list[float] = []
            poise.train(
                fed,
                task,
                solver,
                rounds=6,
                evaluate_every=1000,
                seed=0,
                backend=poise.backends.Local(workers=1),
                callbacks=[lambda r, marks=marks: marks.append(time.process_time())],
            )
            if k:
                training_rounds = np.diff(marks)[:-1]  # the last round evaluates too
                seconds[probed] += training_rounds.tolist()
    Composition.probes = whole  # type: ignore[method-assign]
    with_probe = np.array(seconds[True])
    plain = np.array(seconds[False])
    rng = np.random.default_rng(0)
    drawn = [
        np.median(rng.choice(x, (2000, len(x))), axis=1) for x in (with_probe, plain)
    ]
    low, high = np.quantile(drawn[0] / drawn[1] - 1, [0.025, 0.975])
    both = [1e3 * float(np.median(x)) for x in (with_probe, plain)]
    return (
        f"Rounds of mlp(50), 100 clients × 10 steps × batch 50, {len(plain)} with and "
        f"{len(plain)} without the probe, "
        f"in turn, CPU time: median {both[0]:.0f} ms with, {both[1]:.0f} ms without, "
        f"{100 * (both[0] / both[1] - 1):+.1f} % (95 %: {100 * low:+.1f} to {100 * high:+.1f})."
    )


def main() -> None:
    """Run what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*pieces(), "cost"])
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--out", type=Path, default=Path("runs/audit.jsonl"))
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.only == "cost":
        print(cost())
        return
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        [json.loads(t) for t in given.out.read_text().splitlines()]
        if given.out.exists()
        else []
    )
    done = {(r["data"], r["setting"], r["attack"], r["seed"]) for r in lines}
    began = time.perf_counter()
    for case in cases(given.only):
        if case not in done and time.perf_counter() - began < 60 * given.minutes:
            lines.append(one(*case))
            with given.out.open("a") as file:
                file.write(json.dumps(lines[-1], ensure_ascii=False) + "\n")
    order = list(dict.fromkeys(c[:3] for c in cases(None)))
    text = tables(
        sorted(lines, key=lambda r: order.index((r["data"], r["setting"], r["attack"])))
    )
    print(text)
    if given.write is not None:
        page = given.write.read_text(encoding="utf-8")
        head, _, rest = page.partition("<!-- measured -->\n")
        _, _, tail = rest.partition("<!-- end -->")
        given.write.write_text(
            f"{head}<!-- measured -->\n{text}\n<!-- end -->{tail}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
