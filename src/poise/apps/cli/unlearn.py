"""The verbs ``poise unlearn`` and ``poise verify``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from poise.analysis.reports.unlearning_page import write_unlearning
from poise.apps.cli.deploy import watching
from poise.apps.cli.terminal import Bar, console, print_json, remark, stoppable
from poise.apps.deploy.erasure import erase_deployed
from poise.apps.deploy.folder import is_deployment, open_deployment
from poise.apps.deploy.jobs import unlearn_deployed
from poise.apps.deploy.origin import require_made_by
from poise.apps.experiments.unlearning_pages import unlearning_histories
from poise.config.unlearn_request import UnlearnRequest
from poise.core.client_names import numbers_in
from poise.core.objects import import_module, use_folders
from poise.core.own_code import recorded_code
from poise.core.own_functions import allow_functions_of
from poise.ledger.store import begun
from poise.results import open_run
from poise.training import experiment_of, use_code
from poise.unlearning.cost_preview import Preview, declared_by, preview
from poise.unlearning.erasure import erasable, erasure_begun
from poise.unlearning.erasure import erase as erase_run
from poise.unlearning.fulfilment import Unlearned, fulfil, fulfilled
from poise.unlearning.histories import Histories, owners_of
from poise.unlearning.named_clients import trained_clients
from poise.unlearning.signed import require_key
from poise.unlearning.verification import verify


def run_request(
    path: Path,
    options: Mapping[str, Any],
    plan: bool,
    json: bool,
    to: Path | None = None,
    erase: bool = False,
) -> None:
    """Unlearn clients, or show the cost; the nodes of the deployment ``to`` retrain, if given.

    A refused request prints only its error. A request that was made before shows its
    certificate. With ``plan``, nothing is changed.
    """
    options = with_numbers(path, options)
    request = UnlearnRequest.of(options, declared_by(path))
    out = None if request.out is None else Path(request.out)
    command = f"poise unlearn {path}"
    if to is not None:
        command = f"poise deploy unlearn {path} --to {to}"
    command = f"{command} --clients {options['clients']} …"
    if plan:
        _show_plan(path, request, erase=erase, json=json)
        return
    if erase and erasure_begun(path, request):
        if to is not None:
            _require_deployment(path, out, to=to, erase=erase)
        erase_run(path, out)
        remark("finished the erasure that an interrupted command began")
    unlearned = fulfilled(path, request)
    if unlearned is not None and to is not None:
        _require_deployment(path, out, to=to, erase=erase)
    if unlearned is None:
        use_code(experiment_of(open_run(path)))
        cost = _cost(path, request)
        sentence = "" if json else _cost_sentence(cost, request)
        unlearned = _retrain(path, request, to=to, sentence=sentence)
    if erase and unlearned.certificate:
        unlearned = _erased(unlearned, path, out=out, to=to)
    if not unlearned.certificate:
        _show_stopped(unlearned, command=command, json=json)
        return
    _show_result(unlearned, page=_write_page(path, out), json=json)


def _show_plan(path: Path, request: UnlearnRequest, *, erase: bool, json: bool) -> None:
    """Show what a request would do, or its certificate if it was made before."""
    unlearned = fulfilled(path, request)
    if unlearned is None:
        use_code(experiment_of(open_run(path)))
        _show_cost(_cost(path, request), json)
    else:
        _show_result(unlearned, page=None, json=json)
    if not erase:
        return
    remark("--plan: nothing was erased")
    if unlearned is not None:
        for file in erasable(path, request.out):
            remark(f"--erase would delete {file}")


def with_numbers(path: Path, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of a request, with numbers for the names of clients."""
    known = trained_clients(path)
    text = numbers_in(str(options["clients"]), known.total, known.names)
    return {**options, "clients": text}


def _require_deployment(path: Path, out: Path | None, *, to: Path, erase: bool) -> None:
    """Raise unless a run that was trained belongs to a deployment.

    A request that was fulfilled before needs no deployment, except for erasing.
    """
    if erase or is_deployment(to):
        histories = Histories.of(open_run(path), out)
        require_made_by(open_deployment(to), histories.root, histories.folder)


