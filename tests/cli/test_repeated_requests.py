"""``poise unlearn`` again: what is done shows its certificate, what is refused leaves no trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from faults.support import Outcome, call, files, run_into
from unlearning.test_interrupted_requests import EXPERIMENT

FAST = ("--min-rounds", "2", "--max-rounds", "3", "--target", "2")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_into(EXPERIMENT, tmp_path_factory.mktemp("trained"))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def unlearned(run: Path) -> Path:
    assert call("unlearn", run, "--clients", "1", *FAST).code == 0
    return run


def certificate(run: Path, index: int = 1) -> Path:
    return run / "unlearning" / f"{index:03d}" / "certificate.json"


@pytest.mark.parametrize("more", [(), ("--plan",), ("--json",), ("--plan", "--json")])
def test_a_request_that_is_done_shows_its_certificate(
    unlearned: Path, more: tuple[str, ...]
) -> None:
    before = certificate(unlearned).read_bytes()
    again = call("unlearn", unlearned, "--clients", "1", *FAST, *more)
    assert (again.code, again.err) == (0, "")
    if "--json" in more:
        said = json.loads(again.out)
        assert said["finished"]
        assert said["path"] == str(certificate(unlearned))
    else:
        assert str(certificate(unlearned)) in again.out.replace("\n", "")
    assert certificate(unlearned).read_bytes() == before
    assert not certificate(unlearned, 2).parent.exists()


def test_a_request_of_a_deployment_that_is_done_needs_no_nodes(
    unlearned: Path, tmp_path: Path
) -> None:
    asked = ("deploy", "unlearn", unlearned, "--clients", "1", *FAST)
    again = call(*asked, "--to", tmp_path / "nowhere")
    assert again.code == 0, again.err
    assert str(certificate(unlearned)) in again.out.replace("\n", "")


@pytest.mark.parametrize("index", [1, 2])
def test_the_command_writes_a_lost_certificate_anew(
    unlearned: Path, index: int
) -> None:
    assert call("unlearn", unlearned, "--clients", "2", *FAST).code == 0
    before = certificate(unlearned, index).read_bytes()
    certificate(unlearned, index).unlink()
    other = call("unlearn", unlearned, "--clients", "3", *FAST)
    assert other.code in (1, 2)
    again = call("unlearn", unlearned, "--clients", str(index), *FAST)
    assert again.code == 0, again.err
    assert certificate(unlearned, index).read_bytes() == before
    assert call("verify", certificate(unlearned, 2)).code == 0


def refused(outcome: Outcome, code: int) -> None:
    """One error, and nothing else."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert "restart from" not in outcome.err
    assert "Traceback" not in outcome.err


REFUSED = {
    "no clipping": (("--clients", "1", "--method", "dp"), 2),
    "no updates": (("--clients", "1", "--method", "fed-accum"), 2),
    "unknown client": (("--clients", "99"), 2),
    "twice": (("--clients", "1,1"), 2),
    "everyone": (("--clients", "0..5"), 2),
    "too few left": (("--clients", "0..3"), 2),
    "no bound": (("--clients", "1", "--participation", "optimistic"), 2),
    "no such model": (("--clients", "1", "--strong-convexity", "1000"), 2),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_request_prints_its_error_and_writes_nothing(
    why: str, run: Path
) -> None:
    options, code = REFUSED[why]
    before = files(run)
    refused(call("unlearn", run, *options, *FAST), code)
    assert {n: c for n, c in files(run).items() if "sqlite-" not in n} == before


def test_a_request_beside_an_unfinished_one_prints_its_error(unlearned: Path) -> None:
    certificate(unlearned).unlink()
    refused(call("unlearn", unlearned, "--clients", "2", *FAST), 2)
    refused(call("unlearn", unlearned, "--clients", "1", "--sigma", "1", *FAST), 2)
    refused(call("unlearn", unlearned, "--clients", "1", "--target", "1"), 2)


def test_a_damaged_restart_model_prints_its_error(run: Path) -> None:
    for model in (run / "models").glob("*.safetensors"):
        model.write_bytes(model.read_bytes()[:-1] + b"\x7f")
    before = files(run)
    refused(call("unlearn", run, "--clients", "1", *FAST), 1)
    assert {n: c for n, c in files(run).items() if "sqlite-" not in n} == before


def test_an_accepted_request_says_where_it_restarts(run: Path) -> None:
    done = call("unlearn", run, "--clients", "1", *FAST)
    assert done.code == 0
    assert "restart from round" in done.err
