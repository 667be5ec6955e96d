"""Detectors: their contract and their distributions under noise; the probe by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from poise.auditing.auditor import Auditor
from poise.auditing.count_detectors import EmptyUpdates, InventedLosses
from poise.auditing.detector import AuditedRound, ClientSums
from poise.auditing.noise_detectors import (
    GAUSSIAN_RATIO,
    CohortDirection,
    EntryRatio,
    LayerScales,
    Persistence,
    small_sample,
)
from poise.auditing.probe import COHORT, LAYERS, RECEIVED, SKETCH, SPREAD, AuditProbe
from poise.core.history import History
from poise.core.round_updates import RoundUpdates
from poise.core.threads import in_turn, row_blocks
from poise.core.types import Floats
from poise.core.vectors import Layout

MADE: dict[str, Callable[[], Any]] = {
    "EmptyUpdates": EmptyUpdates,
    "EntryRatio": EntryRatio,
    "EntryRatio-residual": lambda: EntryRatio(of_residual=True),
    "Persistence": Persistence,
    "Persistence-residual": lambda: Persistence(of_residual=True),
    "CohortDirection": CohortDirection,
    "LayerScales": LayerScales,
    "InventedLosses": InventedLosses,
}
D, K, SHOWN = 5000, 128, 96


def audited_round(rows: Floats, d: int = D, **more: Any) -> AuditedRound:
    """Rows of sketches, with everything else as it is for updates of these lengths."""
    m = len(rows)
    given: dict[str, Any] = {
        "versions": np.ones(m, int),
        "norms": np.linalg.norm(rows, axis=1),
        "sketch": rows,
        "entries": SHOWN,
        "geary": np.abs(rows).mean(axis=1) / np.sqrt((rows**2).mean(axis=1)),
        "inspected": rows.shape[1],
        "cohort": np.zeros(m),
        "dimension": d,
        "residual": rows,
        "copied": np.ones(m, int),
        "loss_before": np.full(m, np.nan),
        "loss_after": np.full(m, np.nan),
        "layers": np.ones((m, 3)),
    }
    return AuditedRound(**{**given, **more})


def worked(rng: np.random.Generator, m: int, own: Floats) -> AuditedRound:
    """What clients that work send: a direction of their own with heavy entries, and a little
    noise."""
    rows = own + 0.3 * rng.standard_t(3, (m, K))
    losses = rng.uniform(1, 2, m)
    return audited_round(
        rows,
        cohort=np.full(m, 0.4),
        loss_before=losses,
        loss_after=losses - 0.1,
        layers=rng.lognormal(size=(m, 3)),
    )


def idled(rng: np.random.Generator, m: int) -> AuditedRound:
    """What free-riders send that every detector is to notice: noise, or nothing, with made-up
    losses."""
    rows = rng.standard_normal((m, K))
    return audited_round(
        rows,
        cohort=rng.standard_normal(m) / np.sqrt(D),
        loss_before=np.ones(m),
        loss_after=np.ones(m),
    )


@pytest.mark.parametrize("name", MADE)
def test_detector_contract(name: str) -> None:
    """p lies in [0, 1]; 1 before anything was seen; high for who works, low for who does not; order
    does not matter."""
    rng, m = np.random.default_rng(1), 6
    own = rng.standard_t(2, (m, K))
    honest, idle, backwards = MADE[name](), MADE[name](), MADE[name]()
    for d in (honest, idle, backwards):
        d.grow(m)
        assert (d.p_values() == 1).all()
    clients = np.arange(m)
    for _ in range(20):
        honest.add(clients, worked(rng, m, own))
        given = idled(rng, m)
        if name == "EmptyUpdates":
            given = audited_round(
                np.vstack([1e-9 * given.sketch[1:], given.sketch[:1]])
            )
            clients = np.arange(m)
        idle.add(clients, given)
        order = clients[::-1]
        backwards.add(
            clients[order],
            AuditedRound(
                **{
                    k: (v[order] if isinstance(v, np.ndarray) else v)
                    for k, v in vars(given).items()
                }
            ),
        )
    for d in (honest, idle, backwards):
        assert ((d.p_values() >= 0) & (d.p_values() <= 1)).all()
    guilty = slice(0, m - 1) if name == "EmptyUpdates" else slice(0, m)
    assert (honest.p_values() > 0.5).all()
    assert (idle.p_values()[guilty] < 0.01).all()
    np.testing.assert_allclose(backwards.p_values(), idle.p_values(), rtol=1e-9)
    assert all(idle.describe(i) for i in range(m - 1))


def test_a_mean_cosine_of_noise_has_the_variance_it_is_said_to_have() -> None:
    """4,000 clients of noise, 6 rounds: mean 0 and variance 2/(k T (T-1)), each within its 99.9 %
    interval."""
    rng, n, rounds = np.random.default_rng(2), 4000, 6
    detector = Persistence()
    for _ in range(rounds):
        detector.add(np.arange(n), audited_round(rng.standard_normal((n, K))))
    mean, deviation = detector.mean_cosines()
    assert deviation[0] == pytest.approx(np.sqrt(2 / (K * 30)))
    assert abs(mean.mean()) < 3.29 * deviation[0] / np.sqrt(n)
    fourth = stats.kurtosis(mean) + 3
    assert abs(mean.var() / deviation[0] ** 2 - 1) < 3.29 * np.sqrt((fourth - 1) / n)


@pytest.mark.parametrize("n", [20, 96, 1000])
def test_gearys_ratio_of_noise(n: int) -> None:
    """Mean by the closed form, variance (1 - 3/pi)/n up to O(1/n): 20,000 samples, 99.9 %."""
    x = np.random.default_rng(3).standard_normal((20_000, n))
    ratio = np.abs(x).mean(axis=1) / np.sqrt((x**2).mean(axis=1))
    assert abs(
        ratio.mean() - GAUSSIAN_RATIO * small_sample(n)
    ) < 3.29 * ratio.std() / np.sqrt(len(x))
    assert (
        abs(ratio.var() * n / (1 - 3 / np.pi) - 1) < 3.29 * np.sqrt(2 / len(x)) + 3 / n
    )


def test_the_cohort_test_has_the_law_it_is_said_to_have() -> None:
    """At the edge of the null (cos^2 = least^2) p-values are uniform, up to the skewness of d
    cos^2."""
    rng, n, rounds, d, c = np.random.default_rng(4), 5000, 40, 5000, 0.05
    detector = CohortDirection(least=c)
    detector.grow(n)
    for _ in range(rounds):
        cosine = c + rng.standard_normal(n) / np.sqrt(d)
        detector.add(np.arange(n), audited_round(np.ones((n, K)), d=d, cohort=cosine))
    p = detector.p_values()
    for level in (0.05, 0.5):
        assert (
            abs((p <= level).mean() - level)
            < 3.29 * np.sqrt(level * (1 - level) / n) + 0.01
        )


def test_columns_add_up_clients_that_come_twice() -> None:
    sums = ClientSums(total=())
    sums.grow(3)
    sums.add("total", np.array([1, 1, 2]), np.array([1.0, 2.0, 5.0]))
    sums.grow(4)
    assert sums["total"].tolist() == [0.0, 3.0, 5.0, 0.0]


# the probe ----------------------------------------------------------------------------------------

LAYOUT = Layout.of_shapes({"a": (40, 120), "b": (60,), "c": (7,)})


def arrived(deltas: torch.Tensor, omega: Floats, **more: Any) -> RoundUpdates:
    direction = torch.from_numpy(omega).to(deltas) @ deltas
    return RoundUpdates.of_columns(omega, stack=deltas, **more).combined(
        omega, direction
    )


def test_the_cosine_to_the_others_is_exact() -> None:
    deltas = torch.randn(
        6,
        LAYOUT.trainable,
        generator=torch.Generator().manual_seed(0),
        dtype=torch.float64,
    )
    omega = np.array([0.1, 0.2, 0.3, 0.25, 0.1, 0.05])
    found = AuditProbe(LAYOUT).read(arrived(deltas, omega), History())[COHORT]
    for i in range(6):
        rest = sum(omega[j] * deltas[j].numpy() for j in range(6) if j != i)
        own = deltas[i].numpy()
        assert found[i] == pytest.approx(
            own @ rest / np.linalg.norm(own) / np.linalg.norm(rest), abs=1e-7
        )


def test_products_and_distances_of_many_blocks_stand_in_the_order_of_the_rows() -> None:
    rows = torch.randn(
        37, 100_003, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    rows *= torch.arange(1.0, 38.0)[:, None]
    assert len(row_blocks(rows)) > 5
    omega = np.linspace(-1.0, 2.0, 37)
    direction = omega @ rows.numpy()
    with ThreadPoolExecutor(3) as pool:
        measured = []
        for map_workers in (
            in_turn,
            lambda function, items: [*pool.map(function, items)],
        ):
            updates = arrived(rows, omega, map_workers=map_workers)
            measured.append((*updates.products, updates.from_centre))
    for along, lengths, apart in measured:
        np.testing.assert_allclose(along, rows.numpy() @ direction, rtol=1e-9)
        np.testing.assert_allclose(
            lengths, np.linalg.norm(rows.numpy(), axis=1), rtol=1e-12
        )
        away = rows.numpy() - direction / omega.sum()
        np.testing.assert_allclose(apart, np.linalg.norm(away, axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    "spread", [0.0, 1e-6, 1e-3, 0.1, 0.2, 0.3, 0.34, 0.4, 0.6, 1.0, 30.0]
)
@pytest.mark.parametrize(("clients", "size"), [(20, 50_000), (4, 3_000_000)])
def test_distances_to_the_centre_do_not_cancel(
    spread: float, clients: int, size: int
) -> None:
    """In single precision, for rows at all distances from their centre; the reference is taken in
    double precision."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal(size, "f4") + np.float32(spread) * rng.standard_normal(
        (clients, size), "f4"
    )
    deltas, omega = torch.from_numpy(rows), np.full(clients, 2 / clients)
    direction = torch.from_numpy(omega).float() @ deltas
    seen = arrived(deltas, omega).combined(omega, direction)
    away = deltas.double() - direction.double() / omega.sum()
    scale = (
        1e-6 * float(torch.linalg.vector_norm(direction)) / omega.sum()
    )  # of the entries' own rounding
    np.testing.assert_allclose(
        seen.from_centre,
        torch.linalg.vector_norm(away, dim=1).numpy(),
        rtol=1e-5,
        atol=scale,
    )


