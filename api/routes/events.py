"""Events of a study: as pages, and live as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse
from pydantic import Field

from api.deps import LARGEST_ID, HubDep, Parameters, StudiesDep, StudyId
from api.live.hub import Listener
from api.paging import next_link
from api.responses import JSON, conditional, dumps
from api.schemas.events import STREAM, Events
from api.schemas.problems import described, problems
from autotune.documents.study import event_json, plain

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["events"])

UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers that make proxies pass a stream on at once."""


class EventsQuery(Parameters):
    """Query of the list of events."""

    after: int = Field(0, ge=0, le=LARGEST_ID, description="Only with a greater id.")
    kind: str | None = Field(None, min_length=1, max_length=60, description="Only of this kind.")
    limit: int = Field(100, ge=1, le=500, description="Events on a page.")
    cursor: int | None = Field(None, ge=0, le=LARGEST_ID, description="`next_cursor` of the page before.")


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
    after: Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="The same, for a first connection.")] = None,
) -> int | None:
    """Returns the id after which a reader continues; ``None``: only new events. An invalid header counts as absent."""
    given = (last_event_id or "").strip()
    if given.isascii() and given.isdecimal():
        return min(int(given), LARGEST_ID)
    return after


async def listening(
    hub: HubDep, study_id: StudyId, after: Annotated[int | None, Depends(last_seen)]
) -> AsyncIterator[Listener]:
    """Yields a listener of the study and removes it at the end; refuses early if there are too many."""
    listener = await hub.join(study_id, after)
    try:
        yield listener
    finally:
        hub.leave(listener)


@router.get(
    "/events/stream",
    operation_id="streamEvents",
    response_class=StreamingResponse,
    responses={**problems(404, 422, 503), **STREAM},
)
async def stream_events(listener: Annotated[Listener, Depends(listening)]) -> Response:
    """Sends events as they happen (server-sent events), events after `Last-Event-ID` first.

    `event: event` has the content of `/events` and an `id`. `event: changed` says that the study's revision grew: its
    trials or figures have changed. A comment comes every 15 seconds. A reader that does not read is disconnected; it
    continues from its last id with a new connection.
    """
    # Not a generator that FastAPI puts into bytes: it would do so for every listener anew, an event at a time, and hand
    # each through two more tasks.
    return EventSourceResponse(listener.pieces(), headers=UNBUFFERED)
