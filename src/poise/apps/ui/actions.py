"""What the console can do to a run, each as the command that a user would type; pages and the API
call these.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from poise.apps.ui import quarantine
from poise.apps.ui.jobs import FOLDER, Job, Jobs
from poise.apps.ui.library import Library, NotThere
from poise.apps.ui.views.listing import BRANCHES
from poise.core.errors import IncompatibleParts, InvalidOption, require

if TYPE_CHECKING:
    from poise.apps.ui.views.unlearning import Asked


def compare(library: Library, name: str) -> Job:
    """Make the similarity graph of a simulated run from the data that its experiment names: ``poise
    inspect``.
    """
    from poise.apps.ui.views import federation as views

    folder = library.folder(name)
    with library.open(name) as run:
        if why := views.why_no_graph(run):
            raise IncompatibleParts(why)
        seed = run.meta["seed"]
    arguments = ["inspect", str(folder / "experiment.toml"), "--seed", seed]
    arguments += [
        "--keep",
        str(views.graph_file(folder)),
        "--out",
        str(folder / FOLDER / views.PAGE),
    ]
    return Jobs(folder).start("inspect", "compare the clients' data", arguments)


def forget(library: Library, name: str, asked: Asked, deployment: Path | None = None) -> Job:
    """Honour a request to forget: ``poise unlearn``, or ``poise deploy unlearn`` for the nodes of a
    deployment.
    """
    from poise.apps.ui.views import federation
    from poise.apps.ui.views import unlearning as views
    from poise.unlearning.proof import require_proof

    with library.open(name) as run, views.opened(run) as histories:
        cost = asked.cost(
            run, histories
        )  # what the command would refuse is refused here, before anything is started
        require_proof(cost.not_proved, asked.heuristic)
        training, nodes = histories.root.path, federation.on_nodes(histories.root.experiment)
        branch = histories.branch_folder(histories.newest + 1)
    assert training is not None
    assert branch is not None
    arguments = ["unlearn", str(training), *asked.arguments()]
    if nodes:
        if deployment is None:
            raise InvalidOption(
                "the clients of this run are nodes of a deployment",
                "start the console with --deployment DIR",
            )
        arguments = ["deploy", *arguments, "--to", str(deployment)]
    about = {"clients": asked.clients, "grows": str(branch.resolve()), "of": asked.max_rounds}
    return Jobs(training).start("unlearn", f"forget {_clients(asked.clients)}", arguments, about)


def verify(library: Library, name: str, request: int) -> Job:
    """Hold a certificate against the ledgers and models that it rests on: ``poise verify``."""
    from poise.apps.ui.views import unlearning as views
    from poise.unlearning.histories import CERTIFICATE

    with library.open(name) as run, views.opened(run) as histories:
        if not 1 <= request <= len(histories.finished):
            raise NotThere(f"there is no certificate of request {request}")
        training, place, seen = (
            histories.root.path,
            histories.branch_folder(request),
            views.fingerprint(histories, request),
        )
    assert training is not None
    assert place is not None
    arguments = ["verify", str(place / CERTIFICATE)]
    return Jobs(training).start(
        "verify", f"verify certificate {request}", arguments, {"request": request, "seen": seen}
    )


def train_without(library: Library, name: str, clients: Sequence[int]) -> Job:
    """Train again without some clients, as a new run beside this one: ``poise run``."""
    from poise.apps.ui.views import federation

    folder = library.folder(name)
    require(len(clients) > 0, "nobody is in quarantine", "decide about a client first")
    require(
        folder.parent.name != BRANCHES,
        "this run was made by a request to forget",
        "train its training again",
    )
    with library.open(name) as run:
        if federation.on_nodes(run.experiment):
            raise IncompatibleParts(
                "the clients of this run are nodes of a deployment", "use the command shown"
            )
        file = quarantine.write_experiment(run, clients)
        seed = run.meta["seed"]
    out = beside(library, folder, quarantine.without_name(clients))
    arguments = ["run", str(file), "--out", str(out)]
    about = {"grows": str(out.resolve() / f"seed-{seed}")}
    return Jobs(folder).start(
        "run", f"train again without {_clients(','.join(map(str, clients)))}", arguments, about
    )


def beside(library: Library, folder: Path, what: str) -> Path:
    """A folder for runs that follow from one: beside its experiment's, never outside the console's
    folder.
    """
    home = folder.parent if folder.name.startswith("seed-") else folder
    inside = home.resolve()
    if not inside.is_relative_to(library.root.resolve()) or inside == library.root.resolve():
        return folder / FOLDER / what
    return home.with_name(f"{home.name}-{what}")


def jobs_of(library: Library, name: str) -> Jobs:
    """The jobs of a run; those of a branch are its training's."""
    folder = library.folder(name)
    return Jobs(folder.parent.parent if folder.parent.name == BRANCHES else folder)


def _clients(text: str) -> str:
    return f"client {text}" if text.isdigit() else f"clients {text}"
