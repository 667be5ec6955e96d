"""Keys and secrets of a deployment stay in their own files and appear in no output."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.test_flower_nodes import Nodes
from faults.support import call
from poise.apps.deploy import server
from poise.apps.deploy.folder import MARK, Deployment, make_deployment
from poise.apps.deploy.node import load_context, reply_to
from poise.apps.deploy.server import main
from poise.apps.deploy.supervisor import Supervisor
from poise.backends.flower import transport as flower_transport
from poise.backends.flower.messages import NodeMessage
from poise.config.experiment import parse

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

EXPERIMENT = """
[data]
source = "digits"
partition = "iid"
clients = 2
seed = 0
[task]
model = "logistic"
[solver]
name = "sgd"
lr = 0.1
steps = 2
[weighting]
name = "adjacency"
[run]
rounds = 2
"""


class Folders(Nodes):
    """Nodes that answer from the folders of a deployment, and keep their journals there."""

    made: Deployment

    def get_node_ids(self) -> list[int]:
        return [100 + c for c in range(self.made.nodes)]

    def _reply(self, name: str, client: int, request: NodeMessage) -> Any:
        message = SimpleNamespace(
            metadata=SimpleNamespace(src_node_id=0), content=request.content()
        )
        content = reply_to(message, self.made.node(client)).content()
        metadata = SimpleNamespace(reply_to_message_id=name, src_node_id=100 + client)
        return SimpleNamespace(
            metadata=metadata, has_error=lambda: False, content=content
        )


def forms(secret: bytes) -> Iterator[bytes]:
    """A secret as somebody might write it."""
    yield from (
        secret,
        secret.hex().lstrip("0").encode(),
        base64.b64encode(secret),
        base64.urlsafe_b64encode(secret),
    )
    yield from (
        str(int.from_bytes(secret, order)).encode() for order in ("big", "little")
    )
    yield from (repr(secret)[2:-1].encode(), json.dumps(list(secret)).encode())


def secrets(made: Deployment) -> set[bytes]:
    """All of a deployment: lines of the key files, the private numbers in them, what else only its
    owner knows."""
    from cryptography.hazmat.primitives import serialization

    found = set(forms((made.server / "secret").read_bytes()))
    for file in made.path.rglob("*.key"):
        text = file.read_bytes()
        found |= {line for line in text.splitlines() if not line.startswith(b"-----")}
        load = (
            serialization.load_ssh_private_key
            if file.name == "node.key"
            else serialization.load_pem_private_key
        )
        key = load(text, None)
        number = (
            key.private_bytes_raw()
            if file.name == "app.key"
            else key.private_numbers().private_value.to_bytes(48, "big")
        )
        found |= set(forms(number))
    for client in range(made.nodes):
        found |= set(forms(load_context(made.node(client)).node_data.secret))
    shared = b"b3BlbnNzaC1rZXktdjEAAAAA"  # how every key of OpenSSH begins: its format
    return {s for s in found if len(s) >= 16 and not s.startswith(shared)}


def leaks(folder: Path, known: set[bytes]) -> list[str]:
    own = ("secret", "node.key", "tls.key", "ca.key", "app.key")
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in own]
    return [str(f) for f in files if any(s in f.read_bytes() for s in known)]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Deployment, set[bytes]]:
    """A deployment after runs that succeed, are refused and fail, with all that its parts wrote and
    printed."""
    monkeypatch.setattr(flower_transport, "PAUSE", 0.0)
    monkeypatch.setattr(
        server, "ReplyReceiver", lambda grid: grid
    )  # nothing comes in here: nodes are functions
    out = tmp_path / "printed.txt"
    begun = call("deploy", "init", tmp_path / "d", "--nodes", "2")
    made = make_deployment(tmp_path / "e", 2, parse(EXPERIMENT).table("data"))
    (made.server / "nodes.json").write_text(json.dumps({"0": "100", "1": "101"}))
    grid = Folders([])
    grid.made = made
    monkeypatch.setenv(MARK, str(made.path))

    def job(name: str, **order: Any) -> None:
        (made.jobs / f"{name}.json").write_text(json.dumps(order))
        main(grid, SimpleNamespace(run_config={"job": name}))

    whole = {
        "text": EXPERIMENT,
        "file": str(tmp_path / "exp.toml"),
        "set": [],
        "seeds": None,
    }
    with pytest.raises(Exception, match="not take part"):
        job("refused", **whole, out=str(tmp_path / "none"))
    for client in range(2):
        file = made.node(client) / "policy.toml"
        file.write_text(
            file.read_text()
            .replace("graph = false", "graph = true\n")
            .replace("graph_noise = 0.0", "graph_noise = 0.1")
        )
    job("done", **whole, out=str(tmp_path / "runs"))
    with pytest.raises(KeyError):
        job("failed", text=EXPERIMENT)
    (made.node(1) / "node.toml").write_text("client = 1\n[data]\nfile = 'node.key'\n")
    with pytest.raises(Exception, match="not take part"):
        job("broken", **whole, out=str(tmp_path / "none"))
    monkeypatch.setattr(
        signal, "signal", lambda number, handler: None
    )  # those of the tests stay
    Supervisor(made, nodes=True)._write("up")
    report = call(
        "report", tmp_path / "runs" / "seed-0", "--out", tmp_path / "page.html"
    )
    status, node = (
        call("deploy", "status", made.path),
        call("deploy", "node", made.node(1)),
    )
    out.write_text(
        "".join(o.out + o.err for o in (begun, report, status, node))
        + repr(load_context(made.node(0)))
    )
    monkeypatch.undo()
    (made.node(1) / "node.toml").write_text((made.node(0) / "node.toml").read_text())
    return made, secrets(made)


def test_no_secret_is_written_or_said(
    said: tuple[Deployment, set[bytes]], tmp_path: Path
) -> None:
    made, known = said
    written = {f.name for f in tmp_path.rglob("*") if f.is_file()}
    assert {
        "journal.jsonl",
        "ledger.sqlite",
        "done.log",
        "failed.trace",
        "state.json",
        "page.html",
    } <= written
    assert (tmp_path / "printed.txt").stat().st_size > 500
    journal = (made.node(1) / "journal.jsonl").read_text()
    assert "unknown file type" in journal
    assert '"kind": "graph"' in journal
    assert len(known) > 60
    assert leaks(tmp_path, known) == []


@pytest.mark.parametrize("how", ["line", "number", "secret"])
def test_the_search_finds_what_it_looks_for(how: str, tmp_path: Path) -> None:
    made = make_deployment(tmp_path / "d", 1, {"source": "digits", "clients": 1})
    known = secrets(made)
    assert leaks(tmp_path, known) == []
    from cryptography.hazmat.primitives import serialization

    key = (made.node(0) / "node.key").read_bytes()
    number = (
        serialization.load_ssh_private_key(key, None).private_numbers().private_value
    )
    planted = {
        "line": key.splitlines()[3],
        "number": b"%x" % number,
        "secret": (made.server / "secret").read_bytes(),
    }
    (made.logs / "superlink.log").write_bytes(b"said " + planted[how] + b" and more")
    assert leaks(tmp_path, known) == [str(made.logs / "superlink.log")]
