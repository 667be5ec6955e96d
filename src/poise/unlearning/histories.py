"""The histories of a federation that was asked to forget: the training, and a branch for every
request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from poise.core.errors import LedgerError, RunLocked
from poise.core.types import Floats, Ints
from poise.ledger import summary
from poise.ledger.files import refused
from poise.ledger.lock import Lock, held
from poise.ledger.run import Run, open_run
from poise.ledger.store import LOCK
from poise.privacy.budget import Budget
from poise.unlearning import request as requests
from poise.unlearning.ledger_sensitivity import counted
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import Node, grown

FOLDER = "unlearning"
CERTIFICATE = summary.CERTIFICATE


@dataclass
class Branch:
    """What came of one request; ``run`` is None as long as its retraining has not begun."""

    request: Request
    run: Run | None
    done: bool


@dataclass
class Histories:
    """The training run, the branches that followed it, and where they lie (None: in memory)."""

    root: Run
    folder: Path | None
    branches: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counted: dict[tuple[int, Budget], Floats] = {}

    @classmethod
    def of(cls, run: Run, out: Path | None = None) -> Histories:
        """The histories that a run belongs to, be it the training or a later branch."""
        if isinstance(run.histories, cls) and out is None:
            return run.histories
        root = run
        if run.path is not None and (run.path / requests.FILE).exists():
            root, out = _training(run.path, out)
        if root.path is None and out is None:
            root.histories = made = cls(root, None)
            return made
        folder = out if out is not None else root.path / FOLDER  # type: ignore[operator]
        return cls(root, folder, _branches(folder))

    def place(self, index: int) -> Path | None:
        """Where branch ``index`` lies."""
        return None if self.folder is None else self.folder / f"{index:03d}"

    def remember(self, branch: Branch) -> None:
        """Add or replace the newest branch."""
        self.branches[branch.request.index - 1 :] = [branch]
        if self.folder is None and branch.run is not None:
            branch.run.histories = self

    @property
    def open_request(self) -> Request | None:
        """The request whose retraining has not come to its end."""
        return self.branches[-1].request if self.branches and not self.branches[-1].done else None

    @property
    def finished(self) -> list[Branch]:
        """The branches that came to their end."""
        return [b for b in self.branches if b.done]

    def run(self, branch: int) -> Run:
        """The run of a branch; 0 is the training."""
        found = self.root if branch == 0 else self.branches[branch - 1].run
        assert found is not None
        return found

    @property
    def newest(self) -> int:
        """The index of the newest branch that is done."""
        return len(self.finished)

    @property
    def forgotten(self) -> list[int]:
        """F_r: everyone whom a finished request named."""
        return sorted({c for b in self.finished for c in b.request.clients})

    @property
    def oracle(self) -> list[Node]:
        """O(r): the nodes of the present history."""
        nodes: list[Node] = []
        for branch in self.finished:
            nodes = grown(nodes, branch.request.node)
        return nodes

    def members(self, branch: int) -> Ints:
        """Which client of the training each client of a branch is; the training itself may be
        without some owners.
        """
        return np.searchsorted(members_of(self.root), members_of(self.run(branch)))

    def psi(self, branch: int, budget: Budget) -> Floats:
        """Psi_s(n, i) of a branch with clients numbered as in the training, (R_s + 1, N)."""
        counting = Budget(
            participation=budget.participation, strong_convexity=budget.strong_convexity
        )
        if (branch, counting) not in self._counted:
            run = self.run(branch)
            own = counted(run, counting)
            whole = np.zeros((len(own), self.root.clients))
            whole[:, self.members(branch)] = own
            self._counted[branch, counting] = whole
        return self._counted[branch, counting]


def at_rest(run: Run) -> None:
    """Raise where a run is still being written: models and clients' shares that a request rests on
    would change.
    """
    if run.path is not None and held(run.path / LOCK):
        raise RunLocked(
            (
                f"{run.path} is still being trained: a request to forget starts from a training that "
                "has ended"
            ),
            "wait for it, or stop it: the rounds it has done are kept",
        )


@contextmanager
def one_at_a_time(folder: Path | None) -> Iterator[None]:
    """Keep others from adding a branch to this folder for as long as one is being made."""
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(folder, error) from error
    lock = Lock(folder / LOCK)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def members_of(run: Run) -> Ints:
    """Which owner each client of a run is: of the data that its ``[data]`` names, ``without`` or
    not.
    """
    members = run.array("members")
    return np.arange(run.clients) if members is None else np.asarray(members)


def _branches(folder: Path) -> list[Branch]:
    """What is in a folder of branches, in order."""
    found: list[Branch] = []
    for place in sorted(p for p in folder.glob("[0-9]*") if (p / requests.FILE).exists()):
        asked = requests.load(place)
        if asked.index != len(found) + 1:
            raise LedgerError(
                f"{place / requests.FILE} is request {asked.index}, but {len(found) + 1} is due"
            )
        if found and not found[-1].done:
            raise LedgerError(
                (
                    f"{folder / f'{len(found):03d}'} has no {CERTIFICATE}, but request {asked.index} "
                    "came after it"
                ),
                "put the certificate back: what later requests promise rests on it",
            )
        done = (place / CERTIFICATE).exists()
        found.append(Branch(asked, open_run(place) if done else None, done))
    return found


def _training(branch: Path, out: Path | None) -> tuple[Run, Path]:
    """The training run that a branch goes back to, and the folder of its branches."""
    folder = branch.parent if out is None else out
    root = branch.parent.parent
    if branch.parent.name != FOLDER or not root.is_dir():
        raise LedgerError(
            f"{branch} is a branch of a training that does not lie around it",
            "give the training run",
        )
    return open_run(root), folder
