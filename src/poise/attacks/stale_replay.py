"""`StaleReplay`: clients that send the last model change back to the server."""

from __future__ import annotations

from poise.attacks.base import (
    FIRST_NOISE,
    LAST,
    check_clients,
    fit_clients,
    last_step,
    noise,
)
from poise.core.parts import part
from poise.core.types import AttackerView, ForgedUpdate, Setting


@part("attack", "stale-replay")
class StaleReplay:
    """``Delta = scale * (theta^n - theta^m)``, m the last round of the client.

    A client that takes part in every round returns the last global step. In its first
    round a client sends noise of standard deviation 1e-3.

    Args:
        clients: the client numbers of the attackers.
        scale: factor on the step.
        loss: the loss to report if the run needs losses.

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
        """Refuse federations without these clients."""
        fit_clients("StaleReplay", self.clients, setting)

    def answer(self, view: AttackerView, seed: int) -> ForgedUpdate:
        """Return the last model change that the client saw."""
        step = last_step(view)
        if step is None:
            update = noise(view, seed, scale=FIRST_NOISE)
        else:
            update = self.scale * step
        return ForgedUpdate(update, {LAST: view.received}, loss=self.loss)
