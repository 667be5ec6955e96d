"""What every peer computes: data, model, clients, local steps, batch size and learning rate of each
work.
"""

from __future__ import annotations

from dataclasses import dataclass

TARGET = 0.90
"""Held-out accuracy of the end-to-end figure."""

TARGET_WORK = "mlp-100x10x50"
PUBLIC_WORK = "lr-mnist"


@dataclass(frozen=True)
class Work:
    """One round: ``clients`` of ``population`` clients x ``steps`` x ``batch`` of a model.

    Every client owns just ``steps * batch`` samples, so that one local epoch is the same work for
    all peers and all clients weigh the same. After ``compare`` rounds the peers' models are
    compared (`figures.disagreements`).
    """

    source: str
    model: str
    population: int
    clients: int
    steps: int
    batch: int
    lr: float
    compare: int = 10

    @property
    def samples(self) -> int:
        """Samples that a client owns."""
        return self.steps * self.batch

    @property
    def label(self) -> str:
        """As it stands in the table."""
        return f"{self.model}: {self.clients:,} × {self.steps} × {self.batch}"


WORKS = {
    "logistic-10x10x50": Work("mnist", "logistic", 100, 10, 10, 50, 0.1),
    "logistic-100x10x50": Work("mnist", "logistic", 100, 100, 10, 50, 0.1),
    "logistic-500x5x10": Work("mnist", "logistic", 500, 500, 5, 10, 0.1, compare=6),
    "logistic-1000x5x10": Work("mnist", "logistic", 1000, 1000, 5, 10, 0.1, compare=4),
    "mlp-10x10x50": Work("mnist", "mlp", 100, 10, 10, 50, 0.1),
    "mlp-100x10x50": Work("mnist", "mlp", 100, 100, 10, 50, 0.1),
    "mlp-500x5x10": Work("mnist", "mlp", 500, 500, 5, 10, 0.1, compare=6),
    "mlp-1000x5x10": Work("mnist", "mlp", 1000, 1000, 5, 10, 0.1, compare=4),
    "cnn-10x8x64": Work("fashion-mnist", "cnn", 100, 10, 8, 64, 0.05, compare=20),
    "cnn-100x2x32": Work("fashion-mnist", "cnn", 100, 100, 2, 32, 0.05),
    "cnn-1000x1x8": Work("fashion-mnist", "cnn", 1000, 1000, 1, 8, 0.05, compare=4),
    "lstm-10x5x64": Work("shakespeare", "lstm", 100, 10, 5, 64, 0.5),
    "lstm-100x2x16": Work("shakespeare", "lstm", 100, 100, 2, 16, 0.5, compare=5),
    "lstm-1000x1x4": Work("shakespeare", "lstm", 1000, 1000, 1, 4, 0.5, compare=3),
    PUBLIC_WORK: Work("mnist", "logistic", 1000, 10, 6, 10, 0.03),
}
"""The works of the table; the last one is the LR-MNIST row of FLUTE's README, with clients of equal
size."""

ROWS = [name for name in WORKS if name != PUBLIC_WORK]
