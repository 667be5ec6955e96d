"""The message of a client: the main direction of its data, seen from the origin."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from poise.core.errors import DataError, InvalidOption, require
from poise.core.federations import HasClasses, ReadableFederation
from poise.core.rng import generator
from poise.core.threads import one_thread
from poise.core.types import Floats


def message(x: ArrayLike) -> Floats:
    """The first right-singular vector of samples x (n, D), of length 1, (D,).

    poise neither centres nor scales the samples. The sign makes the inner product with
    the mean of the samples non-negative. The method is iterative, without a D x D
    matrix: power iteration from the mean, which is close to the answer for data that
    are not centred, and Lanczos where that converges slowly.

    Source: [Buttaci 2024, §3.2.2].

    >>> message([[3.0, 0.0], [4.0, 0.0]])
    array([1., 0.])
    """
    rows = np.asarray(x, dtype=np.float64)
    require(
        rows.ndim == 2 and rows.size > 0,
        f"samples must be a table (n, D), not of shape {rows.shape}",
    )
    require(bool(np.isfinite(rows).all()), "samples must be finite")
    mean = rows.mean(axis=0)
    scale = float(np.abs(rows).max())
    if scale == 0:
        raise DataError("all samples are zero: they have no direction")
    rows = rows / scale
    # The start must not be orthogonal to the answer; the small cosine makes that
    # unlikely.
    start = rows[0]
    if np.abs(mean).max() > 0:
        start = mean / scale
    start = start + 1e-3 * np.abs(start).max() * np.cos(np.arange(rows.shape[1]))
    direction: Floats | None = rows[0]
    if len(rows) > 1:
        direction = _power_iteration(rows, start)
    if direction is None:
        direction = _lanczos(rows, start)
    direction = direction / np.linalg.norm(direction)
    if direction @ mean < 0:
        direction = -direction
    return np.asarray(direction)


def message_of(x: ArrayLike, symbols: int = 0) -> Floats:
    """The `message` of samples of any shape, flattened.

    For texts, whose samples have ``symbols`` different characters, it is the message of
    the characters' shares.
    """
    return message(_features(np.asarray(x), symbols))


def _lanczos(rows: Floats, start: Floats) -> Floats:
    """Return the first right-singular vector, by Lanczos on the shorter side."""
    from scipy.sparse.linalg import svds

    wide = rows.shape[0] < rows.shape[1]
    v0 = rows @ start if wide else start
    return np.asarray(svds(rows, k=1, v0=v0)[2][0])


def _power_iteration(
    rows: Floats, start: Floats, iterations: int = 60
) -> Floats | None:
    """Return the limit of v <- X'X v, of length 1; None if it converges too slowly."""
    table = torch.from_numpy(rows)
    v = torch.from_numpy(start / np.linalg.norm(start))
    with one_thread():  # a second thread only slows products of this size
        for _ in range(iterations):
            w = table.T.mv(table.mv(v))
            w /= torch.linalg.vector_norm(w)
            if float(torch.linalg.vector_norm(w - v)) < 1e-13 * len(v) ** 0.5:
                return np.asarray(w.numpy())
            v = w
    return None


def messages(
    federation: ReadableFederation,
    labels: bool = False,
    noise: float = 0.0,
    seed: int = 0,
) -> Floats:
    """The messages of all clients, (N, D).

    Args:
        federation: poise flattens images and tables; texts become the share of each
            character.
        labels: append the class of each sample to its features, one-hot encoded.
        noise: standard deviation of Gaussian noise on each entry of a message before
            the client sends it; the client then scales the message back to length 1. A
            message tells the server about a client's data. Two messages are at most 2
            apart, so this is the Gaussian mechanism with sensitivity 2 for the whole
            data set of a client: (epsilon, delta) differentially private where noise is
            large enough for that sensitivity.
        seed: seed of the noise.
    """
    require(noise >= 0, f"noise must be 0 or more, not {noise}")
    symbols = _symbols(federation)
    classes = _classes(federation) if labels else 0
    directions = []
    for i in range(federation.clients):
        x, y = federation.client(i)
        rows = _features(np.asarray(x), symbols)
        if labels:
            rows = np.concatenate([rows, np.eye(classes)[np.asarray(y)]], axis=1)
        try:
            direction = message(rows)
        except DataError as error:
            raise DataError(f"client {i}: {error.message}") from error
        if noise:
            draw = generator(seed, "message", i).standard_normal(len(direction))
            direction = direction + noise * draw
            direction = direction / np.linalg.norm(direction)
        directions.append(direction)
    return np.stack(directions)


def _classes(federation: ReadableFederation) -> int:
    """Return the number of classes of the samples."""
    if not isinstance(federation, HasClasses):
        raise InvalidOption(
            "labels: the samples of this federation have no classes", "leave labels out"
        )
    if not federation.classes:
        raise InvalidOption(
            "labels: the similarity graph needs one class per sample",
            "leave labels out",
        )
    return federation.classes


def _symbols(federation: ReadableFederation) -> int:
    """Return the number of different characters in texts; 0 for other samples."""
    x = federation.client(0)[0]
    if isinstance(x, tuple | dict):
        raise InvalidOption(
            "the similarity graph needs one input per sample, not several"
        )
    first = np.asarray(x)
    if not np.issubdtype(first.dtype, np.integer):
        return 0
    return 1 + max(
        int(np.asarray(federation.client(i)[0]).max(initial=0))
        for i in range(federation.clients)
    )


def _features(x: np.ndarray, symbols: int) -> Floats:
    """Return samples as rows of numbers."""
    if not symbols:
        return x.reshape(len(x), -1).astype(np.float64)
    flat = x.reshape(len(x), -1)
    counts = np.zeros((len(x), symbols))
    np.add.at(counts, (np.arange(len(x))[:, None], flat), 1.0)
    return np.asarray(counts / flat.shape[1])
