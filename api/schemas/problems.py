"""Errors and health."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from api.schemas.base import Shape
from api.schemas.examples import example


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
    errors: list[FieldError] = Field(default=[], description="Of a 422.")


class Health(Shape):
    """State of the server."""

    status: str = Field(examples=["ok"])


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns ``responses=`` of a route with these error statuses."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    words = {
        400: "The body is no JSON",
        401: "A token is needed",
        413: "The body is too large",
        403: "Refused: another site, another host name, or a server that only reads",
        404: "No such study or trial",
        409: "The study is not in a state for that",
        415: "The body must be JSON",
        416: "The log has no such bytes",
        422: "A value is not what was expected",
        429: "Too many wrong tokens from this address; `Retry-After` says when to come again",
        503: "The database cannot be read, or others are being served; `Retry-After` says when to come again",
    }
    return {status: {"description": words.get(status, "Refused"), "content": content} for status in statuses}


def described(operation: str, model: type[BaseModel], *refusals: int) -> dict[str, Any]:
    """Returns FastAPI's arguments of a reading route; it may refuse with ``refusals``, 422 and 503."""
    responses = {**problems(*refusals, 422, 503), 200: {"content": example(operation)}}
    return {"operation_id": operation, "response_model": model, "responses": responses}
