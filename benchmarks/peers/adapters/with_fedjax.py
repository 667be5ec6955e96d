"""FedJAX: its own federated averaging, with jit on one device or with pmap on as many as told.

Models are written in JAX on the same weights: PyTorch's names and shapes, converted inside the
compiled functions.
"""

from __future__ import annotations

import os
import sys

DEVICES = int(sys.argv[2]) if len(sys.argv) > 2 else 1
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

from importlib.metadata import version  # noqa: E402
from typing import Any  # noqa: E402

import fedjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402
from talk import Exported, Talk, read  # noqa: E402

Weights = dict[str, Any]


def logistic(w: Weights, x: Any) -> Any:
    """784 to 10."""
    return x.reshape(len(x), -1) @ w["1.weight"].T + w["1.bias"]


def mlp(w: Weights, x: Any) -> Any:
    """784, 50, 10."""
    hidden = jax.nn.relu(x.reshape(len(x), -1) @ w["1.weight"].T + w["1.bias"])
    return hidden @ w["3.weight"].T + w["3.bias"]


def cnn(w: Weights, x: Any) -> Any:
    """Two convolutions with pooling, one dense layer; channels last, which XLA prefers on a CPU.

    Pooling is a maximum over a reshaped array: XLA's windows take more than twice the time there.
    """
    x = x.transpose(0, 2, 3, 1)
    for layer in ("0", "3"):
        kernel = w[f"{layer}.weight"].transpose(2, 3, 1, 0)
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        n, height, width, channels = x.shape
        x = (x + w[f"{layer}.bias"])[:, : height // 2 * 2, : width // 2 * 2]
        x = jax.nn.relu(
            x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))
        )
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1) @ w["7.weight"].T + w["7.bias"]


def lstm(w: Weights, x: Any) -> Any:
    """Embedding, two LSTM layers, dense layer on the last state; gates in PyTorch's order."""
    states = w["embedding.weight"][x].transpose(1, 0, 2)
    for layer in ("l0", "l1"):
        into = (
            states @ w[f"lstm.weight_ih_{layer}"].T
            + w[f"lstm.bias_ih_{layer}"]
            + w[f"lstm.bias_hh_{layer}"]
        )
        states = _recurrent(into, w[f"lstm.weight_hh_{layer}"].T)
    return states[-1] @ w["head.weight"].T + w["head.bias"]


def _recurrent(into: Any, matrix: Any) -> Any:
    def step(carry: tuple[Any, Any], gates: Any) -> tuple[tuple[Any, Any], Any]:
        h, c = carry
        i, f, g, o = jnp.split(gates + h @ matrix, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((into.shape[1], len(matrix)), into.dtype)
    return jax.lax.scan(step, (zero, zero), into)[1]


FORWARD = {"logistic": logistic, "mlp": mlp, "cnn": cnn, "lstm": lstm}


def algorithm(data: Exported) -> Any:
    """Federated averaging with one local epoch."""
    forward = FORWARD[data.model]

    def loss(params: Weights, batch: Any, rng: Any) -> Any:
        scores = jax.nn.log_softmax(forward(params, batch["x"]))
        return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()

    with fedjax.for_each_client_backend("pmap" if DEVICES > 1 else "jit"):
        return fed_avg.federated_averaging(
            jax.grad(loss),
            fedjax.optimizers.sgd(data.lr),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(batch_size=data.batch, num_epochs=1),
        )


def main(file: str) -> None:
    """Train until the driver has enough."""
    talk, data = Talk(), read(file)
    x, y = data.features(data.x), data.y.astype(np.int32)
    if data.tokens:
        x = x.astype(np.int32)
    datasets = [fedjax.ClientDataset({"x": x[i], "y": y[i]}) for i in range(len(y))]
    keys = [jax.random.PRNGKey(i) for i in range(len(y))]
    method, done = algorithm(data), 0
    state = method.init(
        {name: jnp.asarray(value) for name, value in data.weights.items()}
    )

    def rounds(count: int) -> None:
        nonlocal state, done
        for n in range(done, done + count):
            state, _ = method.apply(
                state, [(str(i).encode(), datasets[i], keys[i]) for i in data.cohort(n)]
            )
        jax.block_until_ready(state.params)
        done += count

    talk.ready(
        fedjax=version("fedjax"),
        jax=version("jax"),
        jaxlib=version("jaxlib"),
        devices=DEVICES,
    )
    talk.serve(
        rounds,
        lambda: {name: np.asarray(value) for name, value in state.params.items()},
    )


if __name__ == "__main__":
    main(sys.argv[1])
