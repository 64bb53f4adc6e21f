"""What routes are handed.

All of it coroutines: FastAPI sends what is none through its few threads, once for each of a request's dependencies, and
a thread waits 5 ms for the interpreter while another computes.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request

from api.cache.studies import Library
from api.guard.codes import Codes
from api.guard.security import Access
from api.guard.throttle import Throttle
from api.live.hub import Hub
from api.predicting import Predictor

LARGEST_ID = 2**53 - 1
"""What every JSON reader can tell apart."""


async def library_of(request: Request) -> Library:
    """The studies."""
    found: Library = request.app.state.library
    return found


async def access_of(request: Request) -> Access:
    """Who may read."""
    found: Access = request.app.state.access
    return found


async def codes_of(request: Request) -> Codes:
    """What a browser trades for its cookie."""
    found: Codes = request.app.state.codes
    return found


async def throttle_of(request: Request) -> Throttle:
    """Who gave wrong codes too often; a program that goes on with an old token shuts nobody out of the login."""
    found: Throttle = request.app.state.throttle
    return found


async def predictor_of(request: Request) -> Predictor:
    """What expects something of what nobody ran."""
    found: Predictor = request.app.state.predictor
    return found


async def hub_of(request: Request) -> Hub:
    """Those who listen."""
    found: Hub = request.app.state.hub
    return found


StudiesDep = Annotated[Library, Depends(library_of)]
AccessDep = Annotated[Access, Depends(access_of)]
CodesDep = Annotated[Codes, Depends(codes_of)]
ThrottleDep = Annotated[Throttle, Depends(throttle_of)]
PredictorDep = Annotated[Predictor, Depends(predictor_of)]
HubDep = Annotated[Hub, Depends(hub_of)]
StudyId = Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of a study.", examples=[1])]
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_ID, description="Number of a trial; 0 is the baseline.")]
