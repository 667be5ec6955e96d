"""The work behind the verbs of ``poise deploy``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.cli.run import (
    refuse_existing_runs,
    show_runs,
    unused_folder,
)
from poise.apps.cli.run_plan import plan_lines, plan_on_nodes
from poise.apps.cli.terminal import (
    Bar,
    console,
    notes,
    print_json,
    remark,
    stoppable,
)
from poise.apps.deploy import control, jobs, membership
from poise.apps.deploy.folder import is_deployment, make_deployment, open_deployment
from poise.apps.deploy.node_checks import check_node
from poise.apps.deploy.supervisor import run_node
from poise.config.experiment import Experiment, load
from poise.config.run_options import parse_seeds
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import DataError, InvalidOption, require
from poise.core.federations import FederationLike
from poise.core.progress import scores_of
from poise.core.types import Record
from poise.results import open_run
from poise.training import check, compose, federation_in
from poise.unlearning.cost_preview import declared_by

PACE = 10.0
"""Least number of seconds between two lines of progress, where there is no bar."""


def init(
    folder: Path,
    nodes: int,
    like: Path | None,
    host: str,
    passphrase_file: Path | None,
    json: bool,
) -> None:
    """Create the folder of a deployment."""
    passphrase = read_passphrase(passphrase_file)
    data: Mapping[str, Any] = {
        "source": "digits",
        "partition": "iid",
        "clients": nodes,
        "seed": 0,
    }
    if like is not None:
        experiment = load(like)
        whole = federation_in(experiment, experiment.seeds[0])
        if whole.clients != nodes or whole.spec is None:
            raise InvalidOption(
                f"{like} has {whole.clients} clients, not {nodes}",
                f"use: --nodes {whole.clients}",
            )
        _check_whole(experiment, whole)
        data = whole.spec
    deployment = make_deployment(folder, nodes, data, host=host, passphrase=passphrase)
    if json:
        print_json(
            {
                "path": str(deployment.path),
                "nodes": nodes,
                "port": deployment.port,
                "files": deployment.files(),
            }
        )
        return
    remark(
        f"{deployment.path}: certificates, keys, and node.toml (data) and policy.toml "
        f"(permissions) for each of {nodes} nodes"
    )
    for file in deployment.files():
        if not file.startswith("node-") or file.startswith("node-0/"):
            remark(f"  {file}")
    if nodes > 1:
        remark("  every other node has the same files as node-0")
    remark(f"start it on this machine: poise deploy up {folder}")


def _check_whole(experiment: Experiment, federation: FederationLike) -> None:
    """Raise for mistakes in a file that has everything that a run needs."""
    if {"task", "solver"} <= set(experiment.tables):
        composition = compose(experiment, experiment.seeds[0], federation)
        with experiment.located():
            check(composition)


def read_passphrase(file: Path | None) -> bytes | None:
    """The first line of a file; None without a file."""
    if file is None:
        return None
    try:
        passphrase = file.read_bytes().partition(b"\n")[0].strip()
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}") from error
    require(len(passphrase) > 0, f"{file}: the first line, the passphrase, is empty")
    return passphrase


def add_node(folder: Path, json: bool) -> None:
    """Add a node."""
    deployment, client = membership.add_node(folder)
    node = deployment.node(client)
    if json:
        print_json({"client": client, "path": str(node)})
        return
    remark(f"{node}: keys and configuration of client {client}")
    remark(f"name its data in node.toml, then start it: poise deploy node {node}")


def revoke(folder: Path, client: int, json: bool) -> None:
    """Take a node's key away."""
    valid = membership.revoke(folder, client)
    if json:
        print_json({"client": client, "revoked": True, "before": not valid})
        return
    remark(f"client {client}: the key of its node is no longer valid")


def rotate(folder: Path, client: int, json: bool) -> None:
    """Give a node a new key."""
    node = membership.rotate(folder, client)
    if json:
        print_json({"client": client, "path": str(node)})
        return
    remark(
        f"client {client}: new key in {node / 'node.key'}; replace the node's old key "
        "by it and restart the node"
    )


def renew(folder: Path, passphrase_file: Path | None, json: bool) -> None:
    """Renew the server's certificate and the app's signature."""
    membership.renew(folder, read_passphrase(passphrase_file))
    if json:
        print_json({"path": str(folder)})
        return
    remark(
        f"{folder}: new certificate of the server; it takes effect after: "
        f"poise deploy down {folder}, poise deploy up {folder}"
    )


