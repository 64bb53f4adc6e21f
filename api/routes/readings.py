"""A study and a trial as the program's own values, for the commands with ``--url``.

Not part of the described API: their form changes with the program's version.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from api.deps import LARGEST_ID, Parameters, StudiesDep, StudyId, TrialNumber
from api.logs import open_below
from api.responses import JSON, conditional
from autotune.documents import codec
from autotune.recommendation.current import read_trial
from autotune.recommendation.reading import ReadingPage, StudyReading, last_event

router = APIRouter(prefix="/api/v1/studies/{study_id}", include_in_schema=False)

TRIALS = 100
"""Trials on a page."""


class ReadingQuery(Parameters):
    """Query that selects trials."""

    since: int = Field(0, ge=0, le=LARGEST_ID)
    """Number of the first trial."""


@router.get("/reading")
def get_reading(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[ReadingQuery, Query()]
) -> Response:
    """Returns all stored values of a study, with ``TRIALS`` of its trials: a ``ReadingPage``."""
    found, end = studies.snapshot(study_id), query.since + TRIALS
    kept = {each.name: getattr(found, each.name) for each in fields(StudyReading)}
    verified = last_event(studies.store(study_id), found.study, "verified")
    new = {"trials": tuple(found.trials[query.since : end]), "verified": verified, "known_answer": found.answer}
    page = ReadingPage(StudyReading(**{**kept, **new}), end if len(found.trials) > end else None)
    return conditional(request, codec.dump(page, canonical=False).encode(), JSON, kept=False)


@router.get("/trials/{number}/reading")
def get_trial_reading(request: Request, studies: StudiesDep, study_id: StudyId, number: TrialNumber) -> Response:
    """Returns details of a trial besides its measurements: a ``TrialReading``."""
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    opened = partial(open_below, studies.home.runs)
    reading = read_trial(studies.home, found.study, trial, studies.notes(found, trial), opened)
    return conditional(request, codec.dump(reading, canonical=False).encode(), JSON, kept=False)
