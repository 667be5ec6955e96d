"""The pictures of an inspection against SciPy's laws and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import poise
from poise.analysis.reports.inspection_page import (
    log_normal_density,
    misalignment_distribution,
    spectra_figure,
)
from poise.graph import SimilarityGraph


@pytest.mark.parametrize(("theta", "phi"), [(2.6, 0.8), (0.7, 1.5), (-0.3, 0.2)])
def test_the_density_is_that_of_the_log_normal_law(theta: float, phi: float) -> None:
    mis = np.geomspace(1e-6, 1.0, 50)
    assert np.allclose(
        log_normal_density(mis, theta, phi),
        stats.lognorm.pdf(mis, phi, scale=np.exp(-theta)),
    )
    share = integrate.quad(
        lambda m: float(log_normal_density(np.array(m), theta, phi)),
        1e-9,
        1.0,
        limit=200,
    )[0]
    assert share == pytest.approx(
        stats.norm.cdf(theta / phi), abs=1e-6
    )  # P(mis <= 1) = P(-ln mis >= 0)


def test_bars_are_a_density_and_the_line_is_fitted_to_them() -> None:
    drawn = np.random.default_rng(0).standard_normal(200_000)
    edges = 3 + 0.5 * (drawn - drawn.mean()) / drawn.std()
    bars, line = misalignment_distribution({"simulated": edges}, "t").data
    assert (np.asarray(bars.y) * bars.width).sum() == pytest.approx(1.0)
    at = np.asarray(bars.x)[5:25]
    fitted = np.interp(at, line.x, line.y)
    assert np.abs(np.asarray(bars.y)[5:25] - fitted).max() < 0.03 * fitted.max()
    assert line.name == "theta = 3, phi = 0.5"


def test_in_logarithms_the_law_is_normal() -> None:
    edges = np.random.default_rng(0).normal(3.0, 0.5, 1000)
    bars, line = misalignment_distribution(
        {"simulated": edges}, "t", logarithm=True
    ).data
    assert (np.asarray(bars.y) * bars.width).sum() == pytest.approx(1.0)
    assert np.allclose(line.y, stats.norm.pdf(line.x, edges.mean(), edges.std()))


def test_edges_and_fit_are_those_of_the_pairs() -> None:
    graph = poise.graph.similarity(
        poise.federation("digits", "dirichlet", alpha=0.3, clients=7, seed=2)
    )
    pairs = [graph.adjacency[i, j] for i in range(7) for j in range(i + 1, 7)]
    assert graph.edges.tolist() == pairs
    assert graph.fit() == (pytest.approx(np.mean(pairs)), pytest.approx(np.std(pairs)))
    assert graph.homogeneity == pytest.approx(np.mean(pairs) / 2)


def test_clients_that_are_all_alike_have_bars_and_no_line() -> None:
    graph = SimilarityGraph(np.eye(3)[:1].repeat(4, axis=0))
    (bars,) = misalignment_distribution({"same": graph.edges}, "t").data
    assert np.asarray(bars.y)[1:].sum() == 0
    equal = SimilarityGraph(np.eye(3))  # all pairs at a right angle
    (bars,) = misalignment_distribution({"equal": equal.edges}, "t").data
    assert np.flatnonzero(bars.y).tolist() == [len(bars.y) - 1]


def test_several_federations_share_their_bins() -> None:
    rng = np.random.default_rng(0)
    drawn = misalignment_distribution(
        {"a <b>": rng.normal(3, 0.5, 100), "b": rng.normal(1, 0.5, 100)}, "t"
    ).data
    assert [trace.type for trace in drawn] == ["bar", "scatter", "bar", "scatter"]
    assert np.array_equal(drawn[0].x, drawn[2].x)
    assert drawn[0].name == "a &lt;b&gt;"
    one, other = spectra_figure(
        {"a": rng.uniform(1, 2, 50), "b": rng.uniform(3, 4, 50)}, "t"
    ).data
    for bars in (one, other):
        assert (np.asarray(bars.y) * bars.width).sum() == pytest.approx(1.0)
    assert np.average(one.x, weights=one.y) < np.average(other.x, weights=other.y)
