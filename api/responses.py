"""JSON and pages with a validator, so that who polls gets 304 when nothing changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from fastapi import Request, Response

JSON = "application/json"
HTML = "text/html"


def dumps(document: Any) -> bytes:
    """ASCII JSON. Raises ``ValueError`` for NaN and infinities, which are not JSON."""
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def conditional(request: Request, body: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """``body`` with its ETag, or 304 if the reader has it already."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    found = {"ETag": tag, **(headers or {})}
    if matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=found)
    return Response(body, media_type=media_type, headers=found)


def matches(given: str, tag: str) -> bool:
    """Whether ``If-None-Match`` names ``tag`` (weak comparison, RFC 9110 section 13.1.2)."""
    return given.strip() == "*" or tag in (part.strip().removeprefix("W/") for part in given.split(","))
