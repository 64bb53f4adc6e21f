"""Addresses of the pages, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import urlencode

from fastapi import Request


def study_page(study_id: int, query: Iterable[tuple[str, str]] = ()) -> str:
    """Address of a study's page, its trials filtered by ``query``."""
    return _with(f"/studies/{study_id}", query)


def why_page(study_id: int, query: Iterable[tuple[str, str]] = ()) -> str:
    """Address of a study's why page."""
    return _with(f"/studies/{study_id}/why", query)


def trial_page(study_id: int, number: int) -> str:
    """Address of a trial's page."""
    return f"/studies/{study_id}/trials/{number}"


def trials_of(study_id: int) -> Callable[[int], str]:
    """Number -> page, for the charts of a study."""
    return lambda number: trial_page(study_id, number)


def compare_page(study_id: int, numbers: Iterable[int]) -> str:
    """Some trials beside each other."""
    return _with(f"/studies/{study_id}/compare", [("trial", str(n)) for n in numbers])


def answer_page(study_id: int) -> str:
    """The recommendation with everything it rests on."""
    return f"/studies/{study_id}/recommendation"


def stream_at(study_id: int) -> str:
    """The address of the study's events."""
    return f"/api/v1/studies/{study_id}/events/stream"


def stream_of(request: Request, study_id: int) -> str:
    """The same; empty on a server without one: the page then asks every two seconds."""
    listens = getattr(request.app.state, "hub", None) is not None
    return stream_at(study_id) if listens else ""


def _with(path: str, query: Iterable[tuple[str, str]]) -> str:
    text = urlencode(list(query))
    return f"{path}?{text}" if text else path
