"""The log of a trial, by byte range."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from api.deps import AttemptQuery, StudiesDep, StudyId, TrialNumber
from api.errors import problem
from api.logs import ByteRange, UnsatisfiableError, open_below, part_of, read_part
from api.responses import conditional
from api.schemas.problems import problems
from autotune.recommendation.current import paths_of

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["trials"])

TEXT = "text/plain"
_TEXT_ANSWER = {"content": {"text/plain": {"schema": {"type": "string"}}}}


class Which(StrEnum):
    """Process whose log is read: the trial or its rollout server."""

    TRIAL = "trial"
    SERVER = "server"


class LogQuery(AttemptQuery):
    """Query that selects a log of a trial."""

    which: Which = Field(Which.TRIAL, description="The trial's own, or its rollout server's.")


@router.get(
    "/trials/{number}/log",
    operation_id="getLog",
    response_class=Response,
    responses={
        200: {**_TEXT_ANSWER, "description": "The whole log."},
        206: {**_TEXT_ANSWER, "description": "The range that was asked for."},
        **problems(404, 416, 422, 503),
    },
)
def get_log(
    request: Request,
    studies: StudiesDep,
    study_id: StudyId,
    number: TrialNumber,
    query: Annotated[LogQuery, Query()],
    asked: Annotated[
        str | None,
        Header(alias="Range", max_length=100, description="`bytes=0-999`, `bytes=1000-`, `bytes=-1000`."),
    ] = None,
) -> Response:
    """Returns the output of a trial. Bytes that could affect a terminal are replaced by `?`, so offsets are the file's.

    While the trial runs, ask for `bytes=N-` with the last known size: 416 means that there is nothing new yet.
    """
    found = studies.snapshot(study_id)
    trial, server = found.trial(number), query.which is Which.SERVER
    paths = paths_of(studies.home, found.study, trial, query.attempt)
    file = open_below(studies.home.runs, paths.server_log if server else paths.log)
    try:
        part = part_of(os.fstat(file).st_size, asked)
        body = read_part(file, part)
    except UnsatisfiableError as error:
        return problem(416, str(error), headers={"Content-Range": f"bytes */{error.size}"})
    finally:
        os.close(file)
    return _answer(request, part, body)


def _answer(request: Request, part: ByteRange, body: bytes) -> Response:
    headers = {"Accept-Ranges": "bytes"}
    if part.whole:
        return conditional(request, body, TEXT, headers, kept=False)
    return Response(body, 206, headers={**headers, "Content-Range": part.content_range}, media_type=TEXT)
