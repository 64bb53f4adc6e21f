"""Dependencies of the routes: objects of the application, and parameters of addresses.

All are coroutines. FastAPI runs any other dependency in one of its few threads, where it may wait 5 ms for the
interpreter while another thread computes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from api.cache import StudyCache
from api.guard.codes import Codes
from api.guard.security import Access
from api.guard.throttle import Throttle
from api.live import Hub
from api.predicting import Predictor

LARGEST_ID = 2**53 - 1
"""Largest integer that every JSON reader represents exactly."""


class Parameters(BaseModel):
    """Parameters of an address or a body; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


class AttemptQuery(Parameters):
    """Query that selects an attempt at a trial."""

    attempt: int | None = Field(None, ge=1, le=LARGEST_ID, description="Number of an attempt; by default the last.")


def _state(name: str) -> Callable[[Request], Awaitable[Any]]:
    """Returns a dependency that gives the object ``name`` of the application's state."""

    async def read(request: Request) -> Any:
        return getattr(request.app.state, name)

    return read


StudiesDep = Annotated[StudyCache, Depends(_state("cache"))]
AccessDep = Annotated[Access, Depends(_state("access"))]
CodesDep = Annotated[Codes, Depends(_state("codes"))]
ThrottleDep = Annotated[Throttle, Depends(_state("throttle"))]
"""Limits wrong login codes by address; wrong tokens do not count, so a program with an old token blocks no login."""
PredictorDep = Annotated[Predictor, Depends(_state("predictor"))]
HubDep = Annotated[Hub, Depends(_state("hub"))]
StudyId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of a study.", examples=[1])]
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_ID, description="Number of a trial; 0 is the baseline.")]
