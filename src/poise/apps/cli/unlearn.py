"""``poise unlearn`` and ``poise verify``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from poise.analysis.reports.unlearning_page import write_forgetting
from poise.apps.cli.deploy import watching
from poise.apps.cli.terminal import Bar, console, print_json, remark, stoppable
from poise.apps.deploy.jobs import unlearn_deployed
from poise.apps.experiments.unlearning_pages import stories_of
from poise.config.unlearn_request import UnlearnRequest
from poise.ledger.run import open_run
from poise.unlearning.histories import Histories
from poise.unlearning.operation import Unlearned, fulfil
from poise.unlearning.preview import Preview, declared_by, preview
from poise.unlearning.verification import verify


def forget(
    path: Path, given: Mapping[str, Any], plan: bool, json: bool, to: Path | None = None
) -> None:
    """Fulfil a request, or show what it would cost; ``to`` is the deployment whose nodes
    retrain.
    """
    request = UnlearnRequest.of(given, declared_by(path))
    looked = preview(
        path, request.clients, method=request.method, budget=request.budget, out=request.out
    )
    if plan:
        print_json(asdict(looked)) if json else console.print(_plan_table(looked))
        return
    if not json:
        remark(_in_words(looked))
    with stoppable(json) as stop, Bar(quiet=json) as bar:
        label, most = f"{path}, retraining", request.max_rounds
        if to is None:
            made = fulfil(path, request, callbacks=[bar.observer(label, most)], stop=stop)
        else:
            made = unlearn_deployed(path, to, request, watching(bar, label, most), stop)
    again = f"poise unlearn {path}" if to is None else f"poise deploy unlearn {path} --to {to}"
    out = None if request.out is None else Path(request.out)
    _show(made, path, out, f"{again} --clients {given['clients']} …", json)


def _in_words(looked: Preview) -> str:
    branch, n = looked.restart
    where = f"round {n}" if branch == 0 else f"round {n} of branch {branch}"
    text = f"restart from {where}, noise {looked.sigma:g}, {looked.given_up} rounds given up"
    if looked.ideal != looked.restart:
        text += (
            f" (round {looked.ideal[1]} would do, but its model was not kept: keep = "
            "'unlearnable' or 'all')"
        )
    return text


def _plan_table(looked: Preview) -> Table:
    table = Table(title="what this request would cost", title_justify="left", show_header=False)
    for name, value in looked.rows():
        table.add_row(name, value)
    return table


def _show(made: Unlearned, path: Path, out: Path | None, again: str, json: bool) -> None:
    if not made.certificate:
        remark(
            f"stopped after {made.rounds} rounds; go on with the same command and its options: "
            f"{again}"
        )
        if json:
            print_json({"path": str(made.run.path), "rounds": made.rounds, "finished": False})
        return
    page = _page(path, out)
    if json:
        print_json(
            {**made.certificate, "path": str(made.path), "page": str(page), "finished": True}
        )
        return
    console.print(_result_table(made.certificate))
    for written in (made.path, page):
        console.print(str(written), markup=False, highlight=False, soft_wrap=True)


def _page(path: Path, out: Path | None) -> Path:
    """The page about all requests of a run, beside their branches."""
    histories = Histories.of(open_run(path), out)
    assert histories.folder is not None
    budget = histories.finished[-1].request.budget
    title, told = f"What {path} has forgotten", stories_of(histories, budget)
    return write_forgetting(
        title, told, histories.nodes, budget.limit, histories.folder / "report.html"
    )


def _result_table(document: dict[str, Any]) -> Table:
    promise, result = document["guarantee"], document["result"]
    table = Table(title="forgotten", title_justify="left", show_header=False)
    table.add_row("clients", ", ".join(map(str, document["clients"])))
    table.add_row("method", document["request"]["method"])
    if promise["promised"]:
        said = f"epsilon {promise['epsilon']:g}, delta {promise['delta']:g}"
        table.add_row(
            "guarantee", said + (", as a heuristic" if document["grounds"]["not proved"] else "")
        )
        if promise.get("composed epsilon", 0.0) > promise["epsilon"] * (1 + 1e-9):
            table.add_row(
                "all its noises together",
                f"epsilon {promise['composed epsilon']:.4g}, for the worst client",
            )
    else:
        table.add_row("guarantee", "none: this method promises nothing")
    table.add_row(
        "restart", f"branch {document['restart']['branch']}, round {document['restart']['round']}"
    )
    table.add_row(
        "rounds",
        f"{result['rounds']}" + ("" if result["target reached"] else ", target not reached"),
    )
    table.add_row(f"{result['score']}, remaining", _number(result["on remaining clients"]))
    if "on held-out data" in result:
        table.add_row(f"{result['score']}, held out", _number(result["on held-out data"]))
    if result["on forgotten clients"] is not None:
        table.add_row(f"{result['score']}, forgotten", _number(result["on forgotten clients"]))
    for gap in document["grounds"]["not proved"] if promise["promised"] else ():
        table.add_row("not proved", gap)
    return table


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.4f}"


def check(certificate: Path, training: Path | None, json: bool) -> None:
    """Hold a certificate against the run it rests on."""
    done = verify(certificate, training)
    if json:
        print_json({"holds": True, "checks": [c.label for c in done]})
        return
    for one in done:
        console.print(f"ok  {one.label}", markup=False, highlight=False)
    console.print("the certificate holds")
