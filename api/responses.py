"""Responses with an ETag, so that a poll gets 304 when nothing changed; compressed if that saves time."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from fastapi import Request, Response

JSON = "application/json"
HTML = "text/html"

WORTH_BYTES = 1000
"""Least bytes of a body that is compressed."""
_GZIP = re.compile(r"(^|[\s,])(x-)?gzip\s*(;\s*q=(1|0?\.0*[1-9])[^,]*)?(,|$)", re.IGNORECASE)
"""``Accept-Encoding`` with gzip at a weight above 0 (RFC 9110 section 12.5.3)."""


def dumps(document: Any) -> bytes:
    """Returns ASCII JSON. Raises ``ValueError`` for NaN and infinities."""
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def conditional(request: Request, body: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """Returns ``body`` with its ETag, which equal content has on every server; or 304 if the reader has it already."""
    tag = f'W/"{blake2b(body, digest_size=12).hexdigest()}"'
    given = request.headers.get("if-none-match", "")
    answer = {"ETag": tag, "Vary": "Accept-Encoding", **(headers or {})}
    if given.strip() == "*" or tag[2:] in (part.strip().removeprefix("W/") for part in given.split(",")):
        return Response(status_code=304, headers=answer)
    if len(body) >= WORTH_BYTES and _GZIP.search(request.headers.get("accept-encoding", "")):
        body = gzip.compress(body, compresslevel=5, mtime=0)
        answer["Content-Encoding"] = "gzip"
    return Response(body, media_type=media_type, headers=answer)
