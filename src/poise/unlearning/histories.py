"""The histories of a federation: the training run, and one branch for every unlearning request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from poise.core.disk import make_folder
from poise.core.errors import LedgerError, PoiseError, RunLocked
from poise.core.sensitivity import Group
from poise.core.types import Floats, Ints
from poise.ledger import summary
from poise.ledger.files import write_failure
from poise.ledger.lock import Lock, held
from poise.ledger.store import DATABASE, LOCK
from poise.privacy.budget import Budget
from poise.results import Run, open_run
from poise.unlearning import request as requests
from poise.unlearning.groups import GroupSensitivity, group_sensitivity
from poise.unlearning.ledger_sensitivity import budget_sensitivity
from poise.unlearning.request import Request
from poise.unlearning.restart_tree import Node, extended

FOLDER = "unlearning"
CERTIFICATE = summary.CERTIFICATE


@dataclass
class Branch:
    """The branch of one request.

    Args:
        request: the request.
        run: the retrained run; None until the branch has its certificate.
        done: whether the branch has its certificate.
        certificate: the certificate of a branch in memory.
    """

    request: Request
    run: Run | None
    done: bool
    certificate: dict[str, Any] = field(default_factory=dict)


@dataclass
class Histories:
    """The training run, its branches, and the folder of the branches (None: in memory)."""

    root: Run
    folder: Path | None
    branches: list[Branch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._psi: dict[tuple[int, Budget], Floats] = {}
        self._group_psi: dict[tuple[int, Budget, Group], GroupSensitivity] = {}

    @classmethod
    def of(
        cls, run: Run, out: Path | None = None, *, repair: bool = False
    ) -> Histories:
        """Return the histories that a run belongs to; the run is the training or a branch.

        Raises where an earlier request has no certificate, unless ``repair`` is true.
        """
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
        histories = cls(root, out, _read_branches(out))
        if not repair:
            histories.require_certified()
        return histories

    def uncertified(self) -> Branch | None:
        """Return the first branch without a certificate that a later request followed."""
        return next((b for b in self.branches[:-1] if not b.done), None)

    def require_certified(self) -> None:
        """Raise where an earlier request has no certificate: later guarantees rest on it."""
        lacking = self.uncertified()
        if lacking is None:
            return
        assert self.folder is not None
        index = lacking.request.index
        clients = ",".join(map(str, lacking.request.clients))
        raise LedgerError(
            (
                f"{self.folder / f'{index:03d}'} has no {CERTIFICATE}, but request "
                f"{index + 1} came after it"
            ),
            f"repeat the request for --clients {clients} to write it anew",
        )

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

    def lengths(self) -> list[tuple[Run, int]]:
        """Return the training and the finished branches, each with its rounds."""
        runs = [self.run(branch) for branch in range(self.newest + 1)]
        return [(run, run.rounds) for run in runs]

    @property
    def newest(self) -> int:
        """The index of the newest finished branch."""
        return len(self.finished)

    @property
    def unlearned(self) -> list[int]:
        """F_r: the clients of all finished requests."""
        return sorted({c for b in self.finished for c in b.request.clients})

    @property
    def units(self) -> list[Group]:
        """The clients and groups that the guarantees of all finished requests are about."""
        return sorted({unit for b in self.finished for unit in b.request.units})

    @property
    def nodes(self) -> list[Node]:
        """O(r): the nodes of the present history."""
        nodes: list[Node] = []
        for branch in self.finished:
            nodes = extended(nodes, branch.request.node)
        return nodes

    @property
    def noises(self) -> dict[Node, float]:
        """The standard deviation of the noise at every node of the present history."""
        return {b.request.node: b.request.sigma for b in self.finished}

    def members(self, branch: int) -> Ints:
        """Return the number in the training of every client of a branch."""
        return np.searchsorted(owners_of(self.root), owners_of(self.run(branch)))

    def psi(self, branch: int, budget: Budget) -> Floats:
        """Psi_s(n, i) of a branch with clients numbered as in the training, (R_s + 1, N)."""
        counting = _counting(budget)
        if (branch, counting) not in self._psi:
            branch_psi = budget_sensitivity(self.run(branch), counting)
            psi = np.zeros((len(branch_psi), self.root.clients))
            psi[:, self.members(branch)] = branch_psi
            self._psi[branch, counting] = psi
        return self._psi[branch, counting]

    def unit_psi(self, branch: int, budget: Budget, units: Sequence[Group]) -> Floats:
        """Psi_s(n, W) of clients and groups W, numbered as in the training, (R_s + 1, U)."""
        columns = []
        for unit in units:
            if len(unit) == 1:
                columns.append(self.psi(branch, budget)[:, unit[0]])
            else:
                columns.append(self.group_psi(branch, budget, unit).values)
        if not columns:
            return np.zeros((self.run(branch).rounds + 1, 0))
        return np.stack(columns, axis=1)

    def group_psi(self, branch: int, budget: Budget, group: Group) -> GroupSensitivity:
        """Psi_s(n, W) of the members of a group that are clients of a branch."""
        key = (branch, _counting(budget), group)
        if key not in self._group_psi:
            numbers = np.flatnonzero(np.isin(self.members(branch), group)).tolist()
            run = self.run(branch)
            self._group_psi[key] = group_sensitivity(run, numbers, key[1])
        return self._group_psi[key]


def _counting(budget: Budget) -> Budget:
    """Return a budget with only the options that decide how sensitivities are counted."""
    return Budget(
        participation=budget.participation, strong_convexity=budget.strong_convexity
    )


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
    new = not folder.exists()
    try:
        make_folder(folder)
    except OSError as error:
        raise write_failure(folder, error) from error
    lock = Lock(folder / LOCK)
    lock.acquire()
    try:
        yield
    except PoiseError:
        if new and [place.name for place in folder.iterdir()] == [LOCK]:
            # a refused request leaves nothing behind
            (folder / LOCK).unlink()
            folder.rmdir()
        raise
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
    for place in sorted(folder.glob("[0-9]*")):
        if not (place / requests.FILE).exists():
            _refuse_without_request(place)
            continue
        request = requests.load(place)
        due = len(branches) + 1
        if request.index != due:
            raise LedgerError(
                f"{place / requests.FILE} has request {request.index}, expected request {due}",
                "restore the missing branch folder, or the original request.json",
            )
        certificate = place / CERTIFICATE
        done = certificate.exists() and certificate.stat().st_size > 0
        branches.append(Branch(request, open_run(place) if done else None, done))
    return branches


def _refuse_without_request(place: Path) -> None:
    """Raise for a folder with a run but no request: a new branch would overwrite it."""
    for name in (CERTIFICATE, DATABASE):
        if (place / name).exists():
            raise LedgerError(
                f"{place} has {name}, but no {requests.FILE}",
                f"restore {requests.FILE} from a backup, or name another folder with out= (--out)",
            )


def _training_of(branch: Path) -> Run:
    """Open the training run of a branch, whose folder contains the folder of branches."""
    root = branch.parent.parent
    if branch.parent.name != FOLDER or not root.is_dir():
        raise LedgerError(
            f"{branch} is a branch, but it does not lie in the folder of its training run",
            "name the folder of the training run instead",
        )
    return open_run(root)