def _erased(
    unlearned: Unlearned, path: Path, *, out: Path | None, to: Path | None
) -> Unlearned:
    """Erase the traces of the clients, on the nodes of a deployment too."""
    nodes: list[str] = []
    if to is not None:
        erasable(path, out)  # raises before anything is deleted
        require_key()
        owners = owners_of(Histories.of(open_run(path), out).root)
        gone = unlearned.certificate["forgotten so far"]
        nodes = erase_deployed(to, [int(owners[client]) for client in gone])
    unlearned.run.close()
    document = erase_run(path, out, nodes)
    assert unlearned.path is not None
    return replace(unlearned, run=open_run(unlearned.path.parent), certificate=document)


def _cost(path: Path, request: UnlearnRequest) -> Preview:
    return preview(
        path,
        request.clients,
        method=request.method,
        budget=request.budget,
        out=request.out,
        guarantee=request.guarantee,
    )


def _retrain(
    path: Path, request: UnlearnRequest, *, to: Path | None, sentence: str
) -> Unlearned:
    """Fulfil a request; once it is accepted, print the sentence and start the bar.

    An empty sentence prints nothing.
    """
    observers: list[Callable[[Any], None]] = []
    label = f"{path}, retraining"
    observer = Bar.observer if to is None else watching

    def begin() -> None:
        if sentence:
            remark(sentence)
        observers.append(observer(bar, label, request.max_rounds))

    def follow(round: Any) -> None:
        if not observers:  # the first round of a deployment: it accepted the request
            begin()
        observers[0](round)

    with stoppable(not sentence) as stop, Bar(quiet=not sentence) as bar:
        if to is not None:
            return unlearn_deployed(path, to, request, follow, stop)
        return fulfil(path, request, callbacks=[follow], stop=stop, begun=begin)


def _show_cost(cost: Preview, json: bool) -> None:
    if json:
        print_json(asdict(cost))
    else:
        console.print(_cost_table(cost))


def _cost_sentence(cost: Preview, request: UnlearnRequest) -> str:
    if request.plan_sigma:
        return "choosing sigma from the declared noise levels"
    if request.method == "exact":
        return (
            "take the stored updates of the clients out of the sums; no round to repeat"
        )
    branch, n = cost.restart
    where = f"round {n}" if branch == 0 else f"round {n} of branch {branch}"
    text = (
        f"restart from {where}, noise {cost.sigma:g}, {cost.given_up} rounds to repeat"
    )
    if cost.ideal != cost.restart:
        text += (
            f" (round {cost.ideal[1]} would suffice, but its model was not kept: set keep = "
            "'unlearnable' or 'all')"
        )
    return text


def _cost_table(cost: Preview) -> Table:
    table = Table(title="Cost of this request", title_justify="left", show_header=False)
    for name, value in cost.rows():
        table.add_row(name, value)
    return table


def _show_stopped(unlearned: Unlearned, *, command: str, json: bool) -> None:
    remark(
        f"stopped after {unlearned.rounds} rounds; to continue, repeat the command with the "
        f"same options: {command}"
    )
    if json:
        print_json(
            {
                "path": str(unlearned.run.path),
                "rounds": unlearned.rounds,
                "finished": False,
            }
        )


def _show_result(unlearned: Unlearned, *, page: Path | None, json: bool) -> None:
    """Show a certificate, and where it and the page, if any, are."""
    written = {"path": unlearned.path, "page": page}
    paths = {name: str(place) for name, place in written.items() if place is not None}
    if json:
        print_json({**unlearned.certificate, **paths, "finished": True})
        return
    console.print(_result_table(unlearned.certificate))
    for place in paths.values():
        console.print(place, markup=False, highlight=False, soft_wrap=True)


