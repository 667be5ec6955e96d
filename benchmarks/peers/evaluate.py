"""One way to measure every peer's model, on held-out data."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from models import with_weights
from talk import Exported


def held_out(data: Exported, weights: dict[str, np.ndarray]) -> dict[str, float]:
    """Accuracy and mean cross-entropy of a model."""
    model, right, loss = with_weights(data.model, weights).eval(), 0, 0.0
    with torch.no_grad():
        for start in range(0, len(data.test_y), 1000):
            rows = slice(start, start + 1000)
            scores = model(torch.from_numpy(data.features(data.test_x[rows])))
            labels = torch.from_numpy(data.test_y[rows])
            right += int((scores.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(scores, labels, reduction="sum"))
    return {"accuracy": right / len(data.test_y), "loss": loss / len(data.test_y)}
