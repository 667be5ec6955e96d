"""``poise run --shards`` and ``poise unlearn --method shards``: ensembles of shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from poise.apps.cli.backend_options import BackendOptions
from poise.apps.cli.run import unused_folder
from poise.apps.cli.terminal import Bar, console, print_json, remark, stoppable
from poise.apps.cli.unlearn import with_numbers
from poise.config.experiment import load
from poise.config.run_options import parse_seeds
from poise.config.unlearn_request import UnlearnRequest
from poise.core.errors import require
from poise.training import compose
from poise.unlearning.request import checked_clients
from poise.unlearning.shard_requests import UnlearnedShards, fulfil_shards
from poise.unlearning.shard_training import train_shards
from poise.unlearning.shards import ShardEnsemble, ensemble_in, touched


def run_shards(
    file: Path,
    shards: int,
    *,
    overrides: list[str],
    seeds: str,
    out: Path | None,
    backend_options: BackendOptions,
    json: bool,
) -> None:
    """Train one model per shard, once per seed, and print the accuracy of every ensemble."""
    experiment = load(file, overrides)
    backend = backend_options.backend_for(experiment)
    folder = out or unused_folder(Path("runs") / experiment.name)
    ensembles: list[ShardEnsemble] = []
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        for seed in parse_seeds(seeds) if seeds else experiment.seeds:
            whole = compose(experiment, seed)
            if backend is not None:
                whole = whole.with_options(backend=backend)
            rounds = None if whole.rounds is None else shards * whole.rounds
            label = f"{experiment.name}, seed {seed}, {shards} shards"
            with experiment.located():
                place = folder / f"seed-{seed}"
                observers = [bar.observer(label, rounds)]
                ensembles.append(
                    train_shards(whole, shards, place, callbacks=observers, stop=stop)
                )
            if stop():
                break
    if stop.raised:
        remark(
            f"stopped; to continue, repeat: poise run {file} --shards {shards} --out {folder}"
        )
        return
    _show_ensembles(ensembles, json)


def _show_ensembles(ensembles: list[ShardEnsemble], json: bool) -> None:
    """Print the shards and the accuracy of every ensemble."""
    if json:
        print_json({"ensembles": [_as_data(ensemble) for ensemble in ensembles]})
        return
    for ensemble in ensembles:
        table = Table(title="ShardEnsemble", title_justify="left")
        for column in ("shard", "clients", "rounds"):
            table.add_column(column)
        for k, run in zip(ensemble.live, ensemble.runs, strict=True):
            members = ", ".join(map(str, ensemble.members[k]))
            table.add_row(str(k), members, str(run.rounds))
        console.print(table)
        score = _accuracy(ensemble)
        if score is not None:
            console.print(f"accuracy of the ensemble: {score:.4f}")
        remark(str(ensemble.path))


def _as_data(ensemble: ShardEnsemble) -> dict[str, Any]:
    return {
        "path": str(ensemble.path),
        "members": [list(shard) for shard in ensemble.members],
        "rounds": [run.rounds for run in ensemble.runs],
        "accuracy": _accuracy(ensemble),
    }


def _accuracy(ensemble: ShardEnsemble) -> float | None:
    """Return the accuracy on the held-out samples; None for a task without accuracy."""
    if not all("accuracy" in run.metrics for run in ensemble.runs if run.rounds):
        return None
    return ensemble.accuracy()


def refuse_erasing_shards(erase: bool) -> None:
    """Raise for ``--erase``, which does not apply to ensembles."""
    require(
        not erase,
        "--erase does not apply to ensembles of shards",
        "delete the folders of the shards that you no longer need",
    )


def request_shards(
    path: Path, options: Mapping[str, Any], *, plan: bool, json: bool
) -> None:
    """Unlearn clients of an ensemble, or show the cost."""
    options = with_numbers(path, options)
    request = UnlearnRequest.of(options)
    ensemble = ensemble_in(path, request.method)
    clients = checked_clients(request.clients, ensemble.clients, ensemble.unlearned)
    cost = _cost(ensemble, clients)
    if plan:
        if json:
            print_json(cost)
        else:
            console.print(_cost_sentence(cost))
        return
    if not json:
        remark(_cost_sentence(cost))
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        observers = [bar.observer(f"{path}, retraining", cost["rounds"])]
        done = fulfil_shards(ensemble, request, callbacks=observers, stop=stop)
    command = f"poise unlearn {path} --method shards --clients {options['clients']}"
    _show_result(done, command, json)


def _cost(ensemble: ShardEnsemble, clients: tuple[int, ...]) -> dict[str, Any]:
    """Return the shards that a request would retrain, and for how many rounds."""
    gone = {*ensemble.unlearned, *clients}
    held = touched(ensemble, clients)
    retrained = [k for k in held if set(ensemble.members[k]) - gone]
    rounds = sum(ensemble.histories(k).root.rounds for k in retrained)
    left_out = [k for k in held if k not in retrained]
    return {"retrained": retrained, "left out": left_out, "rounds": rounds}


def _cost_sentence(cost: dict[str, Any]) -> str:
    numbers = ", ".join(map(str, cost["retrained"])) or "none"
    text = f"shards to retrain: {numbers}; rounds: {cost['rounds']}"
    if cost["left out"]:
        text += f"; shards without clients: {', '.join(map(str, cost['left out']))}"
    return text


def _show_result(done: UnlearnedShards, command: str, json: bool) -> None:
    if not done.certificate:
        remark(f"stopped after {done.rounds} rounds; to continue, repeat: {command}")
        if json:
            print_json({"rounds": done.rounds, "finished": False})
        return
    document = done.certificate
    if json:
        print_json({**document, "path": str(done.path), "finished": True})
        return
    table = Table(title="Unlearned", title_justify="left", show_header=False)
    result = document["result"]
    table.add_row("clients", ", ".join(map(str, document["clients"])))
    table.add_row("method", "shards")
    table.add_row("guarantee", "epsilon 0, delta 0")
    for name in ("retrained", "left out", "untouched"):
        shards = ", ".join(str(entry["shard"]) for entry in document[name])
        table.add_row(f"shards, {name}", shards or "none")
    missed = "" if result["target reached"] else ", target not reached"
    table.add_row("rounds", f"{result['rounds']}{missed}")
    table.add_row("client rounds", str(result["client rounds"]))
    console.print(table)
    console.print(str(done.path), markup=False, highlight=False, soft_wrap=True)
