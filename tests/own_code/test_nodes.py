"""Users' code on nodes: only allowed packages with the server's source."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poise
from own_code.support import write_package, write_spy
from poise.apps.deploy.jobs import run_deployed
from poise.apps.deploy.node import NodeContext, answer
from poise.apps.deploy.node_data import NOT_SET_UP, NodeData
from poise.apps.deploy.policy import Policy, PolicyRefused
from poise.apps.deploy.registration import (
    _read_registration,
    _refused_by,
    registered_federation,
)
from poise.apps.deploy.server_code import code_facts
from poise.backends import Flower
from poise.backends.flower.messages import NodeMessage
from poise.backends.flower.transport import Transport, connected
from poise.config.experiment import load, parse
from poise.core.errors import InvalidOption, PoiseError, UpdateRefused
from poise.core.objects import use_folders
from poise.training import begin, compose

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

from backends.test_flower_nodes import Nodes

SOLVER = """
from poise.core.parts import part
from poise.core.protocols import StepRule
import numpy as np

@part("solver", "{name}-sign")
class Sign:
    lr: float = 0.01
    batch_size: int | None = None
    def fit(self, setting): ...
    def steps_for(self, sizes): return np.full(len(sizes), 2)
    def rate(self, version): return self.lr
    def rule(self, start, version):
        return StepRule(self.rate(version), (lambda gradients, weights: gradients.sign_(),))
