"""What a client says about its data: the direction in which they vary most, seen from the
origin.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse.linalg import svds

from poise.core.errors import DataError, InvalidOption, require
from poise.core.federations import HasClasses, ReadableFederation
from poise.core.rng import generator
from poise.core.threads import one_thread
from poise.core.types import Floats


def message(x: ArrayLike) -> Floats:
    """The first right-singular vector of samples x (n, D), neither centred nor scaled, of length 1,
    (D,).

    Its sign is such that the inner product with the mean of the samples is not negative. Iterative,
    without a D x D
    matrix: powers from the mean, which is close for data that are not centred, and Lanczos where
        they are slow.

    Source: C section 3.2.2.

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
    begin = (
        mean / scale if np.abs(mean).max() > 0 else rows[0]
    )  # not at right angles to the answer, as a rule
    begin = begin + 1e-3 * np.abs(begin).max() * np.cos(np.arange(rows.shape[1]))
    direction = rows[0] if len(rows) == 1 else _power(rows, begin)
    if direction is None:
        wide = rows.shape[0] < rows.shape[1]  # the solver iterates on the shorter side
        direction = svds(rows, k=1, v0=rows @ begin if wide else begin)[2][0]
    direction = direction / np.linalg.norm(direction)
    return np.asarray(-direction if direction @ mean < 0 else direction)


def message_of(x: ArrayLike, symbols: int = 0) -> Floats:
    """The `message` of samples of any shape, flattened; of texts, of the share of each of
    ``symbols`` characters.
    """
    return message(_features(np.asarray(x), symbols))


def _power(rows: Floats, begin: Floats, most: int = 60) -> Floats | None:
    """The limit of v <- X'X v, of length 1; None where it is not reached."""
    table, v = torch.from_numpy(rows), torch.from_numpy(begin / np.linalg.norm(begin))
    with one_thread():  # products of this size only wait for a second thread
        for _ in range(most):
            w = table.T.mv(table.mv(v))
            w /= torch.linalg.vector_norm(w)
            if float(torch.linalg.vector_norm(w - v)) < 1e-13 * len(v) ** 0.5:
                return np.asarray(w.numpy())
            v = w
    return None


def messages(
    federation: ReadableFederation, labels: bool = False, noise: float = 0.0, seed: int = 0
) -> Floats:
    """The messages of all clients, (N, D).

    Args:
        federation: images and tables are flattened; texts become the share of each character.
        labels: put the class of each sample behind its features, as zeros and one.
        noise: standard deviation of Gaussian noise on each entry of a message before it is sent;
            the message is brought back to length 1 afterwards. A message tells the server about a
            client's data. Two messages are at most 2 apart, so this is the Gaussian mechanism with
            sensitivity 2 for the whole data set of a client: (epsilon, delta) differentially
            private where noise is large enough for that sensitivity.
        seed: of the noise.
    """
    require(noise >= 0, f"noise must be 0 or more, not {noise}")
    symbols = _symbols(federation)
    classes = _classes(federation) if labels else 0
    found = []
    for i in range(federation.clients):
        x, y = federation.client(i)
        rows = _features(np.asarray(x), symbols)
        if labels:
            rows = np.concatenate([rows, np.eye(classes)[np.asarray(y)]], axis=1)
        try:
            one = message(rows)
        except DataError as error:
            raise DataError(f"client {i}: {error.message}") from error
        if noise:
            one = one + noise * generator(seed, "message", i).standard_normal(len(one))
            one = one / np.linalg.norm(one)
        found.append(one)
    return np.stack(found)


def _classes(federation: ReadableFederation) -> int:
    """How many classes the samples have."""
    if not isinstance(federation, HasClasses):
        raise InvalidOption(
            "labels: the samples of this federation have no classes", "leave labels out"
        )
    return federation.classes


def _symbols(federation: ReadableFederation) -> int:
    """How many characters texts are made of; 0 where samples are not texts."""
    first = np.asarray(federation.client(0)[0])
    if not np.issubdtype(first.dtype, np.integer):
        return 0
    return 1 + max(
        int(np.asarray(federation.client(i)[0]).max(initial=0)) for i in range(federation.clients)
    )


def _features(x: np.ndarray, symbols: int) -> Floats:
    """Samples as rows of numbers."""
    if not symbols:
        return x.reshape(len(x), -1).astype(np.float64)
    flat = x.reshape(len(x), -1)
    counts = np.zeros((len(x), symbols))
    np.add.at(counts, (np.arange(len(x))[:, None], flat), 1.0)
    return np.asarray(counts / flat.shape[1])
