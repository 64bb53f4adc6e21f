"""For whoever watches over the server: it answers, and it can read. Nothing of a study is shown."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.deps import StudiesDep
from api.responses import JSON, dumps
from api.schemas.problems import Health, problems

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="isAlive", response_model=Health)
async def is_alive() -> Response:
    """The server answers."""
    return Response(dumps({"status": "ok"}), media_type=JSON)


@router.get("/readyz", operation_id="isReady", response_model=Health, responses=problems(503))
def is_ready(studies: StudiesDep) -> Response:
    """The database can be read, and is of the version this program knows."""
    studies.check()
    return Response(dumps({"status": "ok"}), media_type=JSON)
