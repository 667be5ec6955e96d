"""What the console says of all clients: from the ledger, and from a graph that was kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import poise
from faults.support import call
from poise.analysis.reports.graphs import kept_graph
from poise.apps.ui.views import federation as views
from poise.results import Run, open_run
from ui.samples import plain


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    found = open_run(plain(tmp_path_factory.mktemp("runs")))
    yield found
    found.close()


def test_facts_come_from_the_ledger(run: Run) -> None:
    said = dict(views.facts(run))
    assert (said["clients"], said["samples"]) == ("10", "300")
    fed = poise.federation(
        "digits", partition="dirichlet", alpha=0.3, clients=10, samples=300, seed=0
    )
    assert said["samples per client"].startswith(
        f"{fed.sizes.min()} to {fed.sizes.max()}"
    )


def test_the_figure_of_sizes_has_the_names_of_the_clients() -> None:
    sizes = np.array([30, 10, 20])
    axis = views.size_figure(sizes, ["cleveland", "budapest", "<zurich>"]).layout.xaxis
    assert axis.ticktext == ("budapest", "&lt;zurich&gt;", "cleveland"), "by size"
    bars = views.size_figure(sizes, ["cleveland", "budapest", "zurich"]).data[0]
    assert axis.tickvals == tuple(bars.x)
    assert views.size_figure(sizes).layout.xaxis.ticktext is None


def test_the_command_makes_the_graph_of_the_runs_own_data(
    run: Run, tmp_path: Path
) -> None:
    assert run.path is not None
    file = tmp_path / "graph.safetensors"
    done = call(
        "inspect",
        run.path / "experiment.toml",
        "--seed",
        "0",
        "--keep",
        file,
        "--out",
        tmp_path / "p.html",
    )
    assert done.code == 0, done.err
    kept = kept_graph(file)
    assert kept.digest == run.meta["federation"]
    assert dict(views.graph_facts(kept))["homogeneity"].startswith(
        f"{kept.graph.homogeneity:.4f}"
    )
    titles = [plot.title for plot in views.graph_plots(kept)]
    assert titles == [
        "Similarity graph",
        "Misalignment of the clients",
        "Distribution of the misalignment",
        "Spectrum of the similarity graph",
    ]
    assert views.typical(kept)["most typical"][0] == int(kept.graph.degree.argmax())


@pytest.mark.parametrize(
    ("experiment", "nodes"),
    [
        ('[data]\nsource = "digits"\n[run]\nrounds = 1\n', False),
        ('[data]\nsource = "nodes"\n[run]\nrounds = 1\n', True),
        ('[data]\nsource = "digits"\n[run.backend]\nname = "flower"\n', True),
        ('[data]\nsource = "digits"\n[run]\nbackend = "flower"\n', True),
        ("[run]\nrounds = 1\n", False),
    ],
)
def test_runs_of_nodes_are_told_apart(experiment: str, nodes: bool) -> None:
    assert views.on_nodes(experiment) is nodes


def test_why_there_is_no_graph(run: Run) -> None:
    assert views.why_no_graph(run) == ""
    fed = poise.quadratics([[0.0], [1.0]])
    objects = poise.train(fed, fed.task, poise.solvers.SGD(lr=0.1, steps=1), rounds=1)
    assert "Python objects" in views.why_no_graph(objects)


def test_figures_can_be_read_as_json(run: Run) -> None:
    for plot in views.plots(run):
        assert json.loads(plot.views[0][1])["data"]
