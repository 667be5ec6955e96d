"""`FreeRider`: clients that do no local work and hide it or not."""

from __future__ import annotations

from typing import Literal

import torch

from poise.attacks.base import FIRST_NOISE, check_clients, fit_clients, noise
from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting

FIRST = "first"
SIGMA = "sigma"


@part("attack", "free-rider")
class FreeRider:
    """Clients without data: plain ones send ``Delta = 0``, disguised ones fading noise.

    Disguised: ``Delta = phi(t) N(0, I)`` with ``phi(t) = scale * sigma * t^-gamma`` in
    round t, and ``phi = 1e-3`` until the client has seen the model change. A client
    declares its size in the federation (``poise.federation(…, free_riders=k)`` adds
    clients without data that declare the mean size of the others).

    Args:
        clients: the client numbers of the free-riders.
        kind: ``"plain"`` or ``"disguised"``.
        sigma: a number, or an estimate from the first model change that the client sees
            (theta^1 - theta^0 if it takes part in every round). ``"estimate"`` is the
            standard deviation of its entries, ``"estimate-mean"`` the mean of their
            absolute values.
        gamma: how fast the noise fades; 0 keeps it constant.
        scale: factor on sigma.
        loss: the loss to report if the run needs losses; the client has no data to
            compute one.

    >>> FreeRider(clients=[3, 4], kind="disguised", gamma=0.5, scale=3.0).clients
    (3, 4)

    Source: [Fraboni 2023, §6.2.4, §6.2.5, §6.3.2, Alg. 8].
    """

    clients: tuple[int, ...]
    kind: Literal["plain", "disguised"] = "plain"
    sigma: float | Literal["estimate", "estimate-mean"] = "estimate"
    gamma: float = 1.0
    scale: float = 1.0
    loss: float = 1.0

    works = False

    def __post_init__(self) -> None:
        check_clients("FreeRider", self.clients)
        require(
            isinstance(self.sigma, str) or self.sigma >= 0,
            f"FreeRider: sigma must be at least 0: {self.sigma}",
            where="sigma",
        )
        require(
            self.gamma >= 0,
            f"FreeRider: gamma must be at least 0, not {self.gamma}",
            where="gamma",
        )
        require(
            self.scale >= 0,
            f"FreeRider: scale must be at least 0, not {self.scale}",
            where="scale",
        )

    def fit(self, setting: Setting) -> None:
        """Refuse federations without these clients."""
        fit_clients("FreeRider", self.clients, setting)

    def answer(self, view: AttackerView, seed: int) -> ForgedUpdate:
        """Return an update of 0 (plain) or of noise (disguised)."""
        if self.kind == "plain":
            return ForgedUpdate(torch.zeros_like(view.received), loss=self.loss)
        sigma, keep = self._estimate_sigma(view)
        if sigma is None:
            deviation = FIRST_NOISE
        else:
            deviation = self.scale * sigma * max(view.version, 1) ** -self.gamma
        return ForgedUpdate(noise(view, seed, scale=deviation), keep, loss=self.loss)

    def _estimate_sigma(
        self, view: AttackerView
    ) -> tuple[float | None, dict[str, torch.Tensor]]:
        """Return sigma, None if not known yet, and the notes that the client keeps."""
        if not isinstance(self.sigma, str):
            if not view.version:
                return None, {}
            return self.sigma, {}
        if SIGMA in view.kept:
            return float(view.kept[SIGMA]), {SIGMA: view.kept[SIGMA]}
        if FIRST not in view.kept:
            return None, {FIRST: view.received}
        change = (view.received - view.kept[FIRST].to(view.received))[
            : view.trainable
        ].double()
        if self.sigma == "estimate-mean":
            sigma = change.abs().mean()
        else:
            sigma = change.std(correction=0)
        return float(sigma), {SIGMA: sigma.reshape(1)}
