"""The work behind the verbs of ``poise deploy``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.cli.run import (
    parse_seeds,
    refuse_existing_runs,
    show_runs,
    unused_folder,
)
from poise.apps.cli.terminal import Bar, console, print_json, remark, stoppable
from poise.apps.deploy import control, jobs
from poise.apps.deploy.folder import make_deployment
from poise.apps.deploy.node_checks import check_node
from poise.apps.deploy.supervisor import run_node
from poise.config.experiment import load
from poise.core.errors import InvalidOption
from poise.core.types import Record
from poise.training import federation_in


def init(folder: Path, nodes: int, like: Path | None, host: str, json: bool) -> None:
    """Create the folder of a deployment."""
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
        data = whole.spec
    deployment = make_deployment(folder, nodes, data, host)
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


def up(folder: Path, server_only: bool, json: bool) -> None:
    """Start a deployment."""
    deployment = control.up(folder, nodes=not server_only)
    if json:
        print_json(control.status(folder))
        return
    started = "the server is up and"
    if not server_only:
        started = f"{deployment.nodes} nodes are up, the server"
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
    folder = out or unused_folder(Path("runs") / experiment.name)
    refuse_existing_runs(folder, chosen)
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


def resume(path: Path, to: Path, json: bool) -> None:
    """Resume a run of the nodes."""
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        run = jobs.resume_deployed(path, to, watching(bar, str(path), None), stop)
    show_runs([run], json)


def watching(bar: Bar, label: str, rounds: int | None) -> Any:
    """A callback that advances the bar and reports refused updates."""
    advance = bar.observer(label, rounds)

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
        for client, reason in line["refused"]:
            remark(f"round {line['round']}: client {client} sent {reason}")

    return watch
