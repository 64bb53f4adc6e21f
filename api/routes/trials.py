"""Trials of a study, and of each trial its cycles, its memory over time and its log."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field

from api.cache import progress
from api.deps import AttemptQuery, Parameters, StudiesDep, StudyId, TrialNumber
from api.errors import problem
from api.filters import SORTS, TrialConditions, knob_condition
from api.logs import ByteRange, UnsatisfiableError, open_below, part_of, read_part
from api.paging import after, next_link, page
from api.responses import JSON, conditional, dumps
from api.schemas.problems import described, problems
from api.schemas.trials import Cycles, MemoryTimeline, OneTrial, Trials
from autotune.documents.memory_timeline import read, timeline_json
from autotune.documents.study import cycle_json, place_json, plain, trial_json
from autotune.domain import CycleKind, FailureReason, TrialKind, TrialState
from autotune.domain.places import place_of
from autotune.errors import NotFoundError
from autotune.insights.roofline import roof_of
from autotune.insights.usage_words import usage_json
from autotune.recommendation.current import paths_of

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["trials"])


class TrialsQuery(Parameters):
    """Query that selects and sorts trials."""

    state: list[TrialState] = Field([], max_length=5, description="Only trials in these states; may be repeated.")
    kind: list[TrialKind] = Field([], max_length=8, description="Only of these kinds; may be repeated.")
    failure: list[FailureReason] = Field([], max_length=20, description="Only these reasons; may be repeated.")
    feasible: bool | None = Field(None, description="Only feasible trials, or only infeasible ones.")
    knob: list[Annotated[str, Field(max_length=200)]] = Field(
        [],
        max_length=20,
        description="Only with this value of a knob, as `name:value` or `name:low..high` (ends included, either may be "
        "left out). Repeated for one knob: any of them; for several: all.",
        examples=[["micro_batch_size:2..8", "precision:bf16"]],
    )
    sort: Literal["speed", "number", "newest", "wall_seconds", "peak_bytes"] = Field(
        "speed",
        description="Order: best, first run, newest, shortest, or least memory first.",
    )
    limit: int = Field(100, ge=1, le=500, description="Trials on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the previous page.")

    def chosen(self) -> TrialConditions:
        """Returns the conditions of the query. Raises ``RequestValidationError``."""
        knobs = [knob_condition(text) for text in self.knob]
        return TrialConditions(tuple(self.state), tuple(self.kind), tuple(self.failure), self.feasible, tuple(knobs))


class CyclesQuery(Parameters):
    """Query that selects cycles of a trial."""

    kind: list[CycleKind] = Field([], max_length=8, description="Only of these kinds; may be repeated.")
    rank: int | None = Field(None, ge=0, le=100_000, description="Only cycles as measured by this rank.")
    limit: int = Field(200, ge=1, le=500, description="Cycles on a page.")
    cursor: str | None = Field(None, max_length=200, description="`next_cursor` of the previous page.")


@router.get("/trials", **described("listTrials", Trials, 404))
def list_trials(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[TrialsQuery, Query()]
) -> Response:
    """Lists trials, best first by default; `If-None-Match` with the ETag gives 304 while nothing changes.

    A cursor continues after the last trial of the previous page, so nothing is shown twice as trials arrive.
    """
    chosen, found = query.chosen(), studies.snapshot(study_id)
    matching = sum(map(chosen.admits, found.trials))
    rest = after(sorted(found.trials, key=SORTS[query.sort][1]), attrgetter("number"), query.cursor)
    shown, following = page([t for t in rest if chosen.admits(t)], attrgetter("number"), query.limit, None)

    def make() -> bytes:
        trials = [trial_json(trial, found.study.spec.baseline) for trial in shown]
        name = plain(found.study.spec.name)
        return dumps({"study": name, "trials": trials, "total": matching, "next_cursor": following})

    body = studies.cached(("trials", progress(found), request.url.query), make)
    return conditional(request, body, JSON, next_link(request, following))


@router.get("/trials/{number}", **described("getTrial", OneTrial, 404))
def get_trial(request: Request, studies: StudiesDep, study_id: StudyId, number: TrialNumber) -> Response:
    """Returns a trial with its protocol and every cycle, phases and memory included."""
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    document = trial_json(trial, found.study.spec.baseline, cycles=True)
    document["place"] = place_json(place_of(studies.notes(found, trial)))
    document["usage"] = usage_json(trial, roof_of(found.study, found.fingerprint))
    return conditional(request, dumps({"study": plain(found.study.spec.name), "trial": document}), JSON)


@router.get("/trials/{number}/cycles", **described("listCycles", Cycles, 404))
def list_cycles(
    request: Request,
    studies: StudiesDep,
    study_id: StudyId,
    number: TrialNumber,
    query: Annotated[CyclesQuery, Query()],
) -> Response:
    """Lists the cycles of a trial's last attempt, in the order they ran, with phases, memory and lengths."""
    found = studies.snapshot(study_id)
    own = [cycle for cycle in found.trial(number).cycles if query.rank in (None, cycle.rank)]
    wanted = sorted((c for c in own if not query.kind or c.cycle_kind in query.kind), key=attrgetter("index", "rank"))
    shown, following = page(wanted, lambda c: f"{c.index}.{c.rank}", query.limit, query.cursor)
    cycles = {"cycles": [cycle_json(cycle) for cycle in shown], "total": len(wanted), "next_cursor": following}
    document = {"study": plain(found.study.spec.name), "trial": number, **cycles}
    return conditional(request, dumps(document), JSON, next_link(request, following))


