"""The histories of a federation: the training run, and one branch for every unlearning request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from poise.core.errors import LedgerError, RunLocked
from poise.core.types import Floats, Ints
from poise.ledger import summary
from poise.ledger.files import write_failure
from poise.ledger.lock import Lock, held
from poise.ledger.run import Run, open_run
from poise.ledger.store import LOCK
from poise.privacy.budget import Budget
from poise.unlearning import request as requests
from poise.unlearning.ledger_sensitivity import budget_sensitivity
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import Node, extended

FOLDER = "unlearning"
CERTIFICATE = summary.CERTIFICATE


@dataclass
class Branch:
    """The branch of one request; ``run`` is None until the branch has its certificate."""

    request: Request
    run: Run | None
    done: bool


@dataclass
class Histories:
    """The training run, its branches, and the folder of the branches (None: in memory)."""

    root: Run
    folder: Path | None
    branches: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._psi: dict[tuple[int, Budget], Floats] = {}

    @classmethod
    def of(cls, run: Run, out: Path | None = None) -> Histories:
        """Return the histories that a run belongs to; the run is the training or a branch."""
        if isinstance(run.histories, cls) and out is None:
            return run.histories
        root = run
        if run.path is not None and (run.path / requests.FILE).exists():
            root = _training_of(run.path)
            out = run.path.parent if out is None else out
        if out is None and root.path is not None:
            out = root.path / FOLDER
        if out is None:
            in_memory = cls(root, None)
            root.histories = in_memory
            return in_memory
        return cls(root, out, _read_branches(out))

    def branch_folder(self, index: int) -> Path | None:
        """Return the folder of branch ``index``; None for branches in memory."""
        if self.folder is None:
            return None
        return self.folder / f"{index:03d}"

    def record(self, branch: Branch) -> None:
        """Add or replace the newest branch."""
        self.branches[branch.request.index - 1 :] = [branch]
        if self.folder is None and branch.run is not None:
            branch.run.histories = self

    @property
    def open_request(self) -> Request | None:
        """The request whose retraining is not finished; None if there is none."""
        if not self.branches or self.branches[-1].done:
            return None
        return self.branches[-1].request

    @property
    def finished(self) -> list[Branch]:
        """The finished branches."""
        return [b for b in self.branches if b.done]

    def run(self, branch: int) -> Run:
        """Return the run of a branch; 0 is the training."""
        run = self.root if branch == 0 else self.branches[branch - 1].run
        assert run is not None
        return run

    @property
    def newest(self) -> int:
        """The index of the newest finished branch."""
        return len(self.finished)

    @property
    def unlearned(self) -> list[int]:
        """F_r: the clients of all finished requests."""
        return sorted({c for b in self.finished for c in b.request.clients})

    @property
    def nodes(self) -> list[Node]:
        """O(r): the nodes of the present history."""
        nodes: list[Node] = []
        for branch in self.finished:
            nodes = extended(nodes, branch.request.node)
        return nodes

    def members(self, branch: int) -> Ints:
        """Return the number in the training of every client of a branch."""
        return np.searchsorted(owners_of(self.root), owners_of(self.run(branch)))

    def psi(self, branch: int, budget: Budget) -> Floats:
        """Psi_s(n, i) of a branch with clients numbered as in the training, (R_s + 1, N)."""
        counting = Budget(
            participation=budget.participation, strong_convexity=budget.strong_convexity
        )
        if (branch, counting) not in self._psi:
            branch_psi = budget_sensitivity(self.run(branch), counting)
            psi = np.zeros((len(branch_psi), self.root.clients))
            psi[:, self.members(branch)] = branch_psi
            self._psi[branch, counting] = psi
        return self._psi[branch, counting]


def require_ended(run: Run) -> None:
    """Raise while a process writes the run: its models and sensitivities would still change."""
    if run.path is not None and held(run.path / LOCK):
        raise RunLocked(
            f"{run.path} is still being trained: unlearning needs a training that has ended",
            "wait until the training ends, or stop it: poise keeps the rounds done so far",
        )


@contextmanager
def locked_folder(folder: Path | None) -> Iterator[None]:
    """Lock a folder of branches, so that one process at a time adds a branch."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failure(folder, error) from error
    lock = Lock(folder / LOCK)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def owners_of(run: Run) -> Ints:
    """Return the index, in the data that ``[data]`` names, of the owner of every client of a run.

    The indices have gaps where the run leaves owners out (``without``).
    """
    members = run.array("members")
    if members is None:
        return np.arange(run.clients)
    return np.asarray(members)


def _read_branches(folder: Path) -> list[Branch]:
    """Read the branches in a folder, in order."""
    branches: list[Branch] = []
    for place in sorted(
        p for p in folder.glob("[0-9]*") if (p / requests.FILE).exists()
    ):
        request = requests.load(place)
        due = len(branches) + 1
        if request.index != due:
            raise LedgerError(
                f"{place / requests.FILE} has request {request.index}, expected request {due}",
                "restore the missing branch folder, or the original request.json",
            )
        if branches and not branches[-1].done:
            raise LedgerError(
                (
                    f"{folder / f'{len(branches):03d}'} has no {CERTIFICATE}, but request "
                    f"{request.index} came after it"
                ),
                "restore the certificate: the guarantees of later requests rest on it",
            )
        done = (place / CERTIFICATE).exists()
        branches.append(Branch(request, open_run(place) if done else None, done))
    return branches


def _training_of(branch: Path) -> Run:
    """Open the training run of a branch, whose folder contains the folder of branches."""
    root = branch.parent.parent
    if branch.parent.name != FOLDER or not root.is_dir():
        raise LedgerError(
            f"{branch} is a branch, but it does not lie in the folder of its training run",
            "name the folder of the training run instead",
        )
    return open_run(root)
