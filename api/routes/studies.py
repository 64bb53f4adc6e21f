"""Studies, their state, and the machines their figures were measured on."""

from __future__ import annotations

import time
from dataclasses import fields
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.dashboard.filters import StudyFilter
from api.deps import LARGEST_ID, Parameters, StudiesDep, StudyId, TrialNumber
from api.logs import open_below
from api.paging import next_link, page
from api.responses import JSON, conditional, dumps
from api.schemas.problems import described
from api.schemas.studies import Fingerprints, Status, Studies
from autotune.documents import codec
from autotune.documents.study import hardware_json, plain, study_json, timestamp
from autotune.recommendation.current import read_trial, status_document
from autotune.recommendation.reading import ReadingPage, RunState, StudyReading, last_event

router = APIRouter(prefix="/api/v1", tags=["studies"])
stored = APIRouter(prefix="/api/v1/studies/{study_id}", include_in_schema=False)
"""A study and a trial as the program's own values, for the commands with ``--url``. Not part of the described API:
their form changes with the program's version."""


class StudiesQuery(Parameters):
    """Query of the list of studies."""

    name: str | None = Field(None, max_length=200, description="Only the study with this name.")
    state: RunState | None = Field(None, description="Only studies in this state.")
    model: str = Field("", max_length=300, description="Only of this model: folder or hub id, or its last part.")
    text: str = Field("", max_length=200, description="Only with this text in name, model or framework.")
    limit: int = Field(100, ge=1, le=500, description="Studies on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the previous page.")


@router.get("/studies", **described("listStudies", Studies))
def list_studies(request: Request, studies: StudiesDep, query: Annotated[StudiesQuery, Query()]) -> Response:
    """Lists every study, newest first."""
    wanted = StudyFilter(query.state or "", query.model, query.text)
    every = [s for s in studies.studies() if query.name in (None, s.spec.name) and wanted.takes(s, studies.state)]
    shown, following = page(every, lambda study: study.id, query.limit, query.cursor)
    items = [study_json(study, studies.state(study)) for study in shown]
    document = {"studies": items, "total": len(every), "next_cursor": following}
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
        for fingerprint, at in studies.store(study_id).fingerprints(study_id)
    ]
    return conditional(request, dumps({"study": plain(name), "fingerprints": items}), JSON)


TRIALS = 100
"""Trials on a page."""


class ReadingQuery(Parameters):
    """Query that selects trials."""

    since: int = Field(0, ge=0, le=LARGEST_ID)
    """Number of the first trial."""


@stored.get("/reading")
def get_reading(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[ReadingQuery, Query()]
) -> Response:
    """Returns all stored values of a study, with ``TRIALS`` of its trials: a ``ReadingPage``."""
    found, end = studies.snapshot(study_id), query.since + TRIALS
    kept = {each.name: getattr(found, each.name) for each in fields(StudyReading)}
    verified = last_event(studies.store(study_id), found.study, "verified")
    new = {"trials": tuple(found.trials[query.since : end]), "verified": verified, "known_answer": found.answer}
    page = ReadingPage(StudyReading(**{**kept, **new}), end if len(found.trials) > end else None)
    return conditional(request, codec.dump(page, canonical=False).encode(), JSON)


@stored.get("/trials/{number}/reading")
def get_trial_reading(request: Request, studies: StudiesDep, study_id: StudyId, number: TrialNumber) -> Response:
    """Returns details of a trial besides its measurements: a ``TrialReading``."""
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    opened = partial(open_below, studies.home.runs)
    reading = read_trial(studies.home, found.study, trial, studies.notes(found, trial), opened)
    return conditional(request, codec.dump(reading, canonical=False).encode(), JSON)
