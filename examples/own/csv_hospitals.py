"""Four hospitals with one CSV file each, and the AUROC of every hospital."""

from pathlib import Path

import numpy as np
import pandas as pd
from torch import nn

import poise

FOLDER = Path(__file__).with_name("data")


def prepare(folder: Path = FOLDER) -> list[Path]:
    """Write one CSV file per hospital from the data set heart-disease."""
    folder.mkdir(exist_ok=True)
    hospitals = poise.federation("heart-disease", "by-key")
    files = []
    for i, name in enumerate(hospitals.names):
        train, test = hospitals.client(i), hospitals.client_test(i)
        x, ill = map(np.concatenate, zip(train, test, strict=True))
        table = pd.DataFrame(x).add_prefix("x")
        table["diagnosis"] = np.where(ill, "ill", "well")
        files.append(folder / f"{name}.csv")
        table.to_csv(files[-1], index=False)
    return files


def make(hidden: int = 16) -> nn.Module:
    """Return a network of ten features and two classes."""
    return nn.Sequential(nn.Linear(10, hidden), nn.Tanh(), nn.Linear(hidden, 2))


def main(rounds: int = 20) -> poise.Run:
    """Train on the four files and print the AUROC of each hospital's test patients."""
    files = {path.stem: path for path in prepare()}
    fed = poise.federation(
        files, label="diagnosis", classes=["well", "ill"], client_test_share=0.4
    )
    task = poise.Task(module=make, metrics=["auroc"])
    solver = poise.solvers.AdamW(lr=0.005, epochs=1, batch_size=16)
    metrics = ["client_test_auroc", "own_auroc"]
    run = poise.train(fed, task, solver, rounds=rounds, metrics=metrics)
    for name, value in zip(fed.names, run.metric("client_test_auroc")[-1], strict=True):
        print(f"{name:12} {value:.2f}")
    return run


if __name__ == "__main__":
    main()
