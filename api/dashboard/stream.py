"""Where a page hears that its study changed, instead of only asking."""

from __future__ import annotations

from fastapi import Request


def stream_at(study_id: int) -> str:
    """The address of the study's events."""
    return f"/api/v1/studies/{study_id}/events/stream"


def stream_of(request: Request, study_id: int) -> str:
    """The same; empty on a server without one: the page then asks every two seconds."""
    listens = getattr(request.app.state, "hub", None) is not None
    return stream_at(study_id) if listens else ""
