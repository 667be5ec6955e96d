"""Figures of audits, graphs and sensitivities of very many clients: what is drawn, and what is said
to be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from faults.support import call
from poise.analysis.reports.audit_page import (
    history_figure,
    most_suspected,
    roc_figure,
    score_figure,
)
from poise.analysis.reports.graphs import KeptGraph, keep_graph, kept_graph
from poise.analysis.reports.inspection_page import graph_figure, misalignment_map
from poise.analysis.reports.unlearning_page import sensitivity_figure
from poise.auditing.audit import Audit
from poise.auditing.auditor import Auditor
from poise.core.errors import InvalidOption, LedgerError
from poise.graph import SimilarityGraph


def judged(scores: Any, rounds: int = 3, alarm: float = 0.01) -> Audit:
    values = np.asarray(scores, dtype=float)
    return Audit(
        values, 10.0**-values, np.tile(values, (rounds, 1)), alarm, Auditor(50)
    )


def test_the_roc_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    bad = rng.random(60) < 0.3
    scores = np.round(rng.exponential(1.0, 60) + bad, 1)  # rounded: ties
    false, found = judged(scores).roc(np.flatnonzero(bad))
    fpr, tpr, _ = metrics.roc_curve(bad, scores, drop_intermediate=False)
    assert np.allclose(false, fpr)
    assert np.allclose(found, tpr)
    assert np.trapezoid(found, false) == pytest.approx(judged(scores).auc(bad))


def test_a_roc_needs_both_kinds() -> None:
    with pytest.raises(InvalidOption, match="free-riders and others"):
        judged([1.0, 2.0]).roc([0, 1])


def test_the_point_of_the_alarm_lies_where_the_suspects_are() -> None:
    found = judged([5.0, 0.1, 3.0, 0.2, 0.3])  # suspects: 0 and 2
    *_, point = roc_figure(found, [0, 1]).data
    assert (point.x[0], point.y[0]) == (pytest.approx(1 / 3), 0.5)


def test_of_many_clients_the_most_suspected_are_drawn() -> None:
    rng = np.random.default_rng(1)
    found = judged(rng.permutation(1000) / 1000, rounds=900)
    shown = most_suspected(found)
    assert len(shown) == 200
    assert found.scores[shown].min() > np.delete(found.scores, shown).max()
    assert list(shown) == sorted(shown)
    figure = score_figure(found)
    assert figure.layout.xaxis.dtick == 10, "20 labels for 200 clients"
    (bars,) = figure.data
    assert list(bars.x) == [str(i) for i in shown]
    (heat,) = history_figure(found).data
    assert np.asarray(heat.z).shape == (200, 400)
    assert (
        "200 highest scores of 1,000" in score_figure(found).layout.title.subtitle.text
    )


def test_a_binned_map_holds_the_means_of_its_blocks() -> None:
    rows = np.random.default_rng(2).standard_normal((7, 4))
    graph = SimilarityGraph(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    whole, small = (
        np.asarray(misalignment_map(graph, most).data[0].z) for most in (7, 3)
    )
    assert small.shape == (3, 3)
    assert small[0, 1] == pytest.approx(whole[:3, 3:6].mean(), rel=1e-6)
    assert small[2, 2] == pytest.approx(whole[6, 6], abs=1e-7)


def test_every_node_of_the_graph_says_which_client_it_is() -> None:
    graph = SimilarityGraph(np.eye(5))
    assert list(graph_figure(graph).data[1].customdata) == [0, 1, 2, 3, 4]


def test_one_client_stands_out_among_the_sensitivities() -> None:
    psi = np.cumsum(np.ones((5, 3)), axis=0)
    psi[-1, 1] = np.inf
    drawn = sensitivity_figure("t", "n", psi, 2.0, {1: "#ff0000"}).data
    assert [trace.line.color for trace in drawn] == ["#b8bfc8", "#b8bfc8", "#ff0000"]
    assert np.isnan(drawn[-1].y[-1])


def test_a_kept_graph_comes_back(tmp_path: Path) -> None:
    graph, file = SimilarityGraph(np.eye(4)), tmp_path / "graph.safetensors"
    keep_graph(KeptGraph(graph, {"homogeneity": graph.homogeneity}, "abc"), file)
    back = kept_graph(file)
    assert np.array_equal(back.graph.messages, graph.messages)
    assert (back.findings, back.digest) == ({"homogeneity": graph.homogeneity}, "abc")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(LedgerError, match="cannot read a similarity graph"):
        kept_graph(file)


def test_inspect_keeps_what_the_console_draws(tmp_path: Path) -> None:
    file = tmp_path / "graph.safetensors"
    arguments = (
        "--set",
        "clients=6",
        "--out",
        tmp_path / "page.html",
        "--keep",
        file,
        "--json",
    )
    assert call("inspect", "digits", *arguments).code == 0
    back = kept_graph(file)
    assert back.graph.clients == 6
    assert back.findings["homogeneity"] == pytest.approx(back.graph.homogeneity)
    assert back.digest
