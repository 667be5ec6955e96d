"""Access control of the console: every page and every action needs the token.

- DNS rebinding: the guard checks `Host` and refuses names that are not the console's.
- Cross-site requests: actions must be same-origin, so pages of other sites cannot
  trigger them.
- Reading and acting need the token: in the link that the terminal shows, as
  ``Authorization: Bearer``, or as the same-site cookie that the link sets.
- Pages load content from this host only (Content-Security-Policy).
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
UNLOCK = "/unlock"  # exchanges the token for the cookie
PUBLIC = ("/static/", "/plotly.js", "/favicon.ico")
"""Addresses that everyone may read: they show nothing about runs."""

TOKEN = "token"
"""Parameter of the link that the terminal shows."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from other hosts; 'unsafe-inline' only for styles, as Plotly sets them."""

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
    """The token that the terminal shows, and the value of the session cookie."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def fits(self, token: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return secrets.compare_digest(token.encode(), self.token.encode())

    def unlocks(self, headers: Headers, cookie: str) -> bool:
        """Whether a request carries the token or the cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.fits(given.strip()):
            return True
        value = cookie_parser(headers.get("cookie", "")).get(cookie, "")
        return secrets.compare_digest(value.encode(), self.session.encode())

    def set_cookie(self, response: Response, scope: Scope) -> None:
        """Set the session cookie, which scripts and other sites cannot use."""
        port = (scope.get("server") or ("", None))[1]
        response.set_cookie(
            cookie_name(port), self.session, httponly=True, samesite="strict", path="/"
        )


SHOWN = "send the token that the terminal shows, as Authorization: Bearer TOKEN"


def cookie_name(port: int | None) -> str:
    """The cookie name of a port; all ports of a host share their cookies."""
    return f"poise-console-{port or 80}"


class Guard:
    """Middleware that checks every request.

    Args:
        app: the app to guard.
        keys: token and cookie of the console.
        host: the address that the server listens on; a loopback address accepts
            loopback names only.
    """

    def __init__(self, app: ASGIApp, keys: Keys, host: str = "127.0.0.1") -> None:
        self.app = app
        self.keys = keys
        self.open = host not in LOOPBACK
        self.names = LOOPBACK
        if self.open:
            self.names = LOOPBACK | {host, socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and add the security headers."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # the console has no websockets
        headers = Headers(scope=scope)
        server = scope.get("server") or ("", None)
        unlocked = self.keys.unlocks(headers, cookie_name(server[1]))
        scope.setdefault("state", {})["unlocked"] = unlocked
        refusal = self._refusal(scope, headers, unlocked)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                response_headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    response_headers.setdefault(name, value)
                response_headers.setdefault("cache-control", "no-store")
            await send(message)

        if refusal is None:
            await self.app(scope, receive, with_headers)
        else:
            await refusal(scope, receive, with_headers)

    def _refusal(
        self, scope: Scope, headers: Headers, unlocked: bool
    ) -> Response | None:
        """The error response for a refused request; None if the request may pass."""
        if not self._known(headers.get("host", "")):
            return _refuse(
                421,
                error=f"{headers.get('host', '')!r} is not an address of this console",
                hint="use the address that the terminal shows",
            )
        if scope["method"] in SAFE:
            return self._locked(scope, unlocked)
        if not _same_origin(headers):
            return _refuse(
                403,
                error="only the console's own pages may start actions",
                hint="open the console and start the action there",
            )
        if not unlocked and scope["path"] != UNLOCK:
            return _refuse(
                401,
                error="actions need the token",
                hint="copy it from the terminal that runs the console, and enter it at /unlock",
            )
        return None

    def _locked(self, scope: Scope, unlocked: bool) -> Response | None:
        """The response to a request that reads; None if it may pass.

        The link with the token sets the cookie and leads to the address without it.
        """
        path = scope["path"]
        query = parse_qsl(scope["query_string"].decode("latin-1"), True)
        rest = urlencode([pair for pair in query if pair[0] != TOKEN])
        address = "?".join(filter(None, (quote(path), rest)))
        given = dict(query).get(TOKEN)
        if given is not None and self.keys.fits(given) and not path.startswith("//"):
            answer = RedirectResponse(address, 303)
            self.keys.set_cookie(answer, scope)
            return answer
        if unlocked or path == UNLOCK or path.startswith(PUBLIC):
            return None
        if path.startswith("/api/"):
            return _refuse(401, error="the console needs its token", hint=SHOWN)
        return RedirectResponse(f"{UNLOCK}?{urlencode({'back': address})}", 303)

    def _known(self, host: str) -> bool:
        """Whether a Host header names this server; protects against DNS rebinding."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        return name in self.names or (self.open and _is_address(name))


def _same_origin(headers: Headers) -> bool:
    """Whether the request comes from a console page, or a client without cookies."""
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    if origin is not None:
        try:
            return urlsplit(origin).netloc == headers.get("host")
        except ValueError:  # such as http://[
            return False
    return site == "same-origin" or "cookie" not in headers


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refuse(status: int, error: str, hint: str) -> Response:
    return JSONResponse({"error": error, "hint": hint}, status)
