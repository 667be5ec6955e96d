"""An ordinary ServerApp: Flower's FedAvg, and accuracy on held-out samples; notes when each round
ended.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bare_app.task import model, samples

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    x, y = samples(str(context.run_config["test"]))
    times = Path(str(context.run_config["times"]))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net = model()
        net.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            accuracy = float((net(x).argmax(dim=1) == y).double().mean())
        note(f"{server_round} {time.time()} {accuracy}")
        return MetricRecord({"accuracy": accuracy})

    def note(line: str) -> None:
        with times.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)
    rounds = int(context.run_config["rounds"])
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model().state_dict()),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )
    note("done")
