"""For whoever watches over the server: it answers, it can read, and its figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.deps import HubDep, StudiesDep
from api.metrics import CONTENT_TYPE, exposition, of_places, of_server, of_studies
from api.responses import JSON, dumps
from api.schemas.problems import Health, problems

router = APIRouter(tags=["health"])

SHOWN_STUDIES = 50
"""The newest: a database may hold years of them, and each is a label."""


@router.get("/healthz", operation_id="isAlive", response_model=Health)
async def is_alive() -> Response:
    """The server answers."""
    return Response(dumps({"status": "ok"}), media_type=JSON)


@router.get("/readyz", operation_id="isReady", response_model=Health, responses=problems(503))
def is_ready(studies: StudiesDep) -> Response:
    """The database can be read, and is of the version this program knows."""
    studies.check()
    return Response(dumps({"status": "ok"}), media_type=JSON)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(503)},
)
def get_metrics(request: Request, studies: StudiesDep, hub: HubDep) -> Response:
    """How the newest 50 studies stand and what the server does, in Prometheus' text format."""
    found = [studies.snapshot(study) for study in list(studies.revisions())[:SHOWN_STUDIES]]
    server = of_server(request.app.version, request.app.state.tally, hub.listeners, hub.dropped)
    return Response(exposition((*server, *of_studies(found), *of_places(found))), media_type=CONTENT_TYPE)
