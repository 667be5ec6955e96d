"""`Mimic`: clients that send the last model change plus noise."""

from __future__ import annotations

import math

import torch

from poise.attacks.base import (
    FIRST_NOISE,
    LAST,
    check_clients,
    fit_clients,
    last_step,
    noise,
)
from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting


@part("attack", "mimic")
class Mimic:
    """``Delta = scale * (s + noise * |s| / sqrt(d) * N(0, I))``, s the last model change.

    s is the change between the last two models that the client received. In its first
    round the client sends noise of standard deviation 1e-3.

    Args:
        clients: the client numbers of the mimics.
        noise: length of the noise, as a multiple of the length of s.
        scale: factor on the whole update.
        loss: the loss to report if the run needs losses.

    >>> Mimic(clients=[2], noise=0.5).noise
    0.5
    """

    clients: tuple[int, ...]
    noise: float = 0.5
    scale: float = 1.0
    loss: float = 1.0

    works = False

    def __post_init__(self) -> None:
        check_clients("Mimic", self.clients)
        require(
            self.noise >= 0,
            f"Mimic: noise must be at least 0, not {self.noise}",
            where="noise",
        )

    def fit(self, setting: Setting) -> None:
        """Refuse federations without these clients."""
        fit_clients("Mimic", self.clients, setting)

    def answer(self, view: AttackerView, seed: int) -> ForgedUpdate:
        """Return the last model change that the client saw, plus noise."""
        keep = {LAST: view.received}
        step = last_step(view)
        if step is None:
            return ForgedUpdate(
                noise(view, seed, scale=FIRST_NOISE), keep, loss=self.loss
            )
        length = float(torch.linalg.vector_norm(step[: view.trainable].double()))
        around = noise(
            view, seed, scale=self.noise * length / math.sqrt(view.trainable)
        )
        return ForgedUpdate(self.scale * (step + around), keep, loss=self.loss)
