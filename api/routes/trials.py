"""The trials of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.deps import StudiesDep, StudyId, TrialNumber
from api.paging import Key, page
from api.responses import JSON, conditional, dumps
from api.schemas.problems import problems
from api.schemas.trials import OneTrial, Trials
from api.snapshot import Snapshot
from autotune.domain import Trial, TrialKind, TrialState
from autotune.errors import NotFoundError
from autotune.insights.standings import place
from autotune.serialise import plain, trial_json

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["trials"])


class Sort(StrEnum):
    """Order of trials."""

    SPEED = "speed"
    NUMBER = "number"
    NEWEST = "newest"


_KEYS: dict[Sort, Callable[[Trial], Key]] = {
    Sort.SPEED: place,
    Sort.NUMBER: lambda trial: (trial.number,),
    Sort.NEWEST: lambda trial: (-trial.number,),
}


class TrialsQuery(BaseModel):
    """Which trials, in which order."""

    model_config = ConfigDict(extra="forbid")

    state: list[TrialState] = Field([], max_length=5, description="Only in these states; may be repeated.")
    kind: list[TrialKind] = Field([], max_length=8, description="Only of these kinds; may be repeated.")
    sort: Sort = Field(Sort.SPEED, description="Best first, in the order they ran, or the newest first.")
    limit: int = Field(100, ge=1, le=500, description="Trials on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the page before.")


@router.get("/trials", operation_id="listTrials", response_model=Trials, responses=problems(404, 422, 503))
def list_trials(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[TrialsQuery, Query()]
) -> Response:
    """Trials, best first unless told; `If-None-Match` with the ETag gives 304 while nothing changes."""
    found = studies.snapshot(study_id)
    chosen = [t for t in found.trials if _wanted(t, query)]
    shown, following = page(sorted(chosen, key=_KEYS[query.sort]), _KEYS[query.sort], query.limit, query.cursor)
    key = ("trials", found.stamp, str(request.url.query))
    body = studies.body(key, lambda: _page(found, shown, following))
    headers = {} if following is None else {"Link": f'<{_next(request, following)}>; rel="next"'}
    return conditional(request, body, JSON, headers)


@router.get("/trials/{number}", operation_id="getTrial", response_model=OneTrial, responses=problems(404, 422, 503))
def get_trial(request: Request, studies: StudiesDep, study_id: StudyId, number: TrialNumber) -> Response:
    """A trial with its protocol and every cycle, phases and memory included."""
    found = studies.snapshot(study_id)
    trial = next((t for t in found.trials if t.number == number), None)
    if trial is None:
        raise NotFoundError(f"study {study_id} has no trial {number}")
    document = trial_json(trial, found.study.spec.baseline, cycles=True)
    return conditional(request, dumps({"study": plain(found.study.spec.name), "trial": document}), JSON)


def _wanted(trial: Trial, query: TrialsQuery) -> bool:
    return (not query.state or trial.state in query.state) and (not query.kind or trial.kind in query.kind)


def _page(found: Snapshot, shown: Sequence[Trial], following: str | None) -> bytes:
    documents = [trial_json(trial, found.study.spec.baseline) for trial in shown]
    return dumps({"study": plain(found.study.spec.name), "trials": documents, "next_cursor": following})


def _next(request: Request, cursor: str) -> str:
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return f"{request.url.path}?{urlencode([*kept, ('cursor', cursor)])}"
