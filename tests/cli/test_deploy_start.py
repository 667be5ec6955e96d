"""What starts a deployment: scripts, units and containers that init writes, and a node that is not
set up right."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.support import call
from poise.apps.deploy import control, supervisor
from poise.apps.deploy.folder import Deployment, make_deployment, read_toml
from poise.apps.deploy.programs import program
from poise.core.errors import InvalidOption

pytest.importorskip("cryptography", reason="the extra [flower] is not installed")

DATA = {"source": "digits", "partition": "iid", "clients": 2, "seed": 0}


@pytest.fixture
def made(tmp_path: Path) -> Deployment:
    return make_deployment(tmp_path / "the trial, 100% real", 2, DATA)


def places(made: Deployment) -> list[Path]:
    return [made.server, made.node(0), made.node(1)]


def test_start_scripts_start_what_they_lie_beside(
    made: Deployment, tmp_path: Path
) -> None:
    stand_in = tmp_path / "poise"
    stand_in.write_text('#!/bin/sh\nprintf "%s|" "$PWD" "$@"\n')
    stand_in.chmod(0o755)
    outside = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    named = {"PATH": os.environ["PATH"], "POISE": str(stand_in)}
    for place, words in zip(
        places(made), (["server", ".."], ["node", "."], ["node", "."]), strict=True
    ):
        script = place / "start.sh"
        assert stat.S_IMODE(script.stat().st_mode) == 0o755
        for environment in (outside, named):
            done = subprocess.run(
                [script],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
                cwd="/",
            )
            assert done.stdout.split("|")[:-1] == [str(place), "deploy", *words]


def units(made: Deployment) -> list[Path]:
    return [next(place.glob("*.service")) for place in places(made)]


def test_units_say_where_and_what(made: Deployment) -> None:
    assert [u.name for u in units(made)] == [
        f"poise-the-trial--100--real-{n}.service"
        for n in ("server", "node-0", "node-1")
    ]
    for unit, place in zip(units(made), places(made), strict=True):
        found = configparser.ConfigParser(interpolation=None)
        found.optionxform = str  # type: ignore[assignment, method-assign]
        found.read(unit)
        service = dict(found["Service"])
        assert service["WorkingDirectory"] == str(place).replace("%", "%%")
        assert (service["ExecStart"], service["Restart"]) == (
            "/bin/sh start.sh",
            "always",
        )
        assert found["Install"]["WantedBy"] == "default.target"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)
def test_systemd_understands_the_units(made: Deployment, tmp_path: Path) -> None:
    def verify(unit: Path) -> tuple[int, str]:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--user", str(unit)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    for unit in units(made):
        assert verify(unit) == (0, "")
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=mxied"))
    assert "KillMode" in verify(unit)[1] or "kill mode" in verify(unit)[1]


def test_the_compose_file(made: Deployment) -> None:
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((made.path / "compose.yaml").read_text())[
        "services"
    ]
    assert list(found) == ["server", "node-0", "node-1"]
    whole = str(made.path)
    assert found["server"]["command"] == ["poise", "deploy", "server", whole]
    assert found["server"]["volumes"] == [
        {"type": "bind", "source": whole, "target": whole}
    ]
    for name in ("node-0", "node-1"):
        assert found[name]["command"] == ["poise", "deploy", "node", "/node"]
        assert found[name]["volumes"] == [
            {"type": "bind", "source": f"./{name}", "target": "/node"}
        ]
    for service in found.values():
        assert (service["network_mode"], service["restart"]) == (
            "host",
            "unless-stopped",
        )
        assert service["user"] == f"${{POISE_USER:-{os.getuid()}:{os.getgid()}}}"
        image = service["image"]
    text = (made.path / "Dockerfile").read_text()
    assert f"docker build -t {image} " in text
    assert [
        line.split()[0] for line in text.splitlines() if not line.startswith("#")
    ] == [
        "FROM",
        "COPY",
        "RUN",
        "ENV",
    ]


def test_a_dollar_in_a_path_is_not_filled_in(tmp_path: Path) -> None:
    made = make_deployment(tmp_path / "a$HOME", 1, DATA)
    assert f'"{tmp_path}/a$$HOME"' in (made.path / "compose.yaml").read_text()
    with pytest.raises(
        InvalidOption, match="characters that configuration files cannot hold"
    ):
        make_deployment(tmp_path / "a\nUser=root", 1, DATA)


def test_nothing_names_this_machine(made: Deployment) -> None:
    texts = {
        f: (made.path / f).read_bytes()
        for f in made.files()
        if Path(f).suffix not in (".key", ".pem", ".crt", ".pub")
    }
    for name, text in texts.items():
        rest = text.replace(str(made.path).replace("%", "%%").encode(), b"").replace(
            str(made.path).encode(), b""
        )
        for own in (sys.prefix, str(Path.home()), socket.gethostname()):
            assert not re.search(rf"(?<!\w){re.escape(own)}(?!\w)".encode(), rest), (
                name,
                own,
            )


def test_init_says_what_it_wrote(tmp_path: Path) -> None:
    done = call("deploy", "init", tmp_path / "two", "--nodes", "2")
    for name in (
        "compose.yaml",
        "Dockerfile",
        "server/start.sh",
        "node-0/poise-two-node-0.service",
        "node-0/policy.toml",
    ):
        assert f"  {name}\n" in done.err
    assert "every other node has the same files as node-0" in done.err
    told = json.loads(
        call("deploy", "init", tmp_path / "one", "--nodes", "1", "--json").out
    )
    there = sorted(
        str(f.relative_to(tmp_path / "one"))
        for f in (tmp_path / "one").rglob("*")
        if f.is_file()
    )
    assert told["files"] == there


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (
            lambda n: (n / "node.toml").unlink(),
            "cannot read {node}/node.toml: No such file",
        ),
        (
            lambda n: (n / "node.toml").write_text("client = "),
            "{node}/node.toml: Invalid value",
        ),
        (
            lambda n: edit(n / "node.toml", "client = 0\n", "client = '0'\n"),
            "node.toml: client = '0' must be a whole",
        ),
        (
            lambda n: edit(n / "node.toml", "\nport = ", "\nport = 9"),
            "must be a whole number, 1 to 65535",
        ),
        (
            lambda n: edit(n / "node.toml", '"127.0.0.1:', '"127.0.0.1/'),
            "is not the server's address",
        ),
        (
            lambda n: edit(n / "node.toml", "[data]", "[dta]"),
            "node.toml has no table [data]",
        ),
        (
            lambda n: edit(n / "node.toml", '"digits"', '"digit"'),
            "node.toml: unknown data source 'digit'",
        ),
        (
            lambda n: edit(n / "node.toml", 'source = "digits"', 'file = "absent.csv"'),
            "no key 'partition'",
        ),
        (
            lambda n: (n / "node.key").unlink(),
            "cannot read {node}/node.key: No such file",
        ),
        (
            lambda n: (n / "node.key").chmod(0o640),
            "other users can read {node}/node.key (mode 640)\nhint:  chmod 600 ",
        ),
        (
            lambda n: (n / "tls.key").chmod(0o604),
            "other users can read {node}/tls.key (mode 604)",
        ),
        (
            lambda n: (n / "node.key").write_text("PRIVATE WORDS"),
            "{node}/node.key is not a private key",
        ),
        (
            lambda n: edit(n / "tls.key", "END EC PRIVATE", "END"),
            "{node}/tls.key is not a private key",
        ),
        (lambda n: (n / "ca.crt").unlink(), "cannot read {node}/ca.crt: No such file"),
        (
            lambda n: (n / "policy.toml").unlink(),
            "cannot read {node}/policy.toml: No such file",
        ),
        (
            lambda n: edit(n / "policy.toml", "max_steps", "max_stpes"),
            "policy.toml: policy: unknown key 'max_stpes'",
        ),
    ],
)
def test_a_node_that_is_not_set_up_right_does_not_start(
    harm: Any, words: str, tmp_path: Path
) -> None:
    node = make_deployment(tmp_path / "one", 1, DATA).node(0)
    harm(node)
    done = call("deploy", "node", node)
    assert done.code in (1, 2)
    assert words.format(node=node) in done.err
    assert "Traceback" not in done.err
    assert "PRIVATE" not in done.err
    assert not (node / "node.log").exists()  # nothing was started


def test_a_port_that_is_taken_and_a_node_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_deployment(tmp_path / "one", 1, DATA).node(0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", read_toml(node / "node.toml")["port"]))
        other.listen()
        done = call("deploy", "node", node)
    assert done.code == 2
    assert re.search(
        r"node.toml: port \d+ is taken: is the node already running\?", done.err
    )
    started: list[Path] = []
    monkeypatch.setattr("poise.apps.cli.deploy.run_node", started.append)
    done = call("deploy", "node", node)
    assert (done.code, started) == (0, [node])
    assert "client 0, 719 samples" in done.err


def test_the_server_in_the_foreground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="the extra [flower] is not installed")
    made = make_deployment(tmp_path / "one", 1, DATA)
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *words: became.append(words))
    control.serve(made.path)
    ((path, command, environment),) = became
    assert (path, command[1:]) == (
        sys.executable,
        ["-m", supervisor.__name__, str(made.path), "--server-only"],
    )
    assert environment["POISE_DEPLOY"] == str(made.path)
    monkeypatch.setattr(control, "running", lambda deployment: True)
    done = call("deploy", "server", made.path)
    assert (done.code, "is already up" in done.err) == (2, True)


def test_a_python_without_flower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(InvalidOption, match="deployments need Flower"):
        program("flower-supernode")
