"""Puts the application together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp

from api import errors
from api.library import Library
from api.routes import health, login, pages, recommendations, studies, trials
from api.schemas.problems import Problem
from api.security import Access, Guard

OPENAPI = "/api/v1/openapi.json"

DESCRIPTION = """Studies of the tuner, their trials and their recommendations; read-only.

The same names and numbers as `autotune status|trials|show|best --json`. Every answer has an ETag;
`If-None-Match` gives 304 while nothing changed. Errors are RFC 9457 problem documents."""

TAGS = [
    {"name": "studies", "description": "Searches and how they stand."},
    {"name": "trials", "description": "Executions of one configuration each."},
    {"name": "recommendations", "description": "What studies hand back."},
    {"name": "health", "description": "For whoever watches over the server."},
]


def create_app(library: Library, access: Access, crashed: Callable[[Exception], None], version: str) -> ASGIApp:
    """The guarded application.

    Args:
        library: what it shows; closed by the caller.
        access: who may read.
        crashed: told of errors that are ours to mend; the reader is told nothing of them.
        version: of the program.
    """
    app = FastAPI(
        title="autotune",
        version=version,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        openapi_url=OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.library = library
    app.state.access = access
    errors.install(app)
    for routes in (studies, trials, recommendations, health, login, pages):
        app.include_router(routes.router)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]  # FastAPI's own way to change it
    return Guard(app, access, crashed)


def _description(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with problem documents where errors are described."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, tags=app.openapi_tags, routes=app.routes
        )
        shape = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts = document["components"]["schemas"]
        parts.update(shape.pop("$defs", {}))
        parts["Problem"] = shape
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{}, {"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
