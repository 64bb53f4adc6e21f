"""Addresses of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import urlencode


def study_page(study_id: int, query: Iterable[tuple[str, str]] = ()) -> str:
    """Returns the address of a study's page, its trials filtered by ``query``."""
    return with_query(f"/studies/{study_id}", query)


def trial_page(study_id: int, number: int) -> str:
    """Returns the address of a trial's page."""
    return f"/studies/{study_id}/trials/{number}"


def trials_of(study_id: int) -> Callable[[int], str]:
    """Returns a function from a trial's number to its page's address, for the charts of a study."""
    return lambda number: trial_page(study_id, number)


def compare_page(study_id: int, numbers: Iterable[int]) -> str:
    """Returns the address of a comparison of trials."""
    return with_query(f"/studies/{study_id}/compare", [("trial", str(n)) for n in numbers])


def with_query(path: str, query: Iterable[tuple[str, str]]) -> str:
    """Returns an address with its query, if that is not empty."""
    text = urlencode(list(query))
    return f"{path}?{text}" if text else path
