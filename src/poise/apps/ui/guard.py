"""Who may ask the console what: its own pages may read, its own pages with the token may act,
nobody else anything.

- A name that another site points at this machine (DNS rebinding) is no name of the console: `Host`
  is checked.
- Another page in the same browser can send requests here, but not with this `Origin`: actions are
  same-origin.
- Actions need the token, as ``Authorization: Bearer`` or exchanged for a cookie that is sent to
  this site alone.
- What is shown comes from this host only (Content-Security-Policy).
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
UNLOCK = "/unlock"  # where the token is exchanged for the cookie
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from another host. Plotly sets styles on the elements it draws, hence 'unsafe-inline' for
styles alone."""

HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True)
class Keys:
    """The token that the terminal shows, and the value of the cookie that it is exchanged for."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def fits(self, token: str) -> bool:
        """Whether this is the token; takes as long for a nearly right one."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def unlocks(self, headers: Headers, cookie: str) -> bool:
        """Whether a request carries the token or the cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.fits(given.strip()):
            return True
        own = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        return secrets.compare_digest(own.encode(), self.session.encode())


def cookie_name(port: int | None) -> str:
    """A name for each port: cookies of one host are shared by all its ports."""
    return f"poise-console-{port or 80}"


class Guard:
    """The checks around an app.

    Args:
        app: what is guarded.
        keys: of the actions.
        host: what the server listens on; only a loopback address may be called by loopback names
            alone.
    """

    def __init__(self, app: ASGIApp, keys: Keys, host: str = "127.0.0.1") -> None:
        self.app, self.keys = app, keys
        self.open = host not in LOOPBACK
        self.names = LOOPBACK | ({host, socket.gethostname().lower()} if self.open else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on and add the headers."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there is nothing to talk to but pages
        headers = Headers(scope=scope)
        server = scope.get("server") or ("", None)
        unlocked = self.keys.unlocks(headers, cookie_name(server[1]))
        scope.setdefault("state", {})["unlocked"] = unlocked
        refusal = self._refusal(scope, headers, unlocked)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    own.setdefault(name, value)
                own.setdefault("cache-control", "no-store")
            await send(message)

        await (self.app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, scope: Scope, headers: Headers, unlocked: bool) -> Response | None:
        """Why a request is not served; None where it is."""
        if not self._known(headers.get("host", "")):
            return _no(
                421,
                f"the console is not called {headers.get('host', '')!r}",
                "use the address of the terminal",
            )
        if scope["method"] in SAFE:
            return None
        if not _same_origin(headers):
            return _no(
                403,
                "actions are taken on the console's own pages",
                "open the console and act there",
            )
        if not unlocked and scope["path"] != UNLOCK:
            return _no(
                401,
                "actions need the token",
                "it stands in the terminal that runs the console; see /unlock",
            )
        return None

    def _known(self, host: str) -> bool:
        """Whether a Host header is a name of this server: no site can point a name of its own here
        unnoticed.
        """
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        return name in self.names or (self.open and _is_address(name))


def _same_origin(headers: Headers) -> bool:
    """Whether one of the console's pages asks, or something that is no browser (and so carries no
    cookie).
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    if origin is not None:
        return urlsplit(origin).netloc == headers.get("host")
    return site == "same-origin" or "cookie" not in headers


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _no(status: int, error: str, hint: str) -> Response:
    return JSONResponse({"error": error, "hint": hint}, status)
