"""Shapes of a study's events."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas.base import Shape, Time


class Event(Shape):
    """An event of a study."""

    id: int = Field(description="1, 2, 3 ... within the study.")
    kind: str = Field(examples=["trial_finished"])
    message: str
    trial: int | None = Field(description="Number of the trial that the event is about.")
    at: Time | None
    data: dict[str, Any]


class Events(Shape):
    """A page of events, the oldest first."""

    study: str
    events: list[Event]
    next_cursor: int | None = Field(description="`cursor` of the next page; `null` on the last page.")


class Annotation(Shape):
    """A note and tags of people."""

    trial: int | None = Field(description="Number of the annotated trial; `null`: the study itself.")
    note: str
    tags: list[str]


class Annotations(Shape):
    """The annotations of a study and its trials."""

    study: str
    annotations: list[Annotation]


_TEXT = {"type": "string"}
_MESSAGE = {"data": _TEXT, "event": _TEXT, "id": _TEXT, "retry": {"type": "integer", "minimum": 0}}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"itemSchema": {"type": "object", "properties": _MESSAGE}}}}
}
"""Shape of a server-sent event, as in the OpenAPI specification 3.2 (section 4.14.4)."""


class Requested(Shape):
    """A stored request or annotation; the tuner reads requests once a second."""

    event: Event
