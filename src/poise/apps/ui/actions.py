"""The console's actions on a run; each starts the ``poise`` command for the action."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poise.apps.ui import quarantine
from poise.apps.ui.jobs import FOLDER, ConsoleJob, ConsoleJobs
from poise.apps.ui.library import Library, NotInRun
from poise.apps.ui.views.listing import BRANCHES
from poise.core.errors import IncompatibleParts, InvalidOption, require

if TYPE_CHECKING:
    from poise.apps.ui.views.unlearning import RequestOptions


def operand(path: Path) -> str:
    """A path as an argument of a command, which takes no path for an option.

    >>> operand(Path("-x/seed-0")), operand(Path("runs/-x"))
    ('./-x/seed-0', 'runs/-x')
    """
    text = str(path)
    if text.startswith("-"):
        return f"./{text}"
    return text


def compare(library: Library, name: str) -> ConsoleJob:
    """Compute the similarity graph of a simulated run: ``poise inspect``."""
    from poise.apps.ui.views import federation as views

    folder = library.folder(name)
    with library.open(name) as run:
        if why := views.why_no_graph(run):
            raise IncompatibleParts(why)
        seed = run.meta["seed"]
    arguments = ["inspect", operand(folder / "experiment.toml"), "--seed", seed]
    arguments += ["--keep", operand(views.graph_file(folder))]
    arguments += ["--out", operand(folder / FOLDER / views.PAGE)]
    return ConsoleJobs(folder).start(
        "inspect", "compare the clients' data", arguments=arguments
    )


def unlearn(
    library: Library, name: str, options: RequestOptions, deployment: Path | None = None
) -> ConsoleJob:
    """Unlearn clients by ``poise unlearn``, or ``poise deploy unlearn`` for nodes."""
    from poise.apps.ui.views import federation
    from poise.apps.ui.views import unlearning as views
    from poise.unlearning.proof import require_proof

    with library.open(name) as run, views.opened(run) as histories:
        # raises the errors of the command before it starts
        cost = options.cost(run, histories)
        require_proof(cost.not_proved, options.heuristic)
        training = histories.root.path
        nodes = federation.on_nodes(histories.root.experiment)
        branch = histories.branch_folder(histories.newest + 1)
    assert training is not None
    assert branch is not None
    arguments = ["unlearn", operand(training), *options.arguments()]
    if nodes:
        if deployment is None:
            raise InvalidOption(
                "the clients of this run are nodes of a deployment",
                "start the console with --deployment DIR",
            )
        arguments = ["deploy", *arguments, "--to", operand(deployment)]
    about = {
        "clients": options.clients,
        "grows": str(branch.resolve()),
        "of": options.max_rounds,
    }
    title = f"unlearn {_clients(options.clients)}"
    return ConsoleJobs(training).start(
        "unlearn", title, arguments=arguments, about=about
    )


def verify(library: Library, name: str, request: int) -> ConsoleJob:
    """Check a certificate against its ledgers and models: ``poise verify``."""
    from poise.apps.ui.views import unlearning as views
    from poise.unlearning.histories import CERTIFICATE

    with library.open(name) as run, views.opened(run) as histories:
        if not 1 <= request <= len(histories.finished):
            raise NotInRun(f"request {request} has no certificate")
        training = histories.root.path
        branch = histories.branch_folder(request)
        about = {"request": request, "seen": views.fingerprint(histories, request)}
    assert training is not None
    assert branch is not None
    arguments = ["verify", operand(branch / CERTIFICATE)]
    title = f"verify certificate {request}"
    return ConsoleJobs(training).start(
        "verify", title, arguments=arguments, about=about
    )


def train_without(library: Library, name: str, clients: Sequence[int]) -> ConsoleJob:
    """Train a new run, next to this one, without these clients: ``poise run``."""
    from poise.apps.ui.views import federation

    folder = library.folder(name)
    require(
        len(clients) > 0,
        "no client is in quarantine",
        "put a client into quarantine first",
    )
    require(
        folder.parent.name != BRANCHES,
        "this run is a branch of an unlearning request",
        "train the original run again",
    )
    with library.open(name) as run:
        if federation.on_nodes(run.experiment):
            raise IncompatibleParts(
                "the clients of this run are nodes of a deployment",
                "run the command that the page shows",
            )
        file = quarantine.write_experiment(run, clients)
        seed = run.meta["seed"]
    out = follow_up_folder(library, folder, quarantine.without_name(clients))
    arguments = ["run", operand(file), "--out", operand(out)]
    about = {"grows": str(out.resolve() / f"seed-{seed}")}
    title = f"train again without {_clients(','.join(map(str, clients)))}"
    return ConsoleJobs(folder).start("run", title, arguments=arguments, about=about)


def follow_up_folder(library: Library, folder: Path, suffix: str) -> Path:
    """A folder for new runs: beside the experiment's, inside the console's folder."""
    home = folder
    if folder.name.startswith("seed-"):
        home = folder.parent
    root = library.root.resolve()
    if not home.resolve().is_relative_to(root) or home.resolve() == root:
        return folder / FOLDER / suffix
    return home.with_name(f"{home.name}-{suffix}")


def jobs_of(library: Library, name: str) -> ConsoleJobs:
    """The jobs of a run; a branch shares the jobs of its training."""
    folder = library.folder(name)
    if folder.parent.name == BRANCHES:
        folder = folder.parent.parent
    return ConsoleJobs(folder)


def _clients(text: str) -> str:
    if text.isdigit():
        return f"client {text}"
    return f"clients {text}"
