"""``poise deploy …``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poise.apps.cli.run import fresh, parse_seeds, refuse_taken, show_runs
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
    """Write the folder of a deployment."""
    data: Mapping[str, Any] = {"source": "digits", "partition": "iid", "clients": nodes, "seed": 0}
    if like is not None:
        experiment = load(like)
        whole = federation_in(experiment, experiment.seeds[0])
        if whole.clients != nodes or whole.spec is None:
            raise InvalidOption(
                f"{like} has {whole.clients} clients, not {nodes}", f"--nodes {whole.clients}"
            )
        data = whole.spec
    made = make_deployment(folder, nodes, data, host)
    if json:
        print_json(
            {"path": str(made.path), "nodes": nodes, "port": made.port, "files": made.files()}
        )
        return
    remark(

            f"{made.path}: certificates and keys, and for each of {nodes} nodes node.toml (its data), "
            "policy.toml"

    )
    for file in made.files():
        if not file.startswith("node-") or file.startswith("node-0/"):
            remark(f"  {file}")
    if nodes > 1:
        remark("  and for every other node the same as in node-0")
    remark(f"start it on this machine: poise deploy up {folder}")


def up(folder: Path, server_only: bool, json: bool) -> None:
    """Start a deployment."""
    made = control.up(folder, nodes=not server_only)
    if json:
        print_json(control.status(folder))
        return
    who = "the server is up and" if server_only else f"{made.nodes} nodes are up, the server"
    remark(f"{who} listens on {made.host}:{made.port}; logs: {made.logs}")
    remark(f"run an experiment: poise deploy run exp.toml --to {folder}")


def server(folder: Path) -> None:
    """Run the server."""
    remark(f"{folder}: running; its logs are in {folder / 'logs'} (Ctrl-C ends it)")
    control.serve(folder)


def node(folder: Path) -> None:
    """Run one node."""
    holding = check_node(folder.resolve())
    remark(f"{folder}: client {holding.client}, {holding.samples} samples")
    remark(f"{folder}: running; its log is {folder / 'node.log'} (Ctrl-C ends it)")
    run_node(folder)


def status(folder: Path, json: bool) -> None:
    """Show what runs."""
    found = control.status(folder)
    if json:
        print_json(found)
        return
    console.print(f"{found['path']}: {found['status']}", highlight=False)
    for name, process in found["processes"].items():
        again = f", started {process['starts']} times" if process["starts"] > 1 else ""
        console.print(f"  {name}: process {process['pid']}{again}", highlight=False)
    for client, seen in found["nodes"].items():
        console.print(f"  client {client}: {seen}", highlight=False)


def down(folder: Path, json: bool) -> None:
    """End a deployment."""
    ended = control.down(folder)
    print_json({"ended": ended}) if json else remark(
        f"{folder} is down ({len(ended)} processes ended)"
    )


def run(file: Path, to: Path, changes: list[str], seeds: str, out: Path | None, json: bool) -> None:
    """Run an experiment on nodes."""
    experiment = load(file, changes)
    chosen = parse_seeds(seeds) if seeds else experiment.seeds
    folder = out or fresh(Path("runs") / experiment.name)
    refuse_taken(folder, chosen)
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        watch = watching(bar, f"{experiment.name} on {to}", experiment.table("run").get("rounds"))
        runs = jobs.run_deployed(experiment, to, out=folder, seeds=chosen, observe=watch, stop=stop)
    if stop.raised and runs:
        remark(

                f"stopped after round {runs[-1].rounds}; go on with: poise deploy resume "
                f"{runs[-1].path} --to {to}"

        )
    show_runs(runs, json)


def resume(path: Path, to: Path, json: bool) -> None:
    """Take a deployed run up."""
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        made = jobs.resume_deployed(path, to, watching(bar, str(path), None), stop)
    show_runs([made], json)


def watching(bar: Bar, label: str, rounds: int | None) -> Any:
    """Move the bar, and say who was refused."""
    move = bar.observer(label, rounds)

    def watch(line: Mapping[str, Any]) -> None:
        metrics = line["metrics"]
        move(
            Record(
                line["round"], time=0.0, contributions=(), metrics=metrics, bytes_up=0, bytes_down=0
            )
        )
        for client, reason in line["refused"]:
            remark(f"round {line['round']}: client {client} sent {reason}")

    return watch
