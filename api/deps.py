"""What routes are handed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from api.library import Library
from api.security import Access

LARGEST_ID = 2**53 - 1
"""What every JSON reader can tell apart."""


def library_of(request: Request) -> Library:
    """The studies."""
    found: Library = request.app.state.library
    return found


def access_of(request: Request) -> Access:
    """Who may read."""
    found: Access = request.app.state.access
    return found


StudiesDep = Annotated[Library, Depends(library_of)]
AccessDep = Annotated[Access, Depends(access_of)]
StudyId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of a study.", examples=[1])]
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_ID, description="Number of a trial; 0 is the baseline.")]
