"""Outsiders stay outside: signed app, guarded control API, and certificates."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra [flower] is not installed")

from faults.support import call
from poise.apps.deploy import control
from poise.apps.deploy.folder import Deployment, make_deployment, read_toml
from poise.apps.deploy.guard import HEADER, TRUSTED, Gate, operator_token, verifications
from poise.core.errors import DataError, InvalidOption

DATA = {"source": "digits", "partition": "iid", "clients": 2, "seed": 0}


@pytest.fixture
def made(tmp_path: Path) -> Deployment:
    return make_deployment(tmp_path / "two", 2, DATA)


def test_only_the_signed_app_passes_on_server_and_node(made: Deployment) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.fab import Fab
    from flwr.supernode.start_client_internal import _verify_fab

    trusted = json.loads((made.node(0) / TRUSTED).read_text())
    good = build_fab_from_disk(made.server / "app")
    signed = verifications(made.server, good)
    assert _verify_fab(Fab("", good, signed), trusted)
    client = made.server / "app" / "poise_app" / "client.py"
    client.write_text(client.read_text() + "#")
    other = build_fab_from_disk(made.server / "app")
    assert not _verify_fab(Fab("", other, signed), trusted)
    with pytest.raises(DataError, match="not the signed app"):
        verifications(made.server, other)


@pytest.mark.parametrize(
    ("path", "client", "token", "admitted"),
    [
        ("/v1/fleet/pull-messages", "10.0.0.9", False, True),
        ("/v1/runtime/acquire-task", "10.0.0.9", True, False),
        ("/v1/runtime/acquire-task", "10.0.0.5", False, True),
        ("/v1/control/start-run", "10.0.0.5", False, False),
        ("/v1/control/start-run", "10.0.0.9", True, False),
        ("/v1/control/start-run", "10.0.0.5", True, True),
        ("/docs", "10.0.0.5", False, False),
    ],
)
def test_the_gate(
    made: Deployment, path: str, client: str, token: bool, admitted: bool
) -> None:
    secret = operator_token(made.server)
    given = secret if token else "0" * len(secret)
    scope = {
        "path": path,
        "client": (client, 1),
        "server": ("10.0.0.5", 2),
        "headers": [(HEADER.encode(), given.encode())],
    }
    assert Gate(None, secret).admits(scope) is admitted


@pytest.mark.parametrize("folder", ["server", "node-0"])
def test_a_node_cannot_pose_as_the_server(made: Deployment, folder: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        made.path / folder / "tls.pem", made.path / folder / "tls.key"
    )
    door = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            context.wrap_socket(door.accept()[0], server_side=True)

    threading.Thread(target=serve, daemon=True).start()
    trust = ssl.create_default_context(cafile=str(made.node(1) / "ca.crt"))
    with socket.create_connection(door.getsockname()) as line:
        if folder == "server":
            trust.wrap_socket(line, server_hostname="127.0.0.1")
            return
        with pytest.raises(ssl.SSLCertVerificationError):
            trust.wrap_socket(line, server_hostname="127.0.0.1")


def test_the_life_of_a_federation(tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("long and secret\n")
    folder = tmp_path / "d"
    made = call("deploy", "init", folder, "--nodes", "1", "--passphrase-file", word)
    assert made.code == 0, made.err
    assert "ENCRYPTED" in (folder / "authority" / "ca.key").read_text()
    old = (folder / "server" / "tls.pem").read_bytes()
    wrong = call("deploy", "renew", folder)
    assert (wrong.code, "--passphrase-file" in wrong.err) == (2, True)
    assert call("deploy", "renew", folder, "--passphrase-file", word).code == 0
    assert (folder / "server" / "tls.pem").read_bytes() != old
    assert call("deploy", "add-node", folder).code == 0
    assert (folder / "node-1" / TRUSTED).exists()
    key = (folder / "node-1" / "node.pub").read_bytes()
    assert call("deploy", "revoke", folder, "1").code == 0
    changes = folder / "server" / "changes.json"
    assert json.loads(changes.read_text())["revoked"] == [1]
    assert call("deploy", "rotate", folder, "1").code == 0
    assert json.loads(changes.read_text())["revoked"] == []
    assert (folder / "node-1" / "node.pub").read_bytes() != key
    none = call("deploy", "revoke", folder, "7")
    assert (none.code, "no client 7" in none.err) == (2, True)


def test_up_waits_for_admitted_nodes_only(
    made: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Supervisor:
        """Starts at once; node 1 listens, and revoked node 0 never will."""

        def __init__(self, *command: Any, **options: Any) -> None:
            (made.path / "state.json").write_text('{"status": "up"}')

        def poll(self) -> None:
            return None

    assert call("deploy", "revoke", made.path, "0").code == 0
    assert made.admitted() == [1]
    port = read_toml(made.node(1) / "node.toml")["port"]
    monkeypatch.setattr(control.subprocess, "Popen", Supervisor)
    with socket.create_server(("127.0.0.1", port)):
        assert control.up(made.path, seconds=2.0) == made


def test_a_folder_without_the_guard_does_not_start(made: Deployment) -> None:
    (made.server / "app.json").unlink()
    with pytest.raises(InvalidOption, match="not protected") as caught:
        control.up(made.path)
    assert "poise deploy init" in caught.value.hint
