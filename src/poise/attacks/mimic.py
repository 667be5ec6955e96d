"""Clients that follow the others, with noise of their own."""

from __future__ import annotations

import math

import torch

from poise.attacks.base import FIRST_NOISE, LAST, check_clients, fit_clients, last_step, noise
from poise.core.errors import require
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting


@part("attack", "mimic")
class Mimic:
    """``Delta = scale * (s + noise * |s| / sqrt(d) * N(0, I))``, s the last change of the model
    that the client saw.

    In its first round it sends noise of standard deviation 1e-3.

    Args:
        clients: who mimics.
        noise: length of the noise, as a multiple of the length of s.
        scale: factor on all of it.
        loss: what it reports where losses are asked for.

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
            self.noise >= 0, f"Mimic: noise must be at least 0, not {self.noise}", where="noise"
        )

    def fit(self, setting: Setting) -> None:
        """The clients must exist."""
        fit_clients("Mimic", self.clients, setting)

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """The step that the client saw last, and noise around it."""
        step = last_step(seen)
        if step is None:
            return ForgedUpdate(noise(seen, seed, FIRST_NOISE), {LAST: seen.received}, self.loss)
        length = float(torch.linalg.vector_norm(step[: seen.trainable].double()))
        around = noise(seen, seed, self.noise * length / math.sqrt(seen.trainable))
        return ForgedUpdate(self.scale * (step + around), {LAST: seen.received}, self.loss)
