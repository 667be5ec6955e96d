"""Several labels per row of a pandas table."""

import numpy as np
import pandas as pd
from torch import nn

import poise

LABELS = ["fever", "cough", "rash"]


def table(rows: int = 1500, clinics: int = 6) -> pd.DataFrame:
    """Return a table of patients: six numbers, a text, three labels and the clinic."""
    rng = np.random.default_rng(0)
    facts = rng.normal(size=(rows, 6))
    season = rng.choice(["summer", "winter"], rows)
    causes = facts @ rng.normal(size=(6, 3)) + 2 * (season == "winter")[:, None] - 1
    frame = pd.DataFrame(facts, columns=[f"test{i}" for i in range(6)])
    frame = frame.assign(season=season, clinic=rng.integers(clinics, size=rows))
    frame[LABELS] = (causes + 0.5 * rng.normal(size=(rows, 3)) > 0).astype(int)
    return frame


def make(hidden: int = 32) -> nn.Module:
    """Return a network of eight features (two for the season) and three logits."""
    return nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 3))


def main(rows: int = 1500, rounds: int = 15) -> poise.Run:
    """Train on six clinics and print F1 and AUROC, means over the labels."""
    fed = poise.federation(
        table(rows),
        label=LABELS,
        key="clinic",
        target="multi-label",
        client_test_share=0.2,
    )
    task = poise.Task(module=make, metrics=["f1", "auroc"])
    solver = poise.solvers.SGD(lr=0.5, epochs=1, batch_size=16)
    run = poise.train(fed, task, solver, rounds=rounds, metrics=["own_f1", "own_auroc"])
    print("f1", run.metric("own_f1").round(3))
    print("auroc", run.metric("own_auroc").round(3))
    return run


if __name__ == "__main__":
    main()
