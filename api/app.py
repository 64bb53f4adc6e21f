"""Builds the application from its routes, its cache and its guard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from api import errors
from api.cache import StudyCache
from api.guard.codes import Codes
from api.guard.security import OPEN_PATHS, Access, RequestGuard
from api.guard.throttle import Throttle
from api.live import Hub
from api.predicting import Predictor
from api.routes import events, health, login, pages, recommendation, recommendations, studies, study_pages, trials
from api.schemas.problems import Problem, problems

ROUTERS = (
    *(studies.router, trials.router, events.router, studies.stored),
    *(recommendation.router, recommendations.router, events.control, health.router),
    *(login.router, pages.router, study_pages.router),
)

API = "/api/v1"
OPENAPI = f"{API}/openapi.json"

DESCRIPTION = """Studies of the tuner, their trials and their recommendations.

The same names and numbers as `autotune status|trials|show|best --json`. Units are in the names, times are UTC
(RFC 3339), unknown is `null`. Every answer has an ETag; `If-None-Match` gives 304 while nothing changed. Errors are
RFC 9457 problem documents; `Retry-After` of 429 and 503 says when to come again. Lists are paged by `cursor`; the
`Link` header names the next page. Nothing can be changed but by `/requests` and `/annotations`, on a server that was
started with `--allow-control`."""

TAGS = [
    {"name": "studies", "description": "Searches and how they stand."},
    {"name": "trials", "description": "Executions of one configuration each."},
    {"name": "recommendations", "description": "What studies hand back."},
    {"name": "events", "description": "What happened, and what happens."},
    {"name": "control", "description": "Asking a running tuner for something."},
    {"name": "health", "description": "For whoever watches over the server."},
]


def create_app(
    cache: StudyCache,
    access: Access,
    crashed: Callable[[Exception], None],
    version: str,
    *,
    allow_control: bool = False,
    codes: Codes | None = None,
) -> ASGIApp:
    """Builds the guarded application.

    Args:
        cache: the studies to serve; closed by the caller.
        crashed: called with unexpected errors, whose details readers do not see.
        allow_control: true if readers may send requests to a running tuner; needs a token.
        codes: login codes of browsers; without them no code is ever valid.
    """
    application = application_of(cache, access, version, allow_control=allow_control, codes=codes)
    return RequestGuard(application, access, crashed, application.state.tally)


def application_of(
    cache: StudyCache, access: Access, version: str, *, allow_control: bool = False, codes: Codes | None = None
) -> FastAPI:
    """Builds the application without its guard."""
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
    app.state.cache = cache
    app.state.access = access
    app.state.codes = codes or Codes()
    app.state.throttle = Throttle()
    app.state.hub = Hub(cache)
    app.state.predictor = Predictor()
    app.state.tally = Counter[str]()
    app.state.allow_control = allow_control and access.token is not None
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]  # FastAPI's own way to change it
    return app


def _description(app: FastAPI) -> dict[str, Any]:
    """Builds the OpenAPI document, with problem documents for errors."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, tags=app.openapi_tags, routes=app.routes
        )
        shape = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts = document["components"]["schemas"]
        parts.update(shape.pop("$defs", {}))
        parts["Problem"] = shape
        for path, operations in document["paths"].items():
            for operation in operations.values():
                operation["responses"] |= _everywhere(path, set(operation["responses"]))
        _complete_examples(document["paths"])
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{}, {"token": []}]
        app.openapi_schema = document
    return app.openapi_schema


def _complete_examples(paths: dict[str, Any]) -> None:
    """Restores examples with ``null`` values, which FastAPI drops although responses have them."""
    for route in (each for router in ROUTERS for each in router.routes if isinstance(each, APIRoute)):
        for status, answer in route.responses.items():
            for kind, shown in answer.get("content", {}).items():
                for method in (route.methods or ()) if "example" in shown else ():
                    responses = paths[route.path_format][method.lower()]["responses"]
                    responses[str(status)]["content"][kind]["example"] = shown["example"]


def _everywhere(path: str, own: set[str]) -> dict[str, Any]:
    """Returns responses that any operation may give: those of the guard, and 304 for a conditional request."""
    statuses = [403, 413] if path in OPEN_PATHS else [401, 403, 413, 429]
    found: dict[str, Any] = {str(status): answer for status, answer in problems(*statuses).items()}
    if path.startswith(API) and "202" not in own and path != f"{API}/studies/{{study_id}}/events/stream":
        found["304"] = {"description": "What the ETag of `If-None-Match` stands for has not changed"}
    return {status: answer for status, answer in found.items() if status not in own}
