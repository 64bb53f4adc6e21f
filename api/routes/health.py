"""Health of the server, for monitoring: liveness, readiness, and metrics for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.deps import HubDep, StudiesDep
from api.metrics import CONTENT_TYPE, exposition, of_places, of_server, of_studies
from api.responses import JSON, dumps
from api.schemas.problems import Health, problems

router = APIRouter(tags=["health"])

SHOWN_STUDIES = 50
"""Number of the newest studies in the metrics: each is a label, and a database may hold years of them."""


@router.get("/healthz", operation_id="isAlive", response_model=Health)
async def is_alive() -> Response:
    """Reports that the server answers."""
    return Response(dumps({"status": "ok"}), media_type=JSON)


@router.get("/readyz", operation_id="isReady", response_model=Health, responses=problems(503))
def is_ready(studies: StudiesDep) -> Response:
    """Checks that the database can be read and has this program's version."""
    studies.check()
    return Response(dumps({"status": "ok"}), media_type=JSON)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(503)},
)
def get_metrics(request: Request, studies: StudiesDep, hub: HubDep) -> Response:
    """Returns the state of the newest 50 studies and of the server, in Prometheus' text format."""
    found = [studies.snapshot(study) for study in list(studies.revisions())[:SHOWN_STUDIES]]
    server = of_server(request.app.version, request.app.state.tally, hub.listeners)
    return Response(exposition((*server, *of_studies(found), *of_places(found))), media_type=CONTENT_TYPE)