@router.get("/trials/{number}/memory", **described("getMemory", MemoryTimeline, 404))
def get_memory(
    request: Request,
    studies: StudiesDep,
    study_id: StudyId,
    number: TrialNumber,
    query: Annotated[AttemptQuery, Query()],
) -> Response:
    """Returns the memory of an attempt over time: of its process tree, and with GPUs of the fullest one.

    Each series has at most 300 points, each the highest of its interval, so no peak is lost. While the trial runs the
    points are written every ten seconds; before the first write the answer is 404.
    """
    found = studies.snapshot(study_id)
    trial = found.trial(number)
    paths = paths_of(studies.home, found.study, trial, query.attempt, "memory timeline")
    timeline = read(paths.memory, partial(open_below, studies.home.runs))
    if timeline is None:
        raise NotFoundError(f"trial {number} has no memory timeline yet, or none that can be read")
    about = {"study": plain(found.study.spec.name), "trial": number, "attempt": query.attempt or trial.attempt}
    limit = {"memory_limit_bytes": found.study.spec.memory_limit}
    return conditional(request, dumps({**about, **limit, **timeline_json(timeline)}), JSON)


TEXT = "text/plain"
_TEXT_ANSWER = {"content": {"text/plain": {"schema": {"type": "string"}}}}


class Which(StrEnum):
    """Process whose log is read: the trial or its rollout server."""

    TRIAL = "trial"
    SERVER = "server"


class LogQuery(AttemptQuery):
    """Query that selects a log of a trial."""

    which: Which = Field(Which.TRIAL, description="Log of the trial or of its rollout server.")


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
    byte_range: Annotated[
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
        part = part_of(os.fstat(file).st_size, byte_range)
        body = read_part(file, part)
    except UnsatisfiableError as error:
        return problem(416, str(error), headers={"Content-Range": f"bytes */{error.size}"})
    finally:
        os.close(file)
    return _answer(request, part, body)


def _answer(request: Request, part: ByteRange, body: bytes) -> Response:
    headers = {"Accept-Ranges": "bytes"}
    if part.whole:
        return conditional(request, body, TEXT, headers)
    return Response(body, 206, headers={**headers, "Content-Range": part.content_range}, media_type=TEXT)
