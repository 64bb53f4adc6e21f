"""Events of a study: as pages, live as a stream of server-sent events, and as requests to a running tuner.

A request needs a server that was started with ``--allow-control`` and has a token. It contains no code, path, address
or configuration: only one word, and the number of a finished trial.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse
from pydantic import Field, model_validator
from starlette.exceptions import HTTPException

from api.cache import StudyCache
from api.deps import LARGEST_ID, HubDep, Parameters, StudiesDep, StudyId
from api.errors import ONLY_READS
from api.paging import next_link
from api.responses import JSON, conditional, dumps
from api.schemas.events import STREAM, Annotations, Events, Requested
from api.schemas.examples import example
from api.schemas.problems import described, problems
from autotune.documents.study import event_json, plain
from autotune.domain import Event
from autotune.recommendation.annotations import LONGEST, LONGEST_TAG, MOST_TAGS, annotate, annotations_json
from autotune.study.control import Action

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["events"])
control = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["control"])

LONGEST_S = 365 * 86_400.0
"""Most seconds, and GPU-hours, that one request adds."""
UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers that make proxies pass a stream on at once."""


class EventsQuery(Parameters):
    """Query of the list of events."""

    after: int = Field(0, ge=0, le=LARGEST_ID, description="Only events with a greater id.")
    kind: str | None = Field(None, min_length=1, max_length=60, description="Only events of this kind.")
    limit: int = Field(100, ge=1, le=500, description="Events on a page.")
    cursor: int | None = Field(None, ge=0, le=LARGEST_ID, description="`next_cursor` of the previous page.")


@router.get("/events", **described("listEvents", Events, 404))
def list_events(
    request: Request, studies: StudiesDep, study_id: StudyId, query: Annotated[EventsQuery, Query()]
) -> Response:
    """Lists events, the oldest first; ids are 1, 2, 3 ... within a study."""
    after = query.after if query.cursor is None else query.cursor
    name = studies.study(study_id).spec.name
    found = studies.events(study_id, after, query.limit + 1, query.kind)
    shown = found[: query.limit]
    following = shown[-1].id if len(found) > len(shown) else None
    document = {"study": plain(name), "events": [event_json(event) for event in shown], "next_cursor": following}
    link = next_link(request, None if following is None else str(following))
    return conditional(request, dumps(document), JSON, link)


async def last_seen(
    last_event_id: Annotated[
        str | None,
        Header(max_length=20, description="`id` of the last event a reader has; those after it are sent first."),
    ] = None,
    after: Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="As `Last-Event-ID`, which wins.")] = None,
) -> int | None:
    """Returns the id after which a reader continues; ``None``: only new events. An invalid header counts as absent."""
    given = (last_event_id or "").strip()
    if given.isascii() and given.isdecimal():
        return min(int(given), LARGEST_ID)
    return after


