"""Errors and health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from api.schemas.base import Shape
from api.schemas.examples import example

TITLES: Mapping[int, tuple[str, str]] = {
    400: ("bad-request", "The request cannot be understood"),
    401: ("not-authenticated", "A token is needed"),
    403: ("refused", "The request is refused"),
    404: ("not-found", "There is no such thing"),
    405: ("method-not-allowed", "This address is read-only"),
    411: ("length-required", "The length of the body must be said"),
    409: ("conflict", "The study is not in a state for that"),
    413: ("too-large", "The body is too large"),
    415: ("unsupported-media-type", "The body must be JSON"),
    416: ("no-such-range", "The log has no such bytes"),
    422: ("invalid", "A value is not what was expected"),
    429: ("too-many-tries", "Too many wrong tries"),
    500: ("internal", "The program failed"),
    503: ("not-ready", "This cannot be answered now"),
}
"""Status -> (last part of the problem's ``type``, its title)."""


class FieldError(Shape):
    """A value that was refused, with the reason."""

    field: str = Field(examples=["query.limit"])
    message: str


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(examples=["urn:autotune:problem:not-found"])
    title: str
    status: int
    detail: str
    errors: list[FieldError] = Field(default=[], description="The invalid values, if the status is 422.")


class Health(Shape):
    """State of the server."""

    status: str = Field(examples=["ok"])


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns ``responses=`` of a route with these error statuses."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": TITLES[status][1], "content": content} for status in statuses}


def described(operation: str, model: type[BaseModel], *refusals: int) -> dict[str, Any]:
    """Returns FastAPI's arguments for a GET route with the error statuses ``refusals``, 422 and 503."""
    responses = {**problems(*refusals, 422, 503), 200: {"content": example(operation)}}
    return {"operation_id": operation, "response_model": model, "responses": responses}
