"""Messages to listeners as server-sent events, encoded once for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi.sse import format_sse_event

from api.responses import dumps
from autotune.documents.study import event_json
from autotune.domain import Event


@dataclass(frozen=True)
class SseMessage:
    """An event, or that its study has changed."""

    id: int | None
    """Of the event; ``None``: the revision the study has grown to."""
    wire: bytes


def event_told(event: Event) -> SseMessage:
    """``event: event``, with its id."""
    return SseMessage(event.id, _wire(event_json(event), "event", str(event.id)))


def revision_told(revision: int) -> SseMessage:
    """``event: changed``, without an id: who comes again is told the revision of then."""
    return SseMessage(None, _wire({"revision": revision}, "changed", None))


def _wire(data: object, event: str, number: str | None) -> bytes:
    return format_sse_event(data_str=dumps(data).decode(), event=event, id=number)