def test_alone_or_empty_there_is_no_cosine() -> None:
    deltas = torch.zeros(2, LAYOUT.trainable)
    deltas[0] = 1.0
    found = AuditProbe(LAYOUT).read(arrived(deltas, np.array([0.5, 0.5])), History())[
        COHORT
    ]
    assert np.isnan(found).all()


def test_the_sketch_is_linear_and_keeps_noise_noise() -> None:
    probe = AuditProbe(LAYOUT, seed=3)
    rng = np.random.default_rng(5)
    rows = torch.from_numpy(rng.standard_normal((400, LAYOUT.trainable)))
    sketch = probe.read(arrived(rows, np.full(400, 0.0025)), History())[SKETCH].astype(
        float
    )
    mixed = torch.from_numpy(np.array([[2.0, -3.0]])) @ rows[:2]
    again = probe.read(arrived(mixed, np.ones(1)), History())[SKETCH]
    np.testing.assert_allclose(again[0], 2 * sketch[0] - 3 * sketch[1], atol=1e-5)
    assert stats.kstest(sketch.ravel(), "norm").pvalue > 0.001, (
        "iid standard normal again (99.9 %)"
    )
    product = sketch.T @ sketch / 400 - np.eye(sketch.shape[1])
    assert abs(product[np.triu_indices(len(product), 1)]).max() < 5.5 / np.sqrt(400), (
        "uncorrelated (8,128 pairs)"
    )


