"""Converts errors to HTTP responses: RFC 9457 problem documents, or a page for a browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api.dashboard.render import render
from api.schemas.problems import TITLES
from autotune.errors import AutotuneError, NotFoundError, StoreError
from autotune.wording.text import clean, fault_words

PROBLEM = "application/problem+json"
TYPE_PREFIX = "urn:autotune:problem:"


ONLY_READS = "this server only reads; `autotune serve --allow-control` with a token does more"


def problem(
    status: int,
    detail: str,
    *,
    errors: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Returns a problem document; ``errors`` are mappings with ``field`` and ``message``."""
    slug, title = TITLES.get(status, (f"http-{status}", "The request failed"))
    document: dict[str, Any] = {"type": TYPE_PREFIX + slug, "title": title, "status": status, "detail": clean(detail)}
    if errors:
        document["errors"] = list(errors)
    body = json.dumps(document).encode()
    return Response(body, status, headers=dict(headers or {}), media_type=PROBLEM)


def install(app: FastAPI) -> None:
    """Adds the error handlers to the application."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(AutotuneError, _ours)
    app.add_exception_handler(Exception, _unexpected)


def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 404:
        return _answer(request, 404, f"there is nothing at {request.url.path}")
    if status == 405:
        return _answer(request, 405, f"{request.method} is not allowed at {request.url.path}", headers)
    return _answer(request, status, str(getattr(error, "detail", "")), headers)


def _invalid(request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    errors = [{"field": clean(".".join(map(str, e["loc"]))), "message": fault_words(e)} for e in found]
    detail = "; ".join(f"{e['field']}: {e['message']}" for e in errors) or "a value is not valid"
    if _wants_page(request):
        return _answer(request, 404, f"there is nothing at {request.url.path}")
    if request.method == "POST" and not request.app.state.allow_control:  # a body is read before its route is asked
        return problem(403, ONLY_READS)
    return problem(422, detail, errors=errors)


def _ours(request: Request, error: Exception) -> Response:
    if isinstance(error, NotFoundError):
        return _answer(request, 404, str(error))
    if isinstance(error, StoreError):
        return _answer(request, 503, str(error), {"Retry-After": "5"})
    return _answer(request, 500, str(error))


def _unexpected(request: Request, error: Exception) -> Response:  # noqa: ARG001 - what it says is not for readers
    return _answer(request, 500, "the details are in a crash file in the home folder")


def _answer(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    if _wants_page(request):
        _, title = TITLES.get(status, ("", "The request failed"))
        page = render("error.html", title=title, status=status, detail=clean(detail))
        return Response(page, status, headers=dict(headers or {}), media_type="text/html")
    return problem(status, detail, headers=headers)


def _wants_page(request: Request) -> bool:
    return wants_page(request.url.path, request.headers.get("accept", ""))


def wants_page(path: str, accept: str) -> bool:
    """Tells whether a browser asks for a page, not a program for data."""
    return "text/html" in accept and not path.startswith("/api/")
