"""Figures for Prometheus; they need the token where everything does."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.deps import HubDep, StudiesDep
from api.metrics import CONTENT_TYPE, exposition, of_places, of_server, of_studies
from api.schemas.problems import problems

router = APIRouter(tags=["health"])

SHOWN_STUDIES = 50
"""The newest: a database may hold years of them, and each is a label."""


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
