"""Answers of other studies for a machine and workload that was not tuned itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.deps import StudiesDep
from api.responses import JSON, conditional, dumps
from api.schemas.problems import problems
from api.schemas.studies import Matches
from api.snapshot import Snapshot
from autotune.insights.matching import Match, Wanted, nearest
from autotune.insights.nearest import Neighbour
from autotune.serialise import plain, recommendation_json, study_json

router = APIRouter(prefix="/api/v1", tags=["recommendations"])

LARGEST = 2**53 - 1


class MatchQuery(BaseModel):
    """What is known of one's own training; what is left out does not matter."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, min_length=1, max_length=300, description="Folder or hub id; its last part counts.")
    framework: str | None = Field(None, min_length=1, max_length=50, examples=["trl"])
    device: str | None = Field(None, min_length=1, max_length=100, description="`cpu`, or words of a GPU's name.")
    gpus: int | None = Field(None, ge=0, le=LARGEST, description="Over all nodes.")
    rows_per_update: int | None = Field(None, ge=1, le=LARGEST)
    max_prompt_tokens: int | None = Field(None, ge=1, le=LARGEST)
    max_completion_tokens: int | None = Field(None, ge=1, le=LARGEST)
    memory_limit_bytes: int | None = Field(None, ge=1, le=LARGEST)
    limit: int = Field(5, ge=1, le=50, description="Studies at most.")


@router.get(
    "/recommendations", operation_id="findRecommendations", response_model=Matches, responses=problems(422, 503)
)
def find_recommendations(request: Request, studies: StudiesDep, query: Annotated[MatchQuery, Query()]) -> Response:
    """Answers of the studies nearest to what is asked for, with what differs and what each knob gave there."""
    wanted = Wanted(**query.model_dump(exclude={"limit"}))
    documents: list[dict[str, Any]] = []
    for match in nearest(studies.studies(), wanted):
        if len(documents) == query.limit:
            break
        found = studies.snapshot(match.study.id)
        if found.recommendation is not None and found.recommendation.rows:
            documents.append(_document(match, found))
    return conditional(request, dumps({"matches": documents}), JSON)


def _document(match: Match, found: Snapshot) -> dict[str, Any]:
    return {
        "distance": plain(match.distance),
        "differences": [
            {"name": d.name, "wanted": plain(d.wanted), "study": plain(d.study), "distance": plain(d.distance)}
            for d in match.differences
        ],
        "study": study_json(match.study),
        "source": found.source.value,
        "recommendation": None if found.recommendation is None else recommendation_json(found.recommendation),
        "neighbours": [_neighbour(n) for n in found.neighbours],
    }


def _neighbour(neighbour: Neighbour) -> dict[str, Any]:
    return {
        "trial": neighbour.trial,
        "knob": plain(neighbour.knob),
        "there": plain(neighbour.there),
        "here": plain(neighbour.here),
        "gain": plain(neighbour.gain),
        "sentence": plain(neighbour.sentence()),
    }
