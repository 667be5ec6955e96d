"""Secrecy of a deployment: encrypted traffic, and secrets only in their own files."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.support import First
from backends.tap import Tap
from poise.analysis.reports.groups import Group
from poise.analysis.reports.page import write_page
from poise.apps.deploy import control
from poise.apps.deploy.folder import Deployment
from poise.backends.flower.messages import NodeMessage, TensorBytes

pytest.importorskip("flwr", reason="the extra [flower] is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("flower"),
    pytest.mark.timeout(900),
]

WORDS = (b"poise", b"nonce", b"samples", b"versions", b"logistic")
WINDOW = 64  # bytes


def windows(vectors: Iterable[np.ndarray]) -> list[bytes]:
    """Every piece of so many bytes of float32 vectors; pieces of zeros say nothing."""
    found = []
    for vector in vectors:
        data = np.ascontiguousarray(vector, dtype="<f4").tobytes()
        found += [data[k : k + WINDOW] for k in range(0, len(data) - WINDOW + 1, 4)]
    return [piece for piece in dict.fromkeys(found) if any(piece)]


def readable(said: bytes, vectors: Iterable[np.ndarray]) -> tuple[list[bytes], int]:
    """Words that can be read, and how many pieces of the vectors."""
    return [word for word in WORDS if word in said], sum(
        piece in said for piece in windows(vectors)
    )


def travelled(first: First) -> list[np.ndarray]:
    """What went to the node and came back: models, and its updates."""
    run = first.run
    return [run.models(1), *(run.updates(n)[0] for n in range(run.rounds))]


def test_nothing_can_be_read_on_the_wire(first: First) -> None:
    vectors = travelled(first)
    said = first.tap.said()
    assert len(said) > sum(4 * len(v) for v in vectors)
    spoken = [
        (bytes(up), bytes(down)) for up, down in first.tap.connections if up and down
    ]
    assert spoken
    for up, down in spoken:
        assert (up[0], up[1], up[5]) == (
            0x16,
            0x03,
            1,
        )  # a handshake of TLS: ClientHello
        assert (down[0], down[1], down[5]) == (0x16, 0x03, 2)  # ServerHello
    assert readable(said, vectors) == ([], 0)


def test_the_search_finds_what_is_sent_in_the_open(first: First) -> None:
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    vectors = travelled(first)
    facts = {
        "nonce": "0",
        "samples": 1,
        "versions": [1],
        "task": {"model": "logistic"},
        "app": "poise",
    }
    request = NodeMessage(
        facts,
        {
            str(k): TensorBytes.of(torch.tensor(v, dtype=torch.float32))
            for k, v in enumerate(vectors)
        },
    )
    plain = b"".join(
        piece.deflate() for piece in get_all_nested_objects(request.content()).values()
    )
    door = socket.create_server(("127.0.0.1", 0))
    tap = Tap(door.getsockname()[1])
    threading.Thread(
        target=lambda: door.accept()[0].recv(len(plain), socket.MSG_WAITALL),
        daemon=True,
    ).start()
    with socket.create_connection(("127.0.0.1", tap.port)) as line:
        line.sendall(plain)
        line.shutdown(socket.SHUT_WR)
        line.recv(1)
    said = tap.said()
    tap.close()
    assert readable(said, vectors) == (list(WORDS), len(windows(vectors)))


def ports(deployment: Deployment) -> set[int]:
    """Ports on which the processes of a deployment listen."""
    sockets = set()
    for pid in control.belonging(deployment):
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(str(link.readlink()))
            except OSError:
                continue
    rows = [
        line.split()
        for kind in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    ]
    return {
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    }


def test_every_port_speaks_tls(deployed: Deployment, first: First) -> None:
    found = ports(deployed)
    assert len(found) >= deployed.nodes + 1
    assert deployed.port in found
    trust = ssl.create_default_context(cafile=deployed.server / "ca.crt")
    for client in range(
        deployed.nodes
    ):  # their local ports have authorities of their own
        trust.load_verify_locations(deployed.node(client) / "local.crt")
    for port in found:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as line,
            trust.wrap_socket(line, server_hostname="127.0.0.1") as safe,
        ):
            assert safe.version() in ("TLSv1.2", "TLSv1.3")
        with socket.create_connection(("127.0.0.1", port), 10) as line:
            line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                assert b"HTTP" not in line.recv(1000)
            except (ConnectionResetError, TimeoutError):
                continue


def secrets_of(deployment: Deployment) -> dict[str, list[bytes]]:
    """Every secret of a deployment, by the file that holds it, in the forms in which it could be
    written elsewhere."""
    secret = (deployment.server / "secret").read_bytes()
    found = {"server/secret": [secret, secret.hex().encode(), base64.b64encode(secret)]}
    for file in sorted(deployment.path.rglob("*.key")):
        found[str(file.relative_to(deployment.path))] = private_parts(file.read_bytes())
    return found


def private_parts(text: bytes) -> list[bytes]:
    """The number that is the secret of a key file, and the lines of the file that hold it; the
    others are public."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,
        load_ssh_private_key,
    )

    load: Any = load_ssh_private_key if b"OPENSSH" in text else load_pem_private_key
    key = load(text, password=None)
    if isinstance(key, Ed25519PrivateKey):
        raw = key.private_bytes_raw()
        number = int.from_bytes(raw, "little")
    else:
        number = key.private_numbers().private_value
        raw = number.to_bytes(48, "big")
    lines = text.splitlines()[1:-1]
    begin = base64.b64decode(b"".join(lines)).index(raw.lstrip(b"\0"))
    wide = len(lines[0])
    inside = range(begin * 4 // 3 // wide, (begin + len(raw)) * 4 // 3 // wide + 1)
    return [
        raw,
        raw.hex().encode(),
        str(number).encode(),
        *(lines[k] for k in inside if k < len(lines)),
    ]


def contents(folders: Iterable[Path]) -> dict[Path, bytes]:
    """All files in some folders."""
    found = {}
    for file in (
        file for folder in folders for file in folder.rglob("*") if file.is_file()
    ):
        with suppress(
            FileNotFoundError
        ):  # databases come and go with files of their own
            found[file] = file.read_bytes()
    return found


@pytest.mark.thorough
def test_no_secret_leaves_its_file(
    deployed: Deployment, first: First, tmp_path: Path
) -> None:
    write_page([Group("deployed", (first.run,))], tmp_path / "report.html")
    texts = contents([deployed.path, first.run.path, tmp_path])
    kinds = {
        "superlink.log",
        "node-0.log",
        "state.db",
        "journal.jsonl",
        "ledger.sqlite",
        "report.html",
    }
    assert kinds <= {file.name for file in texts}
    secrets = secrets_of(deployed)
    # the secret and the TLS key of the server, the keys of the authority and the app
    assert len(secrets) == 2 + 2 + 2 * deployed.nodes
    for name, forms in secrets.items():
        files = [
            file for file, text in texts.items() if any(form in text for form in forms)
        ]
        assert files == [deployed.path / name]
        assert not any(
            form in command.encode() for command in first.commands for form in forms
        )
    # Flower gives every piece of work a token of its own, which is kept in Flower's database alone
    tokens = {
        found.group(1).encode()
        for c in first.commands
        if (found := re.search(r"--token (\S+)", c))
    }
    assert tokens
    telling = {
        file.name
        for file, text in texts.items()
        if any(token in text for token in tokens)
    }
    assert telling <= {"state.db", "state.db-wal"}
