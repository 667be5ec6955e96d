"""The Ray backend: bit-identical results on one node, on two nodes, and after a killed worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from poise import samplers, solvers
from poise.backends import Local, Ray
from poise.backends.ray import OURS
from poise.channels import TopK
from poise.engine.local_work import LocalWork
from poise.testing import check_backend

ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """Two Ray nodes on this machine, one CPU each."""
    from ray.cluster_utils import Cluster

    os.environ |= OURS
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, paths))
        )  # for test modules
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False},
        )
        made.add_node(num_cpus=1)
    ray.init(
        address=made.address,
        log_to_driver=False,
        logging_level="error",
        namespace="poise",
    )
    yield made
    ray.shutdown()
    made.shutdown()


def trained(backend: Any, path: Any = None, **parts: Any) -> Any:
    fed = poise.federation("digits", "dirichlet", clients=12, alpha=0.5, samples=500)
    chosen = {
        "solver": solvers.SGD(lr=0.1, epochs=1, batch_size=16),
        "sampler": samplers.Uniform(6),
        "rounds": 4,
        "metrics": ["client_loss"],
        **parts,
    }
    return poise.train(
        fed, poise.Task("mlp", {"hidden": 8}, path=path), backend=backend, **chosen
    )


def test_the_contract() -> None:
    check_backend(Ray(workers=2))


@pytest.mark.thorough
@pytest.mark.parametrize("path", [None, "rows"])
def test_the_same_bits_as_in_one_process(path: Any) -> None:
    there, here = trained(Ray(), path), trained(Local(), path)
    assert np.array_equal(there.model, here.model)
    assert there.digest == here.digest


@pytest.mark.thorough
@pytest.mark.parametrize(
    "solver",
    [
        solvers.Scaffold(lr=0.1, steps=3, batch_size=16),
        solvers.Perturbed(beta=0.7, lr=0.1, steps=3, batch_size=16),
    ],
    ids=["scaffold", "perturbed"],
)
def test_memories_travel(solver: Any) -> None:
    assert (
        trained(Ray(), solver=solver).digest == trained(Local(), solver=solver).digest
    )


@pytest.mark.thorough
def test_channels_encode_where_the_work_is_done() -> None:
    options = {"channel": TopK(0.1), "rounds": 5}
    assert trained(Ray(), **options).digest == trained(Local(), **options).digest


@pytest.mark.thorough
def test_clients_are_spread_over_both_nodes(cluster: Any) -> None:
    workers = Ray().open(*_opened())
    try:
        where = {ray.get(actor.where.remote()) for actor in workers._actors}
    finally:
        workers.close()
    assert len(where) == 2


def test_a_worker_killed_in_the_middle_changes_nothing() -> None:
    struck: list[int] = []

    def strike(record: Any) -> None:
        if record.index == 1:
            pids = [p for p in _worker_pids() if p not in struck]
            os.kill(pids[0], signal.SIGKILL)
            struck.append(pids[0])

    there = trained(Ray(), callbacks=[strike], rounds=5)
    assert struck
    assert there.digest == trained(Local(), rounds=5).digest


@pytest.mark.thorough
def test_an_error_in_local_work_names_the_client() -> None:
    with pytest.raises(poise.PoiseError, match="client"):
        trained(Ray(), solver=solvers.SGD(lr=1e30, steps=20, batch_size=16))


def test_a_cluster_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(poise.PoiseError, match="no cluster at"):
        Ray(address="127.0.0.1:1").open(*_opened())


def _opened() -> tuple[Any, ...]:
    fed = poise.federation("digits", clients=4, samples=100)
    return (
        LocalWork.plain(poise.task("logistic").bind(fed), solvers.SGD(lr=0.1, steps=1)),
        fed,
        0,
    )


def _worker_pids() -> list[int]:
    """Processes of this cluster's workers, by the name that Ray gives them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if name.startswith(b"ray::_Worker"):
                found.append(int(entry.name))
    return found


@pytest.mark.thorough
def test_code_that_is_not_installed_travels_with_the_work(tmp_path: Path) -> None:
    """The workers began without the folder of the package on their path."""
    from own_code.support import forgotten_modules, write_package
    from poise.config.experiment import load
    from poise.training import begin, compose

    experiment = load(write_package(tmp_path, "own_on_ray"))
    with forgotten_modules():
        runs = [
            begin(compose(experiment, 0).with_options(rounds=2, backend=backend))
            for backend in (Local(), Ray(workers=2))
        ]
    assert np.array_equal(runs[0].model, runs[1].model)