def test_spread_and_layers_by_hand() -> None:
    deltas = torch.zeros(1, LAYOUT.trainable, dtype=torch.float64)
    deltas[0, :4800], deltas[0, 4800:4860] = 2.0, 0.5
    found = AuditProbe(LAYOUT).read(arrived(deltas, np.ones(1)), History())
    assert found[LAYERS].shape == (1, 2), "the small layer is left out"
    assert found[LAYERS][0].tolist() == pytest.approx([2.0, 0.5], rel=4e3 * 2**-24), (
        "single precision, 4,000 summands"
    )
    flat = torch.ones(1, LAYOUT.trainable)
    assert AuditProbe(LAYOUT).read(arrived(flat, np.ones(1)), History())[SPREAD][
        0
    ] == pytest.approx(1.0)


def test_models_are_read_where_they_move_otherwise() -> None:
    model = torch.randn(LAYOUT.trainable, generator=torch.Generator().manual_seed(1))
    probe = AuditProbe(LAYOUT, received=True)
    read = probe.read(arrived(model[None], np.ones(1), models={0: model}), History())
    np.testing.assert_allclose(
        read[RECEIVED][0], read[SKETCH][0], rtol=0, atol=4e3 * 2**-24
    )
    assert RECEIVED not in AuditProbe(LAYOUT).read(
        arrived(model[None], np.ones(1)), History()
    )


def test_a_round_without_anyone_changes_nothing() -> None:
    auditor = Auditor(100)
    none = np.zeros(0, int)
    auditor.add(
        none,
        none,
        omega=np.zeros(0),
        norms=np.zeros(0),
        measurements={},
        loss_before=np.zeros(0),
        loss_after=np.zeros(0),
    )
    assert auditor.p_values().tolist() == []
    assert auditor.explain(3) == "client 3 has not taken part"
