"""The Ornstein-Uhlenbeck model of a federation with free-riders [Fraboni 2023, ch. 6].

A fair client j starts from theta and returns
``eta_j theta + (1 - eta_j) theta*_j + rho_j N(0, 1)``, independently in every
coordinate; free-riders return theta, or ``theta + phi N(0, 1)``. N is the number of all
declared samples, M_K the number that free-riders declare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from poise.core.errors import require
from poise.core.types import Floats


@dataclass(frozen=True, eq=False)
class FairClients:
    r"""Fair clients return ``eta_j theta + (1 - eta_j) theta*_j + rho_j N(0, 1)``.

    Args:
        samples: M_j, (J,).
        eta: (J,) the share of the received model that remains after local work, in [0,
            1).
        rho: (J,) standard deviation that the local SGD adds.
    """

    samples: Floats
    eta: Floats
    rho: Floats

    def __post_init__(self) -> None:
        given = [
            np.asarray(values, float) for values in (self.samples, self.eta, self.rho)
        ]
        columns = np.broadcast_arrays(*(np.atleast_1d(values) for values in given))
        for name, column in zip(("samples", "eta", "rho"), columns, strict=True):
            object.__setattr__(self, name, np.array(column))
        require(bool((self.samples > 0).all()), "FairClients: samples must be positive")
        require(
            bool(((self.eta >= 0) & (self.eta < 1)).all()),
            "FairClients: eta must lie in [0, 1)",
        )
        require(bool((self.rho >= 0).all()), "FairClients: rho must be at least 0")

    @property
    def shares(self) -> Floats:
        """``M_j / (N - M_K)``, the weights without free-riders."""
        return np.asarray(self.samples / self.samples.sum())

    def declared(self, free_rider_samples: float) -> float:
        """Return N, the number of all declared samples."""
        require(
            free_rider_samples >= 0,
            f"free-riders cannot declare {free_rider_samples} samples",
        )
        return float(self.samples.sum() + free_rider_samples)


def ornstein_uhlenbeck(
    samples: ArrayLike,
    *,
    lr: float,
    curvature: ArrayLike,
    epochs: float,
    batch_size: float,
    noise: ArrayLike,
    mu: float = 0.0,
) -> FairClients:
    r"""Fair clients with SGD on a quadratic loss and FedProx's pull ``mu`` (FedAvg: 0).

    ``gamma_j = exp(-lr (r_j + mu) E M_j/S)``,
    ``eta_j = gamma_j + mu (1 - gamma_j)/(r_j + mu)``,
    ``rho_j^2 = (lr/S) sigma_j^2 / (2 (r_j + mu)) (1 - gamma_j^2)``.

    Args:
        samples: M_j of each fair client.
        lr: learning rate lambda.
        curvature: r_j.
        epochs: E.
        batch_size: S.
        noise: standard deviation sigma_j of one sample's gradient.
        mu: FedProx's pull.

    >>> sgd = {"lr": 0.1, "epochs": 1, "batch_size": 10}
    >>> fair = ornstein_uhlenbeck([100.0], curvature=1.0, noise=1.0, **sgd)
    >>> round(float(fair.eta[0]), 4), round(float(fair.rho[0]), 4)
    (0.3679, 0.0658)

    Source: [Fraboni 2023, eq. 6.8, 6.9]; with mu theorem 6.4, eq. E.72 to E.76.
    """
    sizes = np.atleast_1d(np.asarray(samples, dtype=float))
    sigma = np.atleast_1d(np.asarray(noise, dtype=float))
    pull = np.atleast_1d(np.asarray(curvature, dtype=float)) + mu
    require(
        bool((pull > 0).all()), "ornstein_uhlenbeck: curvature + mu must be positive"
    )
    gamma = np.exp(-lr * pull * epochs * sizes / batch_size)
    rho = np.sqrt(lr / batch_size * sigma**2 / (2 * pull) * (1 - gamma**2))
    return FairClients(sizes, eta=gamma + mu * (1 - gamma) / pull, rho=rho)


def contraction(fair: FairClients, free_rider_samples: float = 0.0) -> float:
    r"""The factor by which a round shrinks the difference of two models.

    It is ``epsilon + M_K/N`` with ``epsilon = sum (M_j/N) eta_j``.

    >>> contraction(FairClients([60.0], [0.5], [0.0]), 40.0)
    0.7

    Source: [Fraboni 2023, Thm 6.1].
    """
    n = fair.declared(free_rider_samples)
    return float((fair.samples * fair.eta).sum() / n + free_rider_samples / n)


def difference(
    fair: FairClients,
    optima: ArrayLike,
    free_rider_samples: float,
    theta: ArrayLike,
    noise: ArrayLike,
    noise_with: ArrayLike,
    disguise: ArrayLike = 0.0,
) -> Floats:
    r"""The model with free-riders minus that without, after 0, …, T rounds, (T + 1,).

    ``sum_i h^(t-i-1) [ f(theta^i) + nu~_i - nu_i + disguise_i ]`` with h =
    `contraction`,
    ``f(theta) = (M_K/N) (theta - sum_j M_j/(N - M_K) [eta_j (theta - theta*_j) + theta*_j])``,
    ``nu = sum_j M_j/(N - M_K) rho_j zeta_j`` and ``nu~ = sum_j (M_j/N) rho_j zeta~_j``.

    Args:
        fair: the fair clients.
        optima: theta*_j, (J,).
        free_rider_samples: M_K.
        theta: the fair models theta^0 … theta^(T-1), (T,).
        noise: zeta of the fair run, (T, J), standard normal.
        noise_with: zeta~ of the run with free-riders, (T, J).
        disguise: ``sum_k (M_k/N) phi_k epsilon_k`` of each round, (T,); 0 for plain
            free-riders.

    >>> fair = FairClients([1.0], [0.5], [0.0])
    >>> difference(fair, [0.0], 1.0, [1.0, 0.5], np.zeros((2, 1)), np.zeros((2, 1)))
    array([0.    , 0.25  , 0.3125])

    Source: [Fraboni 2023, Thm 6.1, eq. E.1]; disguised eq. E.59 to E.61.
    """
    fair_models = np.asarray(theta, dtype=float)
    target = np.asarray(optima, dtype=float)
    n = fair.declared(free_rider_samples)
    answers = fair.eta * (fair_models[:, None] - target) + target
    f = free_rider_samples / n * (fair_models - answers @ fair.shares)
    nu = np.asarray(noise, dtype=float) @ (fair.shares * fair.rho)
    nu_with = np.asarray(noise_with, dtype=float) @ (fair.samples / n * fair.rho)
    pushes = f + nu_with - nu + np.asarray(disguise, dtype=float)
    h = contraction(fair, free_rider_samples)
    differences = np.zeros(len(fair_models) + 1)
    for t, push in enumerate(pushes):
        differences[t + 1] = h * differences[t] + push
    return differences


def asymptotic_variance(
    fair: FairClients,
    free_rider_samples: float = 0.0,
    phi: ArrayLike = (),
    declared: ArrayLike = (),
) -> float:
    r"""The exact variance of theta~ - theta after many rounds.

    theta~ and theta are the models of two independent runs, with and without
    free-riders:

        sum_J (M_j rho_j/(N - M_K))^2 / (1 - eps_f^2)
            + [sum_J (M_j rho_j/N)^2 + sum_K (M_k phi_k/N)^2] / (1 - h^2)

    with ``eps_f = sum_J M_j eta_j/(N - M_K)`` and h = `contraction`. Each run is a
    first-order autoregression. Without disguise the variance falls as M_K grows.

    Args:
        fair: the fair clients.
        free_rider_samples: M_K.
        phi: the constant noise phi_k of each disguised free-rider; empty for plain
            free-riders.
        declared: M_k of each disguised free-rider; by default equal shares of M_K.

    >>> fair = FairClients([50.0, 50.0], [0.5, 0.5], [0.1, 0.1])
    >>> [round(asymptotic_variance(fair, m), 5) for m in (0.0, 100.0)]
    [0.01333, 0.00952]

    Source: [Fraboni 2023, Thm 6.2, 6.3 and Cor. 6.1], corrected: the process theta
    itself has memory eps_f, not h; the proof (E.27 to E.36) misses the difference.
    """
    n = fair.declared(free_rider_samples)
    alone = float(((fair.shares * fair.rho) ** 2).sum()) / (1 - contraction(fair) ** 2)
    beside = float(((fair.samples / n * fair.rho) ** 2).sum()) + _disguise(
        n, free_rider_samples, phi, declared
    )
    return alone + beside / (1 - contraction(fair, free_rider_samples) ** 2)


def printed_variance(
    fair: FairClients,
    free_rider_samples: float = 0.0,
    phi: ArrayLike = (),
    declared: ArrayLike = (),
) -> float:
    r"""The variance of theta~ - theta as Theorems 6.2, 6.3 and Corollary 6.1 print it.

    ``[1/N^2 + 1/(N - M_K)^2] sum_J (M_j rho_j)^2 / (1 - h^2) + sum_K (M_k phi_k/N)^2 / (1 - h^2)``;
    equals `asymptotic_variance` only where M_K = 0.

    Args:
        fair: the fair clients.
        free_rider_samples: M_K.
        phi: the constant noise phi_k of each disguised free-rider.
        declared: M_k of each disguised free-rider.

    >>> fair = FairClients([50.0, 50.0], [0.5, 0.5], [0.1, 0.1])
    >>> [round(printed_variance(fair, m), 5) for m in (0.0, 100.0)]
    [0.01333, 0.01429]

    Source: [Fraboni 2023, Thm 6.2, 6.3, Cor. 6.1] (eq. E.44, E.58, E.64).
    """
    n = fair.declared(free_rider_samples)
    scale = 1 / n**2 + 1 / float(fair.samples.sum()) ** 2
    total = scale * float(((fair.samples * fair.rho) ** 2).sum()) + _disguise(
        n, free_rider_samples, phi, declared
    )
    return total / (1 - contraction(fair, free_rider_samples) ** 2)


def fading_variance(
    fair: FairClients,
    free_rider_samples: float = 0.0,
    fading: ArrayLike = (),
    phi: ArrayLike = 0.0,
    declared: ArrayLike = (),
) -> Floats:
    r"""The exact variance of theta~ - theta after 0, …, T rounds with noise that fades.

    ``V_t = A_t + B_t``, both 0 at first, with

        A_(t+1) = eps_f^2 A_t + f_t^2 sum_J (M_j rho_j/(N - M_K))^2
        B_(t+1) = h^2 B_t + f_t^2 sum_J (M_j rho_j/N)^2 + sum_K (M_k phi_k(t)/N)^2

    and eps_f, h as in `asymptotic_variance`, which is its limit for constant noise. If
    f_t and all phi_k(t) vanish, so does the variance, as Corollary 6.2 says; noise like
    ``t^-g`` gives a variance like ``t^-2g``.

    Args:
        fair: the fair clients; rho is their noise where f_t = 1.
        free_rider_samples: M_K.
        fading: f_t of each round, (T,), or of each fair client, (T, J).
        phi: phi_k(t), a number, (T,) for a single disguised free-rider, or (T, K); 0
            for plain free-riders.
        declared: M_k of each disguised free-rider; by default equal shares of M_K.

    >>> fair = FairClients([50.0, 50.0], [0.5, 0.5], [0.1, 0.1])
    >>> fading_variance(fair, 100.0, fading=[1.0, 0.5, 0.25]).round(5).tolist()
    [0.0, 0.00625, 0.00352, 0.00159]

    Source: [Fraboni 2023, Cor. 6.2], which states the limit 0. Its proof (E.1.5)
    replaces eta_j where it means rho_j: the share eta_j does not depend on the noise.
    """
    n = fair.declared(free_rider_samples)
    faded = np.asarray(fading, dtype=float)
    require(
        faded.ndim in (1, 2) and len(faded) > 0,
        "fading needs a value for every round",
        "give (T,) values, or (T, J) for J fair clients",
    )
    rounds = len(faded)
    each = faded.reshape(rounds, -1) * fair.rho
    alone = np.square(each * fair.shares).sum(axis=1)
    beside = np.square(each * fair.samples / n).sum(axis=1)
    given = np.asarray(phi, dtype=float)
    if given.ndim == 0:
        given = np.full(rounds, float(given))
    require(
        len(given) == rounds,
        f"{rounds} rounds of fading, but {len(given)} of phi",
    )
    for t, scales in enumerate(given.reshape(rounds, -1)):
        beside[t] += _disguise(n, free_rider_samples, scales, declared)
    fair_memory = contraction(fair) ** 2
    memory = contraction(fair, free_rider_samples) ** 2
    fair_variance = np.zeros(rounds + 1)
    variance = np.zeros(rounds + 1)
    for t in range(rounds):
        fair_variance[t + 1] = fair_memory * fair_variance[t] + alone[t]
        variance[t + 1] = memory * variance[t] + beside[t]
    return fair_variance + variance


def _disguise(
    n: float, free_rider_samples: float, phi: ArrayLike, declared: ArrayLike
) -> float:
    """``sum_K (M_k phi_k / N)^2``."""
    scales = np.atleast_1d(np.asarray(phi, dtype=float))
    if not len(scales):
        return 0.0
    given = np.atleast_1d(np.asarray(declared, dtype=float))
    if len(given):
        samples = given
    else:
        samples = np.full(len(scales), free_rider_samples / len(scales))
    require(
        len(samples) == len(scales),
        f"{len(scales)} values of phi, but {len(samples)} declared sizes",
    )
    require(
        bool(samples.sum() <= free_rider_samples * (1 + 1e-9)),
        "the declared sizes exceed free_rider_samples",
    )
    return float(((samples / n * scales) ** 2).sum())


__all__ = [
    "FairClients",
    "asymptotic_variance",
    "contraction",
    "difference",
    "fading_variance",
    "ornstein_uhlenbeck",
    "printed_variance",
]
