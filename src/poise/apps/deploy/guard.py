"""The guard of a deployment: who may control its SuperLink, and which app it runs.

All APIs of Flower's SuperLink share one port. The guard leaves the nodes' API open to
the network, where Flower asks for registered keys. It answers all other paths only to
processes on the server's machine, and the control API (which starts runs and registers
nodes) only to a caller with the operator's token.

The key of ``poise deploy init`` signs the app. The SuperLink stores no other app, so
none can start on the server, and it sends the signature along. Nodes check the
signature by Flower's trusted entities before they store, install or import anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from poise.apps.deploy.certificates import APP_KEY, load_private
from poise.core.errors import DataError

HEADER = "x-poise-operator"
FLEET = "/v1/fleet/"
RUNTIME = "/v1/runtime/"
SIGNER = "poise"  # the name of the signing key in Flower's trusted entities
SIGNATURE = "app.json"  # in the server's folder
TRUSTED = "trusted.yaml"  # in each node's folder


def operator_token(server: Path) -> str:
    """The token of the control API, derived from the server's secret."""
    secret = (server / "secret").read_bytes()
    return hmac.new(secret, b"poise control API", hashlib.sha256).hexdigest()


def sign_app(server: Path, authority: Path, passphrase: bytes | None) -> None:
    """Sign the app in the server's folder, in the form that Flower's nodes check."""
    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign

    key = load_private(authority / APP_KEY, passphrase)
    digest = hashlib.sha256(build_fab_from_disk(server / "app")).digest()
    now = int(time.time())
    signature = base64.urlsafe_b64encode(key.sign(create_message_to_sign(digest, now)))
    entry = {
        "sha256": digest.hex(),
        "signed_at": now,
        "signature": signature.decode().rstrip("="),
    }
    (server / SIGNATURE).write_text(json.dumps(entry), encoding="utf-8")


def write_trust(server: Path, node: Path) -> None:
    """Write the key that a node trusts, for ``flower-supernode --trusted-entities``."""
    key = (server / "app.pub").read_text(encoding="utf-8").strip()
    # a JSON object is also YAML
    (node / TRUSTED).write_text(json.dumps({SIGNER: key}) + "\n", encoding="utf-8")


def check_app(server: Path) -> None:
    """Raise unless the app in the server's folder is the signed one."""
    from flwr.cli.build import build_fab_from_disk

    verifications(server, build_fab_from_disk(server / "app"))


def verifications(server: Path, content: bytes) -> dict[str, str]:
    """The signature of an app, as Flower sends it to nodes; raises for any other app."""
    entry = json.loads((server / SIGNATURE).read_text(encoding="utf-8"))
    if not hmac.compare_digest(hashlib.sha256(content).hexdigest(), entry["sha256"]):
        raise DataError(
            "this is not the signed app of the deployment",
            "after an update of Flower or poise: poise deploy renew DIR",
        )
    signed = {"signed_at": entry["signed_at"], "signature": entry["signature"]}
    # Flower's nodes ask for both entries
    return {"valid_license": "true", SIGNER: json.dumps(signed)}


class Gate:
    """ASGI middleware in front of all APIs of the SuperLink."""

    def __init__(self, app: Any, token: str) -> None:
        self.app = app
        self.token = token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer 403 without reading it."""
        if scope["type"] == "lifespan" or self.admits(scope):
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        head = {"type": "http.response.start", "status": 403, "headers": []}
        await send(head)
        await send({"type": "http.response.body", "body": b"refused"})

    def admits(self, scope: Any) -> bool:
        """Whether the sender of a request may use its path."""
        if scope["path"].startswith(FLEET):
            return True
        client, server = scope.get("client"), scope.get("server")
        # a process on this machine calls an address of this machine from the same one
        if not client or not server or client[0] != server[0]:
            return False
        if scope["path"].startswith(RUNTIME):
            return True  # Flower asks for the secret or the token of a task
        given = [v for k, v in scope["headers"] if k == HEADER.encode()]
        return len(given) == 1 and hmac.compare_digest(given[0], self.token)


def guard_superlink(server: Path) -> None:
    """Guard the SuperLink that this process is about to run."""
    from starlette.middleware import Middleware

    extensions: Any = import_module("flwr.superlink.extensions")
    gate = Middleware(Gate, token=operator_token(server))
    extensions.get_middleware = lambda: (gate,)
    state: Any = import_module("flwr.supercore.corestate.sql_corestate").SqlCoreState
    for name in ("store_app", "store_fab"):
        setattr(state, name, _signed_only(getattr(state, name), server))


def _signed_only(store: Any, server: Path) -> Any:
    """A method that stores the deployment's app with its signature, and no other."""

    def store_signed(self: Any, fab: Any, *arguments: Any, **options: Any) -> Any:
        fab.verifications = verifications(server, fab.content)
        return store(self, fab, *arguments, **options)

    return store_signed


def act_as_operator(server: Path) -> None:
    """Send the operator's token with every request of Flower's command line."""
    client: Any = import_module("flwr.supercore.protobuf.client").ProtobufClient
    begin = client.__init__
    token = operator_token(server)

    def begin_with_token(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self._client.headers[HEADER] = token

    client.__init__ = begin_with_token
