"""The outermost layer: Host, Origin, token and body size are judged before anything of the application runs.

A page of another site can make a browser on this machine send requests to a loopback address, under that site's
name if its name server lies (DNS rebinding); hence the Host rule even where no token is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem, wants_page

COOKIE = "autotune"
LARGEST_BODY = 4096
"""Bytes; the only body anybody sends is a token."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login", "/assets/page.css", "/assets/live.js", "/assets/icon.svg"})
"""They show nothing of a study."""

_SAFE_METHODS = frozenset({"GET", "HEAD"})

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Who may read."""

    token: str | None = None
    """``None``: whoever reaches the address."""
    names: frozenset[str] = LOOPBACK_NAMES
    """Host names the server answers to."""
    any_address: bool = False
    """Answers to every IP address too; a rebinding attack needs a name."""

    def knows(self, host: str) -> bool:
        """Whether a ``Host`` header is ours."""
        name = _name_of(host)
        if name is None:
            return False
        return name in self.names or (self.any_address and _is_address(name))

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether a request shows the token, or the cookie that stands for it."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return _same(_cookie_of(headers.get("cookie", "")), self.cookie())

    def is_token(self, given: str) -> bool:
        """In constant time."""
        return self.token is not None and _same(given, self.token)

    def cookie(self) -> str:
        """Proves the token without being it; another one with every token."""
        key = (self.token or "").encode()
        return hmac.new(key, b"autotune page", hashlib.sha256).hexdigest()


class Guard:
    """ASGI around the whole application, mounts and errors included."""

    def __init__(self, app: ASGIApp, access: Access, crashed: Callable[[Exception], None]) -> None:
        self._app = app
        self._access = access
        self._crashed = crashed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _with_headers(send)
        refused = refusal(self._access, scope)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        if scope["method"] == "HEAD":
            scope, guarded = {**scope, "method": "GET"}, _without_body(guarded)
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # answered already, by the application's own handler
            self._crashed(error)


def refusal(access: Access, scope: Scope) -> Response | None:
    """Why a request is not passed on, as the answer to it."""
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not access.knows(hosts[0]):
        return problem(403, "this server does not answer to that host name; --allow-host NAME adds one")
    if scope["method"] not in _SAFE_METHODS:
        if not _same_site(headers, hosts[0]):
            return problem(403, "the request comes from another site")
        if "transfer-encoding" in headers:
            return problem(411, "the body needs a Content-Length")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 9 or int(length) > LARGEST_BODY:
        return problem(413, f"the body may have {LARGEST_BODY} bytes")
    if scope["path"] in OPEN_PATHS or access.admits(headers):
        return None
    if scope["method"] in _SAFE_METHODS and wants_page(scope["path"], headers.get("accept", "")):
        return Response(status_code=303, headers={"Location": "/login"})
    return problem(401, "send the token as `Authorization: Bearer TOKEN`", headers={"WWW-Authenticate": "Bearer"})


def _same_site(headers: Headers, host: str) -> bool:
    """A browser always says where a changing request comes from; a program need not."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _name_of(host: str) -> str | None:
    """Without the port and brackets, in lower case; ``None`` if it is no host."""
    if any(character in host for character in "/@?#\\ ,") or not host.isascii():
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
        return parts.hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie_of(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _without_body(send: Send) -> Send:
    async def sending(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sending
