"""The outermost layer: checks Host, Origin, token and body size before the application runs.

A page of another site can make a browser on this machine send requests to a loopback address, under that site's name if
its name server lies (DNS rebinding). The Host rule therefore applies even without a token. Such a page cannot read the
responses, but each response takes CPU time from the trials; so only followed links are answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlencode, urlsplit

from anyio import BrokenResourceError
from fastapi import Response
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.dashboard.asset_names import LOGIN_ASSETS
from api.errors import problem, wants_page
from api.guard.throttle import Throttle

COOKIE = "autotune"
CUT_OFF = "cut off"
"""Key of disconnected readers in the tally of responses."""
LARGEST_BODY = 4096
"""Most bytes of a body, which is a login code or a request to a tuner."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login", *(f"/assets/{name}" for name in LOGIN_ASSETS)})
"""Paths open to all readers; they show nothing of a study."""

SLOWEST_S = 20.0
"""Seconds after which a reader that takes no data is disconnected; streams send data every 15 s."""

ENDLESS = "/events/stream"
"""Suffix of the addresses of streams."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
"""A host name or an address, also in brackets, with or without a port."""
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` for a page of this server, and for a typed address. Another port is another site."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


@dataclass(frozen=True)
class Access:
    """Access rules of a server."""

    token: str | None = None
    """Secret of the readers; ``None``: all readers may read."""
    names: frozenset[str] = LOOPBACK_NAMES
    """Host names that the server answers to."""
    any_address: bool = False
    """True if the server answers to every IP address too; a rebinding attack needs a name."""

    def knows(self, host: str) -> bool:
        """Tells whether the server answers to this ``Host`` header."""
        name = _name_of(host)
        if name is None:
            return False
        return name in self.names or (self.any_address and is_address(name))

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Tells whether a request has the token, or its cookie."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return _same(_cookie_of(headers.get("cookie", "")), self.cookie())

    def is_token(self, candidate: str) -> bool:
        """Tells whether ``candidate`` is the token, in constant time."""
        return self.token is not None and _same(candidate, self.token)

    def cookie(self) -> str:
        """Returns the cookie's value, which proves the token without revealing it and differs for every token."""
        key = (self.token or "").encode()
        return hmac.new(key, b"autotune page", hashlib.sha256).hexdigest()


class RequestGuard:
    """ASGI layer around the whole application, mounts and errors included."""

    def __init__(self, app: ASGIApp, access: Access, crashed: Callable[[Exception], None], tally: Counter[str]) -> None:
        """Receives ``tally``, which counts responses by status, and disconnected readers."""
        self._app = app
        self._access = access
        self._crashed = crashed
        self._tally = tally
        self._throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        guarded = _with_headers(_in_time(send), self._tally)
        refused = refusal(self._access, scope, self._throttle)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        if scope["method"] == "HEAD" and scope["path"].endswith(ENDLESS):
            refused = problem(405, "a stream has no end, so it has no HEAD", headers={"Allow": "GET"})
            await refused(scope, receive, guarded)
            return
        if scope["method"] == "HEAD":
            scope, guarded = {**scope, "method": "GET"}, _without_body(guarded)
        try:
            await self._app(scope, receive, guarded)
        except Exception as error:  # answered already, by the application's own handler
            if not nobody_reads(error, stream=scope["path"].endswith(ENDLESS)):
                self._crashed(error)
            elif any(isinstance(leaf, SlowReaderError) for leaf in _leaves(error)):
                self._tally[CUT_OFF] += 1


def refusal(access: Access, scope: Scope, throttle: Throttle) -> Response | None:
    """Returns the refusal of a request; ``None`` if it is passed on.

    The right token is accepted regardless of wrong attempts: it cannot be guessed, and another reader at the same
    address must not be able to lock its owner out.
    """
    headers = Headers(scope=scope)
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not access.knows(hosts[0]):
        return problem(403, "this server does not answer to that host name; --allow-host NAME adds one")
    if scope["method"] not in _SAFE_METHODS:
        if not _same_site(headers, hosts[0]):
            return problem(403, "the request comes from another site")
        if "transfer-encoding" in headers:
            return problem(411, "the body needs a Content-Length")
    elif not _asked_here(headers):
        return problem(403, "the request comes from another site")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 9 or int(length) > LARGEST_BODY:
        return problem(413, f"the body may have {LARGEST_BODY} bytes")
    if scope["path"] in OPEN_PATHS or access.admits(headers):
        return None
    wait_s = throttle.strike(host_of(scope)) if "authorization" in headers else 0.0
    if wait_s:
        return problem(429, "too many wrong tokens from this address", headers=retry_after(wait_s))
    if scope["method"] in _SAFE_METHODS and wants_page(scope["path"], headers.get("accept", "")):
        page = quote(scope["path"]) + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
        return Response(status_code=303, headers={"Location": f"/login?{urlencode({'next': page})}"})
    return problem(401, "send the token as `Authorization: Bearer TOKEN`", headers={"WWW-Authenticate": "Bearer"})


def host_of(scope: Scope) -> str:
    """Returns the address that a request comes from; empty if the connection has none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def retry_after(wait_s: float) -> dict[str, str]:
    """Returns the ``Retry-After`` header, in whole seconds."""
    return {"Retry-After": str(math.ceil(wait_s))}


def _same_site(headers: Headers, host: str) -> bool:
    """Tells whether a changing request comes from this site: a browser sends its origin, a program need not."""
    if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _asked_here(headers: Headers) -> bool:
    """Tells whether a reading request comes from a page of this server, a program or a followed link, and not from an
    image, script, frame or stream in a page of another site."""
    if headers.get("sec-fetch-site", "none") in _OWN_SITES:
        return True
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")


def _name_of(host: str) -> str | None:
    """Returns the host of a ``Host`` header in lower case, without port and brackets; ``None`` if it is not a host."""
    if _HOST.fullmatch(host) is None:
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
        return parts.hostname
    except ValueError:
        return None


def is_address(name: str) -> bool:
    """Tells whether a name is an IP address, without brackets."""
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


def _same(candidate: str, expected: str) -> bool:
    return hmac.compare_digest(candidate.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))


class SlowReaderError(OSError):
    """Raised if a reader accepts no data for ``SLOWEST_S``; an ``OSError``, as ASGI expects for a closed connection."""


def nobody_reads(error: BaseException, *, stream: bool = False) -> bool:
    """Tells whether an error only means that the reader has disconnected, so that it need not be reported.

    The tasks of a stream fail with its reader, and their errors may be all that remains.
    """
    leaves = list(_leaves(error))
    gone = [isinstance(leaf, SlowReaderError | ClientDisconnect) for leaf in leaves]
    others = [leaf for leaf, left in zip(leaves, gone, strict=True) if not left]
    return (stream or any(gone)) and all(isinstance(leaf, BrokenResourceError) for leaf in others)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _in_time(send: Send) -> Send:
    """Wraps ``send`` to disconnect a reader that accepts no data for ``SLOWEST_S`` seconds."""

    async def sending(message: Message) -> None:
        try:
            async with asyncio.timeout(SLOWEST_S):
                await send(message)
        except TimeoutError:
            raise SlowReaderError(f"nothing was read for {SLOWEST_S:g} s") from None

    return sending


def _with_headers(send: Send, tally: Counter[str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            tally[str(message["status"])] += 1
            given = [*message.get("headers", ())]
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": [*given, *(pair for pair in _RAW_HEADERS if pair[0] not in names)]}
        await send(message)

    return sending


def _without_body(send: Send) -> Send:
    async def sending(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sending
