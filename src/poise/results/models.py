"""`ModelReader`: the models and updates that a run kept."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poise.core.errors import InvalidOption, LedgerError, require
from poise.core.types import HELD, PERSONAL, Floats
from poise.ledger import client_states, models
from poise.ledger.recovery import good_entries
from poise.ledger.store import MODELS
from poise.results.rounds import RoundReader

if TYPE_CHECKING:
    from poise.core.federations import TaskLike
    from poise.core.vectors import Layout, Vector


class ModelReader(RoundReader):
    """Models of a run as vectors, (d,), checked against the hashes of its ledger."""

    task: TaskLike | None = None
    """The task of a run that this process made; None for a run folder."""

    @property
    def trainable(self) -> int:
        """Number of trained entries; batch-norm statistics come after them."""
        return int(self.fact("trainable"))

    @property
    def model(self) -> Floats:
        """The newest model, (d,)."""
        return self.models(self.rounds)

    def models(self, n: int) -> Floats:
        """The model after n aggregations, (d,), if kept; n = 0 is the initial one."""
        if not 0 <= n <= self.rounds:
            raise InvalidOption(
                f"the run has no model after {n} aggregations",
                f"it has {self.rounds} aggregations",
            )
        theta: Vector = self._ledger.store.get(models.name(n), self.model_hash(n))[
            "theta"
        ]
        return np.asarray(theta.cpu().numpy())

    def client_model(self, client: int | str) -> Floats:
        """The model that a client uses, (d,): the newest, with its personal layers.

        A client that has not taken part yet uses the newest model unchanged.
        """
        client = self.client_number(client)
        model = self.model.copy()
        positions = self.array("personal")
        if positions is None and "personal" not in self.experiment:
            return model
        with self._ledger.guard():
            entries, _ = good_entries(self._ledger.database)
            state = client_states.read(self._ledger.store, entries).get(client, {})
        if HELD in state:
            raise LedgerError(
                (
                    f"the personal layers of client {client} are on its node and do not "
                    "leave it"
                ),
                "read them on the node",
            )
        if PERSONAL in state:
            if positions is None:
                raise LedgerError(
                    (
                        "poise 0.1 made this run and did not record which entries are "
                        "personal"
                    ),
                    "`poise resume RUN --rounds N` records them",
                )
            model[positions] = state[PERSONAL].cpu().numpy()
        return model

    def vector(
        self, n: int | None = None, *, client: int | str | None = None
    ) -> Floats:
        """The model after n aggregations, (d,), or the model that a client uses.

        The newest model by default. Personal layers are known of the newest model only.
        """
        if client is None:
            return self.models(self.rounds if n is None else n)
        require(
            n in (None, self.rounds),
            f"the ledger has the personal layers after {self.rounds} aggregations only",
            "leave n out, or leave client out",
            where="n",
        )
        return self.client_model(client)

    def state_dict(
        self, n: int | None = None, *, client: int | str | None = None
    ) -> dict[str, NDArray[Any]]:
        """The model by the names of its tensors, as NumPy arrays.

        The arrays are trained parameters and buffers such as batch-norm statistics.
        Frozen parameters are part of the task and not of a run: ``run.module()`` has
        them. ``module.load_state_dict`` takes these arrays after ``torch.from_numpy``.

        Args:
            n: the model after n aggregations; the newest by default.
            client: the model that this client uses, with its personal layers.

        >>> import poise
        >>> fed = poise.federation("digits", clients=5)
        >>> solver = poise.solvers.SGD(lr=0.1, steps=5, batch_size=20)
        >>> run = poise.train(fed, poise.task("logistic"), solver, rounds=2)
        >>> {name: array.shape for name, array in run.state_dict().items()}
        {'1.weight': (10, 64), '1.bias': (10,)}
        """
        import torch

        theta = torch.from_numpy(self.vector(n, client=client))
        tensors = self.layout.tensors(theta)
        return {name: np.asarray(tensor.numpy()) for name, tensor in tensors.items()}

    @cached_property
    def layout(self) -> Layout:
        """Which tensor each entry of the model's vector belongs to.

        Runs of poise 0.1 did not record it: poise makes their model, if it is one of
        poise's own.
        """
        from poise.results.modules import layout_in

        return layout_in(self)

    @property
    def kept(self) -> list[int]:
        """The n for which `models` has a model."""
        return [v for v in models.versions(self._ledger.store) if v <= self.rounds]

    def model_file(self, n: int) -> Path | None:
        """Return the file of the model after n aggregations; None in memory."""
        if self.path is None:
            return None
        return self.path / MODELS / f"{models.name(n)}.safetensors"

    def model_hash(self, n: int) -> str | None:
        """Return the recorded hash of the model after n aggregations."""
        if n == 0:
            return self.meta.get("initial")
        hashes = self._query("SELECT model FROM rounds WHERE n < ? AND n = ?", n - 1)
        if hashes:
            return str(hashes[0][0])
        return None

    def updates(self, n: int) -> Floats:
        """The updates of aggregation n, (m, d), a row per contribution, if kept."""
        if not 0 <= n < self.rounds:
            raise InvalidOption(
                f"the run has no aggregation {n}", f"it has {self.rounds} aggregations"
            )
        if not self.keeps_updates:
            raise LedgerError(
                f"{self!r} did not keep its updates",
                "train with keep_updates=True ([run] keep_updates = true)",
            )
        ((digest,),) = self._query(
            "SELECT updates FROM rounds WHERE n < ? AND n = ?", n
        )
        if not digest:  # no client contributed
            return np.zeros((0, len(self.models(0))))
        stack: Vector = self._ledger.store.get(models.updates(n), digest)[
            models.UPDATES
        ]
        return np.asarray(stack.cpu().numpy())

    @property
    def keeps_updates(self) -> bool:
        """Whether the run kept its updates."""
        return "keep_updates" in self.meta

    def verify(self) -> None:
        """Recompute every digest; raise `LedgerError` for the first changed round."""
        if self.damage:
            hint = "`poise resume` goes back to the last good round"
            raise LedgerError(f"{self._file}: {self.damage}", hint)
        for n in self.kept:
            self.models(n)
        if self.keeps_updates:
            for n in range(self.rounds):
                self.updates(n)
