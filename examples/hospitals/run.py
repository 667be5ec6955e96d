"""Four hospitals learn together on real nodes: one is slow, one only pretends to work, one leaves
and is forgotten.

``python examples/hospitals/run.py [--out DIR]`` runs everything on this machine, with TLS and one
key per node, through the commands that a real study would use; each is printed before it runs.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import poise
from poise.core.errors import PoiseError
from poise.data.sources.heart_disease import FEATURES

HERE = Path(__file__).resolve().parent
SITES = ("cleveland", "hungarian", "switzerland", "va")
PRETENDS, LEAVES, SLOW = 1, 2, 3
DELAY = 15.0  # seconds by which the slow hospital is late, longer than a window of fedfix.toml
MODELS = {"logistic": [], "mlp": ["task.model=mlp", "task.hidden=16"]}
METHODS = ("fedavg", "fedsoftmax", "fedfix")


def main() -> int:
    """Run the example; 0 where all went well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/hospitals"),
        help="a folder that is not there yet",
    )
    out = parser.parse_args().out.resolve()
    began = time.monotonic()
    try:
        if out.exists() and any(out.iterdir()):
            raise PoiseError(f"{out} is not empty", "choose another folder: --out DIR")
        study(out)
    except PoiseError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes. Open:")
    for page in (
        "report.html",
        "audit.html",
        "runs/fedavg-logistic/seed-0/unlearning/report.html",
    ):
        print(f"  {out / page}")
    return 0


def study(out: Path) -> None:
    """All of it, into one folder."""
    patients = (
        hospitals()
    )  # before anything starts: without the data there is nothing to do
    nodes = out / "study"
    command("deploy", "init", nodes, "--nodes", len(SITES))
    for client, site in enumerate(SITES):
        hand_over(nodes / f"node-{client}", *patients[site])
        allow_curvature(nodes / f"node-{client}")
    np.savez(out / "held-out.npz", x=patients["held-out"][0], y=patients["held-out"][1])
    command("deploy", "up", nodes)
    try:
        trained = train_all(out, nodes)
        command("report", *trained, "--out", out / "report.html")
        command("compare", *trained)
        pretend(out, nodes)
        leave(out, nodes)
    finally:
        command("deploy", "down", nodes)


def hospitals() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The patients of each hospital, and those that the server keeps to measure on."""
    whole = poise.federation("heart-disease", "by-key")
    assert whole.names == SITES
    return {
        **{site: whole.client(k) for k, site in enumerate(SITES)},
        "held-out": whole.test,
    }


def hand_over(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    """Give a hospital its file, and tell its node where that is."""
    rows = [
        ",".join([*map(repr, features), str(int(sick))])
        for features, sick in zip(x.tolist(), y, strict=True)
    ]
    (folder / "patients.csv").write_text(
        "\n".join([",".join([*FEATURES, "sick"]), *rows]) + "\n", encoding="utf-8"
    )
    change(folder, data={"file": "patients.csv", "label": "sick", "classes": 2})


def allow_curvature(folder: Path) -> None:
    """Let a hospital report L of its loss, which the certificate of unlearning needs."""
    file = folder / "policy.toml"
    policy = {**tomllib.loads(file.read_text(encoding="utf-8")), "curvature": True}
    file.write_text(tomli_w.dumps(policy), encoding="utf-8")


def change(folder: Path, **tables: Any) -> None:
    """Put something into a node's configuration, which it reads again for every request; None takes
    it out.
    """
    file = folder / "node.toml"
    table = {**tomllib.loads(file.read_text(encoding="utf-8")), **tables}
    file.write_text(
        tomli_w.dumps({k: v for k, v in table.items() if v is not None}),
        encoding="utf-8",
    )


@contextmanager
def odd(folder: Path, **tables: Any) -> Iterator[None]:
    """A node that misbehaves for the time of the block."""
    change(folder, **tables)
    try:
        yield
    finally:
        change(folder, **dict.fromkeys(tables))


def train_all(out: Path, nodes: Path) -> list[Path]:
    """Every method with every model; the slow hospital is slow where the server does not wait for
    it.
    """
    runs = []
    for model, changes in MODELS.items():
        for method in METHODS:
            late = {"delay": DELAY} if method == "fedfix" else {}
            with odd(nodes / f"node-{SLOW}", **late):
                runs.append(train(out, nodes, f"{method}-{model}", method, changes))
    return runs


def train(out: Path, nodes: Path, name: str, method: str, changes: list[str]) -> Path:
    """One run on the nodes."""
    told = [
        word
        for one in [f"data.test={out / 'held-out.npz'}", *changes]
        for word in ("--set", one)
    ]
    command(
        "deploy",
        "run",
        HERE / f"{method}.toml",
        "--to",
        nodes,
        "--out",
        out / "runs" / name,
        *told,
    )
    return out / "runs" / name


def pretend(out: Path, nodes: Path) -> None:
    """One hospital sends back the last step of the others as its own; the audit finds it, and takes
    its weight away.
    """
    print(f"\n# {SITES[PRETENDS]} (client {PRETENDS}) only pretends to work")
    with odd(nodes / f"node-{PRETENDS}", attack={"name": "stale-replay"}):
        changes = [*MODELS["mlp"], "run.rounds=6", "run.audit=quarantine"]
        run = train(out, nodes, "pretended", "fedavg", changes)
    command("audit", run, "--out", out / "audit.html")
    found = poise.audit(poise.open_run(run / "seed-0")).suspects
    if found != [PRETENDS]:
        raise PoiseError(
            f"the audit suspects {found}, not [{PRETENDS}]", f"see {out / 'audit.html'}"
        )


def leave(out: Path, nodes: Path) -> None:
    """One hospital leaves; the others retrain, its node is not asked for anything any more."""
    print(f"\n# {SITES[LEAVES]} (client {LEAVES}) leaves and is forgotten")
    journal = nodes / f"node-{LEAVES}" / "journal.jsonl"
    before = journal.read_text(encoding="utf-8")
    run = out / "runs" / "fedavg-logistic" / "seed-0"
    rounds = ["--min-rounds", 2, "--max-rounds", 6]
    command(
        "deploy",
        "unlearn",
        run,
        "--client",
        LEAVES,
        "--to",
        nodes,
        "--held-out",
        *rounds,
    )
    command("verify", run / "unlearning" / "001" / "certificate.json")
    asked = len(journal.read_text(encoding="utf-8").splitlines()) - len(
        before.splitlines()
    )
    print(f"requests to the node of {SITES[LEAVES]} since it left: {asked}")
    if asked:
        raise PoiseError(f"{journal} has {asked} requests after the hospital left")


def command(*words: Any) -> None:
    """Run a command of poise, as one would type it; raises where it fails."""
    said: list[str] = [str(word) for word in words]
    print(f"\n$ poise {shlex.join(said)}", flush=True)
    subprocess.run([sys.executable, "-m", "poise", *said], check=True)


if __name__ == "__main__":
    sys.exit(main())
