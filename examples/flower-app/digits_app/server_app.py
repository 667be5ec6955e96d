"""What the server does: an ordinary ServerApp; the strategy is the line that poise changes."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits_app.task import held_out, model
from poise.flower.strategies import FedSoftMax

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and print the accuracy of every round."""
    strategy = FedSoftMax(
        temperature=float(context.run_config["temperature"]), fraction_evaluate=0.0
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model().state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Accuracy on the held-out digits."""
    net = model()
    net.load_state_dict(arrays.to_torch_state_dict())
    x, y = held_out()
    with torch.no_grad():
        found = float((net(x).argmax(dim=1) == y).double().mean())
    print(f"round {server_round}: accuracy {found:.3f}", flush=True)
    return MetricRecord({"accuracy": found})
