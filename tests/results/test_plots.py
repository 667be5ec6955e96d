"""Figures of runs, and runs in a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import poise
from poise.core.errors import InvalidOption
from results.hospitals import NAMES, SOLVER, hospitals, trained


def several() -> list[poise.Run]:
    """Two weightings, three seeds each."""
    weightings = (poise.weightings.Proportional(), poise.weightings.Exp(alpha=0.2))
    return [
        poise.train(
            hospitals(), poise.task("logistic"), SOLVER, weighting=w, rounds=3, seed=s
        )
        for w in weightings
        for s in (0, 1, 2)
    ]


def test_one_line_per_metric() -> None:
    run = trained()
    figure = run.plot("client_test_accuracy")
    assert [line.name for line in figure.data] == [
        f"client test accuracy, {name}" for name in NAMES
    ]
    for client, line in enumerate(figure.data):
        values = run.metric("client_test_accuracy")[:, client]
        assert np.array_equal(line.y, values)
        assert list(line.x) == [1, 2, 3, 4]


def test_unmeasured_rounds_have_no_point() -> None:
    fed = poise.federation("digits", clients=3, samples=90)
    run = poise.train(fed, poise.task("logistic"), SOLVER, rounds=5, evaluate_every=2)
    (line,) = run.plot("accuracy").data
    assert list(line.x) == [2, 4, 5]
    (default,) = run.plot().data
    assert default.name == "accuracy"
    against_bytes = run.plot("loss", against="bytes").data[0]
    sent = np.cumsum(run.bytes_up + run.bytes_down)
    assert list(against_bytes.x) == sent[[1, 3, 4]].tolist()


def test_many_clients_have_three_lines() -> None:
    fed = poise.federation("digits", clients=20, samples=200)
    run = poise.train(
        fed, poise.task("logistic"), SOLVER, rounds=2, metrics=["client_loss"]
    )
    lowest, median, highest = run.plot("client_loss").data
    values = run.metric("client_loss")
    assert np.array_equal(lowest.y, values.min(axis=1))
    assert median.y == pytest.approx(np.median(values, axis=1))
    assert np.array_equal(highest.y, values.max(axis=1))


def test_wrong_names_are_one_error() -> None:
    run = trained()
    with pytest.raises(InvalidOption, match="no metric 'acuracy'"):
        run.plot("acuracy")
    with pytest.raises(InvalidOption, match="is no axis"):
        run.plot(against="round")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="there are no runs"):
        poise.plot.compare([])
    with pytest.raises(InvalidOption, match="no run has the metric"):
        poise.plot.compare([run], metric="f1")
    metric = "client_test_accuracy"
    with pytest.raises(InvalidOption, match=r"no experiment has 'waiting'.*weighting"):
        poise.plot.compare([run], by="waiting", metric=metric)


def test_compare_draws_means_and_bands_of_each_choice() -> None:
    runs = several()
    figure = poise.plot.compare(runs, by="weighting", metric="train_loss")
    lines = [line for line in figure.data if line.name]
    assert [line.name for line in lines] == [
        "weighting=proportional",
        "weighting=exp(alpha=0.2)",
    ]
    bands = [line for line in figure.data if line.fill == "toself"]
    assert len(bands) == 2
    for line, group in zip(lines, (runs[:3], runs[3:]), strict=True):
        mean = np.mean([run.metric("train_loss") for run in group], axis=0)
        assert np.asarray(line.y) == pytest.approx(mean)
    assert "mix" not in (figure.layout.title.subtitle.text or "")
    by_itself = poise.plot.compare(runs, metric="train_loss")
    assert len([line for line in by_itself.data if line.name]) == 2
    mixed = poise.plot.compare(runs, by="solver.lr", metric="train_loss")
    (line,) = [line for line in mixed.data if line.name]
    assert line.name == "solver.lr=0.05"
    assert "weighting.name" in mixed.layout.title.subtitle.text


@pytest.mark.parametrize("kind", [list, tuple])
def test_compare_by_several_keys_has_a_line_for_each_combination(kind: type) -> None:
    runs = several()
    keys = kind(["solver.lr", "weighting"])
    figure = poise.plot.compare(runs, by=keys, metric="train_loss")
    assert [line.name for line in figure.data if line.name] == [
        "solver.lr=0.05, weighting=proportional",
        "solver.lr=0.05, weighting=exp(alpha=0.2)",
    ]
    assert "mix" not in (figure.layout.title.subtitle.text or "")
    with pytest.raises(InvalidOption, match="no experiment has 'waiting'"):
        poise.plot.compare(runs, by=["solver.lr", "waiting"], metric="train_loss")
    with pytest.raises(InvalidOption, match="neither an option nor several"):
        poise.plot.compare(runs, by=[], metric="train_loss")


def test_legends_stand_beside_the_figure() -> None:
    """A legend above the figure covers the subtitle once it has two lines."""
    run = trained()
    metric = "client_test_accuracy"
    for figure in (poise.plot.compare([run], metric=metric), run.plot(metric)):
        legend = figure.layout.legend
        assert (legend.orientation, legend.xanchor, legend.yanchor) == (
            "v",
            "left",
            "top",
        )
        assert legend.x > 1
        assert legend.y == 1


def test_compare_opens_folders(tmp_path: Path) -> None:
    for seed in (0, 1):
        trained(tmp_path / f"seed-{seed}", seed=seed).close()
    figure = poise.plot.compare(f"{tmp_path}/**", metric="client_test_accuracy")
    assert len([line for line in figure.data if line.name]) == 1


def test_importing_poise_loads_no_figures() -> None:
    code = "import sys, poise; print([m for m in sys.modules if 'plot' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# notebooks
# --------------------------------------------------------------------------------------


def test_a_run_in_a_notebook(tmp_path: Path) -> None:
    fed = poise.federation("digits", clients=3, samples=90)
    path = tmp_path / "a <b> & c"
    run = poise.train(fed, poise.task("logistic"), SOLVER, rounds=4, out=path)
    page = run._repr_html_()
    tree = ElementTree.fromstring(page)  # well-formed
    words = " ".join(tree.itertext())
    assert "done: 4 rounds, 3 clients, seed 0" in words
    assert str(path) in words
    assert "sgd(lr=0.05, steps=2, batch_size=8)" in words
    assert f"{run.metric('accuracy')[-1]:.4g}" in words
    pictures = tree.findall(".//svg")
    assert len(pictures) == 2
    points = pictures[0].find("polyline").get("points").split()  # type: ignore[union-attr]
    heights = [float(point.split(",")[1]) for point in points]
    accuracy = run.metric("accuracy")
    assert np.argmin(heights) == np.argmax(accuracy)  # up is better, from the top left
    assert not re.search(r"<script|https?://", page)
    assert len(page) < 20_000


def test_damaged_runs_have_a_page(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    (tmp_path / "run" / "experiment.toml").write_text("[data")
    assert "not TOML" in run._repr_html_()


def test_explanations_and_federations_in_a_notebook() -> None:
    fed = hospitals()
    assert "4 clients" in fed._repr_html_()
    why = poise.explain(fed, poise.task("logistic"), SOLVER)
    assert why._repr_html_().startswith("<pre>")
