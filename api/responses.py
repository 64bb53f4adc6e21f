"""Responses with an ETag, so that a poll gets 304 when nothing changed; compressed if that saves time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from fastapi import Request, Response

JSON = "application/json"
HTML = "text/html"

WORTH_BYTES = 1000
"""Least bytes of a body that is compressed."""
KEPT_BYTES = 1 << 20
"""Largest body in bytes whose tag and compressed form are cached; a hundred larger ones would take too much memory."""
PACKED = "-gzip"
"""Suffix of the tag of a compressed answer: other bytes need another validator."""


def dumps(document: Any) -> bytes:
    """Returns ASCII JSON. Raises ``ValueError`` for NaN and infinities."""
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def joined(parts: Iterable[bytes]) -> bytes:
    """Joins JSON documents into a JSON list."""
    return b"[" + b",".join(parts) + b"]"


def conditional(
    request: Request, body: bytes, media_type: str, headers: Mapping[str, str] | None = None, *, kept: bool = True
) -> Response:
    """Returns ``body`` with its ETag, or 304 if the reader has it already.

    The tag and compressed form of a ``kept`` body are cached unless it is large.
    """
    keep = kept and len(body) <= KEPT_BYTES
    plain = tag_of(body) if keep else _tag(body)
    packing = len(body) >= WORTH_BYTES and takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'{plain[:-1]}{PACKED}"' if packing else plain
    found = {"ETag": tag, "Vary": "Accept-Encoding", **(headers or {})}
    given = request.headers.get("if-none-match", "")
    if matches(given, tag) or matches(given, plain):
        return Response(status_code=304, headers=found)
    if packing:
        packed = _packed(body) if keep else _gzip(body)
        return Response(packed, media_type=media_type, headers={**found, "Content-Encoding": "gzip"})
    return Response(body, media_type=media_type, headers=found)


def matches(given: str, tag: str) -> bool:
    """Tells whether ``If-None-Match`` names ``tag`` (weak comparison, RFC 9110 section 13.1.2)."""
    return given.strip() == "*" or tag in (part.strip().removeprefix("W/") for part in given.split(","))


def takes_gzip(accepted: str) -> bool:
    """Tells whether ``Accept-Encoding`` names gzip with a weight above 0 (RFC 9110 section 12.5.3)."""
    for part in accepted.lower().split(","):
        coding, _, rest = part.strip().partition(";")
        if coding.strip() in ("gzip", "x-gzip"):
            weight = rest.strip().removeprefix("q=").strip()
            return not weight or weight.strip("0.") != ""
    return False


@lru_cache(maxsize=128)
def tag_of(body: bytes) -> str:
    """Returns the ETag of a body: equal content has an equal tag on every server. Cached for cached bodies."""
    return _tag(body)


@lru_cache(maxsize=64)
def _packed(body: bytes) -> bytes:
    return _gzip(body)


def _tag(body: bytes) -> str:
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=5, mtime=0)