"""


def experiment(folder: Path, name: str, own_solver: bool = False) -> Any:
    file = write_package(folder, name)
    text = file.read_text().replace("metrics =", "# ").replace('keep = "all"', "")
    if own_solver:
        parts = folder / name / "parts.py"
        parts.write_text(parts.read_text() + SOLVER.format(name=name))
        text = text.replace(
            'name = "sgd"\nlr = 0.1\nsteps = 2\nbatch_size = 10',
            f'name = "{name}-sign"',
        )
    file.write_text(text)
    return load(file)


def deployed(given: Any, policy: Policy, rounds: int = 2) -> Any:
    """Register nodes with this policy, and train."""
    code = code_facts(given)
    whole = compose(given, 0).federation
    data = [
        NodeData(c, whole.shards([c]), {**whole.spec, "client": c})
        for c in range(whole.clients)
    ]
    grid = Nodes(data, policy)
    transport = Transport(
        grid,
        {h.client: 100 + h.client for h in data},
        "run",
        given.table("task"),
        "a" * 32,
        code=code,
    )
    remote = registered_federation(given, 0, transport, patience=5.0)
    composition = compose(given, 0, remote).with_options(
        backend=Flower(patience=5.0), rounds=rounds
    )
    with connected(transport):
        return begin(composition)


@pytest.mark.parametrize("own_solver", [False, True])
def test_an_allowed_package_trains_as_in_one_process(
    tmp_path: Path, own_solver: bool
) -> None:
    name = f"own_nodes_{own_solver}".lower()
    given = experiment(tmp_path, name, own_solver)
    policy = Policy(allow=(name,), solvers=("sgd", f"{name}-sign"))
    there = deployed(given, policy)
    here = begin(compose(given, 0).with_options(rounds=2))
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6


def test_a_schedule_of_an_allowed_package_trains_as_in_one_process(
    tmp_path: Path,
) -> None:
    given = experiment(tmp_path, "own_node_rates")
    (tmp_path / "own_node_rates" / "rates.py").write_text("def fall(n): return 2**-n\n")
    text = given.path.read_text()
    line = 'local_schedule = "own_node_rates.rates:fall"'
    given.path.write_text(text.replace("steps = 2", f"steps = 2\n{line}"))
    given = load(given.path)
    there = deployed(given, Policy(allow=("own_node_rates",)))
    here = begin(compose(given, 0).with_options(rounds=2))
    assert np.abs(np.asarray(there.model) - np.asarray(here.model)).max() <= 1e-6


def test_a_package_is_refused_at_registration(tmp_path: Path) -> None:
    given = experiment(tmp_path, "own_refused")
    with pytest.raises(
        UpdateRefused,
        match=r"clients 0, 1.* do not take part: its policy does not allow the package "
        r"'own_refused' \(allow = \[\"other\"\]\) \(change the request, or ask the node's "
        r"operator to change policy.toml\)",
    ):
        deployed(given, Policy(allow=("other",)))


def test_the_operator_of_a_node_with_a_mistake_is_asked_to_read_its_journal() -> None:
    asked = NodeMessage({"client": 0, "nonce": "n"})
    answered = NodeMessage({"refused": NOT_SET_UP})
    with pytest.raises(
        UpdateRefused, match=r"journal says why \(ask the node's operator"
    ):
        _read_registration(asked, answered, node=1, hint="change policy.toml")


def request(name: str, folder: Path, **facts: Any) -> Any:
    """The answer of a node to a registration that names this code."""
    fed = poise.federation("digits", clients=2, samples=60)
    message = {
        "kind": "hello",
        "client": 0,
        "nonce": "n",
        "task": {"module": f"{name}.models:make"},
        "solver": {"name": "sgd", "lr": 0.1, "steps": 1},
        "cohort": 2,
        "reports": [],
        "metrics": [],
        **facts,
    }
    policy = Policy(allow=("own_spied_node", "own_others"))
    context = NodeContext(NodeData(0, fed.shards([0])), policy, folder=folder)
    return answer(NodeMessage(message), context)


REFUSED: dict[str, dict[str, Any]] = {
    r"differs from the server's \(0000\)": {"code": {"own_spied_node": "0000"}},
    r"differs from the server's \(None\)": {},
    "does not allow the package 'os'": {"task": {"module": "os:system"}},
    "allow the package 'subprocess'": {"import": ["subprocess"]},
    "allow the package 'own_spied_nodes'": {"import": ["own_spied_nodes"]},
    "allow the package 'posix'": {
        "solver": {"name": "sgd", "lr": 0.1, "steps": 1, "schedule": "posix:abort"}
    },
    "allow the package 'pdb'": {
        "channel": {
            "name": "plain",
            "x": {"slot": "schedule", "name": "function", "function": "pdb:run"},
        }
    },
    "names no valid modules": {"import": ["../x"]},
    "its node has no package 'own_others'": {"import": ["own_others"]},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_node_refuses_before_it_imports(tmp_path: Path, reason: str) -> None:
    witness = write_spy(tmp_path, "own_spied_node")
    with pytest.raises(PoiseError, match=reason) as refused:
        request("own_spied_node", tmp_path, **REFUSED[reason])
    assert "\n" not in str(refused.value)
    assert not witness.exists()
    assert "own_spied_node" not in sys.modules


def test_a_function_that_an_allowed_module_imports_is_refused(tmp_path: Path) -> None:
    from poise.core.own_code import code_of

    write_package(tmp_path, "own_spied_node")
    use_folders([tmp_path])
    sent = {k: c.sha256 for k, c in code_of(["own_spied_node.models"]).items()}
    accepted = request("own_spied_node", tmp_path, code=sent)
    assert accepted.facts["client"] == 0
    with pytest.raises(PolicyRefused, match="does not allow the package 'subprocess'"):
        request(
            "own_spied_node",
            tmp_path,
            code=sent,
            task={"module": "own_spied_node.models:run", "options": {"args": "true"}},
        )


UNKNOWN: dict[str, dict[str, Any]] = {
    r"cannot prepare the run: \[solver\] unknown solver 'sdg' \(did you mean 'sgd'": {
        "solver": {"name": "sdg"}
    },
    r"cannot prepare the run: .*unknown model 'mlpp' \(did you mean 'mlp'": {
        "task": {"model": "mlpp"}
    },
    r"cannot prepare the run: .*unknown model 'later' \(the node has poise .*, the server "
    r"99.0: install the same version on both": {
        "task": {"model": "later"},
        "poise": "99.0",
    },
    r"channel.* unknown channel 'zip'": {"channel": {"name": "zip"}},
}


@pytest.mark.parametrize("reason", UNKNOWN)
def test_a_name_that_the_node_does_not_know_is_reported_at_registration(
    tmp_path: Path, reason: str
) -> None:
    facts = {"task": {"model": "logistic"}, **UNKNOWN[reason]}
    with pytest.raises(UpdateRefused, match=reason) as refused:
        request("own_unknown", tmp_path, **facts)
    assert "\n" not in str(refused.value)


def test_a_known_model_is_accepted(tmp_path: Path) -> None:
    accepted = request("own_unknown", tmp_path, task={"model": "logistic"})
    assert accepted.facts["client"] == 0


def test_all_refusing_clients_are_named_by_reason() -> None:
    reasons = {0: "no package 'a'", 1: "no package 'a'", 3: "nothing within 5 s"}
    error = _refused_by({c: UpdateRefused(r, "repair it") for c, r in reasons.items()})
    assert error.message == (
        "clients 0, 1 do not take part: no package 'a'; "
        "client 3 does not take part: nothing within 5 s"
    )
    assert error.hint == "repair it"


def test_a_wrong_model_is_reported_before_the_deployment_is_asked(
    tmp_path: Path,
) -> None:
    text = (
        "[data]\nsource = 'nodes'\n[task]\nmodel = 'mlpp'\n"
        "[solver]\nname = 'sgd'\nlr = 0.1\nsteps = 1\n[run]\nrounds = 1\n"
    )
    wrong = parse(text, tmp_path / "exp.toml")
    with pytest.raises(InvalidOption, match=r"exp.toml, line 4: unknown model 'mlpp'"):
        run_deployed(wrong, tmp_path / "no deployment", tmp_path / "out")


def test_the_policy_lists_packages() -> None:
    assert Policy.of({"allow": ["mine"]}).table()["allow"] == ["mine"]
    for wrong in ("mine", ["mine:make"], [3]):
        with pytest.raises(InvalidOption, match="allow must be a list"):
            Policy.of({"allow": wrong})
