"""``poise deploy`` without starting anything: what init writes, and what mistakes are told."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from faults.support import call
from poise.apps.cli.deploy import watching
from poise.apps.cli.terminal import Bar
from poise.apps.deploy.control import alive, belonging, running
from poise.apps.deploy.folder import make_deployment, open_deployment, read_toml
from poise.apps.deploy.policy import Policy
from poise.core.errors import DataError, InvalidOption

cryptography = pytest.importorskip(
    "cryptography", reason="the extra [flower] is not installed"
)

DATA = {"source": "digits", "partition": "iid", "clients": 2, "seed": 0}


def test_what_init_writes(tmp_path: Path) -> None:
    from cryptography import x509

    made = make_deployment(tmp_path / "two", 2, DATA)
    assert open_deployment(tmp_path / "two") == made
    assert read_toml(made.node(1) / "node.toml")["data"] == {**DATA, "client": 1}
    assert Policy.of(read_toml(made.node(1) / "policy.toml")) == Policy()
    for folder in (made.server, made.node(0), made.node(1)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "tls.key").stat().st_mode) == 0o600
        certificate = x509.load_pem_x509_certificate((folder / "tls.pem").read_bytes())
        names = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
        assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [
            "127.0.0.1"
        ]
        issuer = "ca.crt" if folder == made.server else "local.crt"
        authority = x509.load_pem_x509_certificate((folder / issuer).read_bytes())
        certificate.verify_directly_issued_by(authority)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert list(usage.value) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    keys = {(made.node(k) / "node.key").read_bytes() for k in range(2)}
    assert len(keys) == 2
    assert (
        made.node(0).joinpath("node.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    )
    ports = {
        made.port,
        *(read_toml(made.node(k) / "node.toml")["port"] for k in range(2)),
    }
    assert len(ports) == 3
    assert (running(made), belonging(made), made.registered()) == (False, [], {})


def test_the_authority_has_a_folder_of_its_own(tmp_path: Path) -> None:
    made = make_deployment(tmp_path / "one", 1, DATA)
    keys = sorted(str(file.relative_to(made.path)) for file in made.path.rglob("*.key"))
    assert keys == [
        "authority/app.key",
        "authority/ca.key",
        "node-0/node.key",
        "node-0/tls.key",
        "server/tls.key",
    ]
    assert stat.S_IMODE(made.authority.stat().st_mode) == 0o700


def test_mistakes(tmp_path: Path) -> None:
    made = make_deployment(tmp_path / "one", 1, DATA)
    with pytest.raises(InvalidOption, match="is not empty"):
        make_deployment(made.path, 1, DATA)
    with pytest.raises(InvalidOption, match="--nodes must be at least 1"):
        make_deployment(tmp_path / "none", 0, DATA)
    with pytest.raises(DataError, match="cannot read"):
        open_deployment(tmp_path / "nowhere")


def test_the_verbs(tmp_path: Path) -> None:
    experiment = tmp_path / "exp.toml"
    data = "\n".join(f"{k} = {json.dumps(v)}" for k, v in DATA.items())
    experiment.write_text(
        f"[data]\n{data}\n[task]\nmodel = 'logistic'\n[solver]\nname = 'sgd'\nlr = 0.1\nsteps = 1\n"
        "[run]\nrounds = 1\n"
    )
    wrong = call("deploy", "init", tmp_path / "d", "--nodes", "3", "--like", experiment)
    assert (wrong.code, "has 2 clients, not 3" in wrong.err) == (2, True)
    made = call(
        "deploy", "init", tmp_path / "d", "--nodes", "2", "--like", experiment, "--json"
    )
    assert (made.code, json.loads(made.out)["nodes"]) == (0, 2), made.err
    status = call("deploy", "status", tmp_path / "d", "--json")
    assert json.loads(status.out)["status"] == "down"
    run = call(
        "deploy", "run", experiment, "--to", tmp_path / "d", "--out", tmp_path / "out"
    )
    assert (run.code, "is not up" in run.err) == (2, True)
    assert call("run", experiment, "--out", tmp_path / "here", "--json").code == 0
    forget = (
        "deploy",
        "unlearn",
        tmp_path / "here" / "seed-0",
        "--client",
        "1",
        "--to",
        tmp_path / "d",
    )
    plan = call(*forget, "--plan", "--json")
    assert json.loads(plan.out)["restart"][0] == 0, plan.err
    asked = call(*forget)
    assert (asked.code, "is not up" in asked.err) == (2, True)
    assert not (tmp_path / "here" / "seed-0" / "unlearning").exists()
    down = call("deploy", "down", tmp_path / "d", "--json")
    assert json.loads(down.out) == {"ended": []}
    alone = call(
        "run", experiment, "--set", "run.backend=flower", "--out", tmp_path / "out"
    )
    assert (alone.code, "poise deploy run" in alone.err) == (2, True)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("'logistic'", "'logistc'", "did you mean 'logistic'?"),
        ("'sgd'", "'sdg'", "did you mean 'sgd'?"),
    ],
)
def test_init_checks_the_whole_file(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    text = (
        "[data]\nsource = 'digits'\nclients = 2\n[task]\nmodel = 'logistic'\n[solver]\n"
        "name = 'sgd'\nlr = 0.1\nsteps = 1\n[run]\nrounds = 1\n"
    )
    file = tmp_path / "exp.toml"
    init = ("deploy", "init", tmp_path / "d", "--nodes", "2", "--like", file)
    file.write_text(text.replace(old, new))
    wrong = call(*init)
    assert wrong.code == 2
    assert words in wrong.err
    assert not (tmp_path / "d").exists()
    file.write_text(text.replace("[task]\nmodel = 'logistic'\n", ""))  # not a whole run
    assert call(*init).code == 0


@pytest.mark.parametrize("source", ["digits", "nodes"])
def test_a_run_says_first_what_it_will_do(source: str, tmp_path: Path) -> None:
    made = make_deployment(tmp_path / "d", 2, DATA)
    file = tmp_path / "exp.toml"
    data = "source = 'digits'\nclients = 2"
    if source == "nodes":
        data = "source = 'nodes'"
    file.write_text(
        f"[data]\n{data}\n[task]\nmodel = 'logistic'\n[solver]\nname = 'sgd'\nlr = 0.1\n"
        "steps = 1\n[run]\nrounds = 3\n"
    )
    run = call("deploy", "run", file, "--to", made.path, "--out", tmp_path / "out")
    plan = run.err[: run.err.index("is not up")]
    said = ["on 2 nodes of", "logistic", "solver sgd(lr=0.1, steps=1)"]
    said += ["3 rounds, 1 seed (0); backend flower", "traffic  ", "out/seed-0"]
    for words in said:
        assert words in plan
    quiet = call("deploy", "run", file, "--to", made.path, "--json")
    assert "backend" not in quiet.err


def test_without_a_terminal_rounds_are_printed_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Bar(quiet=False) as bar:
        watch = watching(bar, "exp on d", 3)
        watch({"round": 0, "metrics": {"accuracy": 0.5}, "refused": []})
        assert "exp on d: round 1 of 3  accuracy 0.500\n" in capsys.readouterr().err
        watch({"round": 1, "metrics": {"accuracy": 0.6}, "refused": []})
        assert "round 2" not in capsys.readouterr().err  # within ten seconds
        watch({"round": 2, "metrics": {"accuracy": 0.7}, "refused": []})
        assert "round 3 of 3  accuracy 0.700\n" in capsys.readouterr().err


def test_a_process_that_ended_and_was_not_noticed_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert alive(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(child.pid)
    child.communicate()
    assert not alive(child.pid)


def test_without_flower_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InvalidOption, match="deployments need Flower"):
        make_deployment(tmp_path / "one", 1, DATA)
    assert not (tmp_path / "one").exists()
