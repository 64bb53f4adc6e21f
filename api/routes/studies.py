"""Studies, their state, and the machines their figures were measured on."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.deps import Parameters, StudiesDep, StudyId
from api.paging import next_link, page
from api.responses import JSON, conditional, dumps
from api.schemas.problems import described
from api.schemas.studies import Fingerprints, Status, Studies
from autotune.documents.study import hardware_json, plain, study_json, timestamp
from autotune.recommendation.current import status_document

router = APIRouter(prefix="/api/v1", tags=["studies"])


class StudiesQuery(Parameters):
    """Query of the list of studies."""

    name: str | None = Field(None, max_length=200, description="Only the study of this name.")
    limit: int = Field(100, ge=1, le=500, description="Studies on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the page before.")


@router.get("/studies", **described("listStudies", Studies))
def list_studies(request: Request, studies: StudiesDep, query: Annotated[StudiesQuery, Query()]) -> Response:
    """Lists every study, newest first."""
    every = [s for s in studies.studies() if query.name in (None, s.spec.name)]
    shown, following = page(every, lambda study: (-study.id,), query.limit, query.cursor)
    document = {"studies": [study_json(study, studies.state(study)) for study in shown], "next_cursor": following}
    return conditional(request, dumps(document), JSON, next_link(request, following))


@router.get("/studies/{study_id}", **described("getStudy", Status, 404))
def get_study(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Returns the state of a study, as `autotune status --json` prints it."""
    found = studies.snapshot(study_id)
    document = status_document(found, studies.lives(found), time.time())
    return conditional(request, dumps(document), JSON)


@router.get("/studies/{study_id}/fingerprints", **described("listFingerprints", Fingerprints, 404))
def list_fingerprints(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Lists hardware, driver and versions that affect the figures, the oldest first; the last is the current one.

    Figures of two fingerprints are not comparable.
    """
    name = studies.study(study_id).spec.name
    items = [
        {
            "digest": fingerprint.digest,
            "first_seen_at": timestamp(at),
            "hardware": hardware_json(fingerprint.hardware),
            "software": plain(fingerprint.software),
            "workload": plain(fingerprint.workload),
        }
        for fingerprint, at in studies.fingerprints(study_id)
    ]
    return conditional(request, dumps({"study": plain(name), "fingerprints": items}), JSON)
