"""Flower's simulation engine on Ray with its own FedAvg: one-thread workers on all cores; ``c``
puts channels last.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version

os.environ.update(RAY_USAGE_STATS_ENABLED="0", FLWR_TELEMETRY_ENABLED="0")

from flower_client import app as client_app
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from models import with_weights
from talk import Arrays, Exported, Talk, read


class ListedFedAvg(FedAvg):
    """FedAvg that sends every message with the number of the client to be played, as the file lists
    them.
    """

    def __init__(self, data: Exported, file: str, variant: str) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.data, self.done, self.order = data, 0, {"file": file, "variant": variant}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for each client of the round."""
        cohort = self.data.cohort(self.done)
        self.done += 1
        nodes = list(grid.get_node_ids())[: len(cohort)]
        return [
            Message(
                content=RecordDict(
                    {
                        "arrays": arrays,
                        "config": ConfigRecord({"client": int(client), **self.order}),
                    }
                ),
                message_type="train",
                dst_node_id=node,
            )
            for node, client in zip(nodes, cohort, strict=True)
        ]


def main(file: str, variant: str = "") -> None:
    """Train until the driver has enough."""
    talk, data = Talk(), read(file)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = ListedFedAvg(data, file, variant)
        arrays = ArrayRecord(with_weights(data.model, data.weights).state_dict())

        def rounds(count: int) -> None:
            nonlocal arrays
            arrays = strategy.start(grid, arrays, num_rounds=count).arrays

        def model() -> Arrays:
            return {
                name: value.numpy()
                for name, value in arrays.to_torch_state_dict().items()
            }

        while len(list(grid.get_node_ids())) < len(data.y):
            time.sleep(0.01)
        talk.ready(flwr=version("flwr"), ray=version("ray"), torch=version("torch"))
        talk.serve(rounds, model)

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server_app,
        client_app,
        num_supernodes=len(data.y),
        backend_config={
            "init_args": {
                "num_cpus": cores,
                "include_dashboard": False,
                "log_to_driver": False,
            },
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
