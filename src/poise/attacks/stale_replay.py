"""Clients that send back what the others did last time."""

from __future__ import annotations

from poise.attacks.base import FIRST_NOISE, LAST, check_clients, fit_clients, last_step, noise
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting


@part("attack", "stale-replay")
class StaleReplay:
    """``Delta = scale * (theta^n - theta^m)``, m the round in which this client received the model
    last.

    In its first round it sends noise of standard deviation 1e-3. A client that takes part in every
    round returns the last global step.

    Args:
        clients: who replays.
        scale: factor on the step.
        loss: what it reports where losses are asked for.

    >>> StaleReplay(clients=[2]).scale
    1.0
    """

    clients: tuple[int, ...]
    scale: float = 1.0
    loss: float = 1.0

    works = False

    def __post_init__(self) -> None:
        check_clients("StaleReplay", self.clients)

    def fit(self, setting: Setting) -> None:
        """The clients must exist."""
        fit_clients("StaleReplay", self.clients, setting)

    def answer(self, seen: AttackerView, seed: int) -> ForgedUpdate:
        """The step that the client saw last."""
        step = last_step(seen)
        sent = noise(seen, seed, FIRST_NOISE) if step is None else self.scale * step
        return ForgedUpdate(sent, {LAST: seen.received}, self.loss)
