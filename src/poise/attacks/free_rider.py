"""Clients that do nothing, openly or disguised."""

from __future__ import annotations

from typing import Literal

import torch

from poise.attacks.base import FIRST_NOISE, check_clients, fit_clients, noise
from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting

FIRST, SIGMA = "first", "sigma"


@part("attack", "free-rider")
class FreeRider:
    """Clients without data: plain ones return the model as it came, disguised ones add noise that
    fades.

    ``Delta = 0``, or ``Delta = phi(t) N(0, I)`` with ``phi(t) = scale * sigma * t^-gamma`` in round
    t; 1e-3 as long as the client has not seen the model change. What a client declares to own is
    its size in the federation (``poise.federation(…, free_riders=k)`` adds clients that own nothing
    and declare the mean of the others).

    Args:
        clients: who free-rides.
        kind: ``"plain"`` or ``"disguised"``.
        sigma: ``"estimate"``: the standard deviation of the entries of the first change of the
            model that the client sees (theta^1 - theta^0 for one that takes part in every round);
            ``"estimate-mean"``: the mean of their absolute values; or a number.
        gamma: how fast the noise fades; 0 keeps it.
        scale: how many sigma.
        loss: what it reports where losses are asked for: it has no data to compute one on.

    >>> FreeRider(clients=[3, 4], kind="disguised", gamma=0.5, scale=3.0).clients
    (3, 4)

    Source: E §6.2.4, 6.2.5, 6.3.2, algorithm 8.
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
            self.gamma >= 0, f"FreeRider: gamma must be at least 0, not {self.gamma}", where="gamma"
        )
        require(
            self.scale >= 0, f"FreeRider: scale must be at least 0, not {self.scale}", where="scale"
        )

    def fit(self, setting: Setting) -> None:
        """The clients must exist."""
        fit_clients("FreeRider", self.clients, setting)

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """The model as it came, with or without noise."""
        if self.kind == "plain":
            return ForgedUpdate(torch.zeros_like(seen.received), loss=self.loss)
        sigma, keep = self._sigma(seen)
        if sigma is None:
            return ForgedUpdate(noise(seen, seed, FIRST_NOISE), keep, self.loss)
        fading = max(seen.version, 1) ** -self.gamma
        return ForgedUpdate(noise(seen, seed, self.scale * sigma * fading), keep, self.loss)

    def _sigma(self, seen: AttackerView) -> tuple[float | None, dict[str, torch.Tensor]]:
        """Sigma as far as the client knows it, and what it must put aside to know it next time."""
        if not isinstance(self.sigma, str):
            return (self.sigma if seen.version else None), {}
        if SIGMA in seen.kept:
            return float(seen.kept[SIGMA]), {SIGMA: seen.kept[SIGMA]}
        if FIRST not in seen.kept:
            return None, {FIRST: seen.received}
        change = (seen.received - seen.kept[FIRST].to(seen.received))[: seen.trainable].double()
        sigma = change.abs().mean() if self.sigma == "estimate-mean" else change.std(correction=0)
        return float(sigma), {SIGMA: sigma.reshape(1)}
