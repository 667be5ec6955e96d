"""The similarity graph against hand-made cases, linear algebra and Monte-Carlo simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poise
from poise import graph
from poise.core.errors import PoiseError
from poise.graph import SimilarityGraph, message


def unit(rows: Any) -> np.ndarray:
    found = np.asarray(rows, dtype=float)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def random_graph(clients: int, seed: int, dim: int = 6) -> SimilarityGraph:
    return SimilarityGraph(
        unit(np.random.default_rng(seed).normal(size=(clients, dim)))
    )


@settings(max_examples=50)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32))
def test_messages_are_the_first_singular_vector(n: int, d: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(n, d)) + 0.3
    _, s, right = np.linalg.svd(x, full_matrices=False)
    found = message(x)
    assert np.linalg.norm(found) == pytest.approx(1)
    assert found @ x.mean(axis=0) >= 0
    assert np.linalg.norm(x @ found) == pytest.approx(s[0], rel=1e-9)
    if len(s) < 2 or s[1] < 0.9 * s[0]:
        assert abs(found @ right[0]) == pytest.approx(1, abs=1e-9)
    assert np.allclose(message(1000 * x), found, atol=1e-6)


def test_misalignment_and_homogeneity_by_hand() -> None:
    g = SimilarityGraph(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    ln2 = np.log(2)
    assert np.allclose(g.adjacency, [[0, ln2, 0], [ln2, 0, ln2], [0, ln2, 0]])
    assert np.allclose(g.degree, [ln2, 2 * ln2, ln2])
    assert g.homogeneity == pytest.approx(4 * ln2 / 12)
    assert np.allclose(g.spectrum, [0, ln2, 3 * ln2])  # a path of three nodes
    assert np.allclose(g.weights, [0.25, 0.5, 0.25])
    assert g.typical().tolist() == [1, 0, 2]


def test_identical_clients_meet_the_clamp_and_opposite_ones_are_not_joined() -> None:
    same = SimilarityGraph(np.tile([0.6, 0.8], (3, 1)))
    assert np.allclose(same.adjacency[0, 1], -np.log(1e-12), rtol=1e-3)
    opposite = SimilarityGraph(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert opposite.misalignment[0, 1] == 1.0
    assert opposite.adjacency[0, 1] == 0.0


@given(st.integers(2, 15), st.integers(0, 2**32))
def test_homogeneity_by_trace_is_homogeneity_by_eigenvalues(n: int, seed: int) -> None:
    g = random_graph(n, seed)
    assert g.spectrum[1:].sum() / (2 * n * (n - 1)) == pytest.approx(
        g.homogeneity, rel=1e-9
    )
    assert g.spectrum[0] == 0
    assert np.allclose(g.laplacian.sum(axis=1), 0, atol=1e-12)
    assert g.weights.sum() == pytest.approx(1)
    assert np.allclose(g.shares.sum(axis=1), g.weights)


@given(st.integers(2, 12), st.integers(0, 2**32))
def test_permuting_clients_permutes_the_graph(n: int, seed: int) -> None:
    g = random_graph(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    h = SimilarityGraph(g.messages[order])
    assert np.allclose(h.adjacency, g.adjacency[np.ix_(order, order)])
    assert np.allclose(h.spectrum, g.spectrum, atol=1e-9)
    assert h.homogeneity == pytest.approx(g.homogeneity)


@given(st.integers(3, 12), st.integers(0, 2**32))
def test_one_changed_client_is_as_a_new_graph(n: int, seed: int) -> None:
    g, new = (
        random_graph(n, seed),
        unit(np.random.default_rng(seed + 1).normal(size=(1, 6)))[0],
    )
    changed = g.replaced(n // 2, new)
    rows = g.messages.copy()
    rows[n // 2] = new
    whole = SimilarityGraph(rows)
    assert np.allclose(changed.adjacency, whole.adjacency)
    assert changed.homogeneity == pytest.approx(whole.homogeneity, rel=1e-12)
    assert g.homogeneity_with(n // 2, new) == pytest.approx(
        whole.homogeneity, rel=1e-12
    )
    assert np.allclose(changed.spectrum, whole.spectrum, atol=1e-9)


def alterations(
    clients: int, theta: float, phi: float, eps: float, delta: float, count: int
) -> tuple[np.ndarray, ...]:
    """Spectra and homogeneities of the model before and after, with symmetric weights."""
    rng = np.random.default_rng(5)
    upper = np.triu_indices(clients, 1)
    found: list[list[Any]] = [[], [], [], []]
    for _ in range(count):
        for k, (mean, std) in enumerate(
            ((theta, phi), (theta * (1 - eps), phi * np.sqrt(1 + delta)))
        ):
            a = np.zeros((clients, clients))
            a[upper] = rng.normal(mean, std, len(upper[0]))
            a += a.T
            found[2 * k].append(np.linalg.eigvalsh(np.diag(a.sum(axis=1)) - a))
            found[2 * k + 1].append(a.sum() / (2 * clients * (clients - 1)))
    return tuple(np.array(f) for f in found)


def test_proposition_3_2_against_monte_carlo() -> None:
    """5 standard errors, fixed seed: the exact form with symmetric pairs, the printed one with
    every pair twice."""
    theta, phi, n, eps, delta, count = 2.0, 1.5, 8, 0.12, 0.3, 20_000
    rng = np.random.default_rng(0)
    for printed, pairs in ((False, n * (n - 1) // 2), (True, n * (n - 1))):
        before = rng.normal(theta, phi, (count, pairs)).mean(axis=1)
        after = rng.normal(
            theta * (1 - eps), phi * np.sqrt(1 + delta), (count, pairs)
        ).mean(axis=1)
        p = graph.probability_less_homogeneous(theta, phi, n, eps, delta, printed)
        assert abs((after < before).mean() - p) <= 5 * np.sqrt(p * (1 - p) / count), (
            printed
        )
    exact, text = (
        graph.probability_less_homogeneous(theta, phi, n, eps, delta, p)
        for p in (False, True)
    )
    assert text - exact > 0.05  # so that the two can be told apart


@pytest.mark.parametrize(
    ("eps", "delta"), [(0.0, 0.0), (0.3, 0.5), (-0.5, 1.0), (0.9, -0.5)]
)
def test_propositions_3_3_and_3_4_hold_in_the_model(eps: float, delta: float) -> None:
    """Eigenvalues in order, positive weights (theta far above phi); means with 5 standard
    errors."""
    theta, phi, n, count = 6.0, 0.8, 9, 1500
    before, _, after, _ = alterations(n, theta, phi, eps, delta, count)
    for one, bounds in (
        (graph.squared_deviation, graph.squared_deviation_bounds),
        (graph.absolute_deviation, graph.absolute_deviation_bounds),
    ):
        values = np.array([one(b, a) for b, a in zip(before, after, strict=True)])
        error = 5 * values.std() / np.sqrt(count)
        low, high = bounds(theta, phi, n, eps, delta)
        assert low - error <= values.mean() <= high + error, (
            one.__name__,
            low,
            values.mean(),
            high,
        )


def test_fit_finds_the_parameters() -> None:
    g = random_graph(40, 3, dim=4)
    theta, phi = g.fit()
    edges = -np.log(g.misalignment[np.triu_indices(40, 1)])
    assert (theta, phi) == (pytest.approx(edges.mean()), pytest.approx(edges.std()))
    assert g.homogeneity == pytest.approx(theta / 2)


def test_outliers_clusters_and_sparse_graphs() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(5)[[0] * 8 + [1] * 8]
    rows = unit(
        np.concatenate(
            [centres + 0.05 * rng.normal(size=(16, 5)), [[0, 0, -1.0, 0, -1.0]]]
        )
    )
    g = SimilarityGraph(rows)
    assert g.outliers().tolist() == [16]
    assert g.typical()[-1] == 16
    assert g.clusters(3).tolist() == [0] * 8 + [1] * 8 + [2]
    near = g.nearest(3)
    assert np.array_equal(near, near.T)
    assert ((near > 0).sum(axis=1) >= 3).all()
    assert (near[:8, 8:16] == 0).all()
    assert (g.within(0.1)[:8, 8:] == 0).all()
    assert (g.within(1.0) == g.adjacency).all()


def test_federations_of_images_and_tables() -> None:
    images = graph.similarity(poise.federation("digits", clients=5, seed=0))
    assert images.messages.shape == (5, 64)
    assert (images.messages @ np.ones(64) > 0).all()
    labelled = graph.similarity(
        poise.federation("digits", clients=5, seed=0), labels=True
    )
    assert labelled.messages.shape == (5, 74)
    table = graph.similarity(poise.federation("synthetic", clients=4, seed=0))
    assert table.clients == 4
    noisy = graph.similarity(poise.federation("digits", clients=5, seed=0), noise=0.2)
    assert np.allclose(np.linalg.norm(noisy.messages, axis=1), 1)
    assert not np.allclose(noisy.messages, images.messages, atol=0.01)


def test_texts_are_bags_of_characters() -> None:
    class Texts:
        clients = 2

        def client(self, i: int) -> tuple[np.ndarray, np.ndarray]:
            return (
                (np.array([[0, 0, 1, 0]]), np.array([1]))
                if i == 0
                else (np.array([[2, 2]]), np.array([0]))
            )

    assert np.allclose(graph.messages(Texts()), unit([[3, 1, 0], [0, 0, 1]]))


def test_one_class_clients_are_less_alike_than_mixed_ones() -> None:
    mixed = graph.similarity(poise.federation("digits", "iid", clients=10, seed=0))
    sorted_ = graph.similarity(
        poise.federation("digits", "one-class", clients=10, seed=0)
    )
    assert sorted_.homogeneity < 0.6 * mixed.homogeneity


def test_what_has_no_direction_is_refused_by_client() -> None:
    with pytest.raises(PoiseError, match="client 1"):
        graph.messages(
            poise.federation((np.array([[1.0], [0.0]]), np.array([0, 1])), [[0], [1]])
        )
    with pytest.raises(PoiseError, match="length 1"):
        SimilarityGraph(np.array([[1.0, 0.0], [2.0, 0.0]]))
    with pytest.raises(PoiseError, match="two clients"):
        SimilarityGraph(np.array([[1.0, 0.0]]))