async def listening(
    hub: HubDep, study_id: StudyId, after: Annotated[int | None, Depends(last_seen)]
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yields a stream of the study's events and ends it with its reader; refuses early if there are too many."""
    async with hub.listening(study_id, after) as pieces:
        yield pieces


@router.get(
    "/events/stream",
    operation_id="streamEvents",
    response_class=StreamingResponse,
    responses={**problems(404, 422, 503), **STREAM},
)
async def stream_events(pieces: Annotated[AsyncIterator[bytes], Depends(listening)]) -> Response:
    """Sends events as they happen (server-sent events), events after `Last-Event-ID` first.

    `event: event` has the content of `/events` and an `id`. `event: changed` says that the study's revision grew: its
    trials or figures have changed. A comment comes every 15 seconds. A reader that does not read is disconnected; it
    continues from its last id with a new connection.
    """
    return EventSourceResponse(pieces, headers=UNBUFFERED)


@router.get("/annotations", **described("listAnnotations", Annotations, 404))
def list_annotations(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Lists the notes and tags of people on a study and its trials, as `autotune note --json` prints them."""
    document = annotations_json(studies.study(study_id).spec.name, studies.annotations(study_id))
    return conditional(request, dumps(document), JSON)


class Annotating(Parameters):
    """A note and tags, which replace the previous ones."""

    trial: int | None = Field(None, ge=0, le=LARGEST_ID, strict=True, description="Trial to annotate; else the study.")
    note: str = Field("", max_length=LONGEST, description="The note; an empty text removes the note.")
    tags: list[Annotated[str, Field(max_length=LONGEST_TAG)]] = Field([], max_length=MOST_TAGS)


class Asking(Parameters):
    """A request to a tuner."""

    action: Action = Field(
        description="`pause`: no new trial; `resume`; `stop`: finish the running trial and recommend; `cancel`: end "
        "now, keeping what was measured; `retry`: run the configuration of `trial` again; `extend`: add to the budget."
    )
    trial: int | None = Field(None, ge=0, le=LARGEST_ID, strict=True, description="Number of the trial to retry.")
    wall_seconds: float | None = Field(None, gt=0, le=LONGEST_S, description="Wall seconds that `extend` adds.")
    trials: int | None = Field(None, gt=0, le=LARGEST_ID, description="Trials that `extend` adds.")
    gpu_hours: float | None = Field(None, gt=0, le=LONGEST_S, description="GPU-hours that `extend` adds.")

    @property
    def more(self) -> dict[str, float]:
        """Field of ``Budget`` -> amount to add to that limit."""
        limits = {"wall_s": self.wall_seconds, "max_trials": self.trials, "gpu_hours": self.gpu_hours}
        return {name: more for name, more in limits.items() if more is not None}

    @model_validator(mode="after")
    def _has_its_own(self) -> Self:
        if (self.action is Action.RETRY) is (self.trial is None):
            raise ValueError("`trial` goes with `retry`, and with nothing else")
        if (self.action is Action.EXTEND) is not bool(self.more):
            raise ValueError("`wall_seconds`, `trials` and `gpu_hours` go with `extend`, and with nothing else")
        return self


async def allowed(request: Request) -> None:
    """Checks access and media type before the body is read."""
    if not request.app.state.allow_control:
        raise HTTPException(403, ONLY_READS)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise HTTPException(415, f"send the body as {JSON}")


@control.post(
    "/requests",
    operation_id="askTuner",
    status_code=202,
    response_model=Requested,
    responses={**problems(400, 403, 404, 409, 415, 422, 503), 202: {"content": example("askTuner")}},
    dependencies=[Depends(allowed)],
)
def ask_tuner(studies: StudiesDep, study_id: StudyId, asking: Asking) -> Response:
    """Sends a request to the tuner that runs this study, which reads it within a second. 409 if no tuner runs it.

    The request is stored as an event of the study, with its time and origin.
    """
    return Response(dumps({"event": event_json(send_request(studies, study_id, asking))}), 202, media_type=JSON)


@control.post(
    "/annotations",
    operation_id="annotate",
    status_code=202,
    response_model=Requested,
    responses={**problems(400, 403, 404, 415, 422, 503), 202: {"content": example("askTuner")}},
    dependencies=[Depends(allowed)],
)
def set_annotation(studies: StudiesDep, study_id: StudyId, annotating: Annotating) -> Response:
    """Stores a note and tags of a study or a trial, as an event of the study."""
    event = annotate(studies.store(study_id), study_id, annotating.trial, annotating.note, annotating.tags)
    return Response(dumps({"event": event_json(event)}), 202, media_type=JSON)


def send_request(studies: StudyCache, study_id: int, asking: Asking) -> Event:
    """Stores a request to the tuner of a study. Raises ``HTTPException`` (409) if it cannot be met."""
    store, action, trial, more = studies.store(study_id), asking.action, asking.trial, asking.more
    if trial is not None and not store.trial(study_id, trial).state.is_finished:
        raise HTTPException(409, f"trial {trial} has not ended; only a finished trial can be run again")
    if not store.is_locked(study_id):  # a lock ends with its tuner, even one that was killed
        raise HTTPException(409, f"no tuner runs study {study_id}; `autotune start` and `autotune retry` do")
    limits = studies.snapshot(study_id).limits
    if unlimited := [name for name in more if getattr(limits, name) is None]:
        raise HTTPException(409, f"study {study_id} has no limit of {unlimited[0]}, so there is none to extend")
    about = f" trial {trial}" if trial is not None else ""
    message = f"{action.value}{about} was asked for through the API"
    data = {"by": "api", **({"more": more} if more else {})}
    return store.add_event(study_id, Event(action.event_kind, message, data, trial=trial, at=time.time()))