def _write_page(path: Path, out: Path | None) -> Path:
    """Write the page about all unlearning requests of a run, next to their branches."""
    branches = Histories.of(open_run(path), out)
    assert branches.folder is not None
    budget = branches.finished[-1].request.budget
    return write_unlearning(
        f"Unlearning requests of {path}",
        unlearning_histories(branches, budget),
        oracle=branches.nodes,
        limit=budget.limit,
        path=branches.folder / "report.html",
    )


def _result_table(document: dict[str, Any]) -> Table:
    result = document["result"]
    restart = document["restart"]
    table = Table(title="Unlearned", title_justify="left", show_header=False)
    table.add_row("clients", ", ".join(map(str, document["clients"])))
    table.add_row("method", document["request"]["method"])
    for name, value in _guarantee_rows(document):
        table.add_row(name, value)
    table.add_row("restart", f"branch {restart['branch']}, round {restart['round']}")
    erasure = document.get("erasure")
    if erasure is not None:
        table.add_row("erased files", str(len(erasure["erased"])))
        for item in (*erasure["nodes"], *(stay["item"] for stay in erasure["stays"])):
            table.add_row("nodes" if item in erasure["nodes"] else "stays", item)
    missed = "" if result["target reached"] else ", target not reached"
    table.add_row("rounds", f"{result['rounds']}{missed}")
    table.add_row(
        f"{result['score']}, remaining clients", _number(result["on remaining clients"])
    )
    if "on held-out data" in result:
        table.add_row(
            f"{result['score']}, held-out data", _number(result["on held-out data"])
        )
    if result["on forgotten clients"] is not None:
        table.add_row(
            f"{result['score']}, unlearned clients",
            _number(result["on forgotten clients"]),
        )
    if _has_bound(document["guarantee"]):
        for gap in document["grounds"]["not proved"]:
            table.add_row("not proved", gap)
    return table


def _has_bound(guarantee: Mapping[str, Any]) -> bool:
    """Whether the method has a bound, with or without a proof for this run."""
    return guarantee["promised"] or "compared with" in guarantee


def _guarantee_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """The guarantee of a certificate in words."""
    guarantee = document["guarantee"]
    if not _has_bound(guarantee):
        return [("guarantee", "none: this method gives no guarantee")]
    text = f"epsilon {guarantee['epsilon']:g}, delta {guarantee['delta']:g}"
    if "for" in guarantee:
        text += f", for {guarantee['for']}"
    if document["grounds"]["not proved"]:
        text = f"not proved, as a heuristic: {text}"
    rows = [("guarantee", text)]
    composed = guarantee.get("composed epsilon", 0.0)
    if composed > guarantee["epsilon"] * (1 + 1e-9):
        rows.append(
            ("all noise combined", f"epsilon {composed:.4g}, for the worst client")
        )
    return rows


def _number(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.4f}"


def import_parts(modules: list[str]) -> None:
    """Import modules of the user with parts or schedules, also from the current folder."""
    if modules:
        use_folders([Path.cwd()])
    for module in modules:
        import_module(module)
        allow_functions_of(module)


def verify_certificate(
    certificate: Path,
    training: Path | None,
    public_keys: list[Path],
    *,
    nodes: Path | None,
    json: bool,
) -> None:
    """Check a certificate against its run, and print every check."""
    checks = verify(certificate, training, public_keys, nodes)
    code = _code_of_branch(certificate)
    if json:
        labels = [check.label for check in checks]
        print_json({"holds": True, "checks": labels, "code": code})
        return
    for package, known in code.items():
        console.print(f"code  {package}, {known}", markup=False, highlight=False)
    for check in checks:
        line = f"ok  {check.label}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print("the certificate holds")


def _code_of_branch(certificate: Path) -> dict[str, str]:
    """The users' code of the certified branch, by package, as its ledger records it."""
    if not begun(certificate.parent):
        return {}
    run = open_run(certificate.parent)
    code = {name: str(known) for name, known in recorded_code(run.meta).items()}
    run.close()
    return code