def up(folder: Path, server_only: bool, json: bool) -> None:
    """Start a deployment."""
    deployment = control.up(folder, nodes=not server_only)
    if json:
        print_json(control.status(folder))
        return
    started = "the server is up and"
    if not server_only:
        started = f"{len(deployment.admitted())} nodes are up, the server"
    remark(
        f"{started} listens on {deployment.host}:{deployment.port}; logs: {deployment.logs}"
    )
    remark(f"run an experiment: poise deploy run exp.toml --to {folder}")


def server(folder: Path) -> None:
    """Run the server."""
    remark(f"{folder}: server running; logs: {folder / 'logs'} (Ctrl-C stops it)")
    control.serve(folder)


def node(folder: Path) -> None:
    """Run one node."""
    node_data = check_node(folder.resolve())
    remark(f"{folder}: client {node_data.client}, {node_data.samples} samples")
    remark(f"{folder}: node running; log: {folder / 'node.log'} (Ctrl-C stops it)")
    run_node(folder)


def status(folder: Path, json: bool) -> None:
    """Show the processes and the connected nodes."""
    state = control.status(folder)
    if json:
        print_json(state)
        return
    console.print(f"{state['path']}: {state['status']}", highlight=False)
    for name, process in state["processes"].items():
        starts = ""
        if process["starts"] > 1:
            starts = f", started {process['starts']} times"
        console.print(f"  {name}: process {process['pid']}{starts}", highlight=False)
    for client, connection in state["nodes"].items():
        console.print(f"  client {client}: {connection}", highlight=False)


def down(folder: Path, json: bool) -> None:
    """Stop a deployment."""
    ended = control.down(folder)
    if json:
        print_json({"ended": ended})
    else:
        remark(f"{folder} is down ({len(ended)} processes stopped)")


def run(
    file: Path, to: Path, changes: list[str], seeds: str, out: Path | None, json: bool
) -> None:
    """Run an experiment on the nodes."""
    experiment = load(file, changes)
    chosen = experiment.seeds
    if seeds:
        chosen = parse_seeds(seeds)
    usual = Path("runs") / experiment.name
    folder = out or unused_folder(usual)
    refuse_existing_runs(folder, chosen)
    taken = None
    if out is None and folder != usual:
        taken = usual
    if not json:
        nodes = f"{len(open_deployment(to).admitted())} nodes of {to}"
        for line in plan_lines(plan_on_nodes(experiment, chosen, folder, taken, nodes)):
            remark(line)
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        watch = watching(
            bar, f"{experiment.name} on {to}", experiment.table("run").get("rounds")
        )
        runs = jobs.run_deployed(
            experiment, to, out=folder, seeds=chosen, observe=watch, stop=stop
        )
    if stop.raised and runs:
        remark(
            f"stopped after round {runs[-1].rounds}; continue with: poise deploy resume "
            f"{runs[-1].path} --to {to}"
        )
    show_runs(runs, json)


def resume(path: Path, to: Path, go_back: bool, json: bool) -> None:
    """Resume a run of the nodes."""
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        watch = watching(bar, str(path), None)
        run = jobs.resume_deployed(path, to, watch, stop, go_back=go_back)
    show_runs([run], json)


def revoke_unlearned(
    run: Path, options: Mapping[str, Any], to: Path, quiet: bool
) -> None:
    """Unregister the nodes of the clients of a fulfilled request."""
    if not is_deployment(to):  # the request was fulfilled before; it needs no nodes
        remark(f"{to} is no deployment: no node was unregistered")
        return
    request = UnlearnRequest.of(options, declared_by(run))
    members = open_run(run).array("members")
    for client in request.clients:
        number = client
        if members is not None:
            number = int(members[client])
        if membership.revoke(to, number) and not quiet:
            remark(
                f"the node of client {client} (node-{number}) can no longer connect; "
                f"to admit it again: poise deploy rotate {to} {number}"
            )


def watching(bar: Bar, label: str, rounds: int | None) -> Any:
    """A callback that advances the bar and reports refused updates.

    Where the output is not a terminal, which shows no bar, it prints a line for a round,
    at most every `PACE` seconds.
    """
    advance = bar.observer(label, rounds)
    length = "" if rounds is None else f" of {rounds}"
    printed = -math.inf

    def watch(line: Mapping[str, Any]) -> None:
        record = Record(
            line["round"],
            time=0.0,
            contributions=(),
            metrics=line["metrics"],
            bytes_up=0,
            bytes_down=0,
        )
        advance(record)
        nonlocal printed
        now = time.monotonic()
        shown = bar.quiet or notes.is_terminal
        if not shown and (now - printed >= PACE or record.index + 1 == rounds):
            printed = now
            done = f"{label}: round {record.index + 1}{length}"
            remark(f"{done}  {scores_of(record)}".rstrip())
        for client, reason in line["refused"]:
            remark(f"round {line['round']}: client {client} sent {reason}")

    return watch
